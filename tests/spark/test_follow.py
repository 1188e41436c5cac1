"""`holdfast validate --follow`: what is sure early is said once, through micro-batches and restarts."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.core.history import RowWriter, make_value, value_crc32c
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.follow import follow, verdict_of
from holdfast.durability.follow_query import FollowOptions
from holdfast.durability.follow_source import FOLLOWED_SCHEMA
from holdfast.durability.micro_batches import FollowState, Step
from holdfast.durability.verdict import Verdict
from holdfast.protocol.record_batch import Record, encode_batch
from tests.spark.planted_log import PlantedLogs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(900)]

SCHEMA = f"{FOLLOWED_SCHEMA}, state string"
OK, WEAK, UNKNOWN, REFUSED = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Event:
    """One row of a micro-batch."""

    fields: dict[str, Any]


def sent(pseq: int, partition: int = 0, acks: int = -1, **fields: Any) -> Event:
    row = {"origin": 0, "kind": 1, "pseq": pseq, "partition": partition, "acks": acks}
    return Event(row | {"value_crc32c": 100 + pseq} | fields)


def answered(pseq: int, offset: int | None, outcome: int = OK, partition: int = 0) -> Event:
    row = {"origin": 0, "kind": 2, "pseq": pseq, "partition": partition}
    return Event(row | {"outcome": outcome, "offset": offset})


def acked(pseq: int, offset: int) -> tuple[Event, Event]:
    return sent(pseq), answered(pseq, offset)


def there(pseq: int, offset: int, partition: int = 0, **fields: Any) -> Event:
    row = {"origin": 1, "state": "good", "pseq": pseq, "partition": partition, "offset": offset}
    return Event(row | {"value_crc32c": 100 + pseq} | fields)


#: Micro-batches, each with what it says.
SCRIPTS: dict[str, list[tuple[tuple[Event, ...], dict[str, int]]]] = {
    "all is well": [((*acked(0, 0), there(0, 0)), {}), ((*acked(1, 1), there(1, 1)), {})],
    "the record comes before its line, and the answer later still": [
        ((there(0, 0),), {}), ((sent(0),), {}), ((answered(0, 0),), {}), ((*acked(1, 1), there(1, 1)), {}),
    ],
    "the log has not come there yet": [((*acked(0, 0), *acked(1, 1)), {}), ((there(0, 0), there(1, 1)), {})],
    "the log went on without it": [
        ((*acked(0, 0), *acked(1, 1), there(1, 1)), {"lost": 1}), ((*acked(2, 2), there(2, 2)), {}),
    ],
    "it was read, and the log was truncated": [
        ((*acked(0, 0), there(0, 0), *acked(1, 1), there(1, 1)), {}),
        ((*acked(2, 1), there(2, 1)), {"lost": 1}),
        ((*acked(3, 2), there(3, 2)), {}),
    ],
    "what was read again after a truncation is there": [
        ((*acked(0, 0), there(0, 0), *acked(1, 1), there(1, 1)), {}),
        ((there(1, 1), *acked(2, 2), there(2, 2)), {}),
    ],
    "not answered, truncated, and sent again to another place": [
        ((sent(0), there(0, 0)), {}),
        ((there(9, 0), sent(9), answered(9, 0)), {}),
        ((answered(0, 1), there(0, 1)), {}),
    ],
    "never sent": [((there(7, 0),), {}), ((*acked(1, 1), there(1, 1)), {"unexpected": 1}), ((sent(2),), {})],
    "refused and there": [((sent(0), answered(0, None, REFUSED), there(0, 0)), {"unexpected": 1})],
    "not the value of a ledger": [((there(0, 0, state="foreign", producer=None),), {"unexpected": 1})],
    "no definite answer, there": [((sent(0), answered(0, None, UNKNOWN), there(0, 0)), {})],
    "acknowledged by one, gone": [
        ((sent(0, acks=1), answered(0, 0, WEAK), *acked(1, 0), there(1, 0)), {}),
    ],
    "a copy in a later micro-batch": [
        ((*acked(0, 0), there(0, 0)), {}),
        ((there(0, 5),), {"duplicated": 1}),
        ((*acked(1, 6), there(1, 6)), {}),
    ],
    "a copy in the same": [((*acked(0, 0), there(0, 0), there(0, 1)), {"duplicated": 1})],
    "in another partition": [((*acked(0, 0), there(0, 0)), {}), ((there(0, 0, 1),), {"misplaced": 1})],
    "at another offset": [((*acked(0, 0), there(0, 1)), {"moved": 1}), ((*acked(1, 2), there(1, 2)), {})],
    "other bytes, which are no loss later": [
        ((*acked(0, 0), there(0, 0, value_crc32c=7)), {"corrupt": 1}), ((*acked(1, 1), there(1, 1)), {}),
    ],
    "a damaged record in its place": [
        ((*acked(0, 0), there(0, 0, state="damaged", producer=None, value_crc32c=None)), {"corrupt": 1}),
        ((*acked(1, 1), there(1, 1)), {}),
    ],
}  # fmt: skip
FAST = "it was read, and the log was truncated"


def frame_of(spark: Any, events: tuple[Event, ...]) -> Any:
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    usual = {"run": "r", "producer": "p", "topic": "t"}
    rows = [tuple((usual | event.fields).get(name) for name in names) for event in events]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == FAST else pytest.mark.long) for name in SCRIPTS]
)
def test_a_micro_batch_says_what_is_sure_and_says_it_once(spark: Any, tmp_path: Path, name: str) -> None:
    told = []
    for number, (events, _) in enumerate(SCRIPTS[name]):
        # as after a restart: nothing is in memory
        told.append(FollowState(tmp_path).take(frame_of(spark, events), number).counts)
    assert told == [expected for _, expected in SCRIPTS[name]]


def test_a_micro_batch_that_spark_repeats_says_the_same_again(spark: Any, tmp_path: Path) -> None:
    ((events, expected),) = SCRIPTS["a copy in the same"]
    FollowState(tmp_path).take(frame_of(spark, events), 0)
    state = FollowState(tmp_path)
    assert state.take(frame_of(spark, events), 0).counts == expected == {"duplicated": 1}
    verdict = verdict_of(state.steps(), ("t",), 1)
    assert (verdict.counts["duplicated"], verdict.exit_code) == (1, 5)
    assert {name: verdict.facts[name] for name in ("sent", "acked", "ok", "served")} == {
        "sent": 1, "acked": 1, "ok": 1, "served": 2,
    }  # fmt: skip


def test_after_a_damaged_record_a_micro_batch_reads_no_places_of_earlier_ones(
    spark: Any, tmp_path: Path
) -> None:
    (damage, counts), _ = SCRIPTS["a damaged record in its place"]
    first = (*damage, *acked(5, 1), there(5, 1))
    assert FollowState(tmp_path).take(frame_of(spark, first), 0).counts == counts
    places = list((tmp_path / "placed" / "0").glob("*.parquet"))
    assert places
    for path in places:
        path.write_bytes(b"not to be read")
    assert FollowState(tmp_path).take(frame_of(spark, (*acked(1, 2), there(1, 2))), 1).counts == {}


def test_few_acknowledged_records_in_their_place_prove_nothing() -> None:
    first, second = (Step(number, {}, {}, {"acked": 2, "ok": 1}) for number in (0, 1))
    assert verdict_of([first], ("t",), 2).exit_code == 6
    verdict = verdict_of([first, second], ("t",), 2)
    assert verdict.exit_code == 0
    assert verdict.notes[1:] == ("2 acknowledged sends were not seen in their place so far",)


def test_the_doubts_of_a_verdict_do_not_grow_with_the_time_that_is_followed() -> None:
    def step(number: int) -> Step:
        lines, defects = (
            (f"ledger: f, line {number}: no JSON",),
            {TWICE: [2, f"p record {number} of topic t"]},
        )
        return Step(number, {}, {}, {"acked": 2, "ok": 2}, lines, defects)

    assert verdict_of([step(number) for number in range(40)], ("t",), 1).doubts == (
        *(f"ledger: f, line {number}: no JSON" for number in range(5)),
        "ledger: 35 more lines that are none of a ledger",
        f"ledger: 80 {TWICE}, such as p record 0 of topic t",
    )


TWICE = "sends written down more than once"
UNKNOWN_SEND = "answers to sends that were never written down"
CONTRADICTION = "sends with answers that contradict each other or their acks"
#: Micro-batches of ledgers that are none, each with what is in doubt.
DOUBTFUL: dict[str, list[tuple[tuple[Event, ...], str | None]]] = {
    "lines that come again": [
        ((*acked(0, 0), there(0, 0)), None),
        ((*acked(0, 0), *acked(1, 1), there(1, 1)), TWICE),
        ((*acked(2, 2), there(2, 2)), None),
    ],
    "an answer that comes again": [
        ((*acked(0, 0), there(0, 0)), None), ((answered(0, 1), *acked(1, 1), there(1, 1)), UNKNOWN_SEND),
    ],
    "two sends of one number": [((sent(0), *acked(0, 0), there(0, 0)), TWICE)],
    "two answers": [((*acked(0, 0), answered(0, 1), there(0, 0), *acked(1, 1), there(1, 1)), CONTRADICTION)],
    "an answer that denies the one before": [
        ((*acked(0, 0),), None), ((answered(0, None, REFUSED), there(0, 0)), CONTRADICTION),
    ],
    "an answer of other acks": [((sent(0), answered(0, 0, WEAK), there(0, 0)), CONTRADICTION)],
    "two sends of one number, both in the log": [
        ((sent(0), *acked(0, 0), there(0, 0), there(0, 1)), TWICE), ((there(0, 2),), None),
    ],
    "two sends of one number with other values": [
        ((sent(0, value_crc32c=7), *acked(0, 0), there(0, 0)), TWICE), ((there(0, 1, value_crc32c=7),), None),
    ],
    "two sends of one number with other fields": [
        (
            (
                sent(0, timestamp_ms=5, key_crc32c=6),
                *(sent(0, timestamp_ms=6, headers_crc32c=7), answered(0, 0)),
                there(0, 0, timestamp_ms=5, key_crc32c=6),
            ),
            TWICE,
        ),
    ],
    "two sends, and later a time-out and a record elsewhere": [
        ((sent(0), sent(0)), TWICE),
        ((answered(0, None, UNKNOWN),), CONTRADICTION),
        ((there(0, 0, partition=1),), None),
    ],
    "an answer that names another partition": [
        ((sent(0), answered(0, 0, partition=1), there(0, 0)), CONTRADICTION),
        ((*acked(1, 1), there(1, 1)), None),
    ],
    "an answer to no send, and its record": [
        ((answered(0, 0), there(0, 0)), UNKNOWN_SEND),
        ((*acked(1, 1), there(1, 1)), None),
        ((*acked(2, 2), there(2, 2)), None),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "lines that come again" else pytest.mark.long)
        for name in DOUBTFUL
    ],
)
def test_lines_that_are_none_of_one_ledger_are_in_doubt_and_no_loss(
    spark: Any, tmp_path: Path, name: str
) -> None:
    for number, (events, doubt) in enumerate(DOUBTFUL[name]):
        state = FollowState(tmp_path)
        step = state.take(frame_of(spark, events), number)
        assert step.counts == {}
        assert "VERDICT" in verdict_of(state.steps(), ("t",), 1).as_text()
        assert (len(step.defects), step.doubts) == (doubt is not None, ())
        for words, (count, example) in step.defects.items():
            assert words.startswith(str(doubt))
            assert (count, example) == (1, "p record 0 of topic t")


# --- the whole of it: files that grow, a log that is truncated, and a restart ------------------------------

ROWS = RowWriter("r", "p")


def lines(*numbers: int, topic: str = "t", partition: int = 0, first: int = 0, topic_id: bytes = b"") -> str:
    """Acknowledged sends, at offsets from `first` on that are their numbers' where it is 0."""
    text = ""
    for number in numbers:
        value = make_value("p", number, 40)
        place = (topic, partition)
        text += ROWS.invoke(number, *place, value_crc32c(value), -1, 1)
        text += ROWS.complete([number], *place, DeliveryOutcome.OK, number - first, 3, None, 2, topic_id)
    return text


