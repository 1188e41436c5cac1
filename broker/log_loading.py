"""Loads the log dirs at a start: opens and recovers each log, and checks it against the clean-shutdown file.

Owns which folders are logs, and whether the clean-shutdown file matches the logs that it names (R35, B25).
The log manager owns the logs afterwards and decides what a failed dir means.
"""

import errno
import logging
from collections.abc import Callable
from functools import partial

from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import DiskError, Runtime
from holdfast.storage import clean_shutdown, meta_properties
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import (
    LOG_SUFFIX,
    METADATA_FOLDER,
    folder_name,
    is_deleted_name,
    is_file_of_log,
    parse_folder_name,
)
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused

_log = logging.getLogger("holdfast.log_manager")


class LogLoader:
    """Loads the logs once, at a start."""

    def __init__(
        self,
        runtime: Runtime,
        dir_failed: Callable[[LogDir, DiskError], None],
        found: Callable[[TopicPartition, LogDir, Log], None],
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._dir_failed = dir_failed
        self._found = found
        #: {(topic_id, partition_index): folder} of the logs that are open
        self._folders: dict[PartitionId, str] = {}
        #: a proof of a clean stop was found, and no log has belied it
        self.was_clean = False
        #: some log is not the one that the proof vouched for
        self.is_disproved = False

    async def folders(self, log_dir: LogDir) -> list[str]:
        """Names of the partition folders in a dir; removes what an unfinished deletion left. Raises:
        DiskError."""
        names = []
        for name in await self._disk.listdir(log_dir.path):
            if is_deleted_name(name):
                # A stop interrupted this deletion.
                await self._disk.remove_folder(log_dir.file(name))
            elif name != METADATA_FOLDER and parse_folder_name(name) is not None:
                names.append(name)
        for name in sorted(log_dir.vouched):
            if name not in names:
                self._disproved(f"{log_dir.file(name)} is missing")
        return names

    async def open(self, log_dir: LogDir, name: str, config_for: Callable[[str], LogConfig]) -> None:
        """Open the log in a partition folder, if there is one. Raises: DiskError, LogDirRefused."""
        partition = parse_folder_name(name)
        assert partition is not None
        folder = log_dir.file(name)
        files = await self._files(folder)
        if files is None:
            _log.warning("%s is not a folder, ignored", folder)
            return
        topic_id = await meta_properties.read_topic_id(self._disk, folder)
        if topic_id is None:
            if await self._holds_records(folder, files):
                raise LogDirRefused(
                    f"{folder}: holds a log but no readable partition.metadata; restore it, or move the "
                    "folder away and let the replica be fetched again"
                )
            if name in log_dir.vouched:
                self._disproved(f"{folder} is no log any more")
            if all(map(is_file_of_log, files)):
                # A stop interrupted its creation, before anything was written to it.
                await self._disk.remove_folder(folder)
            else:
                _log.warning("%s holds files that no log has, ignored", folder)
            return
        key = PartitionId(topic_id, partition.partition)
        known = self._folders.setdefault(key, folder)
        if known != folder:
            raise LogDirRefused(f"{folder}: the same partition is also in {known}; move one of the two away")
        log = await self._open(log_dir, partition, topic_id, config_for(partition.topic))
        # The checkpoints may exceed the end of a shortened log; what it appends from now on is not flushed.
        await log_dir.lower(partition, log.log_end_offset)
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
            on_failure=lambda error: self._dir_failed(log_dir, error),
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
