"""`holdfast validate --follow` is killed in the midst of micro-batches and goes on: no gap, and no repeat."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.durability import micro_batches
from holdfast.durability.micro_batches import FollowState
from holdfast.durability.state_files import write_whole
from tests.spark.planted_log import PlantedLogs
from tests.spark.test_follow import SCRIPTS, Event, frame_of, lines, log
from tests.spark.test_follow_polls import SCRIPTS as SCRIPTS_OF_POLLS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.xdist_group("spark session"),
    pytest.mark.timeout(900),
]

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 300


class Killed(BaseException):
    """Nothing of the process runs any more."""


class Mortal:
    """Kills what writes to a state folder, before its next write but so many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes_left = 0
        monkeypatch.setattr(FollowState, "_write", self._mortal(FollowState._write))
        monkeypatch.setattr(micro_batches, "write_whole", self._mortal(write_whole))

    def _mortal(self, write: Callable[..., None]) -> Callable[..., None]:
        def write_or_die(*given: Any) -> None:
            if self.writes_left == 0:
                raise Killed
            self.writes_left -= 1
            write(*given)

        return write_or_die


@pytest.mark.parametrize(
    ("scripts", "found"),
    [(SCRIPTS, {"lost": 1}), (SCRIPTS_OF_POLLS, {"lost": 1, "polled_and_gone": 1})],
    ids=["sends", "polls"],
)
def test_a_micro_batch_that_was_killed_at_any_write_says_the_same_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripts: Any, found: dict[str, int]
) -> None:
    """Of a truncation, so that what earlier micro-batches have settled is looked at as well."""
    first, second, third = scripts["it was read, and the log was truncated"]
    mortal, kills = Mortal(monkeypatch), 0

    def take(number: int, events: tuple[Event, ...], writes: int) -> dict[str, int]:
        mortal.writes_left = writes
        return dict(FollowState(tmp_path).take(frame_of(spark, events), number).counts)

    assert take(0, first[0], 100) == first[1]
    for writes in range(100):
        try:
            assert take(1, second[0], writes) == found
            break
        except Killed:
            kills += 1
    assert kills >= 5, "before each table, and before the step"
    assert take(2, third[0], 100) == third[1]


# --- the command, with its Java ------------------------------------------------------------------------


class Follower:
    """`holdfast validate --follow` as a shell starts it, a process group of its own."""

    def __init__(self, folder: Path, servers: str, *kill: str) -> None:
        """`kill`: see tests.spark.dying_follower."""
        self.steps = folder / "state" / "steps"
        module = ("tests.spark.dying_follower", *kill) if kill else ("holdfast.cli",)
        following = ("validate", "--follow", str(folder / "state"), "--ledger", str(folder / "ledger"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", *module, *following, "--bootstrap-server", servers, "--output", "json"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def dies(self) -> str:
        """What it had told by then."""
        told, errors = self._process.communicate(timeout=PATIENCE_S)
        assert (self._process.returncode, told) == (-signal.SIGKILL, ""), errors[-2000:]
        return errors

    def follows_until(self, sent: int) -> None:
        """Its micro-batches have come to so many sends."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(json.loads(path.read_text())["facts"]["sent"] for path in self.steps.glob("*.json")) < sent:
            assert self._process.poll() is None, self._process.communicate()[1][-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def interrupt(self) -> tuple[int, dict[str, Any], str]:
        """Ctrl-C, which all processes of a terminal's foreground get: (exit code, verdict, what it told)."""
        os.killpg(self._process.pid, signal.SIGINT)
        told, errors = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, json.loads(told)["data"], errors


def test_a_follower_that_is_killed_and_begun_again_says_everything_once(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    with PlantedLogs({}) as node:

        def go_on(records: list[bytes], name: str, text: str) -> None:
            node.plant("t", 0, records)
            (tmp_path / "ledger" / f"r.p.{name}.jsonl").write_text(text)

        go_on(log(0, 9, 2), "1", lines(0, 1, 2))
        with Follower(tmp_path, node.address, "before", "0.json") as follower:
            assert "lost" not in follower.dies(), "told before it is kept"
        go_on(log(0, 9, 2, 3, 0), "2", lines(3))
        with Follower(tmp_path, node.address, "after", "1.json") as follower:
            assert "lost: 1 more, first t-0 offset 1" in follower.dies()
        go_on(log(0, 9, 2, 3, 0, 5), "3", lines(5))
        with Follower(tmp_path, node.address) as follower:
            follower.follows_until(sent=5)
            code, verdict, told = follower.interrupt()
    assert (code, verdict["exit_code"], verdict["doubts"]) == (4, 4, []), told
    counts = {"lost": 1, "unexpected": 1, "duplicated": 1}
    assert {name: count for name, count in verdict["counts"].items() if count} == counts
    facts = {"sent": 5, "acked": 5, "ok": 4, "served": 6}
    assert {name: verdict["facts"][name] for name in facts} == facts
