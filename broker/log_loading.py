"""Loads the log dirs at a start: opens and recovers each log, and checks it against the clean-shutdown file.

Owns which folders are logs, and whether the clean-shutdown file matches the logs that it names (R35, B25).
The log manager owns the logs afterwards and decides what a failed dir means.
"""

import errno
import logging
from collections.abc import Callable
from functools import partial

from holdfast.broker.damaged_logs import DamagedLogs
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import DiskError, Runtime
from holdfast.storage import clean_shutdown, meta_properties
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import FaultScope, scope_of
from holdfast.storage.core.files import (
    LOG_SUFFIX,
    METADATA_FOLDER,
    folder_name,
    is_deleted_name,
    is_file_of_log,
    is_quarantine_name,
    parse_folder_name,
)
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.quarantine import DamageNote
from holdfast.storage.shortage import waited_out

_log = logging.getLogger("holdfast.log_manager")


class LogLoader:
    """Loads the logs once, at a start."""

    def __init__(
        self,
        runtime: Runtime,
        failed: Callable[[LogDir, PartitionId, DiskError], None],
        found: Callable[[TopicPartition, LogDir, Log], None],
        damaged: DamagedLogs,
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._failed = failed
        self._found = found
        self._damaged = damaged
        #: a proof of a clean stop was found, and no log has belied it
        self.was_clean = False
        #: some log is not the one that the proof vouched for
        self.is_disproved = False

    async def folders(self, log_dir: LogDir) -> list[str]:
        """Names of the partition folders in a dir, after its checkpoints were read; removes what an
        unfinished deletion left, and notes what was put aside. Raises: DiskError."""
        return await waited_out(self._clock, partial(self._folders, log_dir))

    async def _folders(self, log_dir: LogDir) -> list[str]:
        await log_dir.load_checkpoints()
        names = []
        for name in await self._disk.listdir(log_dir.path):
            if is_deleted_name(name):
                # A stop interrupted this deletion.
                await self._disk.remove_folder(log_dir.file(name))
            elif is_quarantine_name(name):
                await self._damaged.look_at(log_dir, name)
            elif name != METADATA_FOLDER and parse_folder_name(name) is not None:
                names.append(name)
        for name in sorted(log_dir.vouched):
            if name not in names:
                self._disproved(f"{log_dir.file(name)} is missing")
        return names

    async def open(self, log_dir: LogDir, name: str, config_for: Callable[[str], LogConfig]) -> None:
        """Open the log in a partition folder, if there is one; a damaged one is put aside. Raises:
        DiskError."""
        await waited_out(self._clock, partial(self._open_folder, log_dir, name, config_for))

    async def _open_folder(self, log_dir: LogDir, name: str, config_for: Callable[[str], LogConfig]) -> None:
        partition = parse_folder_name(name)
        assert partition is not None
        folder = log_dir.file(name)
        files = await self._files(folder)
        if files is None:
            _log.warning("%s is not a folder, ignored", folder)
            return
        topic_id = await meta_properties.read_topic_id(self._disk, folder)
        if topic_id is None:
            if name in log_dir.vouched or await self._holds_records(folder, files):
                await self._put_aside(log_dir, partition, None, f"{folder}: no readable partition.metadata")
                return
            if all(map(is_file_of_log, files)):
                # A stop interrupted its creation, before anything was written to it.
                await self._disk.remove_folder(folder)
            else:
                _log.warning("%s holds files that no log has, ignored", folder)
            return
        try:
            log = await self._open(log_dir, partition, topic_id, config_for(partition.topic))
        except DiskError as error:
            if scope_of(error) is not FaultScope.REPLICA:
                raise
            await self._put_aside(log_dir, partition, topic_id, str(error))
            return
        # The checkpoints may exceed the end of a shortened log; what it appends from now on is not flushed.
        try:
            await log_dir.lower(partition, log.log_end_offset)
        except DiskError:
            await log.close(False)
            raise
        if log.recovery.reason is not None:
            _log.log(
                logging.ERROR if self.was_clean else logging.WARNING,
                "%s: log ends at %d, %d bytes and %d segments after it were dropped: %s",
                name,
                log.log_end_offset,
                log.recovery.dropped_bytes,
                log.recovery.dropped_segments,
                log.recovery.reason,
            )
        if log_dir.is_online:  # else the dir failed at another log meanwhile
            self._found(partition, log_dir, log)

    async def _put_aside(
        self, log_dir: LogDir, partition: TopicPartition, topic_id: bytes | None, reason: str
    ) -> None:
        hex_id = None if topic_id is None else topic_id.hex()
        note = DamageNote(
            *partition, hex_id, reason, high_watermark=log_dir.high_watermarks.get(partition, -1)
        )
        await self._damaged.put_aside(log_dir, note)

    async def without_copies(
        self, folders: list[tuple[LogDir, str]], dir_failed: Callable[[LogDir, DiskError], None]
    ) -> list[tuple[LogDir, str]]:
        """The folders without those of partitions that another dir has too. The log of the dir that was
        registered last, or that alone knows the partition, is the true one; if none is, no copy is used."""
        by_name: dict[str, list[LogDir]] = {}
        for log_dir, name in folders:
            by_name.setdefault(name, []).append(log_dir)
        stale: set[tuple[str, str]] = set()
        for name, dirs in by_name.items():
            if len(dirs) > 1:
                for log_dir in await self._copies(name, dirs, dir_failed):
                    stale.add((log_dir.path, name))
        return [(log_dir, name) for log_dir, name in folders if (log_dir.path, name) not in stale]

    async def _copies(
        self, name: str, dirs: list[LogDir], dir_failed: Callable[[LogDir, DiskError], None]
    ) -> list[LogDir]:
        """Put aside what is stale of the folders of one name; returns in which dirs that was."""
        partition = parse_folder_name(name)
        assert partition is not None
        ids: dict[bytes, list[LogDir]] = {}
        for log_dir in dirs:
            try:
                read = partial(meta_properties.read_topic_id, self._disk, log_dir.file(name))
                topic_id = await waited_out(self._clock, read)
            except DiskError as error:
                dir_failed(log_dir, error)
                continue
            if topic_id is not None:
                ids.setdefault(topic_id, []).append(log_dir)
        stale: list[LogDir] = []
        for topic_id, copies in ids.items():
            ranks = sorted((_rank(log_dir, partition), log_dir.path) for log_dir in copies)
            is_known = len(ranks) == 1 or ranks[-1][0] > ranks[-2][0]
            for log_dir in copies:
                if is_known and log_dir.path == ranks[-1][1]:
                    continue
                others = ", ".join(other.file(name) for other in copies if other is not log_dir)
                reason = f"{log_dir.file(name)}: the same partition is also in {others}"
                try:
                    put = partial(self._put_aside, log_dir, partition, topic_id, reason)
                    await waited_out(self._clock, put)
                except DiskError as error:
                    dir_failed(log_dir, error)
                stale.append(log_dir)
        return stale

    async def _files(self, folder: str) -> list[str] | None:
        """Names in the folder, None when it is not a folder."""
        try:
            return await self._disk.listdir(folder)
        except DiskError as error:
            if error.errno == errno.ENOTDIR:
                return None
            raise

    async def _holds_records(self, folder: str, files: list[str]) -> bool:
        for name in files:
            if name.endswith(LOG_SUFFIX):
                file = await self._disk.open(f"{folder}/{name}", create=False)
                size = file.size
                await file.close()
                if size:
                    return True
        return False

    async def _open(
        self, log_dir: LogDir, partition: TopicPartition, topic_id: bytes, config: LogConfig
    ) -> Log:
        """Open a log; it is scanned unless the clean-shutdown file names it."""
        vouched = log_dir.vouched.get(folder_name(partition)) if self.was_clean else None
        open_it = partial(
            Log.open,
            self._runtime,
            log_dir.file(folder_name(partition)),
            config,
            log_start_offset=log_dir.log_starts.get(partition, 0),
            topic_id=topic_id,
            before_rewind=lambda offset: log_dir.lower(partition, offset),
            on_failure=lambda error: self._failed(log_dir, PartitionId(topic_id, partition.partition), error),
        )
        if vouched is not None:
            log = await open_it(clean=True)
            if clean_shutdown.digest(log) == vouched:
                return log
            await log.close(False)
            self._disproved(f"{log.folder} is not the log that was closed, it ends at {log.log_end_offset}")
            return await open_it(clean=False)  # of another life than the checkpoints: all of it
        log = await open_it(clean=False, recovery_point=log_dir.recovery_points.get(partition, 0))
        # An empty log may have been in creation when the file was written; nothing is lost with it.
        if self.was_clean and log.log_end_offset > log.log_start_offset:
            self._disproved(f"{log.folder} was not there")
        return log

    def _disproved(self, story: str) -> None:
        """The proof of a clean stop does not fit the logs: they were exchanged after it was written."""
        if self.was_clean:
            _log.error("the clean-shutdown file is void, logs were changed since: %s", story)
            self.was_clean = False
            self.is_disproved = True


def _rank(log_dir: LogDir, partition: TopicPartition) -> tuple[int, bool]:
    """How good a dir's claim to a partition is that another dir has too."""
    is_known = folder_name(partition) in log_dir.vouched or log_dir.has_rows_of(partition)
    return log_dir.registered_epoch, is_known
