"""The sparse index of one segment: positions of batches by offset and by time.

Owns two files with the same number of entries. Entry k of `.index` is (relative offset u32, position u32) of
a batch, as in Kafka; entry k of `.timeindex` is (largest timestamp of all batches before that one i64, its
relative offset u32). New entries stay in memory until a block is full; lookups read single blocks, so an
index of any size needs no memory. Entries are not flushed one by one: after an unclean stop, the index of a
scanned segment is built again. An index is derived: the segment verifies each entry that it uses against
the log, and builds the index again in memory when one is false; `flush` replaces the files.
"""

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import NamedTuple

from holdfast.runtime.api import Disk, File, OutOfResources
from holdfast.storage.core.files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_path
from holdfast.storage.shortage import stored

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_WORD_BYTES = 4
#: Entries read or written at once: 4 KiB of `.index`, 2 MiB of log at the default interval.
BLOCK_ENTRIES = 512


class DamagedIndex(Exception):
    """An index file is shorter than its entries: it was cut since it was opened."""


class IndexEntry(NamedTuple):
    """One indexed batch."""

    relative_offset: int
    position: int
    #: largest timestamp of all batches before this one, -1 for none
    max_timestamp_before: int


class _EntryFile:
    """Fixed-size entries in a file; the newest are still in memory. A read-only sequence for bisect."""

    __slots__ = ("_block", "_block_number", "_entry", "_tail", "count", "file", "stored_count")

    def __init__(self, file: File, entry: struct.Struct) -> None:
        self.file = file
        self._entry = entry
        self.stored_count = file.size // entry.size
        self.count = self.stored_count
        self._tail = bytearray()
        self._block = b""
        self._block_number = -1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[int, ...]:
        if number >= self.stored_count:
            if number >= self.count:
                raise IndexError(number)
            return self._entry.unpack_from(self._tail, (number - self.stored_count) * self._entry.size)
        block_number, place = divmod(number, BLOCK_ENTRIES)
        if block_number != self._block_number:
            block_bytes = BLOCK_ENTRIES * self._entry.size
            self._block = self.file.read_at(block_number * block_bytes, block_bytes)
            self._block_number = block_number
        try:
            return self._entry.unpack_from(self._block, place * self._entry.size)
        except struct.error:
            raise DamagedIndex(self.file.path) from None

    def add(self, *fields: int) -> None:
        self._tail += self._entry.pack(*fields)
        self.count += 1

    def store(self) -> None:
        # A file that is still to be trimmed has other bytes where these belong.
        if self._tail and self.file.size == self.stored_count * self._entry.size:
            self.file.append([bytes(self._tail)])
            self._tail.clear()
            self.stored_count = self.count
            self._block_number = -1

    async def flush(self) -> None:
        await stored(self.file, self.store)
        await self.file.flush()

    def forget_from(self, count: int) -> None:
        del self._tail[max(0, count - self.stored_count) * self._entry.size :]
        self.stored_count = min(count, self.stored_count)
        self.count = count
        self._block_number = -1

    async def trim(self) -> None:
        if self.file.size > self.stored_count * self._entry.size:
            await self.file.truncate(self.stored_count * self._entry.size)


