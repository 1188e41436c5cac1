"""Flushes logs that have `flush.ms` when their time has come.

Owns which logs those are, and how long the task sleeps. Logs without the setting, as most are, cost nothing.
"""

from collections.abc import Callable
from functools import partial

from holdfast.broker.housekeeping import Housekeeping, Interval
from holdfast.broker.managed_log import ManagedLog
from holdfast.broker.parallel import Work, in_parallel
from holdfast.metadata.ids import PartitionId
from holdfast.runtime.api import DiskError, Runtime

#: Sleep, in ms, while no log has `flush.ms`.
IDLE_MS = 1000


class IntervalFlush:
    """One task for all logs of a broker."""

    def __init__(
        self,
        runtime: Runtime,
        housekeeping: Housekeeping,
        is_managed: Callable[[ManagedLog], bool],
        failed: Callable[[ManagedLog, DiskError], None],
    ) -> None:
        """`is_managed` is false for logs that were deleted or have failed; `failed` hears of those that fail
        here."""
        self._runtime = runtime
        self._housekeeping = housekeeping
        self._is_managed = is_managed
        self._failed = failed
        #: logs with `flush.ms`, also some that are not managed any more
        self._logs: dict[PartitionId, ManagedLog] = {}
        self._interval: Interval | None = None

    def watch(self, managed: ManagedLog) -> None:
        """Look at the policy of a log that is new or was configured: the task sleeps as long as the known
        policies allow."""
        if managed.log.flush_policy.flush_ms is None:
            self._logs.pop(managed.key, None)
            return
        self._logs[managed.key] = managed
        if self._interval is not None:
            self._interval.end()

    async def run(self, concurrency: int) -> None:
        """Until housekeeping stops; so many logs at a time."""
        clock = self._runtime.clock
        while not self._housekeeping.is_stopping:
            # Before the logs are looked at: a policy that comes meanwhile ends it too.
            interval = self._interval = Interval()
            now_ms = clock.now_ms()
            wake_ms = now_ms + IDLE_MS
            due: list[Work] = []
            for key, managed in list(self._logs.items()):
                policy = managed.log.flush_policy
                if policy.flush_ms is None or not self._is_managed(managed):
                    del self._logs[key]
                    continue
                if policy.is_due(now_ms):
                    due.append(partial(self._flush, managed))
                elif policy.deadline_ms is not None:
                    wake_ms = min(wake_ms, policy.deadline_ms)
                # An append after this moment waits at least that long; `watch` ends the pause for others.
                wake_ms = min(wake_ms, now_ms + max(1, policy.flush_ms))
            if due:
                await in_parallel(self._runtime.tasks, "interval flush", due, concurrency)
            await self._housekeeping.pause(wake_ms - clock.now_ms(), interval)

    async def _flush(self, managed: ManagedLog) -> None:
        try:
            await managed.log.flush()
        except DiskError as error:
            self._failed(managed, error)
