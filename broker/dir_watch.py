"""Looks at the devices of log dirs: whether they still answer, and how full they are."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.broker.managed_log import ManagedLog
from holdfast.metadata.ids import PartitionId
from holdfast.runtime.api import Clock, Disk, DiskError
from holdfast.storage.log_dir import LogDir
from holdfast.storage.watched_disk import WatchedDisk

_log = logging.getLogger("holdfast.log_manager")


class StallWatch:
    """Notices log dirs that answer nothing, and that all answer again."""

    def __init__(self, disk: WatchedDisk, clock: Clock, stall_ms: int) -> None:
        """A dir whose operations are under way for `stall_ms` without an end of any has stalled."""
        self._disk = disk
        self._clock = clock
        self._stall_ms = stall_ms
        #: called with whether a dir has stalled, and why
        self.listener: Callable[[bool, str], None] = lambda is_stalled, text: None
        self._is_stalled = False
        self._checked_ms = 0

    def check(self, dirs: Iterable[LogDir]) -> None:
        """Look at the online dirs; the listener hears of a change."""
        silences = [(self._disk.silence_ms(log_dir.path), log_dir.path) for log_dir in dirs]
        silence_ms, path = max(silences, default=(0, ""))
        # This process may have been paused: what ended meanwhile is heard before the next check.
        is_paused = self._clock.now_ms() - self._checked_ms > self._stall_ms // 2
        self._checked_ms = self._clock.now_ms()
        is_stalled = silence_ms >= self._stall_ms
        if is_stalled == self._is_stalled or (is_stalled and is_paused):
            return
        self._is_stalled = is_stalled
        text = f"log dir {path} has ended no operation for {silence_ms} ms"
        self.listener(is_stalled, text if is_stalled else "all log dirs answer")


class SpaceWatch:
    """Notices which logs lie in dirs that are short of room."""

    def __init__(self, disk: Disk, failed: Callable[[LogDir, DiskError], None]) -> None:
        """`failed` hears of dirs that do not say how full they are."""
        self._disk = disk
        self._failed = failed
        #: called with the logs in dirs that are short of room, when they are others than before
        self.listener: Callable[[frozenset[PartitionId]], None] = lambda keys: None
        self._short: frozenset[PartitionId] = frozenset()

    async def measure(self, dirs: Sequence[LogDir], logs: Mapping[PartitionId, ManagedLog]) -> None:
        """Ask how full the device of each online dir is; the listener hears of a change."""
        for log_dir in dirs:
            try:
                space = await self._disk.space(log_dir.path)
            except DiskError as error:
                self._failed(log_dir, error)
                continue
            if log_dir.space.measured(*space):
                if log_dir.space.is_low:
                    _log.error("%s", log_dir.space.why_not(log_dir.path))
                else:
                    text = "log dir %s takes records again, %d bytes left"
                    _log.info(text, log_dir.path, space.free_bytes)
        short = {log_dir.path for log_dir in dirs if log_dir.is_online and log_dir.space.is_short}
        keys = frozenset(
            key for key, managed in (logs.items() if short else ()) if managed.log_dir.path in short
        )
        if keys != self._short:
            self._short = keys
            self.listener(keys)
