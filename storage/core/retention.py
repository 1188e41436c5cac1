"""Which segments of a log retention deletes: by time, by size, or below the log start.

Owns the rule; never deletes. Oldest segments first, and only what is committed and flushed: other segments
may be needed by a follower or after a power loss. The active segment of a log without appends is rolled when
its time has come: the flush that comes with a roll is what such a log may never get otherwise.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.storage.core.config import LogConfig


class SegmentAge(NamedTuple):
    """What the rule needs to know of a segment."""

    #: end of the segment, exclusive
    next_offset: int
    size_bytes: int
    #: -1 when no record has a time; such a segment does not age
    max_timestamp: int


def is_past_time(segment: SegmentAge, config: LogConfig, wall_ms: int) -> bool:
    """True when every record of a segment is older than `retention.ms`."""
    if config.retention_ms is None or segment.max_timestamp < 0:
        return False
    return wall_ms - segment.max_timestamp > config.retention_ms


def must_roll(active: SegmentAge, config: LogConfig, wall_ms: int, append_age_ms: int | None) -> bool:
    """True when the active segment is past `retention.ms`, so that retention needs it closed, or past
    `segment.ms`. `append_age_ms`: ms since the first append to it, None while it is empty."""
    if not active.size_bytes or append_age_ms is None:
        return False
    is_past_age = config.segment_ms is not None and append_age_ms >= config.segment_ms
    return is_past_age or is_past_time(active, config, wall_ms)


def old_count(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    wall_ms: int,
    log_start_offset: int,
    kept_offset: int,
) -> int:
    """Number of segments at the log's beginning that may be deleted. The last segment is the active one and
    stays, and so do segments that reach above `kept_offset`, the lower of high watermark and flushed
    offset."""
    size_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments[:-1]:
        is_too_much = (
            config.retention_bytes is not None and size_bytes - segment.size_bytes >= config.retention_bytes
        )
        is_below_start = segment.next_offset <= log_start_offset
        if not (is_below_start or is_too_much or is_past_time(segment, config, wall_ms)):
            break
        if segment.next_offset > kept_offset:
            break
        size_bytes -= segment.size_bytes
        count += 1
    return count
