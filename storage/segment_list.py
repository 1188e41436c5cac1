"""The segments of a log in order: finding one, adding one, dropping some at either end.

Owns which segments there are and which is active. Never syncs, deletes or closes a file: `storage.log` does.
There is always a segment, but for the time between `clear` and the next `add`.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from holdfast.protocol.record_batch import BatchHeader
from holdfast.storage.core.retention import SegmentAge
from holdfast.storage.segment import Segment


class SegmentList:
    """Ascending by base offset, without gaps."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        #: the last one, which takes the appends
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def base_offset(self) -> int:
        """Where the first segment begins."""
        return self._bases[0]

    @property
    def base_offsets(self) -> list[int]:
        """Where each segment begins, ascending; a copy."""
        return list(self._bases)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def holder_of(self, offset: int) -> Segment:
        """The segment that holds an offset at or above `base_offset`; the active one for the log end."""
        active = self.active
        if offset >= active.base_offset:
            return active
        return self._segments[bisect_right(self._bases, offset) - 1]

    def find_timestamp(self, timestamp_ms: int, log_start_offset: int) -> BatchHeader | None:
        """The first batch with a record at or after `timestamp_ms` in a segment that reaches above the log
        start. Raises: DiskError."""
        for segment in self._segments:
            if segment.next_offset > log_start_offset:
                header = segment.find_timestamp(timestamp_ms)
                if header is not None:
                    return header
        return None

    def ages(self) -> list[SegmentAge]:
        """What retention goes by, of each segment."""
        return [age_of(segment) for segment in self._segments]

    # --- changes ---------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Appends go here from now on."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_first(self, count: int) -> list[Segment]:
        """Take the oldest segments away, never the active one; returns them."""
        assert count < len(self._segments)
        dropped = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        return dropped

    def drop_behind(self, offset: int) -> list[Segment]:
        """Take away the segments behind the one that holds `offset`, which is the active one then; returns
        them."""
        number = bisect_right(self._bases, offset)
        dropped = self._segments[number:]
        del self._segments[number:]
        del self._bases[number:]
        self.active = self._segments[-1]
        return dropped

    def clear(self) -> list[Segment]:
        """Take all away; returns them. `add` comes next, and nobody appends before."""
        dropped, self._segments, self._bases = self._segments, [], []
        return dropped


def age_of(segment: Segment) -> SegmentAge:
    """What retention goes by."""
    return SegmentAge(segment.next_offset, segment.size, segment.max_timestamp)
