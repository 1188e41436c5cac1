"""The segments of a log in order: finding, adding, dropping at either end.

Owns which segments there are and which is active. Never syncs, deletes or closes a file: `storage.log` does.
There is always a segment, except between `clear` and the next `add`.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from holdfast.protocol.record_batch import BatchHeader
from holdfast.storage.core.retention import SegmentAge
from holdfast.storage.segment import Segment


class SegmentList:
    """Segments, ascending by base offset, without gaps."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        #: the last segment, which gets the appends
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def base_offset(self) -> int:
        """Base offset of the first segment."""
        return self._bases[0]

    @property
    def base_offsets(self) -> list[int]:
        """Base offset of each segment, ascending; a copy."""
        return list(self._bases)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def holder_of(self, offset: int) -> Segment:
        """The segment with an offset at or above `base_offset`; the active one for the log end."""
        active = self.active
        if offset >= active.base_offset:
            return active
        return self._segments[bisect_right(self._bases, offset) - 1]

    def begins_below(self, offset: int, log_start_offset: int) -> bool:
        """The batch that holds `offset` begins below the log start, which lies within it. Raises:
        DiskError."""
        if offset >= self.active.next_offset or log_start_offset == self.base_offset:
            return False
        return self.holder_of(offset).header_of(offset).base_offset < log_start_offset

    def split_by(self, offset: int) -> BatchHeader | None:
        """The batch that begins below an offset and ends above it; None without one. Raises: DiskError."""
        for segment in self._segments:
            if segment.base_offset < offset < segment.next_offset:
                header = segment.header_of(offset)
                return header if header.base_offset < offset else None
        return None

    def closed_above(self, offset: int) -> Segment | None:
        """The first segment that ends above `offset` and is not the active one."""
        number = max(0, bisect_right(self._bases, offset) - 1)
        return self._segments[number] if number + 1 < len(self._segments) else None

    def walk_times(self, from_offset: int, timestamp_ms: int | None, count: int) -> bool:
        """Walk over up to `count` headers of the segment that `from_offset` lies within, as a lookup of
        `timestamp_ms` needs it, of the newest time with None. True when there are more to walk over. Raises:
        DiskError."""
        for segment in self._segments:
            if segment.base_offset < from_offset < segment.next_offset:
                return segment.walk_times(from_offset, timestamp_ms, count)
        return False

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> BatchHeader | None:
        """The first batch that begins at `from_offset` or later and has a record at or after `timestamp_ms`;
        `walk_times` has said that it may be looked for. Raises: DiskError."""
        for segment in self._segments:
            if segment.next_offset > from_offset:
                header = segment.find_timestamp(timestamp_ms, from_offset)
                if header is not None:
                    return header
        return None

    def newest_from(self, from_offset: int) -> int:
        """The largest timestamp of the batches that begin at `from_offset` or later, -1 for none;
        `walk_times` has said that it may be asked for."""
        later = (one.newest_from(from_offset) for one in self._segments if one.next_offset > from_offset)
        return max(later, default=-1)

    def ages(self) -> list[SegmentAge]:
        """What retention needs to know of each segment."""
        return [age_of(segment) for segment in self._segments]

    # --- changes ---------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Add a segment, which becomes the active one."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def exchange(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a segment of the same offsets in the place of neighbours, none of which is active."""
        assert self.active not in old
        assert (new.base_offset, new.next_offset) == (old[0].base_offset, old[-1].next_offset)
        first = self._segments.index(old[0])
        behind = first + len(old)
        assert self._segments[first:behind] == list(old)
        self._segments[first:behind] = [new]
        self._bases[first:behind] = [new.base_offset]

    def drop_first(self, count: int) -> list[Segment]:
        """Remove and return the oldest segments; never the active one."""
        assert count < len(self._segments)
        dropped = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        return dropped

    def drop_behind(self, offset: int) -> list[Segment]:
        """Remove and return the segments after the one that holds `offset`, which becomes the active one."""
        number = bisect_right(self._bases, offset)
        dropped = self._segments[number:]
        del self._segments[number:]
        del self._bases[number:]
        self.active = self._segments[-1]
        return dropped

    def clear(self) -> list[Segment]:
        """Remove and return all segments. `add` must follow before the next append."""
        dropped, self._segments, self._bases = self._segments, [], []
        return dropped


def age_of(segment: Segment) -> SegmentAge:
    """What retention needs to know of a segment."""
    return SegmentAge(segment.next_offset, segment.size, segment.max_timestamp)
