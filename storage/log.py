"""The log of one partition: append, read, flush, roll, truncate, delete (A-20, A-21).

Owns segments, leader epochs and producer state, which always belong together; how files go back is in
`log_rewinding`. Appends and reads are page-cache calls and never wait; calls that open, sync or remove files
are coroutines. Does not decide who leads, what is committed or when to flush. Calls of `roll`, `truncate_to`,
`reset_to` and `delete_old_segments` must not overlap with each other or with appends; the callers order them
with `storage.serial.Serial`. After a DiskError the log stays offline until the process ends (`log_guard`).
"""

import errno
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.protocol.record_batch import (
    BatchHeader,
    CorruptBatch,
    check_batch,
    from_offset,
    parse_header,
    stamp,
)
from holdfast.runtime.api import Buffer, DiskError, OutOfResources, Runtime, Task
from holdfast.storage import snapshots
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.continuation import Appended, LogSpan, check_continuation
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.flush_policy import FlushPolicy
from holdfast.storage.core.flush_stats import FlushReason, FlushStats
from holdfast.storage.core.leader_epoch_cache import EpochEnd, EpochEntry, LeaderEpochCache
from holdfast.storage.core.log_tap import LogTap
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.core.retention import must_roll, old_count
from holdfast.storage.epoch_file import load_epochs, read_epochs
from holdfast.storage.flusher import Flusher
from holdfast.storage.folders import make_durably
from holdfast.storage.log_cleaning import LogCleaning
from holdfast.storage.log_guard import LogGuard
from holdfast.storage.log_rewinding import LogRewinding
from holdfast.storage.log_times import LogTimes
from holdfast.storage.recovery import RecoveredSegments, RecoveryReport, open_segments
from holdfast.storage.segment import Segment
from holdfast.storage.segment_list import SegmentList, age_of
from holdfast.storage.segment_scrub import SegmentScrub, check_read

_log = logging.getLogger("holdfast.storage")


class OffsetOutOfRange(Exception):
    """A read outside [log start offset, log end offset]."""


