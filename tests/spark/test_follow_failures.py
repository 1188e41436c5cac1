"""`holdfast validate --follow` when reads fail: each attempt ends in progress, or in a doubt with its reason.

The query is planted, the cluster speaks over the real wire, and time passes when it is asked for.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from holdfast.client.core.errors import ClientError
from holdfast.durability import follow as following
from holdfast.durability.core.retries import ATTEMPTS
from holdfast.durability.follow_query import FollowOptions
from holdfast.durability.followed_topics import FollowedTopics
from holdfast.durability.micro_batches import FollowState, Step
from holdfast.durability.verdict import Verdict
from holdfast.protocol.errors import ErrorCode
from tests.spark.planted_log import PlantedLogs
from tests.spark.test_follow import lines

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
FAILED = "t-0: nothing came from offset 1"


class Query:
    """Does one thing each time it is waited for."""

    def __init__(self, folder: Path, *acts: str) -> None:
        self._folder = folder
        self._acts = list(acts)
        self._error: Exception | None = None
        self.step: Callable[[Any, int], None] = lambda frame, batch: None
        self.isActive = True
        self.status = {"isTriggerActive": False, "message": "Waiting for data to arrive"}

    def awaitTermination(self, seconds: float) -> None:
        act = self._acts.pop(0) if self._acts else "nothing"
        self.status["isTriggerActive"] = act == "looks for news"
        self.status["message"] = "Initializing sources" if act == "initializes" else "Waiting"
        if act.startswith("completes "):
            self.step(None, int(act.split()[1]))
            (self._folder / "checkpoint" / "commits").mkdir(parents=True, exist_ok=True)
            (self._folder / "checkpoint" / "commits" / act.split()[1]).touch()
        if act.endswith(("fails", "fails unheard")):
            self.isActive, self._error = False, StreamingQueryException(FAILED)
        if act == "is stopped":
            self.isActive = False
        if act.endswith("fails"):
            raise StreamingQueryException(FAILED)

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


class Planted:
    """A follower whose queries do what a script says, one line an attempt; it ends with the last line."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, node: PlantedLogs) -> None:
        self._folder = folder
        self._node = node
        self._monkeypatch = monkeypatch
        self.begun: list[tuple[str, ...]] = []
        self.phases: list[str] = []
        (folder / "ledger").mkdir()
        (folder / "ledger" / "r.p.1.jsonl").write_text(lines(0) + lines(1, topic="u", first=1))
        facts = {"sent": 2, "acked": 2, "ok": 2, "served": 2}
        step = {"batch": 0, "counts": {}, "samples": {}, "facts": facts, "doubts": []}
        (folder / "state" / "steps").mkdir(parents=True)
        (folder / "state" / "steps" / "0.json").write_text(json.dumps(step))

    def run(self, *script: tuple[str, ...], each: Callable[[], None] = lambda: None) -> Verdict:
        left = [Query(self._folder / "state", *acts) for acts in script]
        now: Iterator[int] = iter(range(0, 1 << 62, HOUR_MS))

        def begin(spark: Any, options: Any, topics: tuple[str, ...], _: Any, step: Any) -> Query:
            self.begun.append(topics)
            each()
            left[0].step = step
            return left.pop(0)

        def take(state: FollowState, frame: Any, batch: int) -> Step:
            return Step(batch, {}, {}, {})

        self._monkeypatch.setattr(following, "begin_query", begin)
        self._monkeypatch.setattr(FollowState, "take", take)
        self._monkeypatch.setattr(following, "_now_ms", lambda: next(now))
        self._monkeypatch.setattr(following, "_PAUSE_S", 0.0)
        state, ledger = str(self._folder / "state"), str(self._folder / "ledger")
        options = FollowOptions(ledger, self._node.address, state)
        # after the last line: what comes of it is heard of
        polls = iter(range(10))

        def is_over() -> bool:
            return not left and next(polls, None) is None

        return following.follow(None, options, is_over=is_over, on_phase=self.phases.append)


@pytest.fixture
def node() -> Iterator[PlantedLogs]:
    with PlantedLogs({("t", 0): [], ("u", 0): []}) as node:
        yield node


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: PlantedLogs) -> Planted:
    return Planted(tmp_path, monkeypatch, node)


