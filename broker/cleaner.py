"""Compacts the logs of a broker's log dirs in the background, the dirtiest first, at a bounded rate.

Carries out `storage.core.cleaner_plan`, one task for each log dir that has a log to be compacted. Damage
takes the same way as damage that a read finds; a full disk stops a cleaning, which is tried again later.
"""

import errno
import logging
from collections.abc import Callable, Container
from typing import Any

from holdfast.broker.dir_tasks import DirTasks
from holdfast.broker.managed_log import ManagedLog
from holdfast.metadata.ids import PartitionId
from holdfast.runtime.api import DiskError, OutOfResources, Runtime
from holdfast.storage.core.cleaner_plan import CleanerCounts, CleanerPace, Dirt, is_due
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.files import folder_name
from holdfast.storage.core.pacer import Pacer
from holdfast.storage.log_cleaning import CleanerTools, Uncleanable
from holdfast.storage.log_dir import LogDir
from holdfast.storage.turn import next_turn

#: It rests so many times as long as it computes: the event loop needs the processor, too.
_REST = 3
#: Logs that are looked at before the event loop gets a turn.
_LOGS_PER_TURN = 50
#: Errors of a write that a full disk refuses.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_log = logging.getLogger("holdfast.log_manager")


class Cleaner:
    """Of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        tasks: DirTasks,
        high_watermark_of: Callable[[PartitionId], int | None],
        pace: CleanerPace,
    ) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._high_watermark_of = high_watermark_of
        self._pace = pace
        self._is_started = False
        #: dirs whose task runs, and those that wait for `start`
        self._dirs: dict[str, LogDir] = {}
        #: logs whose records could not be read; they are left alone until the process ends
        self._uncleanable: set[PartitionId] = set()
        #: {path of a log dir: what was done and found there}
        self.counts: dict[str, CleanerCounts] = {}

    def start(self) -> None:
        """Begin with the dirs that have logs to be compacted."""
        self._is_started = True
        for log_dir in self._dirs.values():
            self._tasks.start("clean", log_dir, self._run)

    def watch(self, managed: ManagedLog) -> None:
        """A log was opened or has new settings."""
        log_dir = managed.log_dir
        if not managed.log.config.compacts or not self._pace.is_enabled or log_dir.path in self._dirs:
            return
        self._dirs[log_dir.path] = log_dir
        self.counts[log_dir.path] = CleanerCounts()
        if self._is_started:
            self._tasks.start("clean", log_dir, self._run)

    # --- one log dir -------------------------------------------------------------------------------------

    async def _run(self, log_dir: LogDir) -> None:
        pacer = Pacer(self._pace.bytes_per_second)
        while self._tasks.goes_on(log_dir):
            if not await self._clean_dirtiest(log_dir, pacer):
                await self._tasks.pause(self._pace.backoff_ms)

    async def _clean_dirtiest(self, log_dir: LogDir, pacer: Pacer) -> bool:
        """Clean one log; False when none is due, or it could not be."""
        counts = self.counts[log_dir.path]
        too_large: set[PartitionId] = set()
        while (chosen := await self._dirtiest(log_dir, too_large)) is not None:
            managed, dirt = chosen
            needed = min(managed.log.config.segment_bytes, dirt.clean_bytes + dirt.dirty_bytes)
            if log_dir.space.has_room_for_copy(needed):
                return await self._clean_one(managed, dirt, counts, pacer)
            too_large.add(managed.key)
            self._has_failed(managed, counts, log_dir.space.why_not(log_dir.path))
        return False

    async def _clean_one(self, managed: ManagedLog, dirt: Dirt, counts: CleanerCounts, pacer: Pacer) -> bool:
        before = managed.log.cleaning.clean_offset
        try:
            await self._clean(managed, dirt, counts, pacer)
            if managed.log.cleaning.clean_offset > before:
                await managed.serial.run(managed.log.cleaning.store)
        except OutOfResources as error:
            return self._has_failed(managed, counts, str(error))
        except CorruptLog:
            return True  # the log has reported it, as it does for others; the other logs go on
        except Uncleanable as error:
            self._uncleanable.add(managed.key)
            counts.uncleanable_count += 1
            return self._has_failed(managed, counts, f"{error}; it is left as it is until the next start")
        except DiskError as error:
            if managed.log.failure is not None:
                return True
            if error.errno not in _FULL:
                raise
            return self._has_failed(managed, counts, str(error))
        return managed.log.cleaning.clean_offset > before

    def _has_failed(self, managed: ManagedLog, counts: CleanerCounts, why: str) -> bool:
        counts.failed_count += 1
        _log.warning("%s is not compacted now: %s", folder_name(managed.partition), why)
        return False

    async def _dirtiest(
        self, log_dir: LogDir, left_out: Container[PartitionId]
    ) -> tuple[ManagedLog, Dirt] | None:
        wall_ms = self._runtime.clock.wall_ms()
        best: tuple[ManagedLog, Dirt] | None = None
        most = 0.0
        logs = [row for row in self._tasks.logs_in(log_dir) if row[1].log.config.compacts]
        for number, (key, managed) in enumerate(sorted(logs, key=lambda row: row[0]), 1):
            if number % _LOGS_PER_TURN == 0:
                await next_turn()
            log, high_watermark = managed.log, self._high_watermark_of(key)
            if high_watermark is None or not log.cleaning.is_usable:
                continue
            dirt = log.cleaning.dirt(log.config, min(high_watermark, log.flushed_offset), wall_ms)
            most = max(most, dirt.ratio)
            if (
                key in self._uncleanable
                or key in left_out
                or (best is not None and dirt.ratio <= best[1].ratio)
            ):
                continue
            has_lag = dirt.dirty_bytes and log.config.max_compaction_lag_ms is not None
            try:
                oldest_ms = log.cleaning.oldest_dirty_ms(dirt) if has_lag else -1
            except (CorruptLog, OutOfResources):
                continue
            if is_due(dirt, log.config, oldest_ms=oldest_ms, wall_ms=wall_ms):
                best = managed, dirt
        self.counts[log_dir.path].dirty_ratio = most
        return best if best is not None and best[0].log.cleaning.is_usable else None

    async def _clean(self, managed: ManagedLog, dirt: Dirt, counts: CleanerCounts, pacer: Pacer) -> None:
        log, clock = managed.log, self._runtime.clock
        owed_ms = 0.0

        async def compute(work: Callable[[], Any]) -> Any:
            nonlocal owed_ms
            started_ns = clock.now_ns()
            done = await self._runtime.tasks.compute(work)
            owed_ms += _REST * (clock.now_ns() - started_ns) / 1_000_000
            return done

        async def pause(size_bytes: int) -> bool:
            nonlocal owed_ms
            counts.read_bytes += size_bytes
            pause_ms = max(owed_ms, pacer.pause_ms(size_bytes, clock.now_ms()))
            owed_ms = 0.0
            await self._tasks.pause(pause_ms)
            return self._tasks.goes_on(managed.log_dir)

        tools = CleanerTools(
            compute,
            pause,
            managed.serial.run,
            self._pace.memory_bytes,
            clock.wall_ms(),
        )
        done = await log.cleaning.clean(dirt, log.config, log.producer_state, tools)
        counts.run_count += 1
        counts.removed_bytes += max(0, done.read_bytes - done.written_bytes)
        counts.removed_records += done.removed_records
        if done.removed_records:
            _log.info(
                "%s: compacted up to offset %d, %d of %d bytes are left",
                folder_name(managed.partition),
                log.cleaning.clean_offset,
                done.written_bytes,
                done.read_bytes,
            )
        await next_turn()