def log(*numbers: int, epoch: int = 3, first: int = 0) -> list[bytes]:
    return [
        encode_batch(
            [Record(offset, 1, None, make_value("p", number, 40))], base_offset=offset, leader_epoch=epoch
        )
        for offset, number in enumerate(numbers, first)
    ]


def until(done: Callable[[], bool]) -> Callable[[], bool]:
    """For as long as a busy machine may take."""
    deadline = time.monotonic() + 300
    return lambda: done() or time.monotonic() > deadline


def test_ledgers_and_logs_are_followed_through_a_restart(spark: Any, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    first = ledger / "r.p.1.jsonl"
    first.write_text(lines(0, 1) + '{"kind":"invo')
    seen: list[int] = []
    steps: list[Step] = []

    def on_step(step: Step, verdict: Any) -> None:
        steps.append(step)
        seen.append(verdict.facts["ok"])

    with PlantedLogs({("t", 0): log(0, 1)}) as node:
        options = FollowOptions(str(ledger), node.address, str(tmp_path / "state"))
        good = follow(spark, options, on_step, until(lambda: bool(seen) and seen[-1] == 2))
        assert (good.exit_code, good.facts["ok"]) == (0, 2), good.as_text()
        unanswered = ROWS.invoke(8, "t", 0, value_crc32c(make_value("p", 8, 40)), -1, 1)
        first.write_text(lines(0, 1, 2))
        (ledger / "r.p.2.jsonl").write_text(lines(3) + unanswered)
        # an unclean election: where 2 was acknowledged is another record
        node.plant("t", 0, [*log(0, 1), *log(0, 1, 8, 3, epoch=4)[2:]])
        bad = follow(spark, options, on_step, until(lambda: any("lost" in step.counts for step in steps)))
    assert {name: count for name, count in bad.counts.items() if count} == {"lost": 1}, bad.as_text()
    assert bad.exit_code == 4
    assert bad.samples["lost"][0]["pseq"] == 2
    assert bad.facts["sent"] == 5, "no line was read twice"


def test_the_micro_batch_under_way_when_following_ends_counts(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a short run, whose only micro-batch is the first of a cold Spark, proves nothing."""
    begun: list[int] = []
    take = FollowState.take

    def begin(self: FollowState, frame: Any, batch: int) -> Step:
        begun.append(batch)
        return take(self, frame, batch)

    monkeypatch.setattr(FollowState, "take", begin)
    (tmp_path / "r.p.1.jsonl").write_text(lines(0, 1))
    with PlantedLogs({("t", 0): log(0, 1)}) as node:
        options = FollowOptions(str(tmp_path / "r.p.1.jsonl"), node.address, str(tmp_path / "state"))
        verdict = follow(spark, options, is_over=until(lambda: bool(begun)))
    assert (verdict.exit_code, verdict.facts["acked"]) == (0, 2), verdict.as_text()


class Followed:
    """A follower of a ledger in a folder; what it saw so far."""

    def __init__(self, spark: Any, folder: Path, node: PlantedLogs) -> None:
        self._spark = spark
        self.ledger = folder / "ledger"
        self.ledger.mkdir()
        self._options = FollowOptions(str(self.ledger), node.address, str(folder / "state"))
        self.phases: list[str] = []
        self.steps: list[Step] = []
        self.ok = 0

    def write(self, name: str, text: str) -> None:
        (self.ledger / f"r.p.{name}.jsonl").write_text(text)

    def run(
        self, *changes: tuple[int, Callable[[], None]], ok: int, on_phase: Callable[[], None] = lambda: None
    ) -> Verdict:
        """Follow until `ok` records were seen in their place; after so many of them each change is made."""
        left = list(changes)

        def on_step(step: Step, verdict: Verdict) -> None:
            self.steps.append(step)
            self.ok = verdict.facts["ok"]
            while left and self.ok >= left[0][0]:
                left.pop(0)[1]()

        is_over = until(lambda: not left and self.ok >= ok)

        def hears(phase: str) -> None:
            self.phases.append(phase)
            on_phase()

        return follow(self._spark, self._options, on_step, is_over, hears)


def test_topics_and_partitions_that_appear_are_judged(spark: Any, tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): log(0, 1)}) as node:
        followed = Followed(spark, tmp_path, node)
        followed.write("1", lines(0, 1))

        def name_a_topic() -> None:
            followed.write("2", lines(2, 3, 4, topic="later", first=2))
            node.plant("t", 1, log(5))
            followed.write("3", lines(5, partition=1, first=5))

        def create_it() -> None:
            node.plant("later", 0, log(2, 9, 4))  # where 3 was acknowledged is another record

        verdict = followed.run((2, name_a_topic), (3, create_it), ok=5)
    assert {name: count for name, count in verdict.counts.items() if count} == {"lost": 1}, verdict.as_text()
    assert [(row["topic"], row["pseq"]) for row in verdict.samples["lost"]] == [("later", 3)]
    assert (verdict.facts["sent"], verdict.facts["topics"], verdict.doubts) == (6, ["later", "t"], ())


@pytest.mark.long
def test_of_a_topic_that_there_is_not_nothing_is_good(spark: Any, tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): log(0)}) as node:
        followed = Followed(spark, tmp_path, node)
        followed.write("1", lines(0) + lines(1, topic="missing", first=1))
        verdict = followed.run(ok=1)
    assert verdict.exit_code == 6
    assert verdict.doubts == ("topic missing: there is none of that name, nothing of it was judged",)


def compact(node: PlantedLogs) -> None:
    node.compact("t")


def make_again(node: PlantedLogs) -> None:
    node.make_again("t")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (compact, "t: cleanup.policy has compact, .*"),
        pytest.param(make_again, "topic t was deleted and created again: .*", marks=pytest.mark.long),
    ],
)
def test_of_a_topic_whose_records_are_removed_on_purpose_none_is_lost(
    spark: Any, tmp_path: Path, change: Callable[[PlantedLogs], None], reason: str
) -> None:
    """And other topics are still judged."""
    with PlantedLogs({("t", 0): log(0, 1), ("u", 0): log(9)}) as node:
        followed = Followed(spark, tmp_path, node)
        topic_id = node.topic_id("t")
        followed.write("1", lines(0, 1, topic_id=topic_id) + lines(9, topic="u", first=9))

        def remove() -> None:
            followed.write("2", lines(2, 3, topic_id=topic_id) + lines(10, topic="u", first=9))
            change(node)
            node.plant("t", 0, [*log(0, 1), *log(3, first=3)])
            node.plant("u", 0, log(9, 10))

        verdict = followed.run((3, remove), ok=4)
        again = followed.run(ok=4)
    for one in (verdict, again):
        assert not any(one.counts.values()), one.as_text()
        assert one.exit_code == 6
        (doubt,) = one.doubts
        assert re.fullmatch(reason, doubt), doubt


def test_what_retention_has_taken_before_it_was_read_is_not_lost(spark: Any, tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): log(2, first=2)}) as node:
        followed = Followed(spark, tmp_path, node)
        followed.write("1", lines(0, 1, 2))
        verdict = followed.run(
            (1, lambda: followed.write("2", lines(3))),
            (1, lambda: node.plant("t", 0, log(2, 3, first=2))),
            ok=2,
        )
    assert not any(verdict.counts.values()), verdict.as_text()
    assert verdict.doubts == (
        "2 answered sends lie before the beginning of their logs (retention): not judged",
    )


@pytest.mark.long
def test_a_topic_that_a_broker_does_not_know_for_a_while_is_read_from_where_it_stood(
    spark: Any, tmp_path: Path
) -> None:
    with PlantedLogs({("t", 0): log(0), ("u", 0): log(5)}) as node:
        followed = Followed(spark, tmp_path, node)
        followed.write("1", lines(0) + lines(5, topic="u", first=5))

        def go_on() -> None:
            node.plant("u", 0, log(5, 6))
            followed.write("2", lines(6, topic="u", first=5))
            node.hide("u")

        verdict = followed.run((2, go_on), ok=3, on_phase=node.show)
    assert re.fullmatch(
        r"Following: reading failed: .*topic u: UNKNOWN_TOPIC_OR_PARTITION.*; it is tried again",
        followed.phases[0],
    )
    assert (verdict.exit_code, verdict.doubts, verdict.facts["served"]) == (0, (), 3), verdict.as_text()


def test_a_finding_that_cannot_be_told_ends_following_and_is_in_the_verdict(
    spark: Any, tmp_path: Path
) -> None:
    told: list[Verdict] = []

    def on_step(step: Step, verdict: Verdict) -> None:
        told.append(verdict)
        raise OSError("no space left for the metrics")

    (tmp_path / "r.p.1.jsonl").write_text(lines(0, 1, 2))
    with PlantedLogs({("t", 0): log(0, 9, 2)}) as node:
        options = FollowOptions(str(tmp_path / "r.p.1.jsonl"), node.address, str(tmp_path / "state"))
        verdict = follow(spark, options, on_step, until(lambda: False))
    assert len(told) == 1, "no read has failed, so none is tried again"
    assert verdict.doubts == ("what was found could not be told: no space left for the metrics",)
    assert verdict.exit_code == 4
