"""All partition logs of a broker: opens, recovers, creates, deletes, maintains and closes them.

Owns every `Log` in the log dirs (`broker.log_dirs`), and when housekeeping happens. Never decides what is
appended, committed or led. Its methods are in the order of a broker's life: `open_dirs`,
`take_clean_shutdown`, (register), `load`, `start`, ..., `close`. An error of a device takes its whole log dir
offline until the process ends, also during the start; the node ends when no log dir is left (R27). Damaged
content takes that log out of use and puts its folder aside (`storage.core.faults` tells the two apart). The
clean-shutdown files are written last of all (R34).
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from holdfast.broker.clean_shutdown_marks import CleanShutdownMarks
from holdfast.broker.cleaner import Cleaner
from holdfast.broker.core.events import DamagedReplica
from holdfast.broker.core.replicas.log_metrics import cleaner_families, scrub_families
from holdfast.broker.damaged_logs import DamagedLogs, note_of
from holdfast.broker.dir_tasks import DirTasks
from holdfast.broker.dir_watch import SpaceWatch, StallWatch
from holdfast.broker.folder_claims import FolderClaims
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.interval_flush import IntervalFlush
from holdfast.broker.log_checkpoints import LogCheckpoints
from holdfast.broker.log_dirs import LogDirs
from holdfast.broker.log_loading import LogLoader
from holdfast.broker.log_stats import log_stats
from holdfast.broker.managed_log import LogDirContent, ManagedLog
from holdfast.broker.parallel import in_parallel
from holdfast.broker.scrubber import Scrubber
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import DiskError, OutOfResources, Runtime
from holdfast.runtime.stats import MetricFamily
from holdfast.runtime.tasks import fail_node
from holdfast.storage import clean_shutdown, meta_properties
from holdfast.storage.core.cleaner_plan import CLEANER_PACE, CleanerPace
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import FaultScope, scope_of
from holdfast.storage.core.files import condemned_name, folder_name
from holdfast.storage.core.flush_stats import FlushStats
from holdfast.storage.core.scrub_plan import NO_SCRUB, ScrubPace
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused
from holdfast.storage.quarantine import DamageNote
from holdfast.storage.serial import Serial
from holdfast.storage.watched_disk import WatchedDisk

#: Logs that are closed, or flushed by time, at the same time.
CONCURRENCY = 8
#: How often the devices are asked for their free space, in ms; what is appended meanwhile is counted.
_SPACE_MS = 1000
#: Looks at the log dirs within the time after which one has stalled.
STALL_CHECKS = 4

_log = logging.getLogger("holdfast.log_manager")


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Where the logs are and how often housekeeping runs."""

    log_dirs: tuple[str, ...]
    #: logs recovered at the same time, per log dir
    recovery_concurrency: int = 4
    #: interval of the checkpoints of recovery points and log start offsets (R87)
    checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    #: records are refused while a log dir's device has less; 0: never
    min_free_bytes: int = 0
    #: a log dir whose operations are under way for so long without an end of any has stalled
    stall_ms: int = 10_000
    scrub: ScrubPace = NO_SCRUB
    cleaner: CleanerPace = CLEANER_PACE


