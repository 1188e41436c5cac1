"""Compacts the closed segments of one log: maps keys, writes segments anew, swaps them in.

Owns the steps and what a crash may find. Small neighbours are written as one. A cleaned segment has the name
and first offset of the oldest it is made of and the last offset of the newest. It is written beside them
(`.cleaned`) and flushed; then readers get it at once, and its files take the oldest one's names one after the
other: that one's index goes first, so that none stands beside a log that it is not of. Only when that is
durable do the other ones go. A start deletes what is still called `.cleaned`, and a segment that begins
within the one before it (`storage.recovery`). `cleaner-offset-checkpoint` beside the segments says how far
the log was cleaned; it goes before the log's end falls below that. The log goes on meanwhile: where a
truncation, retention or the end of the log comes first, what was written is thrown away.
`storage.core.compaction` decides what stays, `storage.core.cleaner_plan` what becomes one.
"""

from collections.abc import Awaitable, Callable, Container, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from holdfast.protocol.frames import ATTACHMENT_MAX_BYTES
from holdfast.protocol.record_batch import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch, parse_header
from holdfast.runtime.api import Disk, DiskError, File, FileMissing
from holdfast.storage import checkpoint
from holdfast.storage.core.cleaner_plan import Dirt, SegmentShape, dirt_of, group_sizes
from holdfast.storage.core.compaction import CleaningCounts, Compactor, KeyMap
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import CLEANED_SUFFIX, CLEANER_CHECKPOINT
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.flusher import Flusher
from holdfast.storage.log_guard import LogGuard
from holdfast.storage.segment import Segment, segment_paths
from holdfast.storage.segment_list import SegmentList, age_of
from holdfast.storage.segment_scrub import check_in_place

#: Bytes read and worked on at a time.
SLICE_BYTES = 256 << 10

T = TypeVar("T")


class Uncleanable(Exception):
    """The records of a batch whose crc is right cannot be read: the log stays as it is."""


@dataclass(frozen=True, slots=True)
class CleanerTools:
    """What a cleaning needs of its surroundings."""

    #: run a computation beside the event loop
    compute: Callable[[Callable[[], Any]], Awaitable[Any]]
    #: keep the rate after so many bytes; False when the cleaning is to end
    pause: Callable[[int], Awaitable[bool]]
    #: run a change of the log's files when no other is under way
    in_turn: Callable[[Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]]
    memory_bytes: int
    wall_ms: int


class _Batch(NamedTuple):
    header: BatchHeader
    data: memoryview


class _Ended(Exception):
    """The log, the segment or the cleaner goes no further."""


