"""`holdfast validate --follow`: what is sure early is said once, through micro-batches and restarts."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.core.history import RowWriter, make_value, value_crc32c
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.follow import FollowOptions, follow, verdict_of
from holdfast.durability.micro_batches import LINE_COLUMNS, LINES_SCHEMA, FollowState, Step
from holdfast.protocol.record_batch import Record, encode_batch
from tests.spark.planted_log import PlantedLogs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(900)]

SCHEMA = f"origin int, state string, {LINES_SCHEMA}"
OK, WEAK, UNKNOWN, REFUSED = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Event:
    """One row of a micro-batch."""

    fields: dict[str, Any]


def sent(pseq: int, partition: int = 0, acks: int = -1) -> Event:
    return Event(
        {
            "origin": 0,
            "kind": 1,
            "pseq": pseq,
            "partition": partition,
            "acks": acks,
            "value_crc32c": 100 + pseq,
        }
    )


def answered(pseq: int, offset: int | None, outcome: int = OK) -> Event:
    return Event({"origin": 0, "kind": 2, "pseq": pseq, "partition": 0, "outcome": outcome, "offset": offset})


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
FAST = ("it was read, and the log was truncated", "never sent")


def frame_of(spark: Any, events: tuple[Event, ...]) -> Any:
    names = ("origin", "state", *LINE_COLUMNS)
    usual = {"run": "r", "producer": "p", "topic": "t"}
    rows = [tuple((usual | event.fields).get(name) for name in names) for event in events]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.long) for name in SCRIPTS]
)
def test_a_micro_batch_says_what_is_sure_and_says_it_once(spark: Any, tmp_path: Path, name: str) -> None:
    told = []
    for number, (events, _) in enumerate(SCRIPTS[name]):
        # as after a restart: nothing is in memory
        told.append(FollowState(tmp_path).take(frame_of(spark, events), number).counts)
    assert told == [expected for _, expected in SCRIPTS[name]]


def test_a_micro_batch_that_spark_repeats_says_the_same_again(spark: Any, tmp_path: Path) -> None:
    script = SCRIPTS["it was read, and the log was truncated"]
    for number, (events, _) in enumerate(script[:2]):
        FollowState(tmp_path).take(frame_of(spark, events), number)
    state = FollowState(tmp_path)
    again = state.take(frame_of(spark, script[1][0]), 1)
    assert again.counts == {"lost": 1}
    verdict = verdict_of(state.steps(), ("t",), 1)
    assert (verdict.counts["lost"], verdict.exit_code) == (1, 4)
    assert {name: verdict.facts[name] for name in ("sent", "acked", "ok", "served")} == {
        "sent": 3, "acked": 3, "ok": 3, "served": 3,
    }  # fmt: skip


def test_few_acknowledgements_prove_nothing() -> None:
    step = Step(0, {}, {}, {"acked": 1})
    assert verdict_of([step], ("t",), 2).exit_code == 6
    assert verdict_of([step, Step(1, {}, {}, {"acked": 1})], ("t",), 2).exit_code == 0


# --- the whole of it: files that grow, a log that is truncated, and a restart ------------------------------

ROWS = RowWriter("r", "p")


def lines(*numbers: int) -> str:
    text = ""
    for number in numbers:
        value = make_value("p", number, 40)
        text += ROWS.invoke(number, "t", 0, value_crc32c(value), -1, 1)
        text += ROWS.complete([number], "t", 0, DeliveryOutcome.OK, number, 3, None, 2)
    return text


def log(*numbers: int, epoch: int = 3) -> list[bytes]:
    return [
        encode_batch(
            [Record(offset, 1, None, make_value("p", number, 40))], base_offset=offset, leader_epoch=epoch
        )
        for offset, number in enumerate(numbers)
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
    monkeypatch.setattr("holdfast.durability.follow._LAST_STEP_S", 600.0)  # the machine may be busy
    (tmp_path / "r.p.1.jsonl").write_text(lines(0, 1))
    with PlantedLogs({("t", 0): log(0, 1)}) as node:
        options = FollowOptions(str(tmp_path / "r.p.1.jsonl"), node.address, str(tmp_path / "state"))
        verdict = follow(spark, options, is_over=until(lambda: bool(begun)))
    assert (verdict.exit_code, verdict.facts["acked"]) == (0, 2), verdict.as_text()
