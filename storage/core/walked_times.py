"""The times of the batches from an offset within a segment on, as far as a walk over their headers has come.

Owns what the segment's time index cannot tell: which of the timestamps before an entry are below that offset.
"""

from array import array
from bisect import bisect_left

from holdfast.protocol.record_batch import BatchHeader

#: Batches between two remembered positions: a lookup passes at most so many headers, and as many again.
BATCHES_PER_MARK = 256


class WalkedTimes:
    """Timestamps of the batches that begin at `from_offset` or later."""

    __slots__ = ("_before", "_positions", "_since_mark", "from_offset", "newest_ms", "position")

    def __init__(self, from_offset: int, position: int) -> None:
        self.from_offset = from_offset
        #: where the walk goes on
        self.position = position
        #: largest timestamp of the batches walked over that have records, -1 for none
        self.newest_ms = -1
        # Ascending; `_before[n]` is the largest timestamp of all batches before `_positions[n]`, and rises.
        self._positions = array("Q", [position])
        self._before = array("q", [-1])
        self._since_mark = 0

    def note(self, header: BatchHeader) -> None:
        """The batch at `position` has been walked over."""
        self._since_mark += 1
        if self._since_mark > BATCHES_PER_MARK:
            self._mark()
        self.position += header.size_bytes
        if header.record_count and header.max_timestamp > self.newest_ms:
            self.newest_ms = header.max_timestamp

    def _mark(self) -> None:
        self._since_mark = 1
        if self._before[-1] == self.newest_ms:
            self._positions[-1] = self.position
        else:
            self._positions.append(self.position)
            self._before.append(self.newest_ms)

    def floor(self, timestamp_ms: int) -> int:
        """A position before which all batches are earlier than `timestamp_ms`; when there is a later batch
        among those walked over, a few hundred headers before it at most."""
        return self._positions[max(0, bisect_left(self._before, timestamp_ms) - 1)]
