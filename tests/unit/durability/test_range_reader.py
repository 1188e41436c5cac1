"""Which ranges of a task are asked for at once, and what becomes of each."""

from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError, NoSuchOffset, TimedOut
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.durability import range_reader
from holdfast.durability.arrow import Columns
from holdfast.durability.cluster_offsets import OwnLoop
from holdfast.durability.core.positions import DataLost, Place
from holdfast.durability.range_reader import together
from holdfast.durability.read_options import Mode, OffsetRange, parse_options
from holdfast.protocol.record_batch import Record, encode_batch, iter_batches
from holdfast.protocol.topic_names import TopicPartition

TIMEOUT_MS = 120_000
T, U = ("t", 0), ("u", 0)


class FakeLoop:
    """Runs what waits for nothing; its clock stands unless it is moved."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.runtime = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: self.at_ms))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")


class FakeConsumer:
    """Gives what is scripted, poll by poll, of the partitions that are assigned. What comes takes 5 ms, in
    which it is waited for; without it a poll takes all its time."""

    def __init__(self, loop: FakeLoop, *polls: Sequence[FetchedBatch] | Mapping[Place, ClientError]) -> None:
        self._loop = loop
        self._polls = list(polls)
        self.ids: dict[Place, bytes] = {}
        self.positions: dict[Place, int] = {}

    def assign(self, places: list[Place]) -> None:
        self.positions = {place: self.positions.get(place, 0) for place in places}

    def seek(self, place: Place, offset: int) -> None:
        self.positions[place] = offset

    def position(self, place: Place) -> int:
        return self.positions[place]

    def topic_id(self, place: Place) -> bytes | None:
        return self.ids.get(place) if place in self.positions else None

    async def poll_batches(self, size: int, timeout_ms: int) -> list[FetchedBatch]:
        if timeout_ms < 5 or not self._polls:
            self._loop.at_ms += timeout_ms
            return []
        self._loop.at_ms += 5
        scripted = self._polls.pop(0)
        if isinstance(scripted, Mapping):
            for place, error in scripted.items():
                if place in self.positions:
                    raise error
            return []
        found = [batch for batch in scripted if (batch.topic, batch.partition) in self.positions]
        for batch in found:
            self.positions[batch.topic, batch.partition] = batch.header.next_offset
        return found


def batch(place: Place, start: int, end: int) -> FetchedBatch:
    records = [Record(offset, 1, None, b"v") for offset in range(start, end)]
    ((header, view),) = iter_batches(encode_batch(records, base_offset=start, leader_epoch=0))
    return FetchedBatch(*place, start, header, view, end)


def read(
    loop: FakeLoop,
    consumer: FakeConsumer,
    *ranges: OffsetRange,
    fails: bool = True,
    given_takes_ms: int = 0,
) -> list[tuple[str, int]]:
    """(topic, offset) of what is read; with each piece of it Spark has work for so long."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "failOnDataLoss": str(fails).lower()}
    options = parse_options({**given, "kafkaConsumer.pollTimeoutMs": str(TIMEOUT_MS)}, Mode.BATCH)
    found: list[tuple[str, int]] = []
    for rows in range_reader._read_at_once(
        cast(OwnLoop, loop), cast(Consumer, consumer), options, ranges, Columns()
    ):
        found += [(row["topic"], row["offset"]) for row in rows.to_pylist()]
        loop.at_ms += given_takes_ms
    return found


def offsets(place: Place, start: int, end: int) -> list[tuple[str, int]]:
    return [(place[0], offset) for offset in range(start, end)]


def test_ranges_that_end_at_different_times_are_read_to_their_ends() -> None:
    loop = FakeLoop()
    consumer = FakeConsumer(loop, [batch(T, 0, 2), batch(U, 0, 5)], [], [batch(T, 2, 9), batch(U, 5, 7)])
    found = read(loop, consumer, OffsetRange(*T, 0, 4), OffsetRange(*U, 0, 5))
    assert found == [*offsets(T, 0, 2), *offsets(U, 0, 5), *offsets(T, 2, 4)]


