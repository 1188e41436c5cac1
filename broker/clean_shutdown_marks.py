"""Clean-shutdown files and registration files in all log dirs of a broker (R33-R36).

Owns the order in which they are read, deleted and written in all dirs, and which registration was stored
last. `storage.clean_shutdown` owns their content; the log manager decides whether a stop was clean.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from holdfast.runtime.api import Disk, DiskError
from holdfast.storage import clean_shutdown
from holdfast.storage.log_dir import LogDir


class CleanShutdownMarks:
    """Of one broker. `on_failure(log_dir, error)` hears of dirs that cannot be read or written."""

    def __init__(self, disk: Disk, on_failure: Callable[[LogDir, DiskError], None]) -> None:
        self._disk = disk
        self._on_failure = on_failure
        #: broker epoch that all dirs have stored as the last registered one (R36)
        self._noted_epoch = clean_shutdown.UNKNOWN_EPOCH
        #: the last registration seen in the metadata log: the latest that any dir has stored
        self.last_registration = clean_shutdown.NEVER_REGISTERED
        self._noting = asyncio.Lock()

    async def take(self, dirs: Iterable[LogDir], absent_count: int) -> int:
        """Read and delete the clean-shutdown files. Returns the broker epoch on which all dirs agree, else
        -1. `absent_count` dirs could not be opened and agree with nothing. The deletion is durable on return
        (R35)."""
        marks: list[clean_shutdown.Mark | None] = [None] * absent_count
        for log_dir in dirs:
            try:
                mark = await clean_shutdown.take(self._disk, log_dir.path, log_dir.directory_id)
                found = await clean_shutdown.read_registration(self._disk, log_dir.path)
                self.last_registration = max(self.last_registration, found)
                log_dir.registered_epoch = found.broker_epoch
            except DiskError as error:
                self._on_failure(log_dir, error)
                mark = None
            log_dir.vouched = {} if mark is None else dict(mark.logs)
            marks.append(mark)
        self._noted_epoch = clean_shutdown.agreed_epoch(marks)
        return self._noted_epoch

    async def note(
        self, online_dirs: Callable[[], Iterable[LogDir]], broker_epoch: int, incarnation_id: bytes | None
    ) -> None:
        """Store in all dirs that this epoch was registered. Give `incarnation_id` once the metadata log is
        known to hold the registration."""
        async with self._noting:
            if self._noted_epoch == broker_epoch:
                return
            if incarnation_id is not None:
                self.last_registration = clean_shutdown.Registration(broker_epoch, incarnation_id)
            last = self.last_registration
            for log_dir in online_dirs():
                try:
                    await clean_shutdown.note_registration(self._disk, log_dir.path, broker_epoch, last)
                except DiskError as error:
                    self._on_failure(log_dir, error)
            self._noted_epoch = broker_epoch

    async def give(self, logs: Mapping[LogDir, Mapping[str, str]], broker_epoch: int) -> None:
        """Write the clean-shutdown file of each dir, with the logs that it describes.

        Raises: DiskError.
        """
        for log_dir in logs:
            await self._disk.sync_folder(log_dir.path)
        for log_dir, vouched in logs.items():
            mark = clean_shutdown.Mark(broker_epoch, log_dir.directory_id, vouched)
            await clean_shutdown.write(self._disk, log_dir.path, mark)
