"""What is handed out of what was fetched ahead, and how far the application has come with it."""

from collections.abc import Callable

import pytest

from holdfast.client.core.errors import CorruptRecords
from holdfast.client.core.fetch_collector import FetchCollector
from holdfast.client.core.groups.effects import Position
from tests.unit.client.test_fetcher import ID, T0, T1, Bench, batch


def collector_of(bench: Bench, *batches: bytes, check_crcs: bool = True) -> FetchCollector:
    """Partition 0 is read from offset 5 on, and these were fetched."""
    bench.at(p0=5)
    bench.answer(bench.fetch(), *batches)
    return FetchCollector(bench.fetcher, bench.cache, 1 << 20, check_crcs=check_crcs)


def offsets(collector: FetchCollector, max_records: int = 100) -> list[int]:
    return [record.offset for record in collector.take_records(max_records)]


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def test_records_are_handed_out_in_order_and_the_position_is_behind_the_last_one() -> None:
    collector = collector_of(Bench(), batch(5, 3), batch(8, 2))
    assert offsets(collector, 2) == [5, 6]
    assert collector.position(T0) == 7
    assert offsets(collector) == [7, 8, 9]
    assert collector.position(T0) == 10
    assert (collector.records, collector.batches) == (5, 2)


def test_what_was_given_last_counts_as_handled_once_the_application_asks_again() -> None:
    collector = collector_of(Bench(), batch(5, 3))
    assert offsets(collector, 2) == [5, 6]
    assert collector.positions() == {T0: Position(7, 1, ID)}
    assert collector.handled() == {T0: Position(5, -1, ID)}
    collector.begin_poll()
    assert collector.handled() == {T0: Position(7, 1, ID)}


def test_of_records_one_by_one_the_one_in_hand_is_not_handled() -> None:
    collector = collector_of(Bench(), batch(5, 3))
    assert collector.decode()
    collector.decoded.popleft()
    collector.in_hand = collector.decoded.popleft()
    assert collector.handled() == {T0: Position(6, 1, ID)}


def test_a_topic_that_is_gone_has_no_position_to_commit() -> None:
    bench = Bench()
    collector = collector_of(bench, batch(5, 3))
    bench.make_topic_again()
    assert collector.positions() == {}


def test_what_was_decoded_of_a_partition_that_moves_or_is_left_is_not_handed_out() -> None:
    leaving: list[Callable[[FetchCollector], None]] = [
        lambda collector: collector.forget(T0),
        lambda collector: collector.keep([T1]),
        lambda collector: collector.keep_topics(["u"]),
    ]
    for leave in leaving:
        collector = collector_of(Bench(), batch(5, 3))
        assert collector.decode()
        leave(collector)
        assert not collector.decoded


def test_what_was_decoded_of_another_partition_stays() -> None:
    collector = collector_of(Bench(), batch(5, 3))
    assert collector.decode()
    collector.forget(T1)
    collector.keep([T0])
    collector.keep_topics(["t"])
    assert offsets(collector) == [5, 6, 7]


def test_an_error_waits_until_what_was_read_before_it_is_handed_out() -> None:
    bench, damaged = Bench(), broken(batch(8, 2))
    collector = collector_of(bench, batch(5, 3), damaged)
    assert offsets(collector) == [5, 6, 7]
    assert collector.position(T0) == 8
    bench.answer(bench.fetch(), damaged)  # it is fetched again, since it was not handed out
    with pytest.raises(CorruptRecords):
        collector.take_records(1)


def test_batches_come_whole_until_they_are_as_large_as_asked() -> None:
    first, second = batch(5, 3), batch(8, 2)
    collector = collector_of(Bench(), first, second)
    assert [bytes(one.data) for one in collector.take_batches(len(first))] == [first]
    assert [bytes(one.data) for one in collector.take_batches(len(first))] == [second]
    assert (collector.records, collector.batches, collector.bytes) == (5, 2, len(first) + len(second))
    assert collector.handled() == {T0: Position(5, -1, ID)}


def test_a_batch_with_a_wrong_crc_is_refused_unless_crcs_are_not_checked() -> None:
    collector = collector_of(Bench(), broken(batch(5, 3)))
    with pytest.raises(CorruptRecords):
        collector.take_batches(1_000)
    assert collector.position(T0) == 5
    assert len(collector_of(Bench(), broken(batch(5, 3)), check_crcs=False).take_batches(1_000)) == 1
