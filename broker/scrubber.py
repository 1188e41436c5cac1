"""Reads the closed segments of a broker's log dirs again, at a bounded rate, to find damage before a reader
does (the scrub).

Carries out `storage.core.scrub_plan`, one task for each log dir. Damage that it finds takes the same way as
damage that a read finds: the log reports it, and the log manager puts the replica aside.
"""

from collections.abc import Iterable
from contextlib import suppress

from holdfast.broker.dir_tasks import DirTasks
from holdfast.broker.managed_log import ManagedLog
from holdfast.runtime.api import OutOfResources, Runtime
from holdfast.storage import checkpoint
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.files import SCRUB_CHECKPOINT
from holdfast.storage.core.scrub_plan import (
    PROGRESS_COLUMNS,
    ScrubCounts,
    ScrubPace,
    ScrubPlan,
    ScrubProgress,
)
from holdfast.storage.log_dir import LogDir
from holdfast.storage.turn import next_turn

#: Bytes read and checked at a time: 0.6 ms of the event loop for batches of 1 KB, less for longer ones.
SLICE_BYTES = 256 << 10
#: Longest sleep between two passes, in ms: the wall clock may be set meanwhile.
_LOOK_MS = 60_000


class Scrubber:
    """Of one broker."""

    def __init__(self, runtime: Runtime, tasks: DirTasks, pace: ScrubPace) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._pace = pace
        #: {path of a log dir: what was read and found there}
        self.counts: dict[str, ScrubCounts] = {}

    def start(self, dirs: Iterable[LogDir]) -> None:
        """Begin with these dirs."""
        for log_dir in dirs if self._pace.interval_ms else ():
            self.counts[log_dir.path] = ScrubCounts()
            self._tasks.start("scrub", log_dir, self._run)

    async def _run(self, log_dir: LogDir) -> None:
        plan: ScrubPlan | None = None
        while self._tasks.goes_on(log_dir):
            try:
                plan = plan or await self._stored_plan(log_dir)
                wait_ms = plan.wait_ms(self._runtime.clock.wall_ms())
                if not wait_ms:
                    await self._pass(log_dir, plan)
                    if log_dir.is_online:
                        await self._store(log_dir, plan)
            except OutOfResources:  # the disk is sound: the same place is read again later
                wait_ms = _LOOK_MS
            if wait_ms:
                await self._tasks.pause(min(wait_ms, _LOOK_MS))

    async def _stored_plan(self, log_dir: LogDir) -> ScrubPlan:
        """Go on where an earlier process has stopped."""
        text = await checkpoint.read_text(self._runtime.disk, log_dir.file(SCRUB_CHECKPOINT))
        stored = checkpoint.decode_rows(text, PROGRESS_COLUMNS) if text is not None else None
        plan = ScrubPlan(self._pace, ScrubProgress.of_rows(stored))
        self.counts[log_dir.path].completed_ms = plan.progress.completed_ms
        return plan

    async def _pass(self, log_dir: LogDir, plan: ScrubPlan) -> None:
        clock = self._runtime.clock
        logs = {managed.partition: managed for _, managed in self._tasks.logs_in(log_dir)}
        plan.begin(logs, clock.wall_ms())
        while self._tasks.goes_on(log_dir):
            place = plan.next_log(clock.wall_ms())
            if place is None:
                self.counts[log_dir.path].completed_ms = plan.progress.completed_ms
                return
            # damage: the log has reported it, and the others go on
            with suppress(CorruptLog):
                await self._log(log_dir, logs[place[0]], plan, place[1])
            await next_turn()

    async def _log(self, log_dir: LogDir, managed: ManagedLog, plan: ScrubPlan, offset: int) -> None:
        counts, clock = self.counts[log_dir.path], self._runtime.clock
        while (scrub := managed.log.scrub(offset)) is not None:
            while not scrub.is_over:
                if not self._tasks.goes_on(log_dir):
                    return
                try:
                    size_bytes = await scrub.step(SLICE_BYTES)
                except CorruptLog:
                    counts.damaged_count += 1
                    raise
                counts.read_bytes += size_bytes
                await self._tasks.pause(plan.pause_ms(size_bytes, clock.now_ms()))
            offset = max(offset, scrub.end_offset)
            plan.passed(offset)
            if plan.must_store(clock.now_ms()):
                await self._store(log_dir, plan)

    async def _store(self, log_dir: LogDir, plan: ScrubPlan) -> None:
        text = checkpoint.encode_rows([plan.progress.row()])
        await checkpoint.write_atomically(self._runtime.disk, log_dir.file(SCRUB_CHECKPOINT), text)
