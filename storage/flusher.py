"""What of a log is not durable yet, and the order in which it becomes durable.

Owns rolled segments to be flushed, names of new files whose folder is to be synced, and leader epochs to be
stored. A flush makes durable what there was when it started (A-21): names before the bytes in the files
count, epochs before a recovery point passes them, the index of a rolled segment with its log.
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
        #: rolled segments that are not wholly durable, oldest first
        self._rolled: list[Segment] = []
        # New files since the log was opened, and how many there were at the last sync of the folder.
        self._names_made = 0
        self._names_synced = 0
        self._stored_epochs_version = epochs.version
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        #: held while a small file of the folder is written: temporary files have fixed names
        self.small_files = asyncio.Lock()

    def made_files(self) -> None:
        """New files were created, whose names are not durable yet."""
        self._names_made += 1

    def rolled(self, segment: Segment) -> None:
        """A segment was rolled and is to be flushed whole."""
        self._rolled.append(segment)

    @property
    def has_rolled(self) -> bool:
        """Some rolled segment or its index is not durable yet."""
        return bool(self._rolled)

    def unflushed_bytes(self, active: Segment) -> int:
        """Bytes of the active and of rolled segments that are not durable yet."""
        return sum(max(0, segment.size - segment.flushed_size) for segment in (*self._rolled, active))

    def forget(self, segments: list[Segment]) -> None:
        """These segments are about to be deleted."""
        self._rolled = [segment for segment in self._rolled if segment not in segments]

    @property
    def is_running(self) -> bool:
        """A flush is under way."""
        return self._running > 0

    async def wait_idle(self) -> None:
        """Wait until no flush is under way, so that files may be truncated and closed."""
        while self._running:  # another flush may begin in the turn in which the last one ends
            await self._idle.wait()

    async def flush(self, active: Segment, epochs: LeaderEpochCache) -> None:
        """Make durable what is in the log now."""
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
            # The segment that was active when the flush started, even if it was rolled since.
            await active.flush()
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def sync_names(self) -> None:
        """Make the names of new files durable; before that, bytes in the files are not."""
        made = self._names_made
        if made > self._names_synced:
            await self._disk.sync_folder(self._folder)
            self._names_synced = max(self._names_synced, made)

    async def store_epochs(self, epochs: LeaderEpochCache) -> None:
        """Store the leader epochs if they have changed."""
        if epochs.version == self._stored_epochs_version:
            return
        async with self.small_files:
            version = epochs.version
            if version != self._stored_epochs_version:
                await store_epochs(self._disk, self._folder, epochs)
                self._stored_epochs_version = version
