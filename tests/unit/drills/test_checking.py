"""What a checking consumer complains about, and what not."""

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import make_value
from holdfast.drills.checking import COMPLAINTS_MAX, StreamCheck


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
