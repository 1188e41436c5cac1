"""Where a log ends on disk: what recovery will keep (A-22)."""

from pathlib import Path

from holdfast.drills.log_ends import log_end
from holdfast.protocol.record_batch import Record, encode_batch


def batch(base_offset: int, count: int) -> bytes:
    records = [Record(base_offset + i, 0, None, b"value", ()) for i in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=0)


def test_a_log_ends_behind_its_last_whole_batch(tmp_path: Path) -> None:
    assert log_end(tmp_path / "none") == 0
    assert log_end(tmp_path) == 0
    first = tmp_path / "00000000000000000000.log"
    first.write_bytes(batch(0, 3) + batch(3, 2))
    assert log_end(tmp_path) == 5
    (tmp_path / "00000000000000000005.log").write_bytes(batch(5, 4))
    assert log_end(tmp_path) == 9


def test_what_is_behind_a_torn_a_damaged_or_a_missing_batch_does_not_count(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    whole, last = batch(0, 3), batch(3, 2)
    damaged = bytearray(last)
    damaged[-1] ^= 1
    for tail in (last[:-1], bytes(500), bytes(damaged) + batch(5, 1), batch(4, 1)):
        segment.write_bytes(whole + tail)
        assert log_end(tmp_path) == 3


def test_a_segment_that_was_merged_into_the_one_before_it_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(batch(0, 3) + batch(3, 2))
    (tmp_path / "00000000000000000003.log").write_bytes(batch(3, 2))
    (tmp_path / "00000000000000000005.log").write_bytes(batch(5, 4))
    assert log_end(tmp_path) == 9


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000007.log").write_bytes(b"")
    assert log_end(tmp_path) == 7
