"""Checks what is read of a segment: crc, offsets, epochs. The scrub reads a closed one for that.

Owns the check, and how far a scrub of one segment has come. The log goes on meanwhile: when retention deletes
the segment, or a truncation or the end of the log comes, the rest is not read, and what was read last is not
judged.
"""

from collections.abc import Callable

from holdfast.protocol.frames import ATTACHMENT_MAX_BYTES
from holdfast.protocol.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, check_batch, parse_header
from holdfast.runtime.api import Buffer
from holdfast.storage.log_guard import LogGuard
from holdfast.storage.segment import Segment

EpochAt = Callable[[int], int | None]


class SegmentScrub:
    """One segment that is being read."""

    __slots__ = ("_epoch_at", "_guard", "_next_offset", "_position", "_segment", "_size", "_was_not_cut")

    def __init__(
        self, segment: Segment, guard: LogGuard, epoch_at: EpochAt, was_not_cut: Callable[[], bool]
    ) -> None:
        """`epoch_at(offset)`: the leader epoch there. `was_not_cut()`: of the log, since this call."""
        self._segment = segment
        self._guard = guard
        self._epoch_at = epoch_at
        self._was_not_cut = was_not_cut
        self._position = 0
        self._next_offset = segment.base_offset
        #: fewest bytes that must be read next: a header, or the next batch when its length is known
        self._size = 0

    @property
    def is_over(self) -> bool:
        """All of it was read, or it is not to be read any more."""
        return self._position >= self._segment.size or not self._is_current()

    def _is_current(self) -> bool:
        """The segment belongs to the log as it was at first."""
        return self._segment.is_open and self._guard.is_usable and self._was_not_cut()

    @property
    def end_offset(self) -> int:
        """Where the next segment begins."""
        return self._segment.next_offset

    async def step(self, slice_bytes: int) -> int:
        """Read and check about so many bytes, whole batches; returns how many were read. Raises: DiskError,
        CorruptLog."""
        segment, position = self._segment, self._position
        if self.is_over:
            return 0
        with self._guard.failing():
            if not position:
                await segment.log.drop_cache()  # what the disk has is checked, not what it was given
                if not self._is_current():
                    return 0
            size = min(max(slice_bytes, self._size), segment.size - position)
            data = await segment.log.read_aside(position, size)
            if self._is_current():
                self._check(data, is_last=position + size == segment.size)
        return len(data)

    def _check(self, data: bytes, *, is_last: bool) -> None:
        """Check the batches in a slice, and go on behind the last whole one."""
        at = 0
        self._size = 0
        try:
            while at < len(data):
                if not is_last and self._is_cut(data, at):
                    break
                header = check_in_place(data, at, self._next_offset, self._epoch_at)
                self._next_offset = header.next_offset
                at += header.size_bytes
        except CorruptBatch as error:
            raise self._segment.broken(str(error), self._position + at) from error
        self._position += at
        if is_last and self._next_offset != self._segment.next_offset:
            story = f"ends at offset {self._next_offset}, and the next segment begins at {self.end_offset}"
            raise self._segment.broken(story, self._position)

    def _is_cut(self, data: bytes, at: int) -> bool:
        """The slice ends within this batch."""
        if len(data) - at < HEADER_SIZE:
            self._size = HEADER_SIZE
            return True
        size_bytes = parse_header(data, at).size_bytes
        if at + size_bytes <= len(data):
            return False
        if size_bytes > ATTACHMENT_MAX_BYTES:
            raise CorruptBatch(f"a batch of {size_bytes} bytes, which no request can carry")
        self._size = size_bytes
        return True


def check_read(segment: Segment, fetch_offset: int, data: bytes, epoch_at: EpochAt) -> None:
    """Check whole batches that were read from the one that holds `fetch_offset` on. Raises: CorruptLog."""
    position, offset = 0, fetch_offset
    try:
        if data:
            first = parse_header(data)
            if first.base_offset <= fetch_offset < first.next_offset:
                offset = first.base_offset
        while position < len(data):
            header = check_in_place(data, position, offset, epoch_at)
            offset = header.next_offset
            position += header.size_bytes
    except CorruptBatch as error:
        raise segment.broken(str(error), segment.position_of(fetch_offset) + position) from error


def check_in_place(data: Buffer, position: int, offset: int, epoch_at: EpochAt) -> BatchHeader:
    """The header of the batch at `position` that must begin at `offset`. Raises: CorruptBatch when it is not
    the one that belongs there."""
    header = check_batch(data, position)
    epoch = epoch_at(offset)  # None: before the log's start, where epochs are no longer known
    if header.base_offset != offset or epoch not in (None, header.leader_epoch):
        raise CorruptBatch(
            f"offset {header.base_offset} of epoch {header.leader_epoch} where {offset} of epoch {epoch} "
            "belongs"
        )
    return header