class LogCleaning:
    """The compaction of one log."""

    __slots__ = (
        "_cut_count",
        "_disk",
        "_epochs",
        "_flusher",
        "_folder",
        "_guard",
        "_is_stored",
        "_segments",
        "changed_offset",
        "clean_offset",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segments: SegmentList,
        guard: LogGuard,
        flusher: Flusher,
        epochs: LeaderEpochCache,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._segments = segments
        self._guard = guard
        self._flusher = flusher
        self._epochs = epochs
        self._cut_count = 0
        #: there may be a checkpoint
        self._is_stored = False
        #: all below was cleaned
        self.clean_offset = 0
        #: a record that is missing may have its successor up to here: cut below, the log would lack its key
        self.changed_offset = 0

    async def load(self, names: Container[str], end_offset: int) -> None:
        """Go on where an earlier process has stopped. `names`: files in the folder; the log ends at
        `end_offset`. Raises: DiskError."""
        if CLEANER_CHECKPOINT not in names:
            return
        self._is_stored = True
        text = await checkpoint.read_text(self._disk, self._checkpoint)
        rows = checkpoint.decode_numbers(text, 2) if text is not None else None
        if rows is not None and len(rows) == 1 and max(rows[0]) <= end_offset:
            self.clean_offset, self.changed_offset = rows[0]
        else:
            await self._forget()  # unreadable, or the log has lost some of it

    async def store(self) -> None:
        """Remember how far the log was cleaned. No change of the log may be under way. Raises: DiskError."""
        if self._guard.is_usable:
            await self._store(self.changed_offset)

    async def _store(self, changed_offset: int) -> None:
        self._is_stored = True
        text = checkpoint.encode_rows([(self.clean_offset, changed_offset)])
        await checkpoint.write_atomically(self._disk, self._checkpoint, text)

    async def before_cut(self, offset: int) -> None:
        """The log is about to end at `offset`, or to begin anew there: forget durably what will be untrue.
        Raises: DiskError."""
        if self._is_stored and offset < max(self.clean_offset, self.changed_offset):
            await self._forget()

    def was_cut(self, end_offset: int) -> None:
        """The log's end has fallen, or it begins anew."""
        self._cut_count += 1
        self.clean_offset = min(self.clean_offset, end_offset)
        if end_offset < self.changed_offset:
            self.changed_offset = 0  # nothing is left of the log

    @property
    def is_usable(self) -> bool:
        """The log is open, and nothing has failed."""
        return self._guard.is_usable

    @property
    def _checkpoint(self) -> str:
        return f"{self._folder}/{CLEANER_CHECKPOINT}"

    async def _forget(self) -> None:
        with suppress(FileMissing):
            await self._disk.unlink(self._checkpoint)
        await self._disk.sync_folder(self._folder)
        self._is_stored = False

    def dirt(self, config: LogConfig, kept_offset: int, wall_ms: int) -> Dirt:
        """What may be cleaned now; `kept_offset`: the lower one of high watermark and flushed offset."""
        closed = []
        for segment in self._segments:
            if segment is self._segments.active or segment.flushed_size < segment.size:
                break
            closed.append(age_of(segment))
        return dirt_of(
            closed,
            config,
            base_offset=self._segments.base_offset,
            clean_offset=self.clean_offset,
            kept_offset=kept_offset,
            wall_ms=wall_ms,
        )

    def oldest_dirty_ms(self, dirt: Dirt) -> int:
        """Timestamp of the first dirty batch, -1 without one. Raises: DiskError."""
        with self._guard.failing():
            header = self._segments.holder_of(dirt.start_offset).first_header()
        return -1 if header is None else header.max_timestamp

    # --- cleaning --------------------------------------------------------------------------------------

    async def clean(
        self, dirt: Dirt, config: LogConfig, producers: ProducerState, tools: CleanerTools
    ) -> CleaningCounts:
        """Clean all segments up to where the map of keys reaches. Returns what was done, also when the log
        was cut, closed or deleted meanwhile. Raises: DiskError, CorruptLog, Uncleanable."""
        counts, cut_count = CleaningCounts(), self._cut_count
        try:
            keys = await self._keys(dirt, cut_count, tools)
            remembered = producers.ends()
            for group in self._groups(config, keys.end_offset):
                if self._cut_count != cut_count:
                    break
                compactor = Compactor(keys, remembered, tools.wall_ms, config.delete_retention_ms)
                await self._clean_group(group, cut_count, keys.end_offset, compactor, tools)
                counts.add(compactor.counts)
        except _Ended:
            return counts
        if self._cut_count == cut_count:
            self.clean_offset = max(self.clean_offset, keys.end_offset)
        return counts

    def _closed(self, start_offset: int, end_offset: int) -> list[Segment]:
        """The segments that lie in part within a range, as they are now."""
        return [
            segment
            for segment in self._segments
            if segment.base_offset < end_offset
            and segment.next_offset > start_offset
            and segment is not self._segments.active
        ]

    def _groups(self, config: LogConfig, end_offset: int) -> list[list[Segment]]:
        """The segments to be cleaned; neighbours that become one are together."""
        closed = self._closed(self._segments.base_offset, end_offset)
        shapes = [
            SegmentShape(segment.base_offset, segment.next_offset, segment.size, segment.index.size_bytes)
            for segment in closed
        ]
        rest = iter(closed)
        return [
            list(islice(rest, size)) for size in group_sizes(shapes, config, self._epochs_start, end_offset)
        ]

    @property
    def _epochs_start(self) -> int:
        """Where the leader epochs begin. By that a start tells segments that were being deleted: none that
        begins below may have others merged into it."""
        entries = self._epochs.entries
        return entries[0].start_offset if entries else 0

    async def _keys(self, dirt: Dirt, cut_count: int, tools: CleanerTools) -> KeyMap:
        keys = KeyMap(tools.memory_bytes, self.clean_offset)
        for segment in self._closed(dirt.start_offset, dirt.end_offset):
            reader = await self._reader(segment, cut_count, tools)
            try:
                while not keys.is_full and (batches := await self._next(reader)):
                    await _computed(tools, partial(_take_keys, keys, batches))
            except Exception:
                await reader.close()
                raise
            await reader.close()
        return keys

    async def _clean_group(
        self,
        group: list[Segment],
        cut_count: int,
        end_offset: int,
        compactor: Compactor,
        tools: CleanerTools,
    ) -> None:
        if not group[0].is_open:  # the first to go: retention begins with the oldest
            return
        base_offset = group[0].base_offset
        await self._discard(base_offset)
        made: list[Segment] = []
        try:
            await self._write_anew(group, made, cut_count, end_offset, compactor, tools)
        except Exception as error:
            await self._end(base_offset, made)
            is_of_log = error is self._guard.failure
            if isinstance(error, DiskError) and not (is_of_log or self._guard.is_usable):
                raise _Ended from None  # its folder may be gone
            raise
        await self._end(base_offset, made)

    async def _write_anew(
        self,
        group: list[Segment],
        made: list[Segment],
        cut_count: int,
        end_offset: int,
        compactor: Compactor,
        tools: CleanerTools,
    ) -> None:
        """Write the segments anew as one, into `made`, and swap that in when it differs. `end_offset`: of the
        map of keys."""
        first = group[0]
        cleaned = await Segment.open(
            self._disk, self._folder, first.base_offset, first.index_interval_bytes, CLEANED_SUFFIX
        )
        made.append(cleaned)
        for segment in group:
            reader = await self._reader(segment, cut_count, tools)
            try:
                while batches := await self._next(reader):
                    _write(cleaned, await _computed(tools, partial(_compacted, compactor, batches)))
            except Exception:
                await reader.close()
                raise
            await reader.close()  # the last handle: the renames free an old file, in their thread
        _write(cleaned, compactor.end())
        if compactor.has_changed or len(group) > 1:
            await cleaned.flush_whole()
            changed_offset = end_offset if compactor.has_changed else 0
            await tools.in_turn(partial(self._swap, group, cleaned, cut_count, changed_offset))

    async def _end(self, base_offset: int, made: list[Segment]) -> None:
        """Delete what was written unless it belongs to the log now."""
        for cleaned in made:
            if cleaned not in self._segments:
                await cleaned.close()
        if not all(cleaned in self._segments for cleaned in made):
            await self._discard(base_offset)

    async def _reader(self, segment: Segment, cut_count: int, tools: CleanerTools) -> "_Reader":
        path = segment_paths(self._folder, segment.base_offset)[-1]
        try:
            # A handle of its own: the scrub may be reading the segment aside, too.
            file = await self._disk.open(path, create=False)
        except FileMissing as error:
            if not (segment.is_open and self._guard.is_usable):
                raise _Ended from None
            self._guard.fail(error)
            raise
        return _Reader(segment, file, self._epochs, tools, cut_count)

    async def _next(self, reader: "_Reader") -> list[_Batch]:
        """The next batches of a segment; none at its end. Raises: _Ended when it is not to be read on."""
        self._check_goes_on(reader)
        try:
            batches = await reader.next()
        except DiskError as error:
            self._check_goes_on(reader)
            self._guard.fail(error)
            raise
        self._check_goes_on(reader)
        return batches

    def _check_goes_on(self, reader: "_Reader") -> None:
        """Raises: _Ended when the log was cut, which may have changed the bytes in its segment, or closed."""
        is_there = reader.segment.is_open and self._guard.is_usable
        if not is_there or self._cut_count != reader.cut_count:
            raise _Ended from None

    # --- the swap --------------------------------------------------------------------------------------

    async def _swap(self, old: list[Segment], cleaned: Segment, cut_count: int, changed_offset: int) -> None:
        """Put a cleaned segment in the place of the old ones, unless one of them is there no more."""
        if self._cut_count != cut_count or not old[0].is_open or not self._guard.is_usable:
            return
        if len(old) > 1 and old[0].base_offset < self._epochs_start:
            return
        if self.changed_offset < changed_offset:
            await self._store(changed_offset)
            self.changed_offset = changed_offset
        paths = segment_paths(self._folder, old[0].base_offset)
        async with self._guard.change("compact"):
            await self._flusher.wait_idle()
            self._segments.exchange(old, cleaned)  # readers find it from here on
            self._flusher.forget(old)
            for segment in old:
                await segment.close()
            for path in paths[:-1]:
                await self._disk.unlink(path)
            # the log before its index: an index beside no log of its own is no proof of anything
            for file, path in zip(reversed(cleaned.files), reversed(paths), strict=True):
                await file.rename(path)
            await self._disk.sync_folder(self._folder)
            if len(old) > 1:
                for segment in old[1:]:
                    for path in segment_paths(self._folder, segment.base_offset):
                        await self._disk.unlink(path)
                await self._disk.sync_folder(self._folder)

    async def _discard(self, base_offset: int) -> None:
        for path in segment_paths(self._folder, base_offset):
            with suppress(FileMissing):
                await self._disk.unlink(path + CLEANED_SUFFIX)


class _Reader:
    """Reads a closed segment in slices of whole batches, and checks them as the scrub does."""

    def __init__(
        self, segment: Segment, file: File, epochs: LeaderEpochCache, tools: CleanerTools, cut_count: int
    ) -> None:
        self.segment = segment
        #: of the log, when what reads was begun
        self.cut_count = cut_count
        self._file = file
        self._epochs = epochs
        self._tools = tools
        self._position = 0
        self._end = segment.size
        self._next_offset = segment.base_offset

    async def close(self) -> None:
        await self._file.close()

    async def next(self) -> list[_Batch]:
        """Raises: DiskError, CorruptLog, _Ended."""
        left = self._end - self._position
        if not left:
            return []
        data = await self._file.read_aside(self._position, min(left, SLICE_BYTES))
        try:
            first = parse_header(data).size_bytes if len(data) >= HEADER_SIZE else left + 1
            if first > min(left, ATTACHMENT_MAX_BYTES):
                raise CorruptBatch("a batch is longer than what is left of the segment")
            if first > len(data):
                data = await self._file.read_aside(self._position, first)
            batches = list(self._checked(data))
        except CorruptBatch as error:
            raise self.segment.broken(str(error), self._position) from error
        if not await self._tools.pause(sum(len(batch.data) for batch in batches)):
            raise _Ended
        return batches

    def _checked(self, data: bytes) -> Iterator[_Batch]:
        at, view = 0, memoryview(data)
        while at + HEADER_SIZE <= len(data):
            end = at + parse_header(data, at).size_bytes
            if end > len(data):
                break
            header = check_in_place(data, at, self._next_offset, self._epochs.epoch_at)
            self._next_offset = header.next_offset
            yield _Batch(header, view[at:end])
            self._position += end - at
            at = end


def _take_keys(keys: KeyMap, batches: list[_Batch]) -> None:
    for header, data in batches:
        if not keys.take(data, header):
            return


def _compacted(compactor: Compactor, batches: list[_Batch]) -> list[Buffer]:
    return [one for header, data in batches for one in compactor.take(data, header)]


async def _computed(tools: CleanerTools, work: Callable[[], T]) -> T:
    try:
        done: T = await tools.compute(work)
    except CorruptBatch as error:
        raise Uncleanable(str(error)) from error
    return done


def _write(cleaned: Segment, batches: list[Buffer]) -> None:
    if not batches:
        return
    cleaned.write(batches)
    for batch in batches:
        cleaned.note_as_it_is(parse_header(batch))
