"""The groups of a broker: one shard for each partition of the topic of the offsets that it leads.

Owns where a request goes and what is answered while its shard cannot. `membership` and `offsets` decide about
groups, `shard` about the log. The topic is created through the active controller when a client first looks
for a coordinator.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from holdfast.broker.core.events import (
    Appended,
    CreateOffsetsTopic,
    Effect,
    GroupLogRead,
    GroupRequestReceived,
    OffsetsTopicCreated,
)
from holdfast.broker.core.groups.config import DESCRIBED_MAX_BYTES, NAME_MAX, GroupConfig, partition_of
from holdfast.broker.core.groups.group import Group, GroupState, in_states
from holdfast.broker.core.groups.membership import Membership, join_refused, sync_refused, text_of
from holdfast.broker.core.groups.offsets import Offsets, commit_refused, delete_refused
from holdfast.broker.core.groups.shard import GroupWrite, Shard, ShardState, Turn
from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.offsets_topic import OFFSETS_TOPIC_CONFIGS
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from holdfast.protocol.messages.groups import (
    Coordinator,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupHeartbeatRequest,
    GroupHeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    TopicConfig,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.runtime.stats import Level, LogLine

#: How long the creation of the topic may take, in ms, and how long to wait before it is tried again.
_CREATE_TIMEOUT_MS = 10_000
_CREATE_RETRY_MS = 500
_NO_TEXT = "the topic of the offsets is not ready; try again"


@dataclass(slots=True)
class _Deletion:
    """A DeleteGroups whose rows are being decided."""

    reply_to: object
    rows: dict[int, DeletedGroup] = field(default_factory=dict)


class GroupCounts(NamedTuple):
    """What a broker coordinates. `loading`: partitions whose groups are not known yet."""

    groups: dict[GroupState, int]
    offsets: int
    loading: int


class GroupCoordinator:
    """All groups that this broker coordinates. Appends effects to the list that it shares with its owner."""

    def __init__(
        self,
        config: GroupConfig,
        partitions: Mapping[PartitionId, Partition],
        max_message_bytes: Mapping[PartitionId, int],
        image: Callable[[], MetadataImage],
        is_session_over: Callable[[int], bool],
        outbox: list[Effect],
    ) -> None:
        """`image()`: metadata as applied; `is_session_over(now_ms)`: another broker may coordinate by now."""
        self.shards: dict[PartitionId, Shard] = {}
        self._config = config
        self._partitions = partitions
        self._max_message_bytes = max_message_bytes
        self._image = image
        self._is_session_over = is_session_over
        self._turn = turn = Turn(config, outbox)
        self._membership = Membership(turn)
        self._offsets = Offsets(turn, self._membership.hear)
        self._is_creating = False
        self._create_not_before_ms = 0
        self._expires_ms: int | None = None
        self._handlers: dict[type, Callable[[GroupRequestReceived, Any], None]] = {
            FindCoordinatorRequest: self._find,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            GroupHeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            OffsetDeleteRequest: self._delete_offsets,
            ListGroupsRequest: self._list,
            DescribeGroupsRequest: self._describe,
            DeleteGroupsRequest: self._delete_groups,
        }

    # --- events -------------------------------------------------------------------------------------------

    def request(self, event: GroupRequestReceived, now_ms: int) -> None:
        """A request about groups."""
        self._at(now_ms, event.wall_ms)
        self._handlers[type(event.message)](event, event.message)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._turn.now_ms = now_ms
        self._turn.timers.run(now_ms)
        if self._expires_ms is not None and now_ms >= self._expires_ms:
            self._expires_ms = now_ms + self._config.retention_check_ms if self.shards else None
            self._offsets.expire_all(list(self.shards.values()), self._image)

    def next_deadline_ms(self) -> int | None:
        """When the next `tick` is due."""
        due_ms = self._turn.timers.next_deadline_ms()
        if self._expires_ms is None or (due_ms is not None and due_ms <= self._expires_ms):
            return due_ms
        return self._expires_ms

    def partition_changed(self, key: PartitionId, topic_name: str) -> None:
        """This broker has another role in a partition, or lost its replica."""
        if topic_name != OFFSETS_TOPIC:
            return
        partition = self._partitions.get(key)
        leadership = None if partition is None else partition.leadership
        shard = self.shards.get(key)
        if shard is not None and (leadership is None or leadership.leader_epoch != shard.leader_epoch):
            del self.shards[key]
            self._membership.closed(shard.close())
            shard = None
        if shard is None and partition is not None and leadership is not None:
            shard = Shard(self._turn, partition, leadership.leader_epoch, self._max_message_bytes)
            shard.loaded = self._membership.loaded
            self.shards[key] = shard
            shard.high_watermark_known()

    def high_watermark_moved(self, key: PartitionId, now_ms: int) -> None:
        """More of a partition is committed, or that is known now."""
        shard = self.shards.get(key)
        if shard is not None:
            self._turn.now_ms = now_ms
            shard.high_watermark_known()
            shard.committed()

    def appended(self, event: Appended, now_ms: int) -> None:
        """The result of a write."""
        write = event.context
        assert isinstance(write, GroupWrite)
        self._turn.now_ms = now_ms
        for result in event.results:
            write.shard.appended(write, result)

    def log_read(self, event: GroupLogRead, now_ms: int) -> None:
        """A part of a log."""
        self._at(now_ms, event.wall_ms)
        shard = self.shards.get(event.key)
        if shard is not None and shard.leader_epoch == event.leader_epoch:
            shard.replay(event.start_offset, event.records, event.problem)

    def topic_created(self, event: OffsetsTopicCreated, now_ms: int) -> None:
        """The active controller has answered, or could not be asked."""
        self._is_creating = False
        self._create_not_before_ms = now_ms + _CREATE_RETRY_MS

    def _at(self, now_ms: int, wall_ms: int) -> None:
        self._turn.now_ms = now_ms
        self._turn.wall_ahead_ms = wall_ms - now_ms
        if self._expires_ms is None:
            self._expires_ms = now_ms + self._config.retention_check_ms

    def counted(self) -> GroupCounts:
        """For metrics."""
        groups = dict.fromkeys(GroupState, 0)
        offsets = 0
        for shard in self.shards.values():
            for group in shard.groups.values():
                groups[group.state] += 1
                offsets += len(group.offsets)
        return GroupCounts(groups, offsets, sum(not shard.is_active for shard in self.shards.values()))

    def known(self) -> Iterator[Group]:
        """The groups that are coordinated here, of partitions that have been read, one by one."""
        # Others have their turn in between, so these may change meanwhile.
        for key in list(self.shards):
            shard = self.shards.get(key)
            if shard is not None and shard.is_active:
                yield from list(shard.groups.values())

    def committed(self) -> Iterator[tuple[str, PartitionId, int]]:
        """For metrics: (group, partition, next offset to read)."""
        # Others have their turn in between, so these may change meanwhile.
        groups = [group for shard in self.shards.values() for group in shard.groups.values()]
        for group in groups:
            for partition, stored in list(group.offsets.items()):
                yield group.group_id, partition, stored.offset

    # --- where a group is ---------------------------------------------------------------------------------

    def _topic(self) -> TopicImage | None:
        return self._image().topic(OFFSETS_TOPIC)

    def _shard_of(self, group_id: str, *, takes_empty: bool = False) -> Shard | ErrorCode:
        """The shard, or why this broker does not answer for the group."""
        if len(group_id) > NAME_MAX or not (group_id or takes_empty):
            return ErrorCode.INVALID_GROUP_ID
        topic = self._topic()
        if topic is None or self._is_session_over(self._turn.now_ms):
            return ErrorCode.NOT_COORDINATOR
        key = PartitionId(topic.topic_id, partition_of(group_id, len(topic.partitions)))
        shard = self.shards.get(key)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        if shard.is_active:
            return shard
        is_unreadable = shard.state is ShardState.UNREADABLE
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unreadable else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )

    def _find(self, event: GroupRequestReceived, request: FindCoordinatorRequest) -> None:
        topic = self._topic()
        if topic is None:
            self._create_topic()
        rows = tuple(self._coordinator(one, topic, event.client.listener_name) for one in request.group_ids)
        self._turn.respond(event.reply_to, FindCoordinatorResponse(ErrorCode.NONE, None, rows))

    def _coordinator(self, group_id: str, topic: TopicImage | None, listener_name: str) -> Coordinator:
        if not group_id or len(group_id) > NAME_MAX:
            code = ErrorCode.INVALID_GROUP_ID
            return Coordinator(group_id[:NAME_MAX], code, text_of(code), -1, "", -1)
        image = self._image()
        leader = None
        if topic is not None:
            leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        broker = None if leader is None else image.brokers.get(leader)
        endpoint = None if broker is None or broker.is_fenced else broker.endpoint(listener_name)
        if broker is None or endpoint is None:
            return Coordinator(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_TEXT, -1, "", -1)
        return Coordinator(group_id, ErrorCode.NONE, None, broker.broker_id, endpoint.host, endpoint.port)

    def _create_topic(self) -> None:
        if self._is_creating or self._turn.now_ms < self._create_not_before_ms:
            return
        wanted, registered = self._config.replication_factor, len(self._image().brokers)
        replicas = max(1, min(wanted, registered))
        if replicas < wanted:
            text = (
                f"{OFFSETS_TOPIC} gets {replicas} replicas instead of {wanted}: there are no more brokers; "
            )
            text += "reassign its partitions when there are"
            self._turn.outbox.append(LogLine(Level.WARNING, text))
        values = {**OFFSETS_TOPIC_CONFIGS, "segment.bytes": str(self._config.segment_bytes)}
        configs = tuple(TopicConfig(*row) for row in values.items())
        topic = CreatableTopic(OFFSETS_TOPIC, self._config.partition_count, replicas, (), configs)
        self._is_creating = True
        self._turn.outbox.append(CreateOffsetsTopic(CreateTopicsRequest(_CREATE_TIMEOUT_MS, False, (topic,))))

    # --- members ------------------------------------------------------------------------------------------

    def _join(self, event: GroupRequestReceived, request: JoinGroupRequest) -> None:
        shard = self._shard_of(request.group_id)
        if isinstance(shard, Shard):
            self._membership.join(shard, event.reply_to, request, event.client)
        else:
            self._turn.respond(event.reply_to, join_refused(shard, request.member_id))

    def _sync(self, event: GroupRequestReceived, request: SyncGroupRequest) -> None:
        shard = self._shard_of(request.group_id)
        if isinstance(shard, Shard):
            self._membership.sync(shard, event.reply_to, request)
            return
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            shard = ErrorCode.REBALANCE_IN_PROGRESS  # it joins again, and hears there what was loaded
        self._turn.respond(event.reply_to, sync_refused(shard))

    def _heartbeat(self, event: GroupRequestReceived, request: GroupHeartbeatRequest) -> None:
        shard = self._shard_of(request.group_id)
        if isinstance(shard, Shard):
            code = self._membership.heartbeat(shard, request)
        elif shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.NONE  # whether it is a member is not known yet
        else:
            code = shard
        self._turn.respond(event.reply_to, GroupHeartbeatResponse(code, text_of(code)))

    def _leave(self, event: GroupRequestReceived, request: LeaveGroupRequest) -> None:
        shard = self._shard_of(request.group_id)
        if isinstance(shard, Shard):
            rows = self._membership.leave(shard, request)
            response = LeaveGroupResponse(ErrorCode.NONE, None, rows)
        else:
            response = LeaveGroupResponse(shard, text_of(shard), ())
        self._turn.respond(event.reply_to, response)

    # --- offsets ------------------------------------------------------------------------------------------

    def _commit(self, event: GroupRequestReceived, request: OffsetCommitRequest) -> None:
        shard = self._shard_of(request.group_id, takes_empty=True)
        if isinstance(shard, Shard):
            self._offsets.commit(shard, event.reply_to, request, self._image())
        else:
            self._turn.respond(event.reply_to, commit_refused(request, shard))

    def _fetch(self, event: GroupRequestReceived, request: OffsetFetchRequest) -> None:
        shard = self._shard_of(request.group_id, takes_empty=True)
        if isinstance(shard, Shard):
            self._offsets.fetch(shard, event.reply_to, request, self._image())
        else:
            self._turn.respond(event.reply_to, OffsetFetchResponse(shard, text_of(shard), ()))

    def _delete_offsets(self, event: GroupRequestReceived, request: OffsetDeleteRequest) -> None:
        shard = self._shard_of(request.group_id)
        if isinstance(shard, Shard):
            self._offsets.delete(shard, event.reply_to, request, self._image())
        else:
            self._turn.respond(event.reply_to, delete_refused(shard))

    # --- operators ----------------------------------------------------------------------------------------

    def _list(self, event: GroupRequestReceived, request: ListGroupsRequest) -> None:
        shards = self.shards.values()
        code = ErrorCode.NONE
        if any(shard.state in (ShardState.WAITING, ShardState.LOADING) for shard in shards):
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        groups = in_states((one for shard in shards for one in shard.groups.values()), request.states)
        rows = tuple(
            ListedGroup(one.group_id, one.protocol_type, one.state.value)
            for one in sorted(groups, key=lambda one: one.group_id)
        )
        self._turn.respond(event.reply_to, ListGroupsResponse(code, text_of(code), rows if not code else ()))

    def _describe(self, event: GroupRequestReceived, request: DescribeGroupsRequest) -> None:
        rows: list[DescribedGroup] = []
        size_bytes = 0
        for group_id in dict.fromkeys(request.group_ids):
            found = self._group(group_id)
            if isinstance(found, Group):
                size_bytes += found.described_bytes
                if rows and size_bytes > DESCRIBED_MAX_BYTES:
                    found = ErrorCode.INVALID_REQUEST
            rows.append(_described(found) if isinstance(found, Group) else _not_described(group_id, found))
        self._turn.respond(event.reply_to, DescribeGroupsResponse(ErrorCode.NONE, None, tuple(rows)))

    def _group(self, group_id: str) -> Group | ErrorCode:
        shard = self._shard_of(group_id)
        if isinstance(shard, Shard):
            return shard.groups.get(group_id) or ErrorCode.GROUP_ID_NOT_FOUND
        return shard

    def _delete_groups(self, event: GroupRequestReceived, request: DeleteGroupsRequest) -> None:
        deletion = _Deletion(event.reply_to)
        if not request.group_ids:
            self._turn.respond(event.reply_to, DeleteGroupsResponse(ErrorCode.NONE, None, ()))
        for index, group_id in enumerate(request.group_ids):
            decided = partial(self._deleted, deletion, request, index)
            shard = self._shard_of(group_id)
            if isinstance(shard, Shard):
                self._offsets.delete_group(shard, group_id, decided)
            else:
                decided(shard)

    def _deleted(
        self, deletion: _Deletion, request: DeleteGroupsRequest, index: int, code: ErrorCode
    ) -> None:
        deletion.rows[index] = DeletedGroup(request.group_ids[index], code, text_of(code))
        if len(deletion.rows) == len(request.group_ids):
            rows = tuple(row for _, row in sorted(deletion.rows.items()))
            self._turn.respond(deletion.reply_to, DeleteGroupsResponse(ErrorCode.NONE, None, rows))


def creation_problem(response: CreateTopicsResponse) -> str | None:
    """Why there is no topic of the offsets; None when there is, also by the request of another broker."""
    if response.error_code:
        return response.error_message or ErrorCode(response.error_code).name
    for row in response.topics:
        if row.error_code and row.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            return row.error_message or ErrorCode(row.error_code).name
    return None


def _described(group: Group) -> DescribedGroup:
    members = tuple(_described_member(group, member_id) for member_id in group.members)
    name = (group.protocol_name or "") if group.state is GroupState.STABLE else ""
    return DescribedGroup(
        ErrorCode.NONE, None, group.group_id, group.state.value, group.protocol_type, name, members
    )


def _not_described(group_id: str, code: ErrorCode) -> DescribedGroup:
    text = text_of(code)
    if code is ErrorCode.INVALID_REQUEST:
        text = f"the answer has {DESCRIBED_MAX_BYTES} bytes without this group; ask for fewer at once"
    return DescribedGroup(code, text, group_id, GroupState.DEAD.value, "", "", ())


def _described_member(group: Group, member_id: str) -> DescribedMember:
    member = group.members[member_id]
    is_stable = group.state is GroupState.STABLE
    return DescribedMember(
        member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.metadata_for(group.protocol_name) if is_stable else b"",
        member.assignment if is_stable else b"",
    )
