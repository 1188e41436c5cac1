"""What of a log is not durable yet, and the order in which it becomes so.

Owns rolled segments that wait for their flush, names of new files that wait for their folder, and the leader
epochs that wait for their file. A flush makes durable what there was when it started (A-21): names before
bytes count, epochs before the recovery point may pass them, the index of a rolled segment with its log.
"""

import asyncio

from holdfast.runtime.api import Disk
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache
from holdfast.storage.epoch_file import store_epochs
from holdfast.storage.segment import Segment


class Flusher:
    """The durability of one log's files. Coroutines raise DiskError."""

    __slots__ = (
        "_disk",
        "_folder",
        "_idle",
        "_names_made",
        "_names_synced",
        "_rolled",
        "_running",
        "_stored_epochs_version",
        "small_files",
    )

    def __init__(self, disk: Disk, folder: str, epochs: LeaderEpochCache) -> None:
        self._disk = disk
        self._folder = folder
        #: rolled segments of which something is not durable yet, oldest first
        self._rolled: list[Segment] = []
        # Files made since the log was opened, and how many there were when the folder was last synced.
        self._names_made = 0
        self._names_synced = 0
        self._stored_epochs_version = epochs.version
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        #: held while a small file of the folder is written: their temporaries have fixed names
        self.small_files = asyncio.Lock()

    def made_files(self) -> None:
        """New files were made, whose names are not durable yet."""
        self._names_made += 1

    def rolled(self, segment: Segment) -> None:
        """A segment grows no more and waits to be flushed whole."""
        self._rolled.append(segment)

    @property
    def has_rolled(self) -> bool:
        """Some rolled segment, or its index, is not durable yet."""
        return bool(self._rolled)

    def unflushed_bytes(self, active: Segment) -> int:
        """Bytes of the active and of rolled segments that are not durable yet."""
        return sum(max(0, segment.size - segment.flushed_size) for segment in (*self._rolled, active))

    def forget(self, segments: list[Segment]) -> None:
        """Segments are about to be deleted."""
        self._rolled = [segment for segment in self._rolled if segment not in segments]

    async def wait_idle(self) -> None:
        """Until no flush is under way, so that files may be cut and closed."""
        while self._running:  # another one may begin in the turn in which the last one ends
            await self._idle.wait()

    async def flush(self, active: Segment, epochs: LeaderEpochCache) -> None:
        """Make durable what is there now."""
        segments = tuple(self._rolled)
        self._running += 1
        self._idle.clear()
        try:
            await self.sync_names()
            await self.store_epochs(epochs)
            for segment in segments:
                await segment.flush_whole()
                if segment in self._rolled:
                    self._rolled.remove(segment)
            # The active one of the moment when the flush started, though it may have been rolled since.
            await active.flush()
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def sync_names(self) -> None:
        """Make the names of new files durable: bytes in a file without a durable name are not."""
        made = self._names_made
        if made > self._names_synced:
            await self._disk.sync_folder(self._folder)
            self._names_synced = max(self._names_synced, made)

    async def store_epochs(self, epochs: LeaderEpochCache) -> None:
        """Write the leader epochs if they have changed."""
        if epochs.version == self._stored_epochs_version:
            return
        async with self.small_files:
            version = epochs.version
            if version != self._stored_epochs_version:
                await store_epochs(self._disk, self._folder, epochs)
                self._stored_epochs_version = version
