"""Which log is compacted next, up to which offset, which of its segments become one, and how fast its bytes
may be read (Kafka's rules).

Owns the dirty ratio: bytes that came since the last cleaning, as a share of all that may be cleaned. Only
closed segments that are committed, durable and older than `min.compaction.lag.ms` may be. Reads nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.storage.core.config import SEGMENT_OFFSETS_MAX, LogConfig
from holdfast.storage.core.retention import SegmentAge


class CleanerPace(NamedTuple):
    """How the cleaner of a broker works."""

    is_enabled: bool = True
    #: pause when no log is due, in ms
    backoff_ms: int = 15_000
    #: bytes that it reads and writes in a second, in each log dir
    bytes_per_second: int = 16 << 20
    #: of the map of keys
    memory_bytes: int = 64 << 20


CLEANER_PACE = CleanerPace()


@dataclass(slots=True)
class CleanerCounts:
    """Of one log dir, since the start."""

    run_count: int = 0
    read_bytes: int = 0
    removed_bytes: int = 0
    removed_records: int = 0
    failed_count: int = 0
    #: logs whose records could not be read
    uncleanable_count: int = 0
    #: of the dirtiest log, when it was looked at last
    dirty_ratio: float = 0.0


class Dirt(NamedTuple):
    """What may be cleaned of a log."""

    #: bytes of the segments below the first dirty one, and of the dirty ones
    clean_bytes: int = 0
    dirty_bytes: int = 0
    #: first offset of the first dirty segment, and end of the last one that may be cleaned, exclusive
    start_offset: int = 0
    end_offset: int = 0

    @property
    def ratio(self) -> float:
        """Share of the bytes that is dirty; 0 when nothing is there."""
        all_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / all_bytes if all_bytes else 0.0


class SegmentShape(NamedTuple):
    """What the rule of merging needs to know of a closed segment."""

    base_offset: int
    #: end of the segment, exclusive
    next_offset: int
    size_bytes: int
    index_bytes: int


def group_sizes(
    closed: Sequence[SegmentShape], config: LogConfig, start_offset: int, end_offset: int
) -> list[int]:
    """How many neighbours, oldest first, are written anew as one segment each. Together they are no larger
    than a segment may be, by the sizes from before: what this cleaning makes small is merged by the next
    one. A segment that begins below `start_offset` or ends above `end_offset` stays alone."""
    sizes: list[int] = []
    size_bytes = index_bytes = first_offset = 0
    may_grow = False
    for segment in closed:
        is_inside = segment.base_offset >= start_offset and segment.next_offset <= end_offset
        if (
            may_grow
            and is_inside
            and size_bytes + segment.size_bytes <= config.segment_bytes
            and index_bytes + segment.index_bytes <= config.index_max_bytes
            and segment.next_offset - first_offset <= SEGMENT_OFFSETS_MAX
        ):
            sizes[-1] += 1
        else:
            sizes.append(1)
            size_bytes = index_bytes = 0
            first_offset = segment.base_offset
        size_bytes += segment.size_bytes
        index_bytes += segment.index_bytes
        may_grow = is_inside
    return sizes


def dirt_of(
    closed: Sequence[SegmentAge],
    config: LogConfig,
    *,
    base_offset: int,
    clean_offset: int,
    kept_offset: int,
    wall_ms: int,
) -> Dirt:
    """What may be cleaned of a log whose closed segments, oldest first, begin at `base_offset`. Below
    `clean_offset` all was cleaned; `kept_offset` is the lower one of high watermark and flushed offset."""
    clean_bytes = dirty_bytes = 0
    start_offset = end_offset = base_offset
    for segment in closed:
        if segment.next_offset > kept_offset:
            break
        lag_ms = config.min_compaction_lag_ms
        if lag_ms and segment.max_timestamp > wall_ms - lag_ms:
            break
        if segment.next_offset <= clean_offset:
            clean_bytes += segment.size_bytes
            start_offset = segment.next_offset
        else:
            dirty_bytes += segment.size_bytes
        end_offset = segment.next_offset
    return Dirt(clean_bytes, dirty_bytes, start_offset, end_offset)


def is_due(dirt: Dirt, config: LogConfig, *, oldest_ms: int, wall_ms: int) -> bool:
    """True when the log is dirty enough, or has waited for `max.compaction.lag.ms`; `oldest_ms`: the
    timestamp of its first dirty batch, -1 when it has none."""
    if not dirt.dirty_bytes:
        return False
    lag_ms = config.max_compaction_lag_ms
    has_waited = lag_ms is not None and 0 <= oldest_ms <= wall_ms - lag_ms
    return has_waited or dirt.ratio > config.min_cleanable_dirty_ratio