class LogManager:
    """The logs of one broker."""

    def __init__(self, runtime: Runtime, config: LogManagerConfig, cluster_id: str, node_id: int) -> None:
        assert config.log_dirs
        watched = WatchedDisk(runtime.disk, runtime.clock, config.log_dirs)
        self._stalls = StallWatch(watched, runtime.clock, config.stall_ms)
        self._runtime = runtime = replace(runtime, disk=watched)
        self._disk = runtime.disk
        self._config = config
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._dirs = LogDirs(config.log_dirs, config.min_free_bytes)
        self._managed: dict[PartitionId, ManagedLog] = {}
        #: every log that is open and online; others only read it
        self.logs: dict[PartitionId, Log] = {}
        #: {path of a log dir: logs being created there}
        self._creating: Counter[str] = Counter()
        self._folders = FolderClaims()
        #: damaged logs whose folder is being put aside, and the folder's name
        self._damaged_names: dict[PartitionId, str] = {}
        self._damaged = DamagedLogs(runtime.disk)
        self._loader = LogLoader(runtime, self._failed_at, self._add, self._damaged)
        self._is_loaded = False
        self._is_closing = False
        self._clean_shutdown_marks = CleanShutdownMarks(runtime.disk, self._dir_failed)
        self._high_watermark_of: Callable[[PartitionId], int | None] = lambda key: None
        self._offline_listener: Callable[[bytes, Sequence[PartitionId]], None] | None = None
        self._damage_listener: Callable[[PartitionId, str], None] | None = None
        self._aside_listener: Callable[[PartitionId], None] | None = None
        self._space = SpaceWatch(runtime.disk, self._dir_failed)
        self.checkpoints = LogCheckpoints(
            self._dirs,
            self._logs_in,
            self._damaged_names,
            lambda key: self._high_watermark_of(key),
            self._dir_failed,
        )
        self._housekeeping = Housekeeping(runtime)
        tasks = DirTasks(self._housekeeping, self._logs_in, self._dir_failed)
        self._scrubber = Scrubber(runtime, tasks, config.scrub)
        self._cleaner = Cleaner(runtime, tasks, lambda key: self._high_watermark_of(key), config.cleaner)
        self._interval_flush = IntervalFlush(
            runtime, self._housekeeping, lambda one: self._managed.get(one.key) is one, self.failed
        )
        #: {path of a log dir: logs still to be opened}
        self._remaining: dict[str, int] = {}
        self._flush_stats = FlushStats()

    # --- start -----------------------------------------------------------------------------------------

    async def open_dirs(self) -> None:
        """Lock every log dir and check that it belongs to this node; a dir that fails is offline from the
        start.

        Raises: DiskError when no dir is left, or another process has one, LogDirRefused.
        """
        await self._dirs.open(self._runtime, self._cluster_id, self._node_id)
        await self.measure_space()
        self._dirs.check_some_online()

    async def take_clean_shutdown(self) -> int:
        """The broker epoch of the last stop if the clean-shutdown files of all dirs agree on it, else -1
        (R33). They are durably deleted on return (R35).

        `load` compares the logs with them. Raises: DiskError when no dir is left.
        """
        broker_epoch = await self._clean_shutdown_marks.take(self._dirs.opened, len(self._dirs.absent))
        self._dirs.check_some_online()
        was_clean = self._loader.was_clean = broker_epoch != clean_shutdown.UNKNOWN_EPOCH
        _log.info("last shutdown was %s", f"clean in epoch {broker_epoch}" if was_clean else "not clean")
        return broker_epoch

    async def note_registration(self, broker_epoch: int, incarnation_id: bytes | None = None) -> None:
        """Store durably that this epoch was registered: a mark of an earlier one proves nothing (R36). With
        the incarnation: the metadata log holds it."""
        await self._clean_shutdown_marks.note(self._dirs.online, broker_epoch, incarnation_id)

    async def load(
        self, config_for: Callable[[str], LogConfig], progress: Callable[[int, int], None] | None = None
    ) -> dict[PartitionId, int]:
        """Open every partition folder, and recover its log unless the stop was clean.

        Returns the stored high watermarks; one is above its log's end when the tail was lost.
        `config_for(topic)` gives the settings, `progress(logs done, logs in all)` is called after each log.
        Afterwards `is_proof_belied` and `is_whole` say what was found. Raises: DiskError when no dir is left,
        LogDirRefused.
        """
        started_ms = self._runtime.clock.now_ms()
        folders: list[tuple[LogDir, str]] = []
        for log_dir in self._dirs.online():
            try:
                folders += [(log_dir, name) for name in await self._loader.folders(log_dir)]
            except DiskError as error:
                self._dir_failed(log_dir, error)
        folders = await self._loader.without_copies(folders, self._dir_failed)
        self._remaining = dict(Counter(log_dir.path for log_dir, _ in folders))
        done_count = 0

        async def open_one(log_dir: LogDir, name: str) -> None:
            nonlocal done_count
            if log_dir.is_online:
                try:
                    await self._loader.open(log_dir, name, config_for)
                except DiskError as error:
                    self._dir_failed(log_dir, error)
            done_count += 1
            self._remaining[log_dir.path] -= 1
            if progress is not None:
                progress(done_count, len(folders))

        works = [partial(open_one, *place) for place in folders]
        await in_parallel(
            self._runtime.tasks,
            "open logs",
            works,
            self._config.recovery_concurrency * len(self._dirs.opened),
        )
        self._dirs.check_some_online()
        self._is_loaded = True
        took_ms = self._runtime.clock.now_ms() - started_ms
        how = "clean" if self._loader.was_clean else "recovered"
        _log.info("opened %d logs in %d ms, %s", len(self.logs), took_ms, how)
        return {key: self._stored_high_watermark(managed) for key, managed in self._managed.items()}

    def _stored_high_watermark(self, managed: ManagedLog) -> int:
        log = managed.log
        # also above the log's end: that shows lost records (R68); a partition bounds it by its log
        return max(log.log_start_offset, managed.log_dir.high_watermarks.get(managed.partition, 0))

    def _add(self, partition: TopicPartition, log_dir: LogDir, log: Log) -> None:
        assert log.topic_id is not None
        key = PartitionId(log.topic_id, partition.partition)
        assert key not in self._managed
        serial = Serial(self._runtime.tasks, f"log {folder_name(partition)}")
        log.flush_stats = self._flush_stats
        self._managed[key] = managed = ManagedLog(partition, log_dir, log, serial)
        self.logs[key] = log
        self._interval_flush.watch(managed)
        self._cleaner.watch(managed)

    def start(self, high_watermark_of: Callable[[PartitionId], int | None]) -> None:
        """Begin housekeeping. `high_watermark_of(key)` is None while the broker does not know it."""
        self._high_watermark_of = high_watermark_of
        config = self._config
        for name, interval_ms, work in (
            ("checkpoint logs", config.checkpoint_interval_ms, self.checkpoints.store_log_offsets),
            (
                "checkpoint high watermarks",
                config.high_watermark_checkpoint_interval_ms,
                self.checkpoints.store_high_watermarks,
            ),
            ("retention", config.retention_check_interval_ms, self.delete_old_segments),
            ("free space", _SPACE_MS, self.measure_space),
            ("stall check", max(1, config.stall_ms // STALL_CHECKS), self._check_stall),
        ):
            self._housekeeping.repeat(name, interval_ms, work)
        self._housekeeping.start("interval flush", self._interval_flush.run(CONCURRENCY))
        self._scrubber.start(self._dirs.online())
        self._cleaner.start()

    # --- what is there ---------------------------------------------------------------------------------

    @property
    def is_clean_shutdown_disproved(self) -> bool:
        """Some log that was found is not the one that the mark of a clean stop vouched for (B25)."""
        return self._loader.is_disproved

    @property
    def last_registration(self) -> clean_shutdown.Registration:
        """The one that was last found in the metadata log, of the dir that knows the latest."""
        return self._clean_shutdown_marks.last_registration

    @property
    def is_whole(self) -> bool:
        """Every log dir could be opened and has not failed."""
        return self._dirs.is_whole

    @property
    def directory_ids(self) -> list[bytes]:
        """Ids of all dirs that could be opened, in configured order."""
        return self._dirs.ids

    @property
    def online_directory_ids(self) -> list[bytes]:
        """Ids of the dirs that have not failed."""
        return self._dirs.online_ids

    def managed(self, key: PartitionId) -> ManagedLog | None:
        """The log of a partition with its name, dir and serial; None when it is not on this broker, or while
        closing."""
        return None if self._is_closing else self._managed.get(key)

    def configure(self, managed: ManagedLog, config: LogConfig) -> None:
        """Apply a topic's settings to a log."""
        managed.log.config = config
        self._interval_flush.watch(managed)
        self._cleaner.watch(managed)

    def stats(self) -> list[MetricFamily]:
        """Metrics of the logs and their dirs."""
        found = log_stats(
            self._managed.values(),
            self._dirs.opened,
            self._dirs.absent,
            remaining=self._remaining,
            aside=self._damaged.counts(),
            found_damaged=self._damaged.found_count,
            flush_stats=self._flush_stats,
        )
        return found + scrub_families(self._scrubber.counts) + cleaner_families(self._cleaner.counts)

    def ceilings(self) -> dict[PartitionId, int]:
        """Stored ceilings of the open logs (R68)."""
        return {key: managed.ceiling for key, managed in self._managed.items() if managed.ceiling >= 0}

    def dirs(self) -> list[LogDirContent]:
        """Every configured log dir."""
        return [LogDirContent(path, None, error, []) for path, error in self._dirs.absent.items()] + [
            LogDirContent(d.path, d, d.failure, [one for _, one in self._logs_in(d)]) for d in self._dirs
        ]

    def serial(self, key: PartitionId) -> Serial:
        """The queue that orders changes of this log."""
        return self._managed[key].serial

    def damaged_replicas(self) -> list[DamagedReplica]:
        """Replicas that have no log because theirs is damaged, as `load` found them."""
        by_name = {managed.partition: managed.log.topic_id for managed in self._managed.values()}

        def has_log(partition: TopicPartition, topic_id: bytes | None) -> bool:
            return partition in by_name and topic_id in (None, by_name[partition])

        return self._damaged.without_log(has_log)

    def on_damage(
        self, damaged: Callable[[PartitionId, str], None], put_aside: Callable[[PartitionId], None]
    ) -> None:
        """Call `damaged(key, reason)` at once when a log is found damaged, and `put_aside(key)` when its
        folder is out of the way."""
        self._damage_listener = damaged
        self._aside_listener = put_aside

    def on_dir_offline(self, listener: Callable[[bytes, Sequence[PartitionId]], None]) -> None:
        """Call `listener(directory_id, partitions)` at once when a log dir fails."""
        self._offline_listener = listener

    def on_stall(self, listener: Callable[[bool, str], None]) -> None:
        """Call `listener(is_stalled, why)` when an online log dir answers no more, and when all do again."""
        self._stalls.listener = listener

    def on_space(self, listener: Callable[[frozenset[PartitionId]], None]) -> None:
        """Call `listener(keys)` when the logs in dirs that are short of room are others than before."""
        self._space.listener = listener

    # --- create and delete -----------------------------------------------------------------------------

    async def create(self, topic: str, topic_id: bytes, partition_index: int, config: LogConfig) -> Log:
        """The log of a partition; without one, create an empty log in the dir with the fewest logs.

        Its folder is durable on return. Raises: DiskError, LogDirRefused when a folder of another topic with
        the same name still exists.
        """
        partition = TopicPartition(topic, partition_index)
        async with self._folders.claim(folder_name(partition)):
            if (known := self._managed.get(PartitionId(topic_id, partition_index))) is not None:
                return known.log
            await self._check_is_new(folder_name(partition))
            self._dirs.check_some_online()
            return await self._create(partition, topic_id, config)

    async def _check_is_new(self, name: str) -> None:
        """Check that no dir has a folder of this name. A dir that cannot be read fails. Raises:
        LogDirRefused."""
        for log_dir in self._dirs.online():
            folder = log_dir.file(name)
            try:
                is_there = await self._disk.exists(folder)
            except DiskError as error:
                self._dir_failed(log_dir, error)
                continue
            if is_there:
                raise LogDirRefused(
                    f"{folder} belongs to another topic id or to none; move it away, then restart the broker"
                )

    async def _create(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        log_dir = self._least_loaded_dir()
        self._creating[log_dir.path] += 1
        try:
            log = await self._create_in(log_dir, partition, topic_id, config)
        except DiskError as error:
            if scope_of(error) is FaultScope.LOG_DIR:
                self._dir_failed(log_dir, error)
            raise
        finally:
            self._creating[log_dir.path] -= 1
        if log_dir.failure is not None:  # another operation failed on the dir meanwhile
            raise log_dir.failure
        self._add(partition, log_dir, log)
        return log

    async def _create_in(
        self, log_dir: LogDir, partition: TopicPartition, topic_id: bytes, config: LogConfig
    ) -> Log:
        folder = log_dir.file(folder_name(partition))
        if log_dir.has_rows_of(partition):
            # Rows of a deleted topic with this name: after a crash they would cut or drop the new log.
            await self.checkpoints.store_all(log_dir)
        await self._disk.make_folder(folder)
        # Opening the log syncs the folder with this file's name; after a power loss before that it is empty.
        await meta_properties.write_topic_id(self._disk, folder, topic_id)
        log = await Log.open(
            self._runtime,
            folder,
            config,
            clean=False,
            topic_id=topic_id,
            before_rewind=lambda offset: log_dir.lower(partition, offset),
            on_failure=lambda error: self._failed_at(
                log_dir, PartitionId(topic_id, partition.partition), error
            ),
        )
        await log_dir.sync_names()
        return log

    async def delete(self, topic_id: bytes, partition_index: int) -> None:
        """Remove a partition from this broker, and what was put aside of it; its log may not be used any
        more. Raises: DiskError."""
        key = PartitionId(topic_id, partition_index)
        await self._remove_damaged(key)
        managed = self._managed.get(key)
        if managed is None:
            return
        name, log_dir = folder_name(managed.partition), managed.log_dir
        async with self._folders.claim(name):
            try:
                self._managed.pop(PartitionId(topic_id, partition_index), None)
                self.logs.pop(PartitionId(topic_id, partition_index), None)
                await managed.serial.run(lambda: managed.log.close(False))
                # The rename frees the name at once; if a stop interrupts the rest, the next start removes it.
                condemned = log_dir.file(condemned_name(name, self._runtime.random.uuid().hex()))
                await self._disk.rename(managed.log.folder, condemned)
                await self._disk.sync_folder(log_dir.path)
                await self._disk.remove_folder(condemned)
            except DiskError as error:
                self._dir_failed(log_dir, error)
                raise
        _log.info("deleted %s", name)

    async def _remove_damaged(self, key: PartitionId) -> None:
        name = self._damaged_names.get(key) or self._damaged.name_of(key)
        if name is None:
            return
        async with self._folders.claim(name):
            await self._damaged.remove(key)

    def _least_loaded_dir(self) -> LogDir:
        online = self._dirs.online()
        if len(online) == 1:  # the usual case need not count ten thousand logs for each new one
            return online[0]
        counts = {log_dir.path: self._creating[log_dir.path] for log_dir in online}
        for managed in self._managed.values():
            counts[managed.log_dir.path] += 1
        return min(online, key=lambda log_dir: counts[log_dir.path])

    # --- housekeeping ----------------------------------------------------------------------------------

    async def measure_space(self) -> None:
        """Ask how full the device of each dir is."""
        await self._space.measure(self._dirs.online(), self._managed)

    def _logs_in(self, log_dir: LogDir) -> list[tuple[PartitionId, ManagedLog]]:
        return [(key, managed) for key, managed in self._managed.items() if managed.log_dir is log_dir]

    async def delete_old_segments(self) -> None:
        """Apply retention to all logs once."""
        for key, managed in sorted(self._managed.items()):
            high_watermark = self._high_watermark_of(key)
            if high_watermark is None or self._managed.get(key) is not managed:
                continue
            wall_ms = self._runtime.clock.wall_ms()
            try:
                await managed.serial.run(partial(managed.log.delete_old_segments, wall_ms, high_watermark))
            except DiskError as error:
                self.failed(managed, error)

    async def _check_stall(self) -> None:
        self._stalls.check(self._dirs.online())

    # --- failure and end -------------------------------------------------------------------------------

    def failed(self, managed: ManagedLog, error: DiskError) -> None:
        """An operation on this log failed, here or elsewhere in the broker."""
        self._failed_at(managed.log_dir, managed.key, error)

    def _failed_at(self, log_dir: LogDir, key: PartitionId, error: DiskError) -> None:
        """Give up what the error costs: this log, or its log dir."""
        if scope_of(error) is FaultScope.LOG_DIR:
            self._dir_failed(log_dir, error)
            return
        managed = self._managed.pop(key, None)
        if managed is None:
            return  # known already
        del self.logs[key]
        note = note_of(managed.partition, managed.log, error, self._high_watermark_of(key))
        if self._damage_listener is not None:
            self._damage_listener(key, str(error))
        if not self._is_closing:
            name = self._damaged_names[key] = folder_name(managed.partition)
            self._runtime.tasks.start(f"put aside {name}", self._put_aside(key, managed, note))

    async def _put_aside(self, key: PartitionId, managed: ManagedLog, note: DamageNote) -> None:
        """Close a damaged log and get its folder out of the way."""
        name = folder_name(managed.partition)
        async with self._folders.claim(name):
            try:
                await managed.serial.run(lambda: managed.log.close(False))
                await self._damaged.put_aside(managed.log_dir, note)
                if self._aside_listener is not None:
                    self._aside_listener(key)
            except DiskError as error:
                self._dir_failed(managed.log_dir, error)
            finally:
                del self._damaged_names[key]

    def _dir_failed(self, log_dir: LogDir, error: DiskError) -> None:
        """Take a dir offline, once; the node ends with the last one (A-20)."""
        if not log_dir.is_online:
            return
        if isinstance(error, OutOfResources):  # the one who asked is refused, the dir is sound
            _log.warning("log dir %s: %s", log_dir.path, error)
            return
        log_dir.failure = error
        keys = sorted(key for key, _ in self._logs_in(log_dir))
        for key in keys:
            del self._managed[key]
            del self.logs[key]
        _log.error("log dir %s is offline with %d logs: %s", log_dir.path, len(keys), error)
        if self._offline_listener is not None:
            self._offline_listener(log_dir.directory_id, keys)
        if not self._dirs.online():
            fail_node(self._runtime.tasks, "log dirs", error)

    async def close(self, broker_epoch: int | None) -> bool:
        """Stop housekeeping, flush and close every log, store the checkpoints and last the clean-shutdown
        files (A-19). True when those were stored. Appends have stopped before. `broker_epoch` is None for a
        process that never had one.

        Without the files, for any reason, the next start counts as unclean. Never raises DiskError.
        """
        self._is_closing = True  # tasks that still wait for a log find none
        await self._housekeeping.stop()
        await self._folders.wait()
        works = [partial(self._close_log, managed) for _, managed in sorted(self._managed.items())]
        await in_parallel(self._runtime.tasks, "close logs", works, CONCURRENCY)
        if self._is_loaded:  # else the stored rows are of logs that this process has not opened
            await self.checkpoints.store_log_offsets()
            await self.checkpoints.store_high_watermarks()
        # R34: also when a clean start did not load everything: logs that were not opened are unchanged.
        if broker_epoch is not None:
            await self.note_registration(broker_epoch)
        if broker_epoch is None or not self.is_whole or not (self._is_loaded or self._loader.was_clean):
            _log.warning("stopped without a clean-shutdown file: the next start recovers all logs")
            return False
        try:
            logs = {log_dir: self._vouched(log_dir) for log_dir in self._dirs}
            await self._clean_shutdown_marks.give(logs, broker_epoch)
        except DiskError as error:
            _log.error("the clean-shutdown file was not written: %s", error)
            return False
        _log.info("clean shutdown in broker epoch %d", broker_epoch)
        return True

    def _vouched(self, log_dir: LogDir) -> dict[str, str]:
        """{folder name: digest} of the logs that the clean-shutdown file of this dir describes."""
        logs = {} if self._is_loaded else dict(log_dir.vouched)  # logs that were not opened are unchanged
        for managed in self._managed.values():
            if managed.log_dir is log_dir:
                logs[folder_name(managed.partition)] = clean_shutdown.digest(managed.log)
        return logs

    async def _close_log(self, managed: ManagedLog) -> None:
        try:
            await managed.serial.run(lambda: managed.log.close(True))
        except DiskError as error:
            self.failed(managed, error)
