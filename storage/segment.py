"""One segment: a file of record batches, named after its first offset, and its index.

Owns positions: at which byte an offset begins, where whole batches end, what of the file is durable. Does not
decide what is appended or kept. Keeps the positions of the newest batches in memory, so that reads near the
log's end, the common case, need no lookup; others need an index lookup and a walk over at most one index
interval of headers.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from holdfast.protocol.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, parse_header
from holdfast.runtime.api import Buffer, Disk, DiskError, File
from holdfast.storage.core.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_path
from holdfast.storage.index import IndexEntry, SegmentIndex

#: Largest offset within a segment: the index has 32 bits, of which Kafka leaves the sign bit free.
RELATIVE_OFFSET_MAX = (1 << 31) - 1
#: Newest batches whose positions are remembered; dropped in halves.
RECENT_BATCHES = 512
#: Bytes read at once by a walk over headers.
WALK_BYTES = 8 << 10
#: errno EIO, for content that differs from what was written.
_EIO = 5


class Segment:
    """A file of batches with rising offsets. A log's last segment is the active one; the others do not
    grow."""

    __slots__ = (
        "_index_interval_bytes",
        "_indexed_position",
        "_is_index_durable",
        "_recent_offsets",
        "_recent_positions",
        "base_offset",
        "first_append_ms",
        "flushed_size",
        "index",
        "is_open",
        "last_epoch",
        "log",
        "max_timestamp",
        "next_offset",
        "size",
    )

    def __init__(self, base_offset: int, log: File, index: SegmentIndex, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.log = log
        self.index = index
        self._index_interval_bytes = index_interval_bytes
        #: bytes of whole batches; bytes after them in the file do not count
        self.size = 0
        #: bytes known to survive a power loss
        self.flushed_size = 0
        #: end of the last batch, exclusive; `base_offset` while empty
        self.next_offset = base_offset
        #: largest timestamp of all batches, -1 for none
        self.max_timestamp = -1
        #: epoch of the last batch, -1 while empty
        self.last_epoch = -1
        #: monotonic time of the first append, or of the start that found records; None while empty
        self.first_append_ms: int | None = None
        #: False once closed or deleted: its files must not be used
        self.is_open = True
        self._is_index_durable = True
        #: position of the newest batch with an index entry
        self._indexed_position = 0
        # The newest batches, without gaps up to the end of the file.
        self._recent_offsets = array("Q")
        self._recent_positions = array("Q")

    @classmethod
    async def open(cls, disk: Disk, folder: str, base_offset: int, index_interval_bytes: int) -> "Segment":
        """Open the files of a segment, or create them. Their content is not read yet."""
        log = await disk.open(offset_path(folder, base_offset, LOG_SUFFIX), create=True)
        index = await SegmentIndex.open(disk, folder, base_offset)
        return cls(base_offset, log, index, index_interval_bytes)

    # --- growing ---------------------------------------------------------------------------------------

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append the bytes of whole batches and return their position; `note` must follow for each batch."""
        position = self.log.append(buffers)
        assert position == self.size, f"{self.log.path} has {position} bytes, expected {self.size}"
        return position

    def note(
        self, base_offset: int, next_offset: int, leader_epoch: int, max_timestamp: int, size_bytes: int
    ) -> None:
        """Record a batch that lies after those recorded so far."""
        position = self.size
        if position - self._indexed_position > self._index_interval_bytes:
            self.index.add(IndexEntry(base_offset - self.base_offset, position, self.max_timestamp))
            self._indexed_position = position
            self._is_index_durable = False
        offsets, positions = self._recent_offsets, self._recent_positions
        offsets.append(base_offset)
        positions.append(position)
        if len(offsets) > RECENT_BATCHES:
            del offsets[: RECENT_BATCHES // 2]
            del positions[: RECENT_BATCHES // 2]
        self.size = position + size_bytes
        self.next_offset = next_offset
        self.last_epoch = leader_epoch
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def adopt(self) -> bool:
        """Use a file that is known to be whole, by its index and a walk over what comes after the last entry.
        False when index or tail are not valid: then nothing may be trusted. Raises: DiskError."""
        if not self.index.is_sound(self.log.size):
            return False
        self._restart_from(self.index.last)
        try:
            for _, header in self._headers(self.size, self.log.size):
                if header.base_offset != self.next_offset or header.leader_epoch < self.last_epoch:
                    return False
                self._note_header(header)
        except CorruptBatch:
            return False
        self.flushed_size = self.size
        return self.size == self.log.size

    async def restart(self) -> None:
        """Drop the index and everything known, for a scan from the beginning of the file."""
        self.index.forget_from(0)
        self._is_index_durable = False
        self._restart_from(None)
        await self.index.trim()

    def cut(self, position: int) -> None:
        """Drop the batches from `position` on, a batch boundary. `trim` must follow before the next
        append."""
        assert 0 <= position <= self.size
        offset = self._header_at(position).base_offset if position < self.size else self.next_offset
        self.index.forget_from(self.index.count_below(offset - self.base_offset))
        self._is_index_durable = False
        self._restart_from(self.index.last)
        for _, header in self.headers(self.size, position):
            self._note_header(header)
        self.flushed_size = min(self.flushed_size, self.size)

    async def trim(self) -> None:
        """Truncate the files to the remaining batches, durably: nothing dropped may come back after later
        appends."""
        await self.index.trim()
        await self.cut_file()
        await self.log.flush()
        self.flushed_size = self.size

    async def cut_file(self) -> None:
        """Cut off bytes of the file after the last batch."""
        if self.log.size > self.size:
            await self.log.truncate(self.size)

    def _restart_from(self, entry: IndexEntry | None) -> None:
        self.size = self._indexed_position = entry.position if entry else 0
        self.next_offset = self.base_offset + (entry.relative_offset if entry else 0)
        self.max_timestamp = entry.max_timestamp_before if entry else -1
        self.last_epoch = -1
        del self._recent_offsets[:]
        del self._recent_positions[:]

    def _note_header(self, header: BatchHeader) -> None:
        self.note(
            header.base_offset,
            header.next_offset,
            header.leader_epoch,
            header.max_timestamp,
            header.size_bytes,
        )

    # --- finding ---------------------------------------------------------------------------------------

    def read(self, fetch_offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> bytes:
        """Whole batches from the one that holds `fetch_offset` on, all below `end_offset`, at most
        `max_bytes`; with `at_least_one` the first batch is returned whole. Raises: DiskError."""
        start = self.position_of(fetch_offset)
        limit = self.size if end_offset >= self.next_offset else self.position_of(end_offset)
        end = limit if limit - start <= max_bytes else self._border_at_or_below(start + max_bytes)
        if end <= start and at_least_one and start < limit:
            end = start + self._header_at(start).size_bytes
        return self.log.read_at(start, end - start) if end > start else b""

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` begins; the end of the file for the next offset."""
        assert self.base_offset <= offset <= self.next_offset
        if offset == self.next_offset:
            return self.size
        recent = self._recent_offsets
        if recent and offset >= recent[0]:
            return self._recent_positions[bisect_right(recent, offset) - 1]
        entry = self.index.floor_of_offset(offset - self.base_offset)
        for position, header in self.headers(entry.position if entry else 0, self.size):
            if header.next_offset > offset:
                if header.base_offset > offset:
                    break  # the index points past its batch
                return position
        raise self.broken(f"offset {offset} is not there")

    def find_timestamp(self, timestamp_ms: int) -> BatchHeader | None:
        """The first batch with a record at or after `timestamp_ms`, by the batches' largest timestamps."""
        if self.max_timestamp < timestamp_ms:
            return None
        entry = self.index.floor_of_timestamp(timestamp_ms)
        for _, header in self.headers(entry.position if entry else 0, self.size):
            if header.max_timestamp >= timestamp_ms:
                return header
        raise self.broken(f"no batch has timestamp {self.max_timestamp}")

    def first_header(self) -> BatchHeader | None:
        """The header of the first batch; None while empty."""
        return next((header for _, header in self.headers(0, self.size)), None)

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position`, a batch boundary, up to `end`. Raises:
        DiskError."""
        try:
            yield from self._headers(position, end)
        except CorruptBatch as error:
            raise self.broken(str(error)) from error

    def _headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        chunk, chunk_start = b"", position
        while position < end:
            if position + HEADER_SIZE > chunk_start + len(chunk):
                chunk, chunk_start = self.log.read_at(position, min(WALK_BYTES, end - position)), position
            header = parse_header(chunk, position - chunk_start)
            if position + header.size_bytes > end:
                raise CorruptBatch(f"batch at byte {position} ends behind byte {end}")
            yield position, header
            position += header.size_bytes

    def _border_at_or_below(self, limit: int) -> int:
        recent = self._recent_positions
        if recent and limit >= recent[0]:
            return recent[bisect_right(recent, limit) - 1]
        entry = self.index.floor_of_position(limit)
        border = entry.position if entry else 0
        for position, header in self.headers(border, self.size):
            border = position
            if position + header.size_bytes > limit:
                break
        return border

    def _header_at(self, position: int) -> BatchHeader:
        return next(header for _, header in self.headers(position, self.size))

    def broken(self, story: str) -> DiskError:
        """The error to raise about bytes that cannot be right."""
        return DiskError(
            self.log.path, "read", _EIO, f"{story}; stop the node and check with holdfast dump-log"
        )

    # --- keeping ---------------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        """Everything of this segment, index included, survives a power loss."""
        return self.flushed_size == self.size and self._is_index_durable

    async def flush(self) -> None:
        """Make durable what was in the log file when this was called (A-21)."""
        size = self.size
        if size > self.flushed_size:
            await self.log.flush()
            self.flushed_size = max(self.flushed_size, size)

    async def flush_whole(self) -> None:
        """Make log and index durable, for a segment that grows no more."""
        await self.flush()
        if not self._is_index_durable:
            await self.index.flush()
            self._is_index_durable = True

    async def close(self) -> None:
        """Close the files without flushing."""
        self.is_open = False
        await self.log.close()
        await self.index.close()

    async def delete(self, disk: Disk) -> None:
        """Close and unlink the files, the log last: the next start deletes an index without a log."""
        await self.close()
        for path in (*self.index.paths, self.log.path):
            await disk.unlink(path)


def segment_paths(folder: str, base_offset: int) -> tuple[str, ...]:
    """The files of a segment, in the order in which they are unlinked."""
    return tuple(
        offset_path(folder, base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)
    )