@pytest.mark.parametrize("act", ["fails", "fails unheard"])
def test_a_read_that_fails_last_is_in_the_verdict(planted: Planted, act: str) -> None:
    verdict = planted.run(("completes 0", act), ())
    assert planted.phases == [f"Following: reading failed: {FAILED}; it is tried again"]
    assert (verdict.exit_code, verdict.doubts) == (6, (f"reading failed: {FAILED}",))


def test_time_that_is_over_before_the_query_has_begun_is_no_reason_to_judge_nothing(
    planted: Planted, tmp_path: Path
) -> None:
    verdict = planted.run((*["initializes"] * 20, "completes 1", "completes 2"))
    assert (verdict.exit_code, verdict.doubts) == (0, ())
    done = {path.name for path in (tmp_path / "state" / "checkpoint" / "commits").iterdir()}
    assert done == {"1"}, "and not more than that"


def test_a_stream_that_ends_by_itself_proves_nothing(planted: Planted) -> None:
    verdict = planted.run(("completes 0", "is stopped"), ())
    assert (verdict.exit_code, verdict.doubts) == (6, ("reading failed: the stream was stopped",))


@pytest.mark.parametrize("progress", [("completes 1",), ("looks for news", "finds none")])
def test_a_read_that_fails_is_good_again_once_the_stream_has_gone_on(
    planted: Planted, progress: tuple[str, ...]
) -> None:
    verdict = planted.run(("completes 0", "fails"), progress)
    assert (verdict.exit_code, verdict.doubts) == (0, ())


def test_what_was_completed_before_a_failure_takes_nothing_back(planted: Planted) -> None:
    """Also by an earlier run."""
    assert planted.run(("completes 3 and fails",), ("nothing",)).exit_code == 6
    assert planted.run(("fails",), ("nothing",)).exit_code == 6


def test_attempts_without_progress_come_to_an_end(planted: Planted) -> None:
    verdict = planted.run(*[("completes 0", "fails")] * (ATTEMPTS + 1))
    assert len(planted.begun) == ATTEMPTS
    assert (verdict.exit_code, verdict.doubts) == (6, (f"reading failed: {FAILED}",))


def test_a_topic_that_is_gone_for_good_is_withdrawn_and_others_are_read(
    planted: Planted, node: PlantedLogs
) -> None:
    script = [*[("fails",)] * ATTEMPTS, ("fails",), ("completes 0",)]
    verdict = planted.run(*script, each=lambda: node.hide("u"))
    assert planted.begun == [*[("t", "u")] * ATTEMPTS, ("t",), ("t",)]
    assert verdict.exit_code == 6
    assert verdict.doubts == (
        "topic u: it was read, and there is none of that name now; nothing more of it was judged",
    )


def test_a_topic_that_was_not_known_for_a_while_is_judged_again(planted: Planted, node: PlantedLogs) -> None:
    visits = iter([lambda: node.hide("u"), node.show])
    verdict = planted.run(("fails",), ("completes 0",), each=lambda: next(visits)())
    assert planted.begun == [("t", "u")] * 2
    assert (verdict.exit_code, verdict.doubts) == (0, ())


def test_a_state_folder_that_takes_nothing_ends_following_with_its_reason(
    planted: Planted, tmp_path: Path
) -> None:
    (tmp_path / "state" / "topics.tmp").mkdir()
    verdict = planted.run(())
    assert verdict.exit_code == 6
    (doubt,) = verdict.doubts
    assert doubt.startswith("following failed: [Errno 21] Is a directory")


