"""Background work on the logs of log dirs, one task for each dir.

Owns that frame: a task goes on while its dir is online and the broker does not stop, and a DiskError of it
costs the dir. Knows nothing about the work.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from holdfast.broker.housekeeping import Housekeeping, Interval
from holdfast.broker.managed_log import ManagedLog
from holdfast.metadata.ids import PartitionId
from holdfast.runtime.api import DiskError
from holdfast.storage.log_dir import LogDir


class DirTasks:
    """Of one broker."""

    def __init__(
        self,
        housekeeping: Housekeeping,
        logs_in: Callable[[LogDir], Iterable[tuple[PartitionId, ManagedLog]]],
        failed: Callable[[LogDir, DiskError], None],
    ) -> None:
        """`logs_in(log_dir)`: the logs that are online there now."""
        self._housekeeping = housekeeping
        self.logs_in = logs_in
        self._failed = failed

    def start(self, what: str, log_dir: LogDir, work: Callable[[LogDir], Coroutine[Any, Any, None]]) -> None:
        """Run the work, which looks at `goes_on` and pauses with `pause`, until it returns."""
        self._housekeeping.start(f"{what} {log_dir.path}", self._run(log_dir, work))

    async def _run(self, log_dir: LogDir, work: Callable[[LogDir], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(log_dir)
        except DiskError as error:
            self._failed(log_dir, error)

    def goes_on(self, log_dir: LogDir) -> bool:
        """Its task shall go on."""
        return log_dir.is_online and not self._housekeeping.is_stopping

    async def pause(self, duration_ms: float) -> None:
        """Sleep, but not longer than until the broker stops."""
        await self._housekeeping.pause(duration_ms, Interval())