class Log:
    """One partition's log. Create it with `Log.open`."""

    def __init__(
        self,
        runtime: Runtime,
        folder: str,
        config: LogConfig,
        segments: list[Segment],
        report: RecoveryReport,
        on_failure: Callable[[DiskError], None] | None,
    ) -> None:
        self.folder = folder
        #: what opening found and did
        self.recovery = report
        self._runtime = runtime
        self._disk = runtime.disk
        self._clock = runtime.clock
        #: the change that is under way, and the error that has taken it offline; only the log enters changes
        self.guard = LogGuard(folder, on_failure)
        self._segments = SegmentList(segments)
        self._log_start_offset = self._durable_start_offset = segments[0].base_offset
        self._log_end_offset = self._flushed_offset = segments[-1].next_offset
        self._last_epoch = -1
        self._epochs = LeaderEpochCache()
        self._flusher = Flusher(runtime.disk, folder, self._epochs)
        self._producers = ProducerState()
        self._config = config
        self.flush_policy = FlushPolicy(config.flush_messages, config.flush_ms)
        #: where its flushes are counted
        self.flush_stats = FlushStats()
        #: how often its end has fallen, or it has begun anew
        self.truncation_count = 0
        self._background: list[Task] = []
        self.topic_id: bytes | None = None
        self.taps: list[LogTap] = []
        self.cleaning: LogCleaning
        self._rewinding: LogRewinding
        self.times = LogTimes(self._segments, self.guard, lambda: self._log_start_offset)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        folder: str,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: bytes | None = None,
        before_rewind: Callable[[int], Awaitable[None]] | None = None,
        on_failure: Callable[[DiskError], None] | None = None,
        durable_offset: int = 0,
        may_begin_later: bool = False,
    ) -> "Log":
        """Open and recover the log in `folder`, or create an empty one.

        `clean`: every byte was flushed before the last stop (R35), so nothing is scanned. Otherwise
        everything from `recovery_point` on is checked, and durable on return (R86). `before_rewind(offset)`
        is awaited before the log's end falls to `offset`: stored offsets of this log must not stay above
        that. `on_failure` is called with the first DiskError of this log. Records below `durable_offset` must
        be there. `may_begin_later`: a missing first segment is left for the caller to judge after an unclean
        stop. Raises: DiskError, CorruptLog when what was flushed is damaged or missing; no byte of such a
        log is changed.
        """
        disk = runtime.disk
        # The name of a folder with content is durable already; a partition's name is made durable by its
        # creator.
        if not await disk.exists(folder) or (topic_id is None and not await disk.listdir(folder)):
            await make_durably(disk, folder)
        epochs = await read_epochs(disk, folder)
        found = await open_segments(
            disk,
            folder,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            history_start=epochs[0].start_offset if epochs else -1,
            durable_offset=durable_offset,
            may_begin_later=may_begin_later,
        )
        try:
            return await cls._of(
                runtime, folder, config, found, epochs, log_start_offset, topic_id, before_rewind, on_failure
            )
        except DiskError:
            for segment in found.segments:
                await segment.close()
            raise

    @classmethod
    async def _of(
        cls,
        runtime: Runtime,
        folder: str,
        config: LogConfig,
        found: RecoveredSegments,
        epochs: list[EpochEntry],
        log_start_offset: int,
        topic_id: bytes | None,
        before_rewind: Callable[[int], Awaitable[None]] | None,
        on_failure: Callable[[DiskError], None] | None,
    ) -> "Log":
        """The log of segments that are open. Raises: DiskError."""
        disk = runtime.disk
        log = cls(runtime, folder, config, found.segments, found.report, on_failure)
        log.topic_id = topic_id
        log._log_start_offset = log._durable_start_offset = max(log._log_start_offset, log_start_offset)
        log._epochs = await load_epochs(disk, folder, epochs, found)
        log._flusher = Flusher(disk, folder, log._epochs)
        log.cleaning = LogCleaning(disk, folder, log._segments, log.guard, log._flusher, log._epochs)
        log._rewinding = LogRewinding(
            disk,
            runtime.clock,
            folder,
            segments=log._segments,
            flusher=log._flusher,
            epochs=log._epochs,
            cleaning=log.cleaning,
            new_segment=log._new_segment,
            before_rewind=before_rewind,
        )
        await log.cleaning.load(found.report.other_names, log._log_end_offset)
        log._epochs.truncate_from_start(log._log_start_offset)
        if await snapshots.drop_above(disk, folder, log._log_end_offset):
            await disk.sync_folder(folder)
        log._producers = await snapshots.load(disk, folder, found.segments)
        log._last_epoch = log._epochs.last_written(log._log_end_offset)
        if log._segments.active.size:
            log._segments.active.first_append_ms = runtime.clock.now_ms()
        return log

    # --- what is known ---------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """First offset that is kept, inclusive."""
        return self._log_start_offset

    @property
    def durable_start_offset(self) -> int:
        """First offset that is kept after a power loss; at most `log_start_offset`."""
        return self._durable_start_offset

    @property
    def log_end_offset(self) -> int:
        """Next offset to be written; exclusive end of the log."""
        return self._log_end_offset

    @property
    def flushed_offset(self) -> int:
        """Records below survive a power loss; never above the log end."""
        return self._flushed_offset

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that a power loss may take; 0 when everything is durable."""
        return self._flusher.unflushed_bytes(self._segments.active)

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch, even if deleted; -1 when unknown. A follower's `last_fetched_epoch`
        (R80)."""
        return self._last_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_bytes

    @property
    def segments(self) -> SegmentList:
        """Its segments; only the log changes them."""
        return self._segments

    @property
    def leader_epoch_cache(self) -> LeaderEpochCache:
        """Leader epochs of this log; only the log changes them."""
        return self._epochs

    @property
    def producer_state(self) -> ProducerState:
        """Idempotent producers of this log; call `check` for a batch right before appending it."""
        return self._producers

    @property
    def failure(self) -> DiskError | None:
        """The DiskError that took this log offline; None while it is usable (A-20)."""
        return self.guard.failure

    @property
    def config(self) -> LogConfig:
        """The present settings."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        if (config.flush_messages, config.flush_ms) != (self._config.flush_messages, self._config.flush_ms):
            self.flush_policy = FlushPolicy(config.flush_messages, config.flush_ms)
            if self._flushed_offset < self._log_end_offset:
                self.flush_policy.appended(self._log_end_offset - self._flushed_offset, self._clock.now_ms())
        self._config = config

    # --- append ----------------------------------------------------------------------------------------

    def append_as_leader(
        self, batch: Buffer, leader_epoch: int, *, header: BatchHeader | None = None
    ) -> Appended:
        """Append one batch at the log's end, without copying, stamped with its offset and `leader_epoch`.

        `header`: the result of `check_batch` for exactly these bytes, if the caller has called it; otherwise
        the crc is checked here. Raises: CorruptBatch, DiskError.
        """
        if header is None:
            header = check_batch(batch)
        if header.size_bytes != len(batch) or header.record_count != header.last_offset_delta + 1:
            raise CorruptBatch(
                f"{len(batch)} bytes must be one batch with an offset for each record, but the header says "
                f"{header.size_bytes} bytes, {header.record_count} records, last offset delta "
                f"{header.last_offset_delta}"
            )
        self._check_epoch(leader_epoch)
        base_offset = self._log_end_offset
        self._write(stamp(batch, base_offset, leader_epoch))
        self._note(header, base_offset, leader_epoch)
        return self._appended(base_offset, header.size_bytes)

    def append_as_follower(self, records: Buffer, *, leader_epoch: int | None = None) -> Appended | None:
        """Append whole batches as the leader sent them, all or none; None when there are none.

        They must continue this log, up to `leader_epoch`, the epoch of the fetch that brought them (R84).
        Raises: CorruptBatch, InvalidAppend (BeginsWithinBatch when the log is to begin at that batch),
        DiskError.
        """
        span = LogSpan(self._log_start_offset, self._log_end_offset, self._last_epoch)
        headers = check_continuation(records, span, leader_epoch)
        if not headers:
            return None
        base_offset = self._log_end_offset
        self._write((records,))
        for header in headers:
            self._note(header, header.base_offset, header.leader_epoch)
        return self._appended(base_offset, len(records))

    def start_epoch(self, leader_epoch: int) -> None:
        """Record that this replica leads in `leader_epoch` from the present end on, before there is data
        (R54)."""
        self.guard.check_usable()
        self._check_epoch(leader_epoch)
        self._epochs.assign(leader_epoch, self._log_end_offset)

    def _check_epoch(self, leader_epoch: int) -> None:
        """Epochs never fall (I-18), and metadata has the newest one: a later epoch in the log is damage of a
        header, whose epoch no crc covers. Raises: CorruptLog."""
        if leader_epoch < self._last_epoch:
            story = f"its last batch has epoch {self._last_epoch}, later than the leader's {leader_epoch}"
            with self.guard.failing():
                raise CorruptLog(self._segments.active.log.path, 0, story)

    def needs_roll(self, next_size_bytes: int) -> bool:
        """True when `roll` must come before an append of that size: by size, index, age, or offsets."""
        active, config = self._segments.active, self._config
        if not active.size:
            return False
        is_old = config.segment_ms is not None and (self._append_age_ms() or 0) >= config.segment_ms
        return is_old or active.is_full(next_size_bytes, config)

    def _append_age_ms(self) -> int | None:
        """Time since the first append to the active segment; None while it is empty."""
        first_ms = self._segments.active.first_append_ms
        return None if first_ms is None else self._clock.now_ms() - first_ms

    def _write(self, buffers: tuple[Buffer, ...]) -> None:
        self.guard.check_append()
        try:
            self._segments.active.write(buffers)
        except DiskError as error:
            self.guard.fail(error)
            raise

    def _note(self, header: BatchHeader, base_offset: int, leader_epoch: int) -> None:
        self._epochs.assign(leader_epoch, base_offset)
        self._last_epoch = leader_epoch
        next_offset = base_offset + header.last_offset_delta + 1
        try:
            self._segments.active.note(header, base_offset, leader_epoch)
        except DiskError as error:
            self.guard.fail(error)
            raise
        if header.producer_id >= 0 or not header.record_count:
            self._producers.apply(header, base_offset)
        self._log_end_offset = next_offset

    def _appended(self, base_offset: int, size_bytes: int) -> Appended:
        now_ms = self._clock.now_ms()
        active = self._segments.active
        if active.first_append_ms is None:
            active.first_append_ms = now_ms
        record_count = self._log_end_offset - base_offset
        must_flush = self.flush_policy.appended(record_count, now_ms)
        return Appended(base_offset, self._log_end_offset - 1, size_bytes, record_count, must_flush)

    # --- read ------------------------------------------------------------------------------------------

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        end_offset: int,
        *,
        at_least_one: bool = True,
        verify: bool = False,
    ) -> bytes:
        """Whole batches from the one that holds `fetch_offset` on, all below `end_offset`, at most
        `max_bytes`.

        With `at_least_one`, the first batch is returned whole even if it is longer; an empty one begins at
        `fetch_offset`. Never crosses a segment, so a shorter result does not mean the end. What was not
        appended lately, or all with `verify`, is checked as a follower would: crc, offsets, epochs. Raises:
        OffsetOutOfRange, DiskError, CorruptLog.
        """
        if not self._log_start_offset <= fetch_offset <= self._log_end_offset:
            raise OffsetOutOfRange(
                f"offset {fetch_offset} is outside {self._log_start_offset} to {self._log_end_offset}"
            )
        end_offset = min(end_offset, self._log_end_offset)
        if fetch_offset >= end_offset:
            return b""
        segment = self._segments.holder_of(fetch_offset)
        try:
            data = segment.read(fetch_offset, max_bytes, end_offset, at_least_one)
            if verify or segment is not self._segments.active or segment.is_cold(fetch_offset):
                check_read(segment, fetch_offset, data, self._epochs.epoch_at)
        except DiskError as error:
            self.guard.fail(error)
            raise
        return from_offset(data, fetch_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """The largest epoch in this log not above `epoch`, and its end; None when none is known (R80)."""
        return self._epochs.end_offset_for(epoch, self._log_end_offset)

    def scrub(self, offset: int) -> SegmentScrub | None:
        """Reads and checks the first closed, durable segment that ends above `offset`; None when there is
        none."""
        segment = self._segments.closed_above(offset)
        if segment is None or not self.guard.is_usable or segment.flushed_size < segment.size:
            return None
        count = self.truncation_count
        return SegmentScrub(
            segment, self.guard, self._epochs.epoch_at, lambda: self.truncation_count == count
        )

    # --- flush -----------------------------------------------------------------------------------------

    async def flush(self, reason: FlushReason = FlushReason.POLICY) -> int:
        """Make durable what is in the log now; returns `flushed_offset`. Concurrent calls share fsyncs.

        Covers what was in the log when it started (A-21). Raises: DiskError.
        """
        await self.guard.no_change()
        if self.guard.is_closed:
            return self._flushed_offset
        self.guard.check_usable()
        end_offset = self._log_end_offset
        self.flush_policy.flush_started()
        if self._flushed_offset == end_offset and not self._flusher.has_rolled:
            return end_offset
        started_ns = self._clock.now_ns()
        with self.guard.failing():
            await self._flusher.flush(self._segments.active, self._epochs)
        self.flush_stats.done(reason, self._clock.now_ns() - started_ns)
        # Another flush may have failed meanwhile, and the kernel reports an error only once.
        self.guard.check_usable()
        self._flushed_offset = max(self._flushed_offset, end_offset)
        return self._flushed_offset

    # --- roll and forget -------------------------------------------------------------------------------

    async def roll(self) -> None:
        """Start a new segment at the end of the log; the full one is flushed in the background. Does nothing
        when the active segment is empty. Raises: DiskError."""
        async with self.guard.change("roll"):
            await self._roll()

    async def _roll(self) -> None:
        full = self._segments.active
        if not full.size:
            return
        segment = await self._new_segment(self._log_end_offset)
        with suppress(OutOfResources):  # the flush stores it, too
            full.index.store()
        self._flusher.rolled(full)
        self._segments.add(segment)
        self._background = [task for task in self._background if not task.is_done]
        snapshot = snapshots.encode(self._producers, segment.base_offset)
        self._background.append(
            self._runtime.tasks.start(
                f"flush {full.log.path}",
                self._finish_roll(segment.base_offset, snapshot, self.truncation_count),
            )
        )

    async def _new_segment(self, base_offset: int) -> Segment:
        segment = await Segment.open(self._disk, self.folder, base_offset, self._config.index_interval_bytes)
        if segment.log.size:
            story = f"a new segment, and there are {segment.log.size} bytes already; move the file away"
            raise DiskError(segment.log.path, "create", errno.EEXIST, story)
        # Indexes of an older life of this name may have been left over.
        await segment.restart()
        self._flusher.made_files()
        return segment

    async def _finish_roll(self, offset: int, snapshot: str, truncation_count: int) -> None:
        try:
            await self.flush(FlushReason.ROLL)
            async with self._flusher.small_files:
                if self.truncation_count == truncation_count and not self.guard.is_closed:
                    bases = frozenset(self._segments.base_offsets)
                    await snapshots.write(self._disk, self.folder, offset, snapshot, bases)
        except DiskError as error:
            self.guard.fail(error)
            if not self.guard.is_heard:
                raise

    def move_start(self, offset: int) -> None:
        """Begin at `offset` from now on, which is committed and may lie within a batch; never moves back.
        Segments below it are deleted by a later `delete_old_segments`. Only what is durable can be the
        beginning."""
        if self._log_start_offset < offset <= self._flushed_offset:
            self._log_start_offset = offset

    def start_stored(self, offset: int) -> None:
        """The caller has stored durably that the log begins at `offset` or later."""
        if self._durable_start_offset < offset <= self._log_start_offset:
            self._durable_start_offset = offset

    async def delete_old_segments(self, wall_ms: int, high_watermark: int) -> int:
        """Delete segments beyond retention by time or size, and those below the log start; returns how many.

        Oldest first, and only what is committed and flushed. An active segment whose time is over is rolled,
        and deleted by a later call, when its flush is done. Drops silent producers too (R94). Raises:
        DiskError.
        """
        for tap in self.taps:
            tap.retention_begins(wall_ms)
        count = await self._delete_old_segments(wall_ms, high_watermark)
        for tap in self.taps:
            tap.retention_ended(count)
        return count

    async def _delete_old_segments(self, wall_ms: int, high_watermark: int) -> int:
        self._producers.expire(wall_ms, self._config.producer_id_expiration_ms)
        async with self.guard.change("retention"):
            kept_offset = min(high_watermark, self._flushed_offset)
            if must_roll(age_of(self._segments.active), self._config, wall_ms, self._append_age_ms()):
                await self._roll()  # and the pass that finds it flushed deletes it
            count = old_count(
                self._segments.ages(),
                self._config,
                wall_ms=wall_ms,
                log_start_offset=self._log_start_offset,
                kept_offset=kept_offset,
            )
            count = await self._rebuildable(count) if count else 0
            if not count:
                return 0
            await self._flusher.wait_idle()
            old = self._segments.drop_first(count)
            self._flusher.forget(old)
            self._log_start_offset = max(self._log_start_offset, self._segments.base_offset)
            self._epochs.truncate_from_start(self._log_start_offset)
            await self._flusher.store_epochs(self._epochs)
            self.start_stored(self._segments.base_offset)
            # The stored epochs say durably where the segments start now. Files that come back after a crash
            # are deleted by the next start, so one sync is enough.
            for segment in old:
                await segment.delete(self._disk)
            async with self._flusher.small_files:
                await snapshots.drop_below(self._disk, self.folder, self._segments.base_offset)
            await self._disk.sync_folder(self.folder)
            start = self._segments.base_offset
            _log.info("%s: deleted %d segments, log starts at %d", self.folder, count, start)
            return count

    async def _rebuildable(self, count: int) -> int:
        """The largest number of oldest segments, at most `count`, after which the log begins at a snapshot of
        producer state. Without one, a later truncation could not rebuild what they have written (R94)."""
        async with self._flusher.small_files:
            known = frozenset(await snapshots.offsets(self._disk, self.folder))
        bases = self._segments.base_offsets
        return next((number for number in range(count, 0, -1) if bases[number] in known), 0)

    # --- truncate --------------------------------------------------------------------------------------

    async def truncate_to(self, offset: int) -> int:
        """Truncate the log to end at `offset`, or before it when a batch spans it; returns the new log end
        (R81).

        Readers see the truncation at once. It is durable on return, so that nothing of the old tail can come
        back after later appends. Epochs without data are dropped even when nothing is cut. A compacted log
        that would lack keys is emptied. Raises: DiskError.
        """
        start = self._log_start_offset
        with self.guard.failing():
            is_anew = offset < max(start, self.cleaning.changed_offset)
            is_anew = is_anew or self._segments.begins_below(offset, start)
        if is_anew:
            await self.reset_to(min(offset, start))
            return self._log_start_offset
        async with self.guard.change("truncate"):
            if offset >= self._log_end_offset:
                self._epochs.truncate_from_end(self._log_end_offset)
            else:
                self._producers = await self._rewinding.truncate(offset, self._rewound)
            return self._log_end_offset

    async def begin_within(self, records: Buffer, leader_epoch: int) -> Appended:
        """Begin this empty log anew at the batch that holds its start: the first of `records`, which are
        appended. What is below the start stays hidden. Durable on return, but for the start. Raises:
        CorruptBatch, InvalidAppend, DiskError."""
        base_offset = parse_header(records).base_offset
        headers = check_continuation(records, LogSpan(base_offset, base_offset, -1), leader_epoch)

        def begun(segment: Segment) -> None:
            for header in headers:
                self._note(header, header.base_offset, header.leader_epoch)
            segment.flushed_size, self._flushed_offset = segment.size, self._log_end_offset
            self._durable_start_offset = base_offset
            self.truncation_count += 1

        async with self.guard.change("begin within a batch"):
            self._producers = await self._rewinding.begin_with(records, base_offset, begun)
        return self._appended(base_offset, len(records))

    async def reset_to(self, offset: int) -> None:
        """Drop everything and begin an empty log at `offset` (R83). Durable on return. Raises: DiskError."""
        for tap in self.taps:
            tap.reset_begins()

        def dropped() -> None:
            self._log_start_offset = self._durable_start_offset = offset
            self._rewound(offset)

        def begun(_: Segment) -> None:
            self._flushed_offset = offset

        async with self.guard.change("reset"):
            self._producers = await self._rewinding.begin_anew(offset, dropped, begun)
        for tap in self.taps:
            tap.reset_ended()

    def _rewound(self, log_end_offset: int) -> None:
        self._log_end_offset = log_end_offset
        self._flushed_offset = min(self._flushed_offset, log_end_offset)
        self.truncation_count += 1
        self._last_epoch = self._epochs.last_written(log_end_offset)

    # --- end -------------------------------------------------------------------------------------------

    async def close(self, flush: bool) -> None:
        """Close all files. With `flush`, everything is made durable first, also indexes and producer state
        (A-19).

        Raises: DiskError, after closing, when `flush` was requested and this log has failed or fails now:
        then the stop is not clean.
        """
        if self.guard.is_closed:
            return
        for task in self._background:
            await task.wait()
        failure = None
        if flush:
            try:
                async with self.guard.change("close"):
                    await self._flush_whole()
            except DiskError as error:
                failure = error
        await self._flusher.wait_idle()
        self.guard.is_closed = True
        for segment in self._segments:
            await segment.close()
        if failure is not None:
            raise failure

    async def _flush_whole(self) -> None:
        started_ns = self._clock.now_ns()
        for segment in self._segments:
            await segment.flush_whole()
        await self._flusher.store_epochs(self._epochs)
        async with self._flusher.small_files:
            end, bases = self._log_end_offset, frozenset(self._segments.base_offsets)
            await snapshots.write(self._disk, self.folder, end, snapshots.encode(self._producers, end), bases)
        await self._disk.sync_folder(self.folder)
        self._flushed_offset = self._log_end_offset
        self.flush_stats.done(FlushReason.SHUTDOWN, self._clock.now_ns() - started_ns)
