"""One segment: a file of record batches, named after its first offset, and its index.

Owns positions: at which byte an offset begins, where whole batches end, what of the file is durable. Does not
decide what is appended or kept. Keeps the positions of the newest batches in memory, so that reads near the
log's end, the common case, need no lookup; others need an index lookup and a walk over at most one index
interval of headers. An index entry is used only if its batch is found where it points; else the index is
built again from the headers. Headers that cannot be right are the log's damage: CorruptLog.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from holdfast.protocol.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, parse_header
from holdfast.runtime.api import Buffer, Disk, File
from holdfast.storage.core.config import SEGMENT_OFFSETS_MAX, LogConfig
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_path
from holdfast.storage.core.walked_times import WalkedTimes
from holdfast.storage.index import DamagedIndex, IndexEntry, SegmentIndex

#: Newest batches whose positions are remembered; dropped in halves.
RECENT_BATCHES = 512
#: Bytes read at once by a walk over headers.
WALK_BYTES = 8 << 10


class Segment:
    """A file of batches with rising offsets. A log's last segment is the active one; the others do not
    grow."""

    __slots__ = (
        "index_interval_bytes",
        "_indexed_position",
        "_is_index_durable",
        "_recent_offsets",
        "_recent_positions",
        "_unverified_size",
        "_walked_times",
        "base_offset",
        "first_append_ms",
        "flushed_size",
        "index",
        "is_open",
        "last_epoch",
        "log",
        "max_timestamp",
        "newest_ms",
        "next_offset",
        "size",
    )

    def __init__(self, base_offset: int, log: File, index: SegmentIndex, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.log = log
        self.index = index
        self.index_interval_bytes = index_interval_bytes
        #: bytes of whole batches; bytes after them in the file do not count
        self.size = 0
        #: bytes known to survive a power loss
        self.flushed_size = 0
        #: end of the last batch, exclusive; `base_offset` while empty
        self.next_offset = base_offset
        #: largest timestamp of all batches, -1 for none: its age
        self.max_timestamp = -1
        #: largest timestamp of the batches that have records, as compaction has emptied some; -1 for none
        self.newest_ms = -1
        #: epoch of the last batch, -1 while empty
        self.last_epoch = -1
        #: monotonic time of the first append, or of the start that found records; None while empty
        self.first_append_ms: int | None = None
        #: False once closed or deleted: its files must not be used
        self.is_open = True
        self._is_index_durable = True
        #: bytes at the beginning whose crc this process has not seen
        self._unverified_size = 0
        #: position of the newest batch with an index entry
        self._indexed_position = 0
        # The newest batches, without gaps up to the end of the file.
        self._recent_offsets = array("Q")
        self._recent_positions = array("Q")
        #: from the log start on, when that lies within the segment and was asked for
        self._walked_times: WalkedTimes | None = None

    @classmethod
    async def open(
        cls, disk: Disk, folder: str, base_offset: int, index_interval_bytes: int, ending: str = ""
    ) -> "Segment":
        """Open the files of a segment, or create them, with an ending behind their usual names. Their content
        is not read yet."""
        log = await disk.open(offset_path(folder, base_offset, LOG_SUFFIX + ending), create=True)
        index = await SegmentIndex.open(disk, folder, base_offset, ending)
        return cls(base_offset, log, index, index_interval_bytes)

    @property
    def files(self) -> tuple[File, ...]:
        """In the order of `segment_paths`."""
        return (*self.index.files, self.log)

    # --- growing ---------------------------------------------------------------------------------------

    def is_full(self, next_size_bytes: int, config: LogConfig) -> bool:
        """True when a batch of that size is too much for it: by size, index or offsets."""
        return (
            self.size + next_size_bytes > config.segment_bytes
            or self.index.size_bytes >= config.index_max_bytes
            or self.next_offset - self.base_offset > SEGMENT_OFFSETS_MAX
        )

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append the bytes of whole batches and return their position; `note` must follow for each batch."""
        position = self.log.append(buffers)
        assert position == self.size, f"{self.log.path} has {position} bytes, expected {self.size}"
        return position

    def note(self, header: BatchHeader, base_offset: int, leader_epoch: int) -> None:
        """Record a batch that lies after those recorded so far, as it was stamped: with this offset and
        epoch."""
        position, max_timestamp = self.size, header.max_timestamp
        if position - self._indexed_position > self.index_interval_bytes:
            self.index.add(IndexEntry(base_offset - self.base_offset, position, self.newest_ms))
            self._indexed_position = position
            self._is_index_durable = False
        offsets, positions = self._recent_offsets, self._recent_positions
        offsets.append(base_offset)
        positions.append(position)
        if len(offsets) > RECENT_BATCHES:
            del offsets[: RECENT_BATCHES // 2]
            del positions[: RECENT_BATCHES // 2]
        self.size = position + header.size_bytes
        self.next_offset = base_offset + header.last_offset_delta + 1
        self.last_epoch = leader_epoch
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        if max_timestamp > self.newest_ms and header.record_count:
            self.newest_ms = max_timestamp

    def adopt(self) -> bool:
        """Use a file that is known to be whole, by its index and a walk over what comes after the last entry.
        False when index or tail are not valid: then nothing may be trusted. Raises: DiskError."""
        if not self.index.is_sound(self.log.size) or not self._is_true(self.index.last, with_time=True):
            return False
        self._restart_from(self.index.last)
        self._unverified_size = self.log.size
        try:
            for _, header in self._headers(self.size, self.log.size):
                if header.base_offset != self.next_offset or header.leader_epoch < self.last_epoch:
                    return False
                self.note_as_it_is(header)
        except CorruptBatch:
            return False
        self.flushed_size = self.size
        return self.size == self.log.size

    async def restart(self) -> None:
        """Drop the index and everything known, for a scan from the beginning of the file."""
        self.index.forget_from(0)
        self._is_index_durable = False
        self._restart_from(None)
        self._unverified_size = 0
        await self.index.trim()

    async def cut_from(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all behind it, as `cut` does."""
        self.cut(self.position_of(offset))

    def cut(self, position: int) -> None:
        """Drop the batches from `position` on, a batch boundary. `trim` must follow before the next
        append. Raises: DiskError, and drops nothing."""
        assert 0 <= position <= self.size
        offset = self._header_at(position).base_offset if position < self.size else self.next_offset
        self._keep_index_below(offset - self.base_offset)
        last = self.index.last
        kept = [header for _, header in self.headers(last.position if last else 0, position)]
        # Nothing is read from here on, so nothing can be short.
        self._is_index_durable = False
        self._restart_from(last)
        for header in kept:
            self.note_as_it_is(header)
        self.flushed_size = min(self.flushed_size, self.size)
        self._unverified_size = min(self._unverified_size, self.size)

    def _keep_index_below(self, relative_offset: int) -> None:
        """Drop the entries from an offset on; all of them when the last one that is left is false. May be
        tried again after an error: an index may always have fewer entries."""
        try:
            self.index.forget_from(self.index.count_below(relative_offset))
        except DamagedIndex:
            self.index.forget_from(0)
        if not self._is_true(self.index.last, with_time=True):
            self.index.forget_from(0)

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
        self.newest_ms = self.max_timestamp
        self.last_epoch = -1
        self._walked_times = None
        del self._recent_offsets[:]
        del self._recent_positions[:]

    def note_as_it_is(self, header: BatchHeader) -> None:
        """Record a batch whose header has its offset and epoch."""
        self.note(header, header.base_offset, header.leader_epoch)

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

    def is_cold(self, offset: int) -> bool:
        """The batch that holds `offset` is not among the newest, or was there when the segment was opened:
        its bytes come from the disk, and their crc is not known to be right."""
        recent = self._recent_offsets
        if not recent or offset < recent[0]:
            return True
        return self._recent_positions[bisect_right(recent, offset) - 1] < self._unverified_size

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` begins; the end of the file for the next offset. Raises:
        DiskError."""
        assert self.base_offset <= offset <= self.next_offset
        if offset == self.next_offset:
            return self.size
        recent = self._recent_offsets
        if recent and offset >= recent[0]:
            return self._recent_positions[bisect_right(recent, offset) - 1]
        start = self._start_at(lambda: self.index.floor_of_offset(offset - self.base_offset))
        for position, header in self.headers(start, self.size):
            if header.next_offset > offset:
                if header.base_offset > offset:
                    raise self.broken(f"offset {offset} is not there", position)
                return position
        raise self.broken(f"offset {offset} is not there", start)

    def walk_times(self, from_offset: int, timestamp_ms: int | None, count: int) -> bool:
        """Walk over the next `count` headers from `from_offset` on, until a batch at or after `timestamp_ms`
        is among them; None: to the end. What was walked over is remembered for `from_offset`. True when there
        are more to walk over. Raises: DiskError."""
        wanted_ms = 0 if timestamp_ms is None else timestamp_ms
        if from_offset <= self.base_offset or self.newest_ms < wanted_ms:
            return False
        times = self._walked_times
        if times is None or times.from_offset != from_offset:
            times = self._walked_times = WalkedTimes(from_offset, self._position_behind(from_offset))
        for _, header in islice(self.headers(times.position, self.size), count):
            if timestamp_ms is not None and times.newest_ms >= timestamp_ms:
                return False
            times.note(header)
        return times.position < self.size

    def _position_behind(self, offset: int) -> int:
        """Where the first batch begins that has no record below `offset`."""
        position = self.position_of(offset)
        if position == self.size:
            return position
        header = self._header_at(position)
        return position + header.size_bytes if header.base_offset < offset else position

    def newest_from(self, from_offset: int) -> int:
        """The largest timestamp of the batches that begin at `from_offset` or later and have records, -1 for
        none. Where that lies within the segment, `walk_times` has come to its end."""
        if from_offset <= self.base_offset or self.newest_ms < 0:
            return self.newest_ms
        times = self._walked_times
        assert times is not None
        assert (times.from_offset, times.position) == (from_offset, self.size)
        return times.newest_ms

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> BatchHeader | None:
        """The first batch that begins at `from_offset` or later and has a record at or after `timestamp_ms`,
        by the batches' largest timestamps. Where `from_offset` lies within the segment, among those that
        `walk_times` has come over. Raises: DiskError."""
        if self.newest_ms < timestamp_ms:
            return None
        if from_offset > self.base_offset:
            times = self._walked_times
            assert times is not None
            assert times.from_offset == from_offset
            return self._first_since(timestamp_ms, times.floor(timestamp_ms), times.position)
        start = self._start_at(lambda: self.index.floor_of_timestamp(timestamp_ms), with_time=True)
        found = self._first_since(timestamp_ms, start, self.size)
        if found is None:
            self._index_again()  # an earlier build has counted emptied batches in it
            found = self._first_since(timestamp_ms, 0, self.size)
        return found

    def _first_since(self, timestamp_ms: int, start: int, end: int) -> BatchHeader | None:
        for _, header in self.headers(start, end):
            if header.max_timestamp >= timestamp_ms and header.record_count:
                return header
        return None

    def _start_at(self, find: Callable[[], IndexEntry | None], *, with_time: bool = False) -> int:
        """The position of the index entry that `find` looks up, once its batch was found there; 0 without
        one."""
        try:
            entry = find()
            is_true = self._is_true(entry, with_time=with_time)
        except DamagedIndex:
            entry, is_true = None, False
        if not is_true:
            self._index_again()
            entry = find()
        return entry.position if entry else 0

    def _is_true(self, entry: IndexEntry | None, *, with_time: bool = False) -> bool:
        """The log has the entry's batch at its position, and before it (with `with_time`) the timestamps that
        the entry names, as far back as the entry before."""
        if entry is None:
            return True
        try:
            if entry.position >= self.log.size:
                return False
            _, header = next(self._headers(entry.position, self.log.size))
            if header.base_offset != self.base_offset + entry.relative_offset:
                return False
            return not with_time or self._newest_before(entry) == entry.max_timestamp_before
        except (CorruptBatch, DamagedIndex):
            return False

    def _newest_before(self, entry: IndexEntry) -> int:
        known = self.index.before(entry)
        newest = known.max_timestamp_before if known else -1
        for _, header in self._headers(known.position if known else 0, entry.position):
            if header.record_count:
                newest = max(newest, header.max_timestamp)
        return newest

    def _index_again(self) -> None:
        """Build the index from all headers, in memory until it is flushed. Raises: CorruptLog."""
        self.index.forget_from(0)
        self._is_index_durable = False
        indexed_position, newest = 0, -1
        for position, header in self.headers(0, self.size):
            if position - indexed_position > self.index_interval_bytes:
                self.index.add(IndexEntry(header.base_offset - self.base_offset, position, newest))
                indexed_position = position
            if header.record_count:
                newest = max(newest, header.max_timestamp)
        self._indexed_position = indexed_position
        self.newest_ms = newest

    def header_of(self, offset: int) -> BatchHeader:
        """The header of the batch that holds `offset`, below the end. Raises: DiskError."""
        return self._header_at(self.position_of(offset))

    def first_header(self) -> BatchHeader | None:
        """The header of the first batch; None while empty."""
        return next((header for _, header in self.headers(0, self.size)), None)

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position`, a batch boundary, up to `end`. Raises:
        DiskError, CorruptLog."""
        at = position
        try:
            for at, header in self._headers(position, end):
                yield at, header
                at += header.size_bytes
        except CorruptBatch as error:
            raise self.broken(str(error), at) from error

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
        border = self._start_at(lambda: self.index.floor_of_position(limit))
        for position, header in self.headers(border, self.size):
            border = position
            if position + header.size_bytes > limit:
                break
        return border

    def _header_at(self, position: int) -> BatchHeader:
        return next(header for _, header in self.headers(position, self.size))

    def broken(self, story: str, position: int = 0) -> CorruptLog:
        """The error to raise about bytes that cannot be right."""
        return CorruptLog(self.log.path, position, story)

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