class SegmentIndex:
    """The entries of one segment, rising in offset and position. Synchronous calls raise DiskError, lookups
    DamagedIndex too."""

    __slots__ = ("_offsets", "_times")

    def __init__(self, offsets: File, times: File) -> None:
        self._offsets = _EntryFile(offsets, _OFFSET_ENTRY)
        self._times = _EntryFile(times, _TIME_ENTRY)

    @classmethod
    async def open(cls, disk: Disk, folder: str, base_offset: int, ending: str = "") -> "SegmentIndex":
        """Open both files, or create them empty; `ending` stands behind their names."""
        offsets = await disk.open(offset_path(folder, base_offset, INDEX_SUFFIX + ending), create=True)
        times = await disk.open(offset_path(folder, base_offset, TIME_INDEX_SUFFIX + ending), create=True)
        return cls(offsets, times)

    def __len__(self) -> int:
        return self._offsets.count

    @property
    def size_bytes(self) -> int:
        """Bytes of the larger one of the two files, with what is in memory still."""
        return self._offsets.count * _TIME_ENTRY.size

    @property
    def files(self) -> tuple[File, File]:
        """Both, for what is done with files."""
        return self._offsets.file, self._times.file

    @property
    def paths(self) -> tuple[str, str]:
        """Both files."""
        return self._offsets.file.path, self._times.file.path

    def entry(self, number: int) -> IndexEntry:
        """Entry `number`, from 0."""
        relative_offset, position = self._offsets[number]
        return IndexEntry(relative_offset, position, self._times[number][0])

    @property
    def last(self) -> IndexEntry | None:
        """The newest entry."""
        return self.entry(len(self) - 1) if len(self) else None

    def add(self, entry: IndexEntry) -> None:
        """Append an entry, larger in offset and position than all before."""
        self._offsets.add(entry.relative_offset, entry.position)
        self._times.add(entry.max_timestamp_before, entry.relative_offset)
        if self._offsets.count - self._offsets.stored_count >= BLOCK_ENTRIES:
            with suppress(OutOfResources):  # kept in memory; the next entry tries again
                self.store()

    def before(self, entry: IndexEntry) -> IndexEntry | None:
        """The entry before this one, None for the first."""
        return self._before(self.count_below(entry.relative_offset))

    def floor_of_offset(self, relative_offset: int) -> IndexEntry | None:
        """The last entry at or below an offset: a scan from there finds it within one index interval."""
        return self._before(bisect_right(self._offsets, relative_offset, key=_first))

    def floor_of_position(self, position: int) -> IndexEntry | None:
        """The last entry at or below a position."""
        return self._before(bisect_right(self._offsets, position, key=_second))

    def floor_of_timestamp(self, timestamp_ms: int) -> IndexEntry | None:
        """The last entry before which all batches are earlier than `timestamp_ms`."""
        return self._before(bisect_left(self._times, timestamp_ms, key=_first))

    def count_below(self, relative_offset: int) -> int:
        """Entries whose batch begins below an offset."""
        return bisect_left(self._offsets, relative_offset, key=_first)

    def _before(self, number: int) -> IndexEntry | None:
        return self.entry(number - 1) if number else None

    def is_sound(self, log_size: int) -> bool:
        """True when the files can be an index of a log file of `log_size` bytes: whole entries, the same
        number in both, rising, inside the log. Reads both files whole."""
        offsets, times = self._offsets.file, self._times.file
        count = offsets.size // _OFFSET_ENTRY.size
        if offsets.size != count * _OFFSET_ENTRY.size or times.size != count * _TIME_ENTRY.size:
            return False
        numbers = _words(offsets)
        relative, positions = numbers[0::2], numbers[1::2]
        if not (_rises(relative) and _rises(positions)):
            return False
        if count and not (relative[0] > 0 and positions[0] > 0 and positions[-1] < log_size):
            return False
        return _words(times)[2::3] == relative

    def store(self) -> None:
        """Write the entries in memory to the page cache."""
        self._offsets.store()
        self._times.store()

    def forget_from(self, count: int) -> None:
        """Keep the first `count` entries. What is added before `trim` stays in memory until then."""
        assert 0 <= count <= len(self)
        self._offsets.forget_from(count)
        self._times.forget_from(count)

    async def trim(self) -> None:
        """Truncate the files to the remaining entries."""
        await self._offsets.trim()
        await self._times.trim()

    async def flush(self) -> None:
        """Make every entry durable."""
        await self.trim()
        await self._offsets.flush()
        await self._times.flush()

    async def close(self) -> None:
        """Close both files; entries that were not stored are dropped."""
        await self._offsets.file.close()
        await self._times.file.close()


def _first(entry: tuple[int, ...]) -> int:
    return entry[0]


def _second(entry: tuple[int, ...]) -> int:
    return entry[1]


def _words(file: File) -> "array[int]":
    words = array("I", file.read_at(0, file.size))
    assert words.itemsize == _WORD_BYTES
    if sys.byteorder == "little":
        words.byteswap()  # the files are big endian
    return words


def _rises(values: "array[int]") -> bool:
    return all(map(operator.lt, values, values[1:]))
