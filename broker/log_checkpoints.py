"""The checkpoints of a broker's logs: recovery points, log starts, high watermarks and ceilings, one file of
each kind in every log dir (R87, R68).

Owns which rows are stored; `storage.log_dir` writes them, and knows what it has written. A dir whose
checkpoints cannot be written goes offline.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from holdfast.broker.log_dirs import LogDirs
from holdfast.broker.managed_log import ManagedLog
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import DiskError
from holdfast.storage.core.files import folder_name
from holdfast.storage.log_dir import LogDir, Offsets


class LogCheckpoints:
    """Of one broker."""

    def __init__(
        self,
        dirs: LogDirs,
        logs_in: Callable[[LogDir], Iterable[tuple[PartitionId, ManagedLog]]],
        damaged_names: Mapping[PartitionId, str],
        high_watermark_of: Callable[[PartitionId], int | None],
        failed: Callable[[LogDir, DiskError], None],
    ) -> None:
        """`logs_in(log_dir)`: the logs that are online there now; `damaged_names`: folders of damaged logs
        that are still to be put aside; `high_watermark_of(key)` is None while it is not known."""
        self._dirs = dirs
        self._logs_in = logs_in
        self._damaged_names = damaged_names
        self._high_watermark_of = high_watermark_of
        self._failed = failed

    # --- recovery points and log starts -----------------------------------------------------------------

    async def store_log_offsets(self) -> None:
        """Store recovery points and log starts of all dirs (R87)."""
        for log_dir in self._dirs.online():
            try:
                await log_dir.store_log_offsets(partial(self._log_offsets, log_dir))
            except DiskError as error:
                self._failed(log_dir, error)

    async def store_log_start(self, managed: ManagedLog) -> bool:
        """Store durably where a log begins; False when its dir has failed."""
        start_offset = managed.log.log_start_offset
        try:
            await managed.log_dir.share_log_offsets(partial(self._log_offsets, managed.log_dir))
        except DiskError as error:
            self._failed(managed.log_dir, error)
            return False
        managed.log.start_stored(start_offset)
        return True

    def _log_offsets(self, log_dir: LogDir) -> tuple[Offsets, Offsets]:
        own = self._logs_in(log_dir)
        recovery_points: Offsets = {managed.partition: managed.log.flushed_offset for _, managed in own}
        log_starts: Offsets = {managed.partition: managed.log.log_start_offset for _, managed in own}
        # Without its row a damaged log that is not put aside yet would look torn after a crash, and be cut.
        going = set(self._damaged_names.values())
        for stored, rows in ((log_dir.recovery_points, recovery_points), (log_dir.log_starts, log_starts)):
            rows.update(
                {one: offset for one, offset in stored.items() if folder_name(TopicPartition(*one)) in going}
            )
        return recovery_points, log_starts

    # --- high watermarks --------------------------------------------------------------------------------

    async def store_high_watermarks(self) -> None:
        """Store the high watermarks of all dirs (R87)."""
        for log_dir in self._dirs.online():
            try:
                await log_dir.store_high_watermarks(partial(self._high_watermarks, log_dir))
            except DiskError as error:
                self._failed(log_dir, error)

    def _high_watermarks(self, log_dir: LogDir) -> Offsets:
        offsets: Offsets = {}
        for key, managed in self._logs_in(log_dir):
            high_watermark = self._high_watermark_of(key)
            if high_watermark is None:
                high_watermark = log_dir.high_watermarks.get(managed.partition, 0)
            offsets[managed.partition] = high_watermark
        return offsets

    # --- ceilings ---------------------------------------------------------------------------------------

    async def store_ceilings(self, log_dir: LogDir, rows: Mapping[PartitionId, int]) -> bool:
        """Store ceilings of logs in a dir durably (R68); False when the dir has failed."""
        if log_dir.is_online:
            try:
                await log_dir.store_ceilings(partial(self._ceilings, log_dir, rows))
            except DiskError as error:
                self._failed(log_dir, error)
        return log_dir.is_online

    def _ceilings(self, log_dir: LogDir, rows: Mapping[PartitionId, int]) -> Offsets:
        offsets: Offsets = {}
        for key, managed in self._logs_in(log_dir):
            ceiling = rows.get(key, managed.ceiling)
            if ceiling >= 0:
                offsets[managed.partition] = ceiling
        return offsets

    # --- all of a dir -----------------------------------------------------------------------------------

    async def store_all(self, log_dir: LogDir) -> None:
        """Store all rows as they are now, without partitions that are gone. Raises: DiskError."""
        await log_dir.store_log_offsets(partial(self._log_offsets, log_dir))
        await log_dir.store_high_watermarks(partial(self._high_watermarks, log_dir))
        await log_dir.store_ceilings(partial(self._ceilings, log_dir, {}))
