"""One partition of the topic of the offsets while this broker leads it: the groups that it has.

Owns the groups, and the writes on their way to the high watermark. A new leader first replays everything
below the log end that it began with, once that is committed: a former coordinator may have answered for it.
What is committed changes the groups in the order of the log, also when nothing waits for it any more.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain

from holdfast.broker.core.events import (
    Append,
    AppendResult,
    BatchToAppend,
    Effect,
    MoveLogStart,
    ReadGroupLog,
    Respond,
    RespondInSteps,
)
from holdfast.broker.core.groups.config import READ_MAX_BYTES, RETRY_READ_MS, GroupConfig
from holdfast.broker.core.groups.group import Group, StoredOffset
from holdfast.broker.core.groups.records import (
    GroupKey,
    GroupRecord,
    GroupRecordKey,
    GroupRecordValue,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_batches,
    encode_group_batch,
)
from holdfast.broker.core.groups.snapshot import Snapshot
from holdfast.broker.core.groups.timers import Timer, Timers, cancel
from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.answer_steps import AnswerSteps, in_one_go, is_one_step
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import CorruptBatch, check_batch
from holdfast.protocol.schema.fields import SchemaError
from holdfast.runtime.stats import Level, LogLine


@dataclass(slots=True)
class Turn:
    """What every decision here works with: settings, the time of the present event, what is to be done."""

    config: GroupConfig
    outbox: list[Effect]
    timers: Timers = field(default_factory=Timers)
    now_ms: int = 0
    #: what the wall clock is ahead of the other one
    wall_ahead_ms: int = 0

    @property
    def wall_ms(self) -> int:
        """ms since 1970."""
        return self.now_ms + self.wall_ahead_ms

    def respond(self, reply_to: object, message: object) -> None:
        """Answer a request."""
        self.outbox.append(Respond(reply_to, message))

    def respond_in_steps(self, reply_to: object, rows: int, steps: AnswerSteps) -> None:
        """The same with an answer of so many rows; `steps` read nothing that changes, unless that is few."""
        if is_one_step(rows):
            self.respond(reply_to, in_one_go(steps))
        else:
            self.outbox.append(RespondInSteps(reply_to, steps))

    def after(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        """Make this call later."""
        return self.timers.at(self.now_ms + delay_ms, call)


class ShardState(Enum):
    """How far the log has been replayed."""

    #: the high watermark is not known to cover what a former coordinator wrote
    WAITING = "waiting"
    LOADING = "loading"
    ACTIVE = "active"
    #: the log has something that this software cannot read
    UNREADABLE = "unreadable"
    #: this broker does not lead the partition any more
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class GroupWrite:
    """Records on their way; the context of their Append."""

    shard: "Shard"
    records: tuple[GroupRecord, ...]
    #: called once: NONE when they are committed, else why that is not certain
    answer: Callable[[ErrorCode], None] | None
    end_offset: int = -1
    #: answers that it is late; it keeps the records in memory until then
    timer: Timer | None = None

    def decide(self, code: ErrorCode) -> None:
        """Answer, unless that was done before."""
        cancel(self.timer)
        answer, self.answer = self.answer, None
        if answer is not None:
            answer(code)


class Shard:
    """The groups of one partition, in one leader epoch."""

    def __init__(
        self,
        turn: Turn,
        partition: Partition,
        leader_epoch: int,
        max_message_bytes: Mapping[PartitionId, int],
    ) -> None:
        self.key = partition.key
        self.leader_epoch = leader_epoch
        self.state = ShardState.WAITING
        self.groups: dict[str, Group] = {}
        #: called for each group when the log has been replayed
        self.loaded: Callable[[Shard], None] = lambda shard: None
        self._turn = turn
        self._partition = partition
        self._max_message_bytes = max_message_bytes
        #: appended, not committed; by offset
        self._writes: deque[GroupWrite] = deque()
        #: next offset to replay, and where the replay ends
        self._position = -1
        self._load_end = -1
        #: {group: the last committed record of it}
        self._values: dict[str, GroupValue] = {}
        #: every write that has no result yet, in the order of the log
        self._in_flight: dict[GroupWrite, None] = {}
        #: {group: {key in them: number of writes that have it}}
        self._keys_in_flight: dict[str, dict[GroupRecordKey, int]] = {}
        self._snapshot = Snapshot(turn.config.snapshot_records_min)

    @property
    def name(self) -> str:
        """`topic-index`."""
        return f"{self._partition.topic_name}-{self.key.partition_index}"

    @property
    def is_active(self) -> bool:
        """Its groups are known."""
        return self.state is ShardState.ACTIVE

    def group(self, group_id: str) -> Group:
        """The group, made when there is none."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = Group(group_id)
        return found

    def forget_if_idle(self, group: Group) -> None:
        """Drop a group of which nothing was ever stored."""
        if group.is_forgotten and not group.is_stored and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # --- replay -------------------------------------------------------------------------------------------

    def high_watermark_known(self) -> None:
        """Begin to replay as soon as all that a former leader can have acknowledged is committed."""
        leadership = self._partition.leadership
        if self.state is not ShardState.WAITING or self._partition.visible_high_watermark < 0:
            return
        assert leadership is not None
        assert leadership.start_offset is not None
        self.state = ShardState.LOADING
        self._load_end = leadership.start_offset
        self._read()

    def _read(self) -> None:
        if self.state is ShardState.LOADING:
            self._begin_at_log_start()
            self._turn.outbox.append(
                ReadGroupLog(self.key, self.leader_epoch, self._position, self._load_end, READ_MAX_BYTES)
            )

    def _begin_at_log_start(self) -> None:
        """The log may begin later by now, at a snapshot that says anew what counts: what was replayed below
        it may have been deleted in what is not read any more."""
        log_start = self._partition.log.log_start_offset
        if log_start > self._position:
            self._position = log_start
            self.groups.clear()
            self._values.clear()

    def replay(self, start_offset: int, batches: bytes, problem: str | None) -> None:
        """What was read from there on."""
        if self.state is not ShardState.LOADING or start_offset != self._position:
            return
        try:
            for next_offset, records in decode_group_batches(batches):
                self._position = next_offset
                self._snapshot.count(len(records))
                for record in records:
                    self._apply(record)
        except (SchemaError, CorruptBatch) as error:
            self._cannot_read(str(error))
            return
        if self._position >= self._load_end:
            self._finish_loading()
        elif batches:
            self._read()
        else:
            text = f"{self.name}: offsets cannot be read: {problem or 'nothing is there'}"
            self._turn.outbox.append(LogLine(Level.WARNING, text))
            self._turn.after(RETRY_READ_MS, self._read)

    def _cannot_read(self, why: str) -> None:
        self.state = ShardState.UNREADABLE
        text = f"{self.name}: this broker does not coordinate its groups: {why}"
        self._turn.outbox.append(LogLine(Level.ERROR, text))

    def _apply(self, record: GroupRecord) -> None:
        """It is committed. What members do is known before it is, and is not changed by it."""
        key, value = record
        if isinstance(key, OffsetKey):
            self._apply_offset(key, value)
        elif isinstance(value, GroupValue):
            self._values[key.group_id] = value
        else:
            self._values.pop(key.group_id, None)

    def _finish_loading(self) -> None:
        for group_id, value in self._values.items():
            self.group(group_id).load(value)
        self.state = ShardState.ACTIVE
        text = f"{self.name}: coordinates {len(self.groups)} groups in epoch {self.leader_epoch}"
        self._turn.outbox.append(LogLine(Level.INFO, text))
        self.loaded(self)
        self._maybe_snapshot()

    # --- writes -------------------------------------------------------------------------------------------

    def write(self, records: Sequence[GroupRecord], answer: Callable[[ErrorCode], None] | None) -> GroupWrite:
        """Append records as with acks=all; `answer` is called once. They may be committed after an error,
        too."""
        write = GroupWrite(self, tuple(records), answer)
        batch = encode_group_batch(records, self._turn.wall_ms)
        code = self._partition.check_produce(-1)
        if code is ErrorCode.NONE and len(batch) > self._max_message_bytes[self.key]:
            code = ErrorCode.MESSAGE_TOO_LARGE
        if code is not ErrorCode.NONE:
            write.decide(_for_members(code))
            return write
        self._begin(write)
        to_append = BatchToAppend(self.key, self.leader_epoch, check_batch(batch), memoryview(batch))
        self._turn.outbox.append(Append(write, (to_append,)))
        if answer is not None:
            late = partial(write.decide, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            write.timer = self._turn.after(self._turn.config.commit_timeout_ms, late)
        return write

    def appended(self, write: GroupWrite, result: AppendResult) -> None:
        """The result of the append of a write."""
        if self.state is ShardState.CLOSED:
            write.decide(ErrorCode.NOT_COORDINATOR)
            return
        if result.error_code is not ErrorCode.NONE:
            self._end(write)
            write.decide(_for_members(result.error_code))
            return
        write.end_offset = result.end_offset
        self._writes.append(write)
        self.committed()

    def _begin(self, write: GroupWrite) -> None:
        self._in_flight[write] = None
        for key, _ in write.records:
            counts = self._keys_in_flight.setdefault(key.group_id, {})
            counts[key] = counts.get(key, 0) + 1

    def _end(self, write: GroupWrite) -> None:
        del self._in_flight[write]
        for key, _ in write.records:
            counts = self._keys_in_flight[key.group_id]
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
            if not counts:
                del self._keys_in_flight[key.group_id]

    def offsets_in_flight(self, group_id: str) -> dict[PartitionId, None]:
        """Partitions whose offset changes, or is deleted, by a write that has no result yet; in the order of
        the log."""
        keys = self._keys_in_flight.get(group_id, ())
        found = (PartitionId(key.topic_id, key.partition_index) for key in keys if isinstance(key, OffsetKey))
        return dict.fromkeys(found)

    def values_in_flight(self) -> dict[GroupRecordKey, GroupRecordValue]:
        """{key: value} of the writes that have no result yet, the last one of each key; None for a
        deletion."""
        return {key: value for write in self._in_flight for key, value in write.records}

    def committed(self) -> None:
        """The high watermark may have passed writes."""
        high_watermark = self._partition.high_watermark
        while self._writes and self._writes[0].end_offset <= high_watermark:
            write = self._writes.popleft()
            self._end(write)
            self._snapshot.count(len(write.records))
            for record in write.records:
                self._apply(record)
            write.decide(ErrorCode.NONE)
        self._maybe_snapshot()

    def _apply_offset(self, key: OffsetKey, value: object) -> None:
        partition = PartitionId(key.topic_id, key.partition_index)
        if isinstance(value, OffsetValue):
            stored = StoredOffset(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms)
            self.group(key.group_id).offsets[partition] = stored
        elif key.group_id in self.groups:
            group = self.groups[key.group_id]
            group.offsets.pop(partition, None)
            self.forget_if_idle(group)

    # --- snapshots ----------------------------------------------------------------------------------------

    def _maybe_snapshot(self) -> None:
        """Write all that is known once more when the log has become long, and let it begin there: a batch at
        a time, each when the one before is committed."""
        if self.is_active and self._snapshot.is_due(self._live_count):
            # What is under way now lies below the snapshot, and may not be known otherwise.
            self._snapshot.begin(chain(self.values_in_flight(), self._keys()))
            self._write_snapshot()

    def _live_count(self) -> int:
        return len(self._values) + sum(len(group.offsets) for group in self.groups.values())

    def _keys(self) -> Iterator[GroupRecordKey]:
        for group_id in sorted(self._values):
            yield GroupKey(group_id)
        for group_id in sorted(self.groups):
            group = self.groups.get(group_id)
            for topic_id, index in () if group is None else tuple(group.offsets):
                yield OffsetKey(group_id, topic_id, index)

    def _write_snapshot(self) -> None:
        records = self._snapshot.next_batch(partial(self._repeated, self.values_in_flight()))
        if records:
            self._snapshot.written(self.write(records, self._snapshot_committed))
        else:
            start = self._snapshot.end()
            self._turn.outbox.append(MoveLogStart(self.key, start))
            text = f"{self.name}: {self._live_count()} records of groups were written anew, from {start} on"
            self._turn.outbox.append(LogLine(Level.INFO, text))

    def _repeated(
        self, in_flight: Mapping[GroupRecordKey, GroupRecordValue], key: GroupRecordKey
    ) -> GroupRecord | None:
        if key in in_flight:  # also a deletion: its own append may be refused while the snapshot's is not
            return GroupRecord(key, in_flight[key])
        value = self._known(key)
        return None if value is None else GroupRecord(key, value)

    def _known(self, key: GroupRecordKey) -> GroupRecordValue:
        if isinstance(key, GroupKey):
            return self._values.get(key.group_id)
        group = self.groups.get(key.group_id)
        stored = None
        if group is not None:
            stored = group.offsets.get(PartitionId(key.topic_id, key.partition_index))
        return None if stored is None else OffsetValue(*stored)

    def _snapshot_committed(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._write_snapshot()
        else:
            self._snapshot.give_up()

    def close(self) -> list[Group]:
        """Another broker coordinates these groups from here on: waiting commits are answered so. Returns
        the groups."""
        self.state = ShardState.CLOSED
        writes, self._writes = self._writes, deque()
        for write in writes:
            write.decide(ErrorCode.NOT_COORDINATOR)
        groups, self.groups = list(self.groups.values()), {}
        return groups


def _for_members(code: ErrorCode) -> ErrorCode:
    """What members hear when records could not be appended, as Kafka's coordinator says it."""
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
