"""One log's files go back: a truncation (R81), or a log that begins anew (R83).

Owns the steps and what a crash may find between two of them: what was stored about the old tail falls first,
then readers see the shorter log at once, and before the log is used again nothing of the old tail can come
back. The log excludes appends and flushes meanwhile (`log_guard`), and says of itself what it has become when
it is called back: no step waits there, so that readers see all of it or nothing.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.runtime.api import Buffer, Clock, Disk
from holdfast.storage import snapshots
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.flusher import Flusher
from holdfast.storage.log_cleaning import LogCleaning
from holdfast.storage.segment import Segment
from holdfast.storage.segment_list import SegmentList
from holdfast.storage.shortage import waited_out


class LogRewinding:
    """Of one log. Each of its steps returns the producers that the log has then. Raises: DiskError."""

    __slots__ = (
        "_before_rewind",
        "_cleaning",
        "_clock",
        "_disk",
        "_epochs",
        "_flusher",
        "_folder",
        "_new_segment",
        "_segments",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: str,
        *,
        segments: SegmentList,
        flusher: Flusher,
        epochs: LeaderEpochCache,
        cleaning: LogCleaning,
        new_segment: Callable[[int], Awaitable[Segment]],
        before_rewind: Callable[[int], Awaitable[None]] | None,
    ) -> None:
        """`new_segment(base_offset)` makes an empty one; `before_rewind(offset)` is awaited before the log's
        end falls to that."""
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._segments = segments
        self._flusher = flusher
        self._epochs = epochs
        self._cleaning = cleaning
        self._new_segment = new_segment
        self._before_rewind = before_rewind

    async def truncate(self, offset: int, rewound: Callable[[int], None]) -> ProducerState:
        """End at `offset`, below the log's end, or before it when a batch spans it. `rewound`: called with
        the new end."""
        # a batch goes whole, and the recovery point must not say that more is kept
        offset = await waited_out(self._clock, partial(self._begin_of_batch, offset))
        await self._prepare(offset)
        segment = self._segments.holder_of(offset)
        await waited_out(self._clock, partial(segment.cut_from, offset))
        # No await until `forget`: readers see the whole truncation or nothing of it.
        dropped = self._segments.drop_behind(offset)
        end_offset = segment.next_offset
        self._epochs.truncate_from_end(end_offset)
        rewound(end_offset)
        self._cleaning.was_cut(end_offset)
        self._flusher.forget([segment, *dropped])
        for later in reversed(dropped):
            await later.delete(self._disk)
        await segment.trim()
        async with self._flusher.small_files:
            await snapshots.drop_above(self._disk, self._folder, end_offset)
        return await self._finish()

    async def _begin_of_batch(self, offset: int) -> int:
        split = self._segments.split_by(offset)
        return offset if split is None else split.base_offset

    async def begin_with(
        self, records: Buffer, base_offset: int, begun: Callable[[Segment], None]
    ) -> ProducerState:
        """Hold these records, the first of which begins at `base_offset`, and nothing else. `begun`: called
        when they are durable, with the segment that has them."""
        await self._prepare(base_offset)
        segment = await self._new_segment(base_offset)
        segment.write((records,))
        await segment.log.flush()
        await self._disk.sync_folder(self._folder)
        # No await until the log ends behind them: its end never falls.
        dropped = self._segments.clear()
        self._segments.add(segment)
        self._epochs.clear()
        begun(segment)
        self._cleaning.was_cut(base_offset)
        self._flusher.forget(dropped)
        for old in dropped:
            await old.delete(self._disk)
        return await self._finish()

    async def begin_anew(
        self, offset: int, dropped: Callable[[], None], begun: Callable[[Segment], None]
    ) -> ProducerState:
        """Be empty and begin at `offset`. `dropped`: called when there is nothing any more; `begun`: with the
        segment to write to."""
        await self._prepare(offset)
        segments = self._segments.clear()
        self._epochs.clear()
        dropped()
        self._cleaning.was_cut(offset)
        self._flusher.forget(segments)
        for segment in reversed(segments):
            if segment is segments[0] and len(segments) > 1:
                # Later segments without the first one are damage, so a power loss may not leave them.
                await self._disk.sync_folder(self._folder)
            await segment.delete(self._disk)
        await self._disk.sync_folder(self._folder)
        # A snapshot at this very offset belongs to the old log. It must be gone before the new log exists:
        # after a crash, opening that log could not tell the two apart.
        async with self._flusher.small_files:
            await snapshots.drop_all(self._disk, self._folder)
        await self._flusher.store_epochs(self._epochs)
        made = await self._new_segment(offset)
        self._segments.add(made)
        begun(made)
        return await self._finish()

    async def _prepare(self, offset: int) -> None:
        await self._flusher.wait_idle()
        await self._cleaning.before_cut(offset)
        # Last, so that a checkpoint that is written after it sees the truncated log.
        if self._before_rewind is not None:
            await self._before_rewind(offset)

    async def _finish(self) -> ProducerState:
        await self._flusher.store_epochs(self._epochs)
        await self._disk.sync_folder(self._folder)
        load = partial(snapshots.load, self._disk, self._folder, list(self._segments))
        return await waited_out(self._clock, load)
