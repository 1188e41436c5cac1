"""A scenario as a user plays it: a run with Spark's verdict, and what is refused before anything runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.report.history import HISTORY_FILE, read_history

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1000)]

STORY = """
name = "story"
says = "the leader dies, then another is cut off from the controllers"
[topic.t]
partitions = 2
[producer.p]
topic = "t"
[producer.weak]
topic = "t"
acks = "1"
records-per-second = 50
[consumer.c]
topic = "t"
[[phase]]
name = "both"
steps = [
    { wait = "100 records" },
    { fault = "kill", target = "leader of t-0", as = "old leader" },
    { wait = "t-0 has a leader" },
    { heal = "old leader" },
    { wait = "in sync" },
    { fault = "partition", target = "old leader", how = "from-controllers", seconds = 1 },
    { wait = "in sync" },
]
[[expect]]
verdict = "nothing lost"
because = "one broker at a time"
"""


def test_a_scenario_is_played_judged_and_reported(tmp_path: Path) -> None:
    (tmp_path / "story.toml").write_text(STORY)
    page = tmp_path / "story.html"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "holdfast.cli", "chaos", "run", str(tmp_path / "story.toml")),
            *("--keep", str(tmp_path / "kept"), "--report", str(page), "--output", "json"),
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["data"]
    assert found["faults"] == {"kill": 1, "partition": 1}
    assert (found["result"], found["lost"], found["judged"]) == ("EXPECTED", 0, True)
    assert found["acked"] > 100
    assert 0 < found["checked"] <= found["acked"] + 10_000
    rows = read_history(tmp_path / "kept" / HISTORY_FILE)
    assert [row["fault"] for row in rows if row["kind"] == "fault"] == ["kill", "partition"]
    assert all(row["until_ms"] is not None for row in rows if row["kind"] == "fault")
    assert {"run", "fault", "controller", "broker", "partition", "load", "verdict"} <= {
        row["kind"] for row in rows
    }
    assert "Nothing acknowledged was lost" in page.read_text()


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 7])
def test_a_soak_is_judged_live_and_afterwards_and_nothing_is_found(seed: int) -> None:
    words = ("chaos", "soak", "--minutes", "1", "--seed", str(seed), "--live", "--output", "json")
    command = [sys.executable, "-m", "holdfast.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["data"]
    assert (found["result"], found["lost"], sum(found["faults"].values()) > 0) == ("EXPECTED", 0, True)
    live = found["live"]
    assert (live["exit_code"], live["doubts"], live["ok"] > 0, live["kills"] > 0) == (0, [], True, True)


THEN_AT_RANDOM = """
name = "then-at-random"
says = "a broker is cut off for some seconds, and meanwhile another is killed"
[topic.t]
[producer.p]
topic = "t"
[[phase]]
name = "cut off"
steps = [{ fault = "partition", target = "broker-3", seconds = 8 }]
[[phase]]
name = "at random"
seconds = 1
random = { kill = 1 }
targets = ["broker-1"]
lasts = [0, 0]
[[expect]]
verdict = "nothing lost"
because = "no disk is lost"
"""


def test_a_fault_that_has_an_end_ends_in_a_random_phase_too(tmp_path: Path) -> None:
    (tmp_path / "story.toml").write_text(THEN_AT_RANDOM)
    words = ("run", str(tmp_path / "story.toml"), "--no-verdict", "--keep", str(tmp_path / "kept"))
    line = [sys.executable, "-m", "holdfast.cli", "chaos", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_history(tmp_path / "kept" / HISTORY_FILE)
    faults = {row["fault"]: row for row in rows if row["kind"] == "fault"}
    assert faults.keys() == {"partition", "kill"}
    assert faults["partition"]["until_ms"] >= faults["partition"]["t_ms"] + 8_000


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ('fault = "kill"', 'fault = "kil"', "phase 1, step 2: unknown fault 'kil'; did you mean 'kill'?"),
        ('fault = "kill"', 'fault = "full-disk"', "full-disk is not possible with containers"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_runs(
    tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    (tmp_path / "story.toml").write_text(STORY.replace(was, becomes))
    words = ["chaos", "run", str(tmp_path / "story.toml"), "--driver", "compose"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_name_that_is_no_file_and_no_scenario_is_refused_with_those_that_there_are() -> None:
    done = CliRunner().invoke(main, ["chaos", "run", "no-such-story", "--dry-run"])
    assert done.exit_code == 2
    assert "rolling-restart" in done.output