def test_topics_that_cannot_be_asked_about_in_the_end_prove_nothing(
    planted: Planted, node: PlantedLogs
) -> None:
    verdict = planted.run(
        ("completes 0",), each=lambda: node.refuse_configs("t", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    )
    assert verdict.exit_code == 6
    assert verdict.doubts == ("cluster: cleanup.policy of topic t: CLUSTER_AUTHORIZATION_FAILED: not told",)


def test_a_topic_of_which_no_micro_batch_was_completed_is_in_doubt(
    planted: Planted, node: PlantedLogs
) -> None:
    """It is made while the others are read, and the end comes before its query has read anything."""
    node.hide("u")
    shows = iter([False, True, False])

    def visit() -> None:
        if next(shows):
            node.show()

    verdict = planted.run(("completes 0", "fails"), ("completes 1",), (), each=visit)
    assert planted.begun == [("t",), ("t",), ("t", "u")]
    assert (verdict.exit_code, verdict.doubts) == (6, ("topic u: nothing of it was judged yet",))
    assert planted.run(("looks for news", "finds none")).exit_code == 0
    assert planted.run(()).exit_code == 0, "it is kept in the state folder"


def test_a_micro_batch_that_was_planned_before_reads_no_new_topic(planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "state" / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "state" / "checkpoint" / "offsets" / "4").touch()
    verdict = planted.run(("looks for news", "completes 4"))
    assert verdict.doubts == tuple(f"topic {topic}: nothing of it was judged yet" for topic in "tu")
    assert planted.run(("completes 5",)).doubts == ()


def test_a_cluster_that_does_not_answer_between_two_attempts_is_asked_again(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, asked = FollowedTopics.look, iter(range(100))

    def look_or_not(topics: FollowedTopics, timeout_ms: int | None = None) -> None:
        if timeout_ms is None and next(asked) == 1:
            raise ClientError("no broker answers")
        look(topics, timeout_ms)

    monkeypatch.setattr(FollowedTopics, "look", look_or_not)
    verdict = planted.run(("fails",), ("completes 0",))
    assert planted.phases[1] == "Following: cluster: no broker answers; it is tried again"
    assert (verdict.exit_code, verdict.doubts) == (0, ())


def test_files_that_are_passed_over_are_in_doubt_while_they_are_there(
    planted: Planted, tmp_path: Path
) -> None:
    other = tmp_path / "ledger" / "r.q.1.log"
    other.write_text(lines(2))
    verdict = planted.run(("completes 0",))
    doubt = f"ledger: files that are no ledgers by their names were passed over: {other}"
    assert (verdict.exit_code, verdict.doubts) == (6, (doubt,))
    other.unlink()
    assert planted.run(("looks for news", "finds none")).exit_code == 0


def test_while_files_are_passed_over_no_record_is_called_unexpected(planted: Planted, tmp_path: Path) -> None:
    kept = tmp_path / "state" / "steps" / "0.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"counts": {"unexpected": 2}}))
    other = tmp_path / "ledger" / "r.q.1.log"
    other.write_text(lines(2))
    verdict = planted.run(("completes 1",))
    assert (verdict.exit_code, "unexpected" in verdict.counts, len(verdict.doubts)) == (6, False, 2)
    other.unlink()
    verdict = planted.run(("looks for news", "finds none"))
    assert (verdict.exit_code, verdict.counts["unexpected"]) == (5, 2)


def test_a_ledger_folder_that_cannot_be_looked_into_is_in_doubt(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", "sub/q.jsonl")

    monkeypatch.setattr("holdfast.durability.ledger_files.passed_over", refused)
    verdict = planted.run(("completes 0",))
    doubt = "ledger: cannot be looked into: [Errno 13] Permission denied: 'sub/q.jsonl'"
    assert (verdict.exit_code, verdict.doubts) == (6, (doubt,))


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"topic_ids": [], "withdrawn": {}}'])
@pytest.mark.parametrize("name", ["topics.json", "steps/3.json"])
def test_a_state_folder_that_cannot_be_read_is_named(
    planted: Planted, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / "state" / name).write_text(text)
    verdict = planted.run(())
    assert (verdict.exit_code, planted.begun) == (6, [])
    (reason,) = verdict.inconclusive
    assert reason.startswith(f"state folder {tmp_path / 'state'}: {Path(name).name} cannot be read (")


def test_topics_that_an_earlier_build_kept_are_judged_again(planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "state" / "topics.json").write_text('{"topic_ids": {"t": []}, "withdrawn": {}}')
    assert planted.run(("completes 0",)).exit_code == 0
