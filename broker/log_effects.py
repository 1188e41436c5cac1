"""Carries out the core's effects on logs, those of one log in the order in which they were issued (D2).

Owns that order and the flushes under way. An append runs at once when its log is idle, so that the common
produce costs no task switch. Never decides: results go back as events. A DiskError only ends the work here;
the log manager has already taken the log dir offline (A-20). A log that cannot be created because its
folder's name is taken goes offline alone.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.broker.core.events import (
    Append,
    Appended,
    AppendFetched,
    AppendResult,
    BatchToAppend,
    CeilingRow,
    CeilingsStored,
    ConfigureLog,
    DeleteLog,
    EpochStarted,
    Event,
    FetchedAppended,
    FetchedRecords,
    Flush,
    Flushed,
    LogOpened,
    LogsOffline,
    LogStartStored,
    MoveLogStart,
    OpenLog,
    Reset,
    StartEpoch,
    StoreCeilings,
    Truncate,
    Truncated,
)
from holdfast.broker.log_manager import LogManager
from holdfast.broker.managed_log import ManagedLog
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.batch_validation import (
    TakesLonger,
    TimestampRange,
    record_fault,
    timestamp_fault,
    timestamp_range,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import CorruptBatch
from holdfast.runtime.api import DiskError, OutOfResources, Runtime
from holdfast.storage.core.continuation import BeginsWithinBatch, InvalidAppend
from holdfast.storage.core.files import folder_name
from holdfast.storage.core.producer_state import Duplicate, Rejected
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused

#: Logs that are opened, created or deleted at the same time.
OPENERS = 16

#: One piece of work on one log.
Step = Callable[[], Coroutine[Any, Any, None]]

FetchedResult = tuple[PartitionId, str | None, int, bool]

_log = logging.getLogger("holdfast.log_effects")

_GONE = "the log is no longer available on this broker"
_FAILED = "the log dir has failed; refresh the metadata and send it to the leader"
_DEPOSED = "the leader epoch ended while the batch waited for the log; send it to the new leader"


class LogEffects:
    """Runs effects on the logs of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        log_manager: LogManager,
        post: Callable[[Event], None],
        leads: Callable[[PartitionId, int], bool],
    ) -> None:
        """`leads(partition, leader_epoch)`: whether this broker leads it in that epoch at this moment."""
        self._runtime = runtime
        self._log_manager = log_manager
        self._post = post
        self._leads = leads
        #: logs with work under way, and the steps queued behind it. `Serial.run` queues only when its task
        #: first runs; steps issued before that must not be overtaken
        self._waiting: dict[PartitionId, deque[Step]] = {}
        #: logs with a flush under way; True when another one was requested meanwhile
        self._flushing: dict[PartitionId, bool] = {}
        #: logs to be opened or deleted, and how many tasks do that. In one queue: a log that is opened finds
        #: its name free, or held by the deletion that was issued before
        self._to_open: deque[Step] = deque()
        self._openers = 0
        #: log dirs whose ceilings are being stored, and the rows for the next write
        self._ceilings: dict[LogDir, list[CeilingRow]] = {}

    # --- appends -----------------------------------------------------------------------------------------

    def append(self, effect: Append) -> bool:
        """Append batches of clients; one Appended for all that can be done at once, and one for each later
        one. True when there is no later one."""
        results: list[AppendResult] = []
        for item in effect.batches:
            managed = self._log_manager.managed(item.key)
            if managed is None:
                results.append(_refused(item, ErrorCode.KAFKA_STORAGE_ERROR, _GONE))
            elif (
                self.is_settled(item.key, managed)
                and not managed.log.needs_roll(len(item.batch))
                and (result := _append_one(managed, item, self._taken(managed))) is not None
            ):
                results.append(result)
            else:
                self._in_order(item.key, managed, partial(self._append_later, effect.context, managed, item))
        if results:
            self._post(Appended(effect.context, tuple(results)))
        return len(results) == len(effect.batches)

    async def _append_later(self, context: object, managed: ManagedLog, item: BatchToAppend) -> None:
        result = await self._append_in_time(managed, item)
        if result is None:
            # Too much to read within a turn of the event loop. The steps behind this one wait for it.
            needs_keys = managed.log.config.compacts
            read = partial(record_fault, item.batch, item.header, self._taken(managed), needs_keys=needs_keys)
            fault = await self._runtime.tasks.compute(read)
            if fault is None:
                result = await self._append_in_time(managed, item, is_read=True)
                assert result is not None
            else:
                result = _refused(item, *fault)
        self._post(Appended(context, (result,)))

    async def _append_in_time(
        self, managed: ManagedLog, item: BatchToAppend, *, is_read: bool = False
    ) -> AppendResult | None:
        if not await self._has_room(item.key, managed, len(item.batch)):
            return _refused(item, ErrorCode.KAFKA_STORAGE_ERROR, _GONE)
        if self._leads(item.key, item.leader_epoch):
            return _append_one(managed, item, self._taken(managed), is_read=is_read)
        # issued in time, but another leader may write this log meanwhile
        return _refused(item, ErrorCode.NOT_LEADER_OR_FOLLOWER, _DEPOSED)

    def _taken(self, managed: ManagedLog) -> TimestampRange:
        config = managed.log.config
        return timestamp_range(
            self._runtime.clock.wall_ms(),
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    def append_fetched(self, effect: AppendFetched) -> None:
        """Append batches fetched from a leader."""
        results: list[FetchedResult] = []
        for item in effect.fetched:
            managed = self._log_manager.managed(item.key)
            if managed is None:
                results.append((item.key, _GONE, 0, False))
            elif (
                self.is_settled(item.key, managed)
                and not managed.log.needs_roll(len(item.records))
                and (result := _append_fetched_one(managed, item)) is not None
            ):
                results.append(result)
            else:
                self._in_order(item.key, managed, partial(self._append_fetched_later, managed, item))
        if results:
            self._post(FetchedAppended(tuple(results)))

    async def _append_fetched_later(self, managed: ManagedLog, item: FetchedRecords) -> None:
        result: FetchedResult = (item.key, _GONE, 0, False)
        if await self._has_room(item.key, managed, len(item.records)):
            appended = _append_fetched_one(managed, item)
            result = appended or await self._begin_within_batch(managed, item)
        self._post(FetchedAppended((result,)))

    async def _begin_within_batch(self, managed: ManagedLog, item: FetchedRecords) -> FetchedResult:
        """Begin an empty log anew at the batch that holds its start."""
        try:
            appended = await managed.log.begin_within(item.records, item.leader_epoch)
        except (CorruptBatch, InvalidAppend) as error:
            return item.key, str(error), 0, False
        except DiskError as error:
            self._log_manager.failed(managed, error)
            return item.key, str(error), 0, False
        managed.log_dir.space.took(len(item.records))
        await self._log_manager.checkpoints.store_log_start(managed)
        return item.key, None, len(item.records), appended.must_flush

    async def _has_room(self, key: PartitionId, managed: ManagedLog, size_bytes: int) -> bool:
        """Roll if so many bytes need it; False when the log is closed before or meanwhile."""
        if self._log_manager.managed(key) is not managed:
            return False
        try:
            if managed.log.needs_roll(size_bytes):
                await managed.log.roll()
        except DiskError:
            return False
        # its log dir may have failed meanwhile, at another log
        return self._log_manager.managed(key) is managed

    # --- others ------------------------------------------------------------------------------------------

    def start_epoch(self, effect: StartEpoch) -> None:
        """Record the leader epoch at the log's end (R54)."""
        managed = self._log_manager.managed(effect.key)
        if managed is None:
            return
        if self.is_settled(effect.key, managed):
            self._start_epoch(managed, effect)
        else:
            self._in_order(effect.key, managed, partial(self._start_epoch_later, managed, effect))

    async def _start_epoch_later(self, managed: ManagedLog, effect: StartEpoch) -> None:
        if self._log_manager.managed(effect.key) is managed:
            self._start_epoch(managed, effect)

    def _start_epoch(self, managed: ManagedLog, effect: StartEpoch) -> None:
        try:
            managed.log.start_epoch(effect.leader_epoch)
        except DiskError:
            return
        self._post(EpochStarted(effect.key, effect.leader_epoch, managed.log.log_end_offset))

    def store_ceilings(self, effect: StoreCeilings) -> None:
        """Store ceilings, one file per log dir; rows that come meanwhile share the next write (R68)."""
        for row in effect.rows:
            managed = self._log_manager.managed(row.key)
            if managed is None:
                continue
            log_dir = managed.log_dir
            if log_dir not in self._ceilings:
                self._ceilings[log_dir] = []
                self._runtime.tasks.start(f"ceilings of {log_dir.path}", self._store_ceilings(log_dir))
            self._ceilings[log_dir].append(row)

    async def _store_ceilings(self, log_dir: LogDir) -> None:
        while rows := self._ceilings[log_dir]:
            self._ceilings[log_dir] = []
            kept: dict[PartitionId, int] = {row.key: row.offset for row in rows}
            if await self._log_manager.checkpoints.store_ceilings(log_dir, kept):
                self._post(CeilingsStored(tuple(rows)))
        del self._ceilings[log_dir]

    def move_start(self, effect: MoveLogStart) -> None:
        """Let the log begin later. Flushed first: after a power loss a log must not end below its start."""
        managed = self._log_manager.managed(effect.key)
        if managed is not None:
            self._in_order(effect.key, managed, partial(self._move_start, managed, effect))

    async def _move_start(self, managed: ManagedLog, effect: MoveLogStart) -> None:
        if self._log_manager.managed(effect.key) is managed:
            try:
                await managed.log.flush()
            except DiskError as error:
                self._log_manager.failed(managed, error)
                return
            managed.log.move_start(effect.offset)
            if effect.is_stored and await self._log_manager.checkpoints.store_log_start(managed):
                self._post(LogStartStored(effect.key))

    def truncate(self, effect: Truncate) -> None:
        """Truncate the log (R81)."""
        managed = self._log_manager.managed(effect.key)
        if managed is not None:
            self._in_order(effect.key, managed, partial(self._cut, managed, effect))

    def reset(self, effect: Reset) -> None:
        """Drop the log's content and start at another offset (R83)."""
        managed = self._log_manager.managed(effect.key)
        if managed is not None:
            self._in_order(effect.key, managed, partial(self._cut, managed, effect))

    async def _cut(self, managed: ManagedLog, effect: Truncate | Reset) -> None:
        if self._log_manager.managed(effect.key) is managed:
            try:
                if isinstance(effect, Truncate):
                    await managed.log.truncate_to(effect.end_offset)
                else:
                    await managed.log.reset_to(effect.start_offset)
            except DiskError as error:
                self._log_manager.failed(managed, error)
        self._post(Truncated(effect.key))

    def configure(self, effect: ConfigureLog) -> None:
        """Apply a topic's settings to a log."""
        managed = self._log_manager.managed(effect.key)
        if managed is not None and managed.log.config != effect.config:
            self._log_manager.configure(managed, effect.config)

    def flush(self, effect: Flush) -> None:
        """Flush the log; a request during a flush is served by another flush after it (A-21)."""
        key = effect.key
        if key in self._flushing:
            self._flushing[key] = True
            return
        managed = self._log_manager.managed(key)
        if managed is None:
            self._post(Flushed(key))  # the log is closed: nothing to flush
            return
        self._flushing[key] = False
        self._runtime.tasks.start(f"flush {folder_name(managed.partition)}", self._flush(key, managed))

    async def _flush(self, key: PartitionId, managed: ManagedLog) -> None:
        is_wanted = True
        while is_wanted:
            self._flushing[key] = False
            if self._log_manager.managed(key) is managed:
                try:
                    await managed.log.flush()
                except DiskError as error:
                    self._log_manager.failed(managed, error)
            self._post(Flushed(key))
            is_wanted = self._flushing[key]
        del self._flushing[key]

    def open(self, effect: OpenLog) -> None:
        """Open or create a log. A few at a time, so that a topic of ten thousand partitions does not keep
        heartbeats from their turn, and its first logs are ready soon."""
        self._by_opener(partial(self._open, effect))

    def _by_opener(self, step: Step) -> None:
        self._to_open.append(step)
        if self._openers < OPENERS:
            self._openers += 1
            self._runtime.tasks.start(f"open logs {self._openers}", self._open_waiting())

    async def _open_waiting(self) -> None:
        while self._to_open:
            await self._to_open.popleft()()
        self._openers -= 1

    async def _open(self, effect: OpenLog) -> None:
        key = effect.key
        try:
            log = await self._log_manager.create(
                effect.topic_name, key.topic_id, key.partition_index, effect.config
            )
        except DiskError:
            # No other dir is tried: the next start may find what was made here.
            self._post(LogsOffline((key,)))
        except LogDirRefused as error:
            # A folder of that name is not this partition's log. No dir has failed, so only this replica is
            # offline. It had no log in this process, so nothing that others rely on is lost.
            _log.error("replica %s-%d is offline: %s", effect.topic_name, key.partition_index, error)
            self._post(LogsOffline((key,)))
        else:
            self._post(LogOpened(key, log))

    def delete(self, effect: DeleteLog) -> None:
        """Remove a log. One of the same name that is opened later waits for that."""
        self._by_opener(partial(self._delete, effect.key))

    async def _delete(self, key: PartitionId) -> None:
        with suppress(DiskError):  # the next start deletes the rest
            await self._log_manager.delete(key.topic_id, key.partition_index)

    # --- order -------------------------------------------------------------------------------------------

    def is_settled(self, key: PartitionId, managed: ManagedLog) -> bool:
        """No effect on the log is under way or queued, so its end does not move."""
        return key not in self._waiting and managed.serial.is_idle

    def _in_order(self, key: PartitionId, managed: ManagedLog, step: Step) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(step)
            return
        self._waiting[key] = deque((step,))
        name = f"work on {folder_name(managed.partition)}"
        self._runtime.tasks.start(name, self._work_off(key, managed))

    async def _work_off(self, key: PartitionId, managed: ManagedLog) -> None:
        waiting = self._waiting[key]
        while waiting:
            await managed.serial.run(waiting.popleft())
        del self._waiting[key]


def _append_one(
    managed: ManagedLog, item: BatchToAppend, taken: TimestampRange, *, is_read: bool = False
) -> AppendResult | None:
    """Append one batch unless the producer state knows it or refuses it (R91, R92), its records are no such,
    or the disk is nearly full; None when they take longer to read than a turn of the event loop. `is_read`:
    they were read."""
    log, space = managed.log, managed.log_dir.space
    verdict = log.producer_state.check(item.header)
    if isinstance(verdict, Rejected):
        return _refused(item, verdict.error_code, verdict.text)
    if isinstance(verdict, Duplicate):
        epoch = log.leader_epoch_cache.epoch_at(verdict.base_offset)
        return AppendResult(
            item.key,
            item.leader_epoch,
            verdict.base_offset,
            verdict.last_offset + 1,
            len(item.batch),
            is_duplicate=True,
            batch_epoch=-1 if epoch is None else epoch,
        )
    fault = timestamp_fault(item.header, taken)
    if fault is None and log.config.validate_records and not is_read:
        try:
            fault = record_fault(
                item.batch, item.header, taken, in_one_turn=True, needs_keys=log.config.compacts
            )
        except TakesLonger:
            return None
    if fault is not None:
        return _refused(item, *fault)
    if not space.has_room(len(item.batch)):
        return _refused(item, ErrorCode.KAFKA_STORAGE_ERROR, space.why_not(managed.log_dir.path))
    try:
        appended = log.append_as_leader(item.batch, item.leader_epoch, header=item.header)
    except OutOfResources as error:
        return _refused(item, ErrorCode.KAFKA_STORAGE_ERROR, f"the broker has run out: {error}; retry")
    except DiskError:
        return _refused(item, ErrorCode.KAFKA_STORAGE_ERROR, _FAILED)
    space.took(appended.size_bytes)
    return AppendResult(
        item.key,
        item.leader_epoch,
        appended.base_offset,
        appended.last_offset + 1,
        appended.size_bytes,
        batch_epoch=item.leader_epoch,
        must_flush=appended.must_flush,
    )


def _refused(item: BatchToAppend, code: ErrorCode, text: str) -> AppendResult:
    return AppendResult(item.key, item.leader_epoch, -1, -1, len(item.batch), code, text)


def _append_fetched_one(managed: ManagedLog, item: FetchedRecords) -> FetchedResult | None:
    """None when the log is to begin anew at the batch that holds its start."""
    space = managed.log_dir.space
    if not space.has_room_for_copy(len(item.records)):
        return item.key, space.why_not(managed.log_dir.path), 0, False
    try:
        appended = managed.log.append_as_follower(item.records, leader_epoch=item.leader_epoch)
    except BeginsWithinBatch:
        return None
    except (CorruptBatch, InvalidAppend, DiskError) as error:
        return item.key, str(error), 0, False
    space.took(len(item.records))
    return item.key, None, len(item.records), appended is not None and appended.must_flush
