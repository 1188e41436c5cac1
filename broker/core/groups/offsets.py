"""How far groups have read: commits, fetches and deletions of offsets, and of whole groups.

A commit is answered when its records are committed. Offsets of topics that are gone, and of groups that have
had no members for `offsets.retention.minutes`, are deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from holdfast.broker.core.groups.config import GROUPS_MAX, OFFSETS_MAX
from holdfast.broker.core.groups.group import Group, GroupState, StoredOffset
from holdfast.broker.core.groups.membership import text_of
from holdfast.broker.core.groups.records import GroupKey, GroupRecord, OffsetKey, OffsetValue
from holdfast.broker.core.groups.shard import Shard, Turn
from holdfast.metadata.answer_steps import AnswerSteps, Pace
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    NO_OFFSET,
    CommittedOffset,
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

#: Records of one batch of deletions.
_BATCH_RECORDS = 1_000
#: Offsets that are looked at for old ones in one turn; a group is looked at as a whole.
OFFSETS_A_TURN = 2_000

Hear = Callable[[Shard, Group, str], None]


class Offsets:
    """What requests and time do to committed offsets."""

    def __init__(self, turn: Turn, hear: Hear) -> None:
        """`hear`: a member has shown that it lives."""
        self._turn = turn
        self._hear = hear

    # --- commit -------------------------------------------------------------------------------------------

    def commit(
        self, shard: Shard, reply_to: object, request: OffsetCommitRequest, image: MetadataImage
    ) -> None:
        """Answered when the records are committed."""
        code = self._check_commit(shard, request)
        if code is not ErrorCode.NONE:
            self._turn.respond(reply_to, commit_refused(request, code))
            return
        codes = [self._row_code(row, image) for row in request.partitions]
        records = [
            self._commit_record(request.group_id, row)
            for row, row_code in zip(request.partitions, codes, strict=True)
            if row_code is ErrorCode.NONE
        ]
        group = shard.groups.get(request.group_id)
        if group is not None and request.member_id:
            self._hear(shard, group, request.member_id)
        if records:
            shard.write(records, partial(self._committed, reply_to, request, codes))
        else:
            self._committed(reply_to, request, codes, ErrorCode.NONE)

    def _check_commit(self, shard: Shard, request: OffsetCommitRequest) -> ErrorCode:
        group = shard.groups.get(request.group_id)
        is_member = bool(
            request.generation_id >= 0 or request.member_id or request.group_instance_id is not None
        )
        if group is None:
            if request.generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.POLICY_VIOLATION if len(shard.groups) >= GROUPS_MAX else ErrorCode.NONE
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if is_member and not (request.generation_id < 0 and group.state is GroupState.EMPTY):
            code = group.check_member(request.member_id, request.group_instance_id)
            if code is not ErrorCode.NONE:
                return code
            if request.generation_id != group.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif group.state is not GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        named = {PartitionId(row.topic_id, row.partition_index) for row in request.partitions}
        is_full = len(group.offsets) + len(named - group.offsets.keys()) > OFFSETS_MAX
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_full else ErrorCode.NONE

    def _row_code(self, row: OffsetCommitPartition, image: MetadataImage) -> ErrorCode:
        if len((row.metadata or "").encode()) > self._turn.config.metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if image.partition(row.topic_id, row.partition_index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _commit_record(self, group_id: str, row: OffsetCommitPartition) -> GroupRecord:
        key = OffsetKey(group_id, row.topic_id, row.partition_index)
        return GroupRecord(key, OffsetValue(row.offset, row.leader_epoch, row.metadata, self._turn.wall_ms))

    def _committed(
        self, reply_to: object, request: OffsetCommitRequest, codes: Sequence[ErrorCode], code: ErrorCode
    ) -> None:
        rows = tuple(
            OffsetCommitPartitionResponse(row.topic_id, row.partition_index, row_code or code)
            for row, row_code in zip(request.partitions, codes, strict=True)
        )
        self._turn.respond(reply_to, OffsetCommitResponse(code, text_of(code), rows))

    # --- fetch --------------------------------------------------------------------------------------------

    def fetch(
        self, shard: Shard, reply_to: object, request: OffsetFetchRequest, image: MetadataImage
    ) -> None:
        """Tell what is committed. Offsets of topics that are gone are not there any more."""
        group = shard.groups.get(request.group_id)
        # they are read after this turn, too
        stored = {} if group is None else dict(group.offsets)
        rows = len(stored if request.partitions is None else request.partitions)
        self._turn.respond_in_steps(reply_to, rows, _fetched(stored, request, image))

    # --- delete -------------------------------------------------------------------------------------------

    def delete(
        self, shard: Shard, reply_to: object, request: OffsetDeleteRequest, image: MetadataImage
    ) -> None:
        """Forget single offsets, of topics that no member reads."""
        group = shard.groups.get(request.group_id)
        code = ErrorCode.NONE
        if group is None or group.state is GroupState.DEAD:
            self._turn.respond(reply_to, delete_refused(ErrorCode.GROUP_ID_NOT_FOUND))
            return
        subscribed: frozenset[str] = frozenset()
        if group.state is not GroupState.EMPTY:
            found = group.subscribed()
            if found is None:
                self._turn.respond(reply_to, delete_refused(ErrorCode.NON_EMPTY_GROUP))
                return
            subscribed = found
        in_use = {image.topic_ids.get(name) for name in subscribed}
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if row.topic_id in in_use else ErrorCode.NONE
            for row in request.partitions
        ]
        keys = [
            PartitionId(row.topic_id, row.partition_index)
            for row, row_code in zip(request.partitions, codes, strict=True)
            if row_code is ErrorCode.NONE
        ]
        # A commit under way is deleted behind itself: it would be there after an answer that it is not.
        known = group.offsets.keys() | shard.offsets_in_flight(group.group_id).keys()
        records = [_without(group, key) for key in dict.fromkeys(keys) if key in known]
        done = partial(self._deleted, reply_to, request, codes)
        if records:
            shard.write(records, done)
        else:
            done(code)

    def _deleted(
        self, reply_to: object, request: OffsetDeleteRequest, codes: Sequence[ErrorCode], code: ErrorCode
    ) -> None:
        rows = tuple(
            OffsetDeletePartitionResponse(row.topic_id, row.partition_index, row_code or code)
            for row, row_code in zip(request.partitions, codes, strict=True)
        )
        self._turn.respond(reply_to, OffsetDeleteResponse(code, text_of(code), rows))

    # --- whole groups -------------------------------------------------------------------------------------

    def delete_group(self, shard: Shard, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members and its offsets; `answer` is called once."""
        group = shard.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            answer(ErrorCode.GROUP_ID_NOT_FOUND)
        elif group.state is not GroupState.EMPTY:
            answer(ErrorCode.NON_EMPTY_GROUP)
        else:
            group.state = GroupState.DEAD
            # Commits under way too: the next coordinator would find them without a group.
            keys = dict.fromkeys([*group.offsets, *shard.offsets_in_flight(group_id)])
            self._write_deletions(shard, group, keys)
            last = GroupRecord(GroupKey(group_id), None)
            shard.write([last], partial(self._group_deleted, shard, group, answer))

    def _group_deleted(
        self, shard: Shard, group: Group, answer: Callable[[ErrorCode], None], code: ErrorCode
    ) -> None:
        if code is ErrorCode.NONE:
            if shard.groups.get(group.group_id) is group:
                del shard.groups[group.group_id]
        else:
            group.state = GroupState.EMPTY
        answer(code)

    # --- retention ----------------------------------------------------------------------------------------

    def expire_all(self, shards: Iterable[Shard], image: Callable[[], MetadataImage]) -> None:
        """Delete what is too old, or of topics that are gone, and groups of which nothing is left. Some now,
        and the others in turns of their own, each partition in another: nothing else is done in one."""
        self._expire_next(iter(shards), image)

    def _expire_next(self, shards: Iterator[Shard], image: Callable[[], MetadataImage]) -> None:
        shard = next((one for one in shards if one.is_active), None)
        if shard is not None:
            self._expire_groups(shard, iter(list(shard.groups)), shards, image)

    def _expire_groups(
        self,
        shard: Shard,
        group_ids: Iterator[str],
        shards: Iterator[Shard],
        image: Callable[[], MetadataImage],
    ) -> None:
        looked_at = 0
        for group_id in group_ids:
            group = shard.groups.get(group_id)
            if group is None or not shard.is_active:
                continue
            self._expire(shard, group, image())
            looked_at += 1 + len(group.offsets)
            if looked_at >= OFFSETS_A_TURN:
                self._turn.after(1, partial(self._expire_groups, shard, group_ids, shards, image))
                return
        self._turn.after(1, partial(self._expire_next, shards, image))

    def _expire(self, shard: Shard, group: Group, image: MetadataImage) -> None:
        in_flight = shard.offsets_in_flight(group.group_id)
        # A deletion would come behind a commit under way, which is new.
        expired = [key for key in self._expired(group, image) if key not in in_flight]
        self._write_deletions(shard, group, expired)
        is_over = group.state_timestamp_ms <= self._oldest_kept_ms
        if group.is_forgotten and group.is_stored and is_over and not in_flight:
            self.delete_group(shard, group.group_id, lambda code: None)

    @property
    def _oldest_kept_ms(self) -> int:
        return self._turn.wall_ms - self._turn.config.retention_ms

    def _expired(self, group: Group, image: MetadataImage) -> list[PartitionId]:
        last_ms = self._oldest_kept_ms
        expired: list[PartitionId] = []
        old: dict[PartitionId, str] = {}
        for key, stored in group.offsets.items():
            if image.partition(*key) is None:
                expired.append(key)
            elif stored.commit_timestamp_ms <= last_ms:
                old[key] = image.topics[key.topic_id].name
        if old:  # what the members read is worth a look only now
            expired += _not_in_use(group, old, last_ms)
        return expired

    def _write_deletions(self, shard: Shard, group: Group, keys: Iterable[PartitionId]) -> None:
        records = [_without(group, key) for key in keys]
        for start in range(0, len(records), _BATCH_RECORDS):
            shard.write(records[start : start + _BATCH_RECORDS], None)


