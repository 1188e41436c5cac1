"""Retention by time, by size and by log start; nothing that may still be needed goes."""

import pytest

from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.retention import SegmentAge, old_count

#: Four segments of 100 bytes and ten offsets, the newest record of each one second later.
SEGMENTS = [SegmentAge(10 * (number + 1), 100, 1000 * number) for number in range(4)]


def count(
    wall_ms: int = 0,
    log_start_offset: int = 0,
    kept_offset: int = 40,
    *,
    retention_ms: int | None = None,
    retention_bytes: int | None = None,
) -> int:
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    return old_count(
        SEGMENTS, config, wall_ms=wall_ms, log_start_offset=log_start_offset, kept_offset=kept_offset
    )


@pytest.mark.parametrize(("wall_ms", "expected"), [(500, 0), (501, 1), (1501, 2), (9_000, 3)])
def test_segments_whose_newest_record_is_too_old_go_but_never_the_active_one(
    wall_ms: int, expected: int
) -> None:
    assert count(wall_ms, retention_ms=500) == expected


@pytest.mark.parametrize(("size", "expected"), [(400, 0), (301, 0), (300, 1), (100, 3), (0, 3)])
def test_the_oldest_go_while_enough_bytes_remain(size: int, expected: int) -> None:
    assert count(retention_bytes=size) == expected


@pytest.mark.parametrize(("start", "expected"), [(9, 0), (10, 1), (29, 2), (40, 3)])
def test_what_lies_below_the_log_start_goes(start: int, expected: int) -> None:
    assert count(log_start_offset=start) == expected


@pytest.mark.parametrize(("kept", "expected"), [(0, 0), (9, 0), (10, 1), (25, 2)])
def test_what_is_not_committed_and_flushed_stays(kept: int, expected: int) -> None:
    assert count(9_000, kept_offset=kept, retention_ms=0) == expected


def test_without_limits_everything_stays() -> None:
    assert count(1 << 60) == 0


def test_a_segment_without_times_does_not_age_and_holds_back_those_behind_it() -> None:
    segments = [SegmentAge(10, 100, -1), *SEGMENTS[1:]]
    config = LogConfig(retention_ms=0)
    assert old_count(segments, config, wall_ms=1 << 60, log_start_offset=0, kept_offset=40) == 0
