"""One log dir: its identity, and the checkpoints of the partitions in it (R87).

Owns four files: `recovery-point-offset-checkpoint` and `log-start-offset-checkpoint` may lag behind the log
but are never ahead of it (`lower` is awaited before a log is truncated). `replication-offset-checkpoint`
(high watermarks) lags behind what was committed, and is ahead of a log that lost its tail.
`ceiling-offset-checkpoint` is never below the log ends that others were shown (R68).
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
from holdfast.storage.core.free_space import FreeSpace
from holdfast.storage.folders import make_durably
from holdfast.storage.shared_run import SharedRun

#: `{(topic, partition_index): offset}`
Offsets = dict[tuple[str, int], int]


class LogDir:
    """A folder that holds partition folders. Coroutines raise DiskError."""

    __slots__ = (
        "_disk",
        "_shared_store",
        "_shared_sync",
        "_writing",
        "ceilings",
        "directory_id",
        "failure",
        "high_watermarks",
        "log_starts",
        "path",
        "recovery_points",
        "space",
        "registered_epoch",
        "vouched",
    )

    def __init__(self, disk: Disk, path: str, directory_id: bytes) -> None:
        self._disk = disk
        self._writing = asyncio.Lock()
        self._shared_sync = SharedRun()
        self._shared_store = SharedRun()
        self.path = path
        self.space = FreeSpace()
        self.directory_id = directory_id
        #: why the dir is offline; None while it is online
        self.failure: DiskError | None = None
        #: {folder name: digest}: the logs that the clean-shutdown file describes
        self.vouched: dict[str, str] = {}
        #: broker epoch of the last registration that was stored here before this start, -1 for none
        self.registered_epoch = -1
        # The content of the files, as this process read or wrote them.
        self.recovery_points: Offsets = {}
        self.log_starts: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.ceilings: Offsets = {}

    @classmethod
    async def open(cls, runtime: Runtime, path: str, cluster_id: str, node_id: int) -> "LogDir":
        """Lock the dir for this process and check that it belongs to this node.

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
        """No operation has failed in this dir."""
        return self.failure is None

    def file(self, name: str) -> str:
        """The path of a file or folder in this dir."""
        return posixpath.join(self.path, name)

    async def sync_names(self) -> None:
        """Make the names of the folders in this dir durable. Calls during a sync share the next one, so that
        creating ten thousand partitions does not cost a sync each."""
        await self._shared_sync.run(lambda: self._disk.sync_folder(self.path))

    async def load_checkpoints(self) -> None:
        """Read what the last process stored. Nothing is believed in place of a missing or unreadable file."""
        self.recovery_points = await checkpoint.read_offsets(self._disk, self.file(RECOVERY_POINT_CHECKPOINT))
        self.log_starts = await checkpoint.read_offsets(self._disk, self.file(LOG_START_CHECKPOINT))
        self.high_watermarks = await checkpoint.read_offsets(self._disk, self.file(HIGH_WATERMARK_CHECKPOINT))
        self.ceilings = await checkpoint.read_offsets(self._disk, self.file(CEILING_CHECKPOINT))

    async def store_log_offsets(self, current: Callable[[], tuple[Offsets, Offsets]]) -> None:
        """Store recovery points and log start offsets. `current` is called while no other write is under way,
        so that it cannot undo a `lower`."""
        async with self._writing:
            self._check_online()
            recovery_points, log_starts = current()
            await self._store(RECOVERY_POINT_CHECKPOINT, self.recovery_points, recovery_points)
            self.recovery_points = recovery_points
            await self._store(LOG_START_CHECKPOINT, self.log_starts, log_starts)
            self.log_starts = log_starts

    async def share_log_offsets(self, current: Callable[[], tuple[Offsets, Offsets]]) -> None:
        """Like `store_log_offsets`; calls during a write share the next one, however many logs begin later at
        the same time."""
        await self._shared_store.run(lambda: self.store_log_offsets(current))

    async def store_high_watermarks(self, current: Callable[[], Offsets]) -> None:
        """Store the high watermarks; `current` is called while no other write is under way."""
        async with self._writing:
            self._check_online()
            high_watermarks = current()
            await self._store(HIGH_WATERMARK_CHECKPOINT, self.high_watermarks, high_watermarks)
            self.high_watermarks = high_watermarks

    async def store_ceilings(self, current: Callable[[], Offsets]) -> None:
        """Store the ceilings: upper bounds of the log ends that others are shown. `current` is called while
        no other write is under way."""
        async with self._writing:
            self._check_online()
            ceilings = current()
            await self._store(CEILING_CHECKPOINT, self.ceilings, ceilings)
            self.ceilings = ceilings

    async def lower(self, partition: TopicPartition, offset: int) -> None:
        """Durably lower stored offsets to `offset` before a truncation: a higher recovery point would hide a
        hole from recovery, and a higher log start would make a start drop the log. The caller truncates the
        log without another await."""
        async with self._writing:
            for name, stored in (
                (RECOVERY_POINT_CHECKPOINT, self.recovery_points),
                (LOG_START_CHECKPOINT, self.log_starts),
            ):
                if stored.get(partition, 0) > offset:
                    stored[partition] = offset
                    await checkpoint.write_offsets(self._disk, self.file(name), stored)

    def _check_online(self) -> None:
        """Raise the dir's DiskError if it failed while a write waited: its logs are gone from the rows, and
        the files must keep what they had."""
        if self.failure is not None:
            raise self.failure

    def has_rows_of(self, partition: TopicPartition) -> bool:
        """True when some file has a row of the partition, which would be wrong for a new log of that name."""
        stored = (self.recovery_points, self.log_starts, self.high_watermarks, self.ceilings)
        return any(partition in offsets for offsets in stored)

    async def _store(self, name: str, stored: Offsets, offsets: Offsets) -> None:
        if stored != offsets:
            await checkpoint.write_offsets(self._disk, self.file(name), offsets)