def _not_in_use(group: Group, topics: Mapping[PartitionId, str], last_ms: int) -> list[PartitionId]:
    """Those of a group that no member reads, nor has read since `last_ms`. `topics`: {partition: name}."""
    if group.state is GroupState.EMPTY:
        # As long as there were members it was in use.
        is_in_use = bool(group.protocol_type) and group.state_timestamp_ms > last_ms
        return [] if is_in_use else list(topics)
    subscribed = group.subscribed() if group.state is GroupState.STABLE else None
    if subscribed is None:
        return []
    return [key for key, name in topics.items() if name not in subscribed]


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Nothing is committed."""
    rows = tuple(
        OffsetCommitPartitionResponse(row.topic_id, row.partition_index, code) for row in request.partitions
    )
    return OffsetCommitResponse(code, text_of(code), rows)


def delete_refused(code: ErrorCode) -> OffsetDeleteResponse:
    """Nothing is deleted."""
    return OffsetDeleteResponse(code, text_of(code), ())


def _without(group: Group, key: PartitionId) -> GroupRecord:
    return GroupRecord(OffsetKey(group.group_id, key.topic_id, key.partition_index), None)


def _fetched(
    stored: Mapping[PartitionId, StoredOffset], request: OffsetFetchRequest, image: MetadataImage
) -> AnswerSteps:
    rows: list[CommittedOffset] = []
    pace = Pace()
    if request.partitions is None:
        for key, value in stored.items():
            if pace.is_step_over(1):
                yield
            if image.partition(*key) is not None:
                rows.append(_row(key, value))
    else:
        for asked in request.partitions:
            if pace.is_step_over(1):
                yield
            key = PartitionId(asked.topic_id, asked.partition_index)
            rows.append(_row(key, stored.get(key)))
    return OffsetFetchResponse(ErrorCode.NONE, None, tuple(rows))


def _row(key: PartitionId, stored: StoredOffset | None) -> CommittedOffset:
    if stored is None:
        return CommittedOffset(key.topic_id, key.partition_index, NO_OFFSET, -1, "")
    return CommittedOffset(
        key.topic_id, key.partition_index, stored.offset, stored.leader_epoch, stored.metadata or ""
    )
