"""Which segments of a log are old enough to go: by time, by size, or below the log start.

Owns the rule. Never deletes; oldest first, and never what is not both committed and flushed: a segment that
may still be needed to bring a follower up, or to survive a power loss, stays.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.storage.core.config import LogConfig


class SegmentAge(NamedTuple):
    """What the rule looks at."""

    #: end of the segment, exclusive
    next_offset: int
    size_bytes: int
    #: -1 when no record has a time; such a segment does not age
    max_timestamp: int


def is_past_time(segment: SegmentAge, config: LogConfig, wall_ms: int) -> bool:
    """Whether every record of a segment is older than `retention.ms`."""
    if config.retention_ms is None or segment.max_timestamp < 0:
        return False
    return wall_ms - segment.max_timestamp > config.retention_ms


def old_count(
    segments: Sequence[SegmentAge],
    config: LogConfig,
    *,
    wall_ms: int,
    log_start_offset: int,
    kept_offset: int,
) -> int:
    """How many segments at the beginning of a log may go. The last one is the active one and stays, as does
    all that reaches beyond `kept_offset`, the lower of high watermark and flushed offset."""
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