def test_what_spark_does_with_a_piece_is_no_time_without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_log_end", lambda *_: 4)
    loop = FakeLoop()
    consumer = FakeConsumer(loop, [batch(T, 0, 2), batch(U, 0, 2)], [batch(T, 2, 4), batch(U, 2, 4)])
    ranges = OffsetRange(*T, 0, 4), OffsetRange(*U, 0, 4)
    assert len(read(loop, consumer, *ranges, given_takes_ms=TIMEOUT_MS + 1)) == 8


def test_a_range_of_which_nothing_comes_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_log_end", lambda *_: 4)
    loop = FakeLoop()
    with pytest.raises(TimedOut, match=f"t-0: nothing came from offset 2 on within {TIMEOUT_MS} ms, up to 4"):
        read(loop, FakeConsumer(loop, [batch(T, 0, 2)]), OffsetRange(*T, 0, 4))
    assert loop.at_ms == TIMEOUT_MS + 5


def test_a_log_that_ends_below_the_range_has_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_log_end", lambda _, place: 2 if place == T else 9)
    ranges = OffsetRange(*T, 0, 4), OffsetRange(*U, 0, 1)
    polls = [batch(T, 0, 2), batch(U, 0, 1)]
    loop = FakeLoop()
    with pytest.raises(DataLost, match="t-0: offsets 2 to 3 were to be read"):
        read(loop, FakeConsumer(loop, polls), *ranges)
    assert len(read(loop, FakeConsumer(loop, polls), *ranges, fails=False)) == 3


def test_an_offset_that_is_gone_is_lost_data() -> None:
    gone = NoSuchOffset("t-0 begins at 9", None, TopicPartition(*T))
    loop = FakeLoop()
    with pytest.raises(DataLost, match="t-0 begins at 9: it was deleted or truncated before it was read"):
        read(loop, FakeConsumer(loop, [batch(T, 0, 2)], {T: gone}), OffsetRange(*T, 0, 4))


def test_a_topic_made_again_is_another_one() -> None:
    wanted, other = OffsetRange(*T, 0, 4, topic_id="00" * 16), OffsetRange(*U, 0, 2)
    for fails in (True, False):
        loop = FakeLoop()
        consumer = FakeConsumer(loop, [], [batch(T, 0, 4)], [batch(U, 0, 2)])
        consumer.ids[T] = b"\1" * 16
        if fails:
            with pytest.raises(DataLost, match="t-0: the topic was deleted and made again"):
                read(loop, consumer, wanted, other)
        else:
            assert read(loop, consumer, wanted, other, fails=False) == offsets(U, 0, 2)


@pytest.mark.parametrize(
    "error",
    [
        NoSuchOffset("topic t was deleted and made again: seek", None, TopicPartition(*T)),
        ClientError("topic t: TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_what_becomes_of_a_log_whose_range_is_read_is_no_error(error: ClientError) -> None:
    loop = FakeLoop()
    consumer = FakeConsumer(loop, [batch(T, 0, 4)], {T: error}, [batch(U, 0, 2)])
    found = read(loop, consumer, OffsetRange(*T, 0, 4), OffsetRange(*U, 0, 2))
    assert found == [*offsets(T, 0, 4), *offsets(U, 0, 2)]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(0, 0, 9_000), (1, 0, 1_000)], [2]),
        ([(0, 0, 9_000), (1, 0, 1_001)], [1, 1]),
        ([(0, 0, 50_000), (1, 0, 1), (2, 7, 8)], [1, 2]),
        ([(0, 0, 10), (1, 0, 10), (0, 10, 20), (1, 10, 20)], [2, 2]),
    ],
    ids=["none", "small", "more than is asked for at once", "a large one alone", "a partition twice"],
)
def test_small_ranges_of_different_partitions_are_asked_for_at_once(
    ranges: list[tuple[int, int, int]], expected: list[int]
) -> None:
    wanted = [OffsetRange("t", *item) for item in ranges]
    found = together(wanted)
    assert [len(few) for few in found] == expected
    assert [item for few in found for item in few] == wanted
