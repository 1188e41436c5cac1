"""One log dir: its identity and the checkpoints of the partitions in it (D5, R87).

Owns `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint` and
`ceiling-offset-checkpoint`. The first two may lag behind the log, never be ahead of it: `lower` is awaited
before a log is cut. The third lags behind what was committed, and is ahead of a log that has lost its tail.
The last is ahead of what others were shown of the log, never behind it (R68).
"""

import asyncio
import posixpath
from collections.abc import Callable

from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Disk, DiskError, Runtime
from holdfast.storage import checkpoint, meta_properties
from holdfast.storage.core.files import (
    CEILING_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from holdfast.storage.folders import make_durably

#: `{(topic, partition_index): offset}`
Offsets = dict[tuple[str, int], int]


class LogDir:
    """A folder that holds partition folders. Coroutines raise DiskError."""

    __slots__ = (
        "_disk",
        "_synced",
        "_syncing",
        "_wanted",
        "_writing",
        "ceilings",
        "directory_id",
        "failure",
        "high_watermarks",
        "log_starts",
        "path",
        "recovery_points",
        "vouched",
    )

    def __init__(self, disk: Disk, path: str, directory_id: bytes) -> None:
        self._disk = disk
        self._writing = asyncio.Lock()
        self._syncing = asyncio.Lock()
        # calls of `sync_names`, and how many of them are served
        self._wanted = self._synced = 0
        self.path = path
        self.directory_id = directory_id
        #: why the dir is no longer trusted; None while it is online
        self.failure: DiskError | None = None
        #: {folder name: digest}: logs that the mark of a clean stop vouches for
        self.vouched: dict[str, str] = {}
        # What the files say, as far as this process wrote or read them.
        self.recovery_points: Offsets = {}
        self.log_starts: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.ceilings: Offsets = {}

    @classmethod
    async def open(cls, runtime: Runtime, path: str, cluster_id: str, node_id: int) -> "LogDir":
        """Lock the dir for this process and make sure that it belongs to this node.

        Raises: DiskError (also when another process has it), meta_properties.LogDirRefused.
        """
        disk = runtime.disk
        if not await disk.exists(posixpath.join(path, META_PROPERTIES)):
            await make_durably(disk, path)
        await disk.lock_folder(path)
        directory_id = await meta_properties.ensure(disk, path, cluster_id, node_id, runtime.random.uuid())
        return cls(disk, path, directory_id)

    @property
    def is_online(self) -> bool:
        """Nothing has failed here yet."""
        return self.failure is None

    def file(self, name: str) -> str:
        """The path of a file or folder in this dir."""
        return posixpath.join(self.path, name)

    async def sync_names(self) -> None:
        """Make the folders' names in this dir durable. Calls that come while one is under way share the next:
        ten thousand partitions that are made at once must not cost a sync each."""
        self._wanted += 1
        number = self._wanted
        async with self._syncing:
            if self._synced < number:
                covered = self._wanted
                await self._disk.sync_folder(self.path)
                self._synced = covered

    async def load_checkpoints(self) -> None:
        """Read what the last process stored. Missing or unreadable files mean that nothing is proven."""
        self.recovery_points = await checkpoint.read_offsets(self._disk, self.file(RECOVERY_POINT_CHECKPOINT))
        self.log_starts = await checkpoint.read_offsets(self._disk, self.file(LOG_START_CHECKPOINT))
        self.high_watermarks = await checkpoint.read_offsets(self._disk, self.file(HIGH_WATERMARK_CHECKPOINT))
        self.ceilings = await checkpoint.read_offsets(self._disk, self.file(CEILING_CHECKPOINT))

    async def store_log_offsets(self, current: Callable[[], tuple[Offsets, Offsets]]) -> None:
        """Store recovery points and log starts; `current` is asked once nobody else writes, so that it cannot
        undo a `lower`."""
        async with self._writing:
            self._check_online()
            recovery_points, log_starts = current()
            await self._store(RECOVERY_POINT_CHECKPOINT, self.recovery_points, recovery_points)
            self.recovery_points = recovery_points
            await self._store(LOG_START_CHECKPOINT, self.log_starts, log_starts)
            self.log_starts = log_starts

    async def store_high_watermarks(self, current: Callable[[], Offsets]) -> None:
        """Store the high watermarks; `current` is asked once nobody else writes."""
        async with self._writing:
            self._check_online()
            high_watermarks = current()
            await self._store(HIGH_WATERMARK_CHECKPOINT, self.high_watermarks, high_watermarks)
            self.high_watermarks = high_watermarks

    async def store_ceilings(self, current: Callable[[], Offsets]) -> None:
        """Store what the logs' ends are promised to stay below, as they are shown; `current` is asked once
        nobody else writes."""
        async with self._writing:
            self._check_online()
            ceilings = current()
            await self._store(CEILING_CHECKPOINT, self.ceilings, ceilings)
            self.ceilings = ceilings

    async def lower(self, partition: TopicPartition, offset: int) -> None:
        """Durably take back claims above `offset`: a recovery point there would hide a hole from recovery, a
        log start there would make a start drop the log. The caller cuts the log without another await."""
        async with self._writing:
            for name, stored in (
                (RECOVERY_POINT_CHECKPOINT, self.recovery_points),
                (LOG_START_CHECKPOINT, self.log_starts),
            ):
                if stored.get(partition, 0) > offset:
                    stored[partition] = offset
                    await checkpoint.write_offsets(self._disk, self.file(name), stored)

    def _check_online(self) -> None:
        """It may have failed while a write waited: nobody has logs in it any more, and its files keep what
        they told. Raises: DiskError."""
        if self.failure is not None:
            raise self.failure

    def has_rows_of(self, partition: TopicPartition) -> bool:
        """Whether some file speaks of the partition: of a new log of that name it would be a lie."""
        stored = (self.recovery_points, self.log_starts, self.high_watermarks, self.ceilings)
        return any(partition in offsets for offsets in stored)

    async def _store(self, name: str, stored: Offsets, offsets: Offsets) -> None:
        if stored != offsets:
            await checkpoint.write_offsets(self._disk, self.file(name), offsets)
