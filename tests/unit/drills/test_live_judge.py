"""What is said of the judge that follows a run."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.drills.chaos_report import ChaosReport, LiveVerdict
from holdfast.drills.live_judge import LiveJudge
from holdfast.drills.outcome import DrillResult
from holdfast.durability.verdict import Verdict

GOOD = LiveVerdict(0, {"facts": {"acked": 1500, "ok": 1400}, "counts": {"lost": 0}, "doubts": []}, 2)


def test_a_good_one_is_a_line_and_no_complaint() -> None:
    assert GOOD.complaint is None
    report = ChaosReport(1, verdicts={"t": Verdict(counts={}, samples={}, facts={"acked": 1})}, live=GOOD)
    line = "followed live: 1,400 of 1,500 acknowledged records in their place; the judge was killed 2 times"
    assert line in report.lines()
    assert report.as_json()["data"]["live"] == {
        **{"exit_code": 0, "kills": 2, "acked": 1500, "ok": 1400},
        "doubts": [],
    }
    assert report.result is DrillResult.EXPECTED


@pytest.mark.parametrize(
    ("verdict", "complaint"),
    [
        (LiveVerdict(4, {"counts": {"lost": 3, "moved": 0}}, 0), "3 lost"),
        (LiveVerdict(6, {"counts": {}, "doubts": ["cluster: gone"]}, 1), "cluster: gone"),
        (LiveVerdict(-9, {}, 1), "it ended with code -9 and no verdict"),
    ],
)
def test_what_it_found_or_could_not_say_is_a_complaint(verdict: LiveVerdict, complaint: str) -> None:
    assert verdict.complaint == f"followed live: {complaint}"


JUDGE = """
import json, pathlib, signal, sys
steps = pathlib.Path(sys.argv[sys.argv.index("--follow") + 1]) / "steps"
steps.mkdir(parents=True, exist_ok=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
before = len(list(steps.iterdir()))
(steps / f"{before}.json").touch()
signal.sigwait({signal.SIGTERM})
print(json.dumps({"data": {"facts": {"acked": 9, "ok": before}, "counts": {}, "doubts": []}}))
sys.exit(6)
"""


def test_it_is_killed_once_at_least_and_goes_on_before_it_says_its_verdict(tmp_path: Path) -> None:
    program = tmp_path / "judge.py"
    program.write_text(JUDGE)
    folder, ledger = tmp_path / "live", tmp_path / "ledger"
    with LiveJudge(folder, ledger, "127.0.0.1:1", (sys.executable, str(program))) as judge:
        assert not judge.kill_if_old(), "it has only just begun"
        said = judge.end()
    assert (said.exit_code, said.kills, said.data["facts"]) == (6, 1, {"acked": 9, "ok": 1})
    assert len(list((folder / "state" / "steps").iterdir())) == 2, "one of each life"


def test_of_one_that_ends_by_itself_there_is_no_verdict(tmp_path: Path) -> None:
    program = (sys.executable, "-c", "raise SystemExit(3)")
    with LiveJudge(tmp_path / "live", tmp_path / "ledger", "127.0.0.1:1", program) as judge:
        said = judge.end()
    assert said.complaint == "followed live: it ended with code 3 and no verdict"


def test_over_budget_nothing_is_followed() -> None:
    done = CliRunner().invoke(main, ["chaos", "soak", "--live", "--over-budget"])
    assert done.exit_code == 2
    assert "--live goes without --over-budget" in done.output
