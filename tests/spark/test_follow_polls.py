"""`holdfast validate --follow` of what consumers were given: what is sure early is said once."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.durability.follow import verdict_of
from holdfast.durability.micro_batches import FollowState, Step
from holdfast.durability.rules import RULES
from holdfast.durability.rules.rule import Looks
from tests.spark.test_follow import REFUSED, UNKNOWN, Event, acked, answered, frame_of, sent, there

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(900)]


def polled(offset: int, number: int | None = None, line: int | None = None, **fields: Any) -> Event:
    """Record `number` at `offset`, which are the same if not said otherwise; a line of its own."""
    name = offset if number is None else number
    line = offset + 1 if line is None else line
    row = {"origin": 2, "file": "f", "line": line, "nth": 0, "consumer": "c", "session": "s", "poll": line}
    row |= {"partition": 0, "offset": offset, "high_watermark": 99, "producer": "p", "pseq": name}
    return Event(row | {"value_crc32c": 100 + name} | fields)


def whole(number: int) -> tuple[Event, ...]:
    return *acked(number, number), there(number, number)


def read(number: int) -> tuple[Event, ...]:
    return *whole(number), polled(number)


NO_VALUE = Event(
    {"origin": 1, "state": "foreign", "producer": None, "partition": 0, "offset": 0, "value_crc32c": 100}
)
Script = list[tuple[tuple[Event, ...], dict[str, int]]]
#: Micro-batches, each with what it says of polls.
SCRIPTS: dict[str, Script] = {
    "all is well": [((*read(0), *read(1)), {}), ((*read(2),), {}), ((polled(1, line=9, session="s2"),), {})],
    "the poll before record and answer": [
        ((sent(0), polled(0)), {}), ((sent(1),), {}), ((there(0, 0), answered(0, 0)), {}), (read(2), {}),
    ],
    "no definite answer": [
        ((sent(0), answered(0, None, UNKNOWN), there(0, 0), polled(0)), {}), (read(1), {}), (read(2), {}),
    ],
    "again in one micro-batch": [
        ((*read(0), *read(1), polled(1, line=3)), {"polled_again": 1}), (whole(2), {}),
    ],
    "again in a later one, and once more in another session": [
        ((*read(0), *read(1)), {}), ((polled(0, line=3),), {"polled_again": 1}), (whole(2), {}),
        ((polled(3, line=5, session="s2"), polled(3, line=6, session="s2"), *whole(3)), {"polled_again": 1}),
    ],
    "two sessions read one record twice": [
        ((*read(0), polled(0, line=2)), {"polled_again": 1}),
        ((polled(0, line=3, session="s2"), polled(0, line=4, session="s2")), {"polled_again": 1}),
        (whole(1), {}),
    ],
    "over a record that is read later": [
        ((*read(0), polled(2), sent(2)), {}),
        ((*whole(1),), {"poll_skipped": 1}),
        ((answered(2, 2), there(2, 2)), {}),
        ((*read(3),), {}),
    ],
    "over a record that was read before": [
        ((*whole(0), *whole(1), *whole(2), polled(0)), {}),
        ((polled(2),), {"poll_skipped": 1}),
        (read(3), {}),
    ],
    "over nothing": [((*read(0), *acked(2, 2), there(2, 2), polled(2)), {}), (read(3), {}), (read(4), {})],
    "above its high watermark": [
        ((*whole(0), *whole(1), polled(1, high_watermark=1)), {"polled_uncommitted": 1}),
    ],
    "its high watermark goes back, below that of long ago": [
        ((*read(0), *whole(1), *whole(2), *whole(3)), {}),
        ((polled(1, high_watermark=-1),), {}),
        ((polled(2, high_watermark=50),), {"watermark_back": 1}),
        ((polled(3, high_watermark=60),), {"watermark_back": 1}),
    ],
    "high watermark not known": [((*whole(0), polled(0, high_watermark=-1)), {}), (read(1), {})],
    "refused": [
        ((sent(0), answered(0, None, REFUSED), *whole(1), polled(0)), {}),
        ((*whole(2),), {"polled_unsent": 1}),
        ((*whole(3),), {}),
    ],
    "never sent, given twice": [
        ((*whole(0), polled(5)), {}), ((*whole(1),), {"polled_unsent": 1}),
        ((polled(5, line=9, session="s2"),), {}), ((*whole(2),), {}),
    ],
    "another checksum": [((*whole(0), polled(0, value_crc32c=7)), {}), (whole(1), {"polled_unsent": 1})],
    "another checksum of what was found before": [
        (whole(0), {}), (whole(1), {}), (whole(2), {}), (whole(3), {}), (whole(4), {}),
        ((polled(0, value_crc32c=7), polled(1)), {}), (whole(5), {"polled_unsent": 1}),
    ],
    "sent to another partition": [
        ((sent(5, 1), answered(5, 0, partition=1), there(5, 0, 1), *whole(0), polled(1, 5)), {}),
        (whole(1), {"polled_unsent": 1, "polled_and_gone": 1}),
        (whole(2), {}),
    ],
    "another record is in its place": [
        ((*whole(0), sent(7), polled(1, 7)), {}), (whole(1), {"polled_and_gone": 1}), (whole(2), {}),
    ],
    "another record was in its place, and the log was truncated": [
        ((*whole(0), sent(7), *acked(1, 1), there(1, 1), polled(1, 7)), {}),
        ((there(7, 1), answered(7, 1)), {}),
        (whole(2), {}),
    ],
    "it was read, and the log was truncated": [
        ((*read(0), *read(1), sent(9)), {}),
        ((answered(9, 1), there(9, 1)), {"polled_and_gone": 1}),
        (read(2), {}),
    ],
    "it was read long ago, and two logs were truncated": [
        ((*read(0), *read(1), sent(9), sent(8)), {}), (read(2), {}), (read(3), {}), (read(4), {}),
        (read(5), {}),
        ((answered(9, 1), there(9, 1)), {"polled_and_gone": 5}),
        ((there(8, 1), answered(8, 1)), {}),
    ],
    "polled, truncated, and read again": [
        ((*read(0), *read(1)), {}), ((there(1, 1), *read(2)), {}), (read(3), {}),
    ],
    "polled from the new log before it is read": [
        ((*read(0), sent(1), there(1, 1), sent(2), polled(1, 2)), {}),
        ((there(2, 1), answered(2, 1)), {}),
        (read(3), {}),
    ],
    "no value of a ledger, another one in its place": [
        ((*whole(0), polled(0, producer=None, pseq=None)), {}), (whole(1), {"polled_and_gone": 1}),
    ],
    "no value of a ledger, as in the log": [
        ((NO_VALUE, polled(0, producer=None, pseq=None)), {}),
        (whole(1), {}), (whole(2), {}),
    ],
    "a damaged record in its place": [
        ((*acked(0, 0), there(0, 0, state="damaged", producer=None, value_crc32c=None), polled(0)), {}),
        (whole(1), {}), (whole(2), {}),
    ],
}  # fmt: skip
POLL_RULES = {name for name, rule in RULES.items() if rule.looks is Looks.POLLS}


def of_topic(event: Event, topic: str) -> Event:
    """The same in a topic, a file and sessions of its own."""
    fields = {"topic": topic, **event.fields}
    if fields["origin"] == 2:
        fields |= {"file": topic, "session": f"{topic} {fields['session']}"}
    return Event(fields)


def test_a_micro_batch_says_what_is_sure_of_polls_and_says_it_once(spark: Any, tmp_path: Path) -> None:
    """Each script in a topic of its own, all of them in the same micro-batches."""
    for number in range(max(map(len, SCRIPTS.values()))):
        events = tuple(
            of_topic(event, name)
            for name, script in SCRIPTS.items()
            for event in (script[number][0] if number < len(script) else ())
        )
        # as after a restart: nothing is in memory
        step = FollowState(tmp_path).take(frame_of(spark, events), number)
        assert (step.doubts, tuple(step.poll_doubts)) == ((), ())
        folder = tmp_path / "found" / str(number)
        rows = spark.read.parquet(str(folder)).collect() if folder.exists() else []
        told: dict[str, Counter[str]] = {name: Counter() for name in SCRIPTS}
        for row in rows:
            if row["class"] in POLL_RULES:
                told[row.topic][row["class"]] += 1
        for name, script in SCRIPTS.items():
            expected = script[number][1] if number < len(script) else {}
            assert told[name] == expected, f"{name}, micro-batch {number}"


NO_POLL = Event(
    {"origin": 2, "file": "f", "line": 2, "remark": "problem", "text": "f, line 2: no JSON", "topic": None}
)
#: Micro-batches with polls that are none of this ledger, each with what is in doubt.
DOUBTFUL: dict[str, list[tuple[tuple[Event, ...], str]]] = {
    "a line that is none": [
        ((*read(0), NO_POLL), "f, line 2"),
        ((*read(1), polled(0, line=9)), ""),
    ],
    "a session in two files": [
        (read(0), ""),
        ((*whole(1), polled(1, file="g"), polled(0, file="g", line=9)), "s of consumer c is in f and in g"),
    ],
    "a session that goes on behind another": [
        ((*read(0), *whole(1), polled(1, session="s2")), ""),
        ((*whole(2), polled(2), polled(1, line=9)), "f: session s goes on behind"),
    ],
    "a poll that goes back": [
        ((*read(0), *read(1)), ""),
        ((*whole(2), polled(2, poll=0), polled(1, line=9)), "f: poll 0 after poll 2"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in DOUBTFUL])
def test_polls_that_are_none_of_the_ledger_are_in_doubt_and_not_judged(
    spark: Any, tmp_path: Path, name: str
) -> None:
    for number, (events, doubt) in enumerate(DOUBTFUL[name]):
        state = FollowState(tmp_path)
        step = state.take(frame_of(spark, events), number)
        assert not any(name in step.counts for name in POLL_RULES)
        assert [one for one in step.poll_doubts if doubt and doubt not in one] == []
        assert (bool(step.poll_doubts), step.doubts) == (bool(doubt), ())
        assert "records polled by" in verdict_of(state.steps(), ("t",), 1).as_text()


UNNAMED = "f: polls of run x, of which there is no send so far"
AGAIN = (polled(0, run="x"), polled(0, run="x", line=2))


def test_polls_wait_for_the_first_send_of_their_run(spark: Any, tmp_path: Path) -> None:
    """What is wrong with them is told then. An earlier build did not say which runs it has read."""
    told: dict[str, list[tuple[dict[str, int], bool]]] = {"": [], "an earlier build's": []}
    for name, found in told.items():
        for number, events in enumerate(
            [whole(0), (*whole(1), *AGAIN), (sent(2, run="x", producer="q"), polled(1, run="x", line=3))]
        ):
            state = FollowState(tmp_path / name)
            counts = state.take(frame_of(spark, events), number).counts
            verdict = verdict_of(state.steps(), ("t",), 1)
            found.append((dict(counts), any(UNNAMED in doubt for doubt in verdict.doubts)))
            if name and not number:
                file = tmp_path / name / "steps" / "0.json"
                step = json.loads(file.read_text())
                del step["runs"]
                file.write_text(json.dumps(step))
    again = {"polled_again": 1}
    assert told[""] == [({}, False), ({}, True), (again, False)]
    assert told["an earlier build's"] == [({}, False), (again, False), ({}, False)]


def test_a_run_that_no_ledger_names_is_a_doubt_until_one_does() -> None:
    facts = {"acked": 2, "ok": 2, "polled": 0}
    early = Step(0, {}, {}, facts, runs=("r",), sessions=(("f", "x", "c", "s", 1, 1),))

    def in_doubt(*steps: Step) -> bool:
        return any(UNNAMED in doubt for doubt in verdict_of(steps, ("t",), 1).doubts)

    assert in_doubt(early)
    assert not in_doubt(early, Step(1, {}, {}, {}, runs=("x",)))
    assert not in_doubt(Step(-1, {}, {}, {}), early), "an earlier build did not say which runs it has read"
    assert not in_doubt(replace(early, spoiled=("f",)))


def test_the_rules_of_polls_are_run_where_there_are_any() -> None:
    facts = {"acked": 2, "ok": 2}
    assert not POLL_RULES & set(verdict_of([Step(0, {}, {}, facts)], ("t",), 1).counts)
    sessions = (("f", "r", "c", "s", 1, 1), ("g", "r", "d", "s", 1, 1))
    verdict = verdict_of([Step(0, {}, {}, facts | {"polled": 3}, sessions=sessions)], ("t",), 1)
    assert set(verdict.counts) >= POLL_RULES
    assert (verdict.facts["polled"], verdict.facts["consumers"]) == (3, 2)
    assert "3 records polled by 2 consumers" in verdict.as_text()


def test_a_verdict_can_be_told_when_all_files_of_polls_are_spoiled() -> None:
    facts = {"acked": 2, "ok": 2, "polled": 0}
    step = Step(0, {}, {}, facts, spoiled=("f",), poll_doubts=("polls: f, line 1: no JSON",))
    verdict = verdict_of([step], ("t",), 1)
    assert verdict.doubts[0] == "polls: f, line 1: no JSON"
    assert "0 records polled by 0 consumers" in verdict.as_text()
