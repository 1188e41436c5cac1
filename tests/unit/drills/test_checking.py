"""What a checking consumer complains about, and what not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.history import make_value
from holdfast.drills.checking import COMPLAINTS_MAX, CheckingConsumer, StreamCheck
from holdfast.protocol.record_batch import Record, encode_batch, parse_header
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.client.test_decoding import poisoned


def record(offset: int, pseq: int, producer: str = "p", partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, 0, None, make_value(producer, pseq, 64), ())


def test_rising_offsets_and_numbers_are_right_also_with_gaps() -> None:
    check = StreamCheck()
    check.take([record(0, 0), record(1, 5), record(7, 6), record(0, 9, partition=1), record(8, 0, "other")])
    assert check.complaints == []
    assert check.count == 5


def test_an_offset_that_comes_again_is_named() -> None:
    check = StreamCheck()
    check.take([record(4, 0), record(4, 1)])
    assert check.complaints == ["t-0, offset 4 came after offset 4"]


def test_a_record_that_comes_twice_or_late_is_named() -> None:
    check = StreamCheck()
    check.take([record(0, 3), record(1, 3)])
    assert check.complaints == ["t-0, offset 1: record 3 of p came after its record 3"]


def test_a_damaged_value_is_named() -> None:
    check = StreamCheck()
    check.take([record(0, 3)._replace(value=b"nonsense"), record(1, 4)._replace(value=None)])
    assert check.complaints == [f"t-0, offset {n} is damaged or was never sent" for n in (0, 1)]


def test_after_a_cut_the_log_may_be_read_again() -> None:
    check = StreamCheck()
    check.take([record(0, 0), record(1, 1)])
    check.cut()
    check.take([record(0, 0), record(1, 7)])
    assert check.complaints == []


def test_only_the_first_complaints_are_kept() -> None:
    check = StreamCheck()
    check.take([record(0, 1) for _ in range(100)])
    assert len(check.complaints) == COMPLAINTS_MAX


def test_one_batch_that_cannot_be_read_hides_no_other_of_its_poll() -> None:
    """Those of its partition behind it come again."""

    def batch(partition: int, number: int, data: bytes = b"") -> FetchedBatch:
        data = data or encode_batch(
            [Record(number, 1, None, make_value("p", number, 40))], base_offset=number, leader_epoch=0
        )
        return FetchedBatch("t", partition, number, parse_header(data), memoryview(data), 9)

    said: list[object] = []
    consumer: Any = SimpleNamespace(
        config=SimpleNamespace(unpacked_bytes_max=1 << 20),
        topic_id=lambda place: None,
        seek=lambda place, offset: said.append((place, offset)),
    )
    ledger: Any = SimpleNamespace(
        write=lambda polled: said.extend((one.partition, len(one.records)) for one in polled),
        begin_session=lambda: said.append("session"),
    )
    checking = CheckingConsumer("h:1", "t", name="c", ledger=Path("l"))
    bad = poisoned(0, b"")
    checking._take(consumer, ledger, [batch(0, 0), batch(1, 0, bad), batch(1, 1), batch(2, 3)])
    assert said == [(0, 1), (2, 1), "session", (TopicPartition("t", 1), 1)]
    assert checking.check.count == 2
    (complaint,) = checking.check.complaints
    assert complaint.startswith("t-1 at offset 0")
