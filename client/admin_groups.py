"""Consumer groups for people and tools: which there are, who is in them, how far they have read.

Finds the coordinator of a group, and asks again and elsewhere while another broker takes over. What was asked
of a coordinator whose answer was lost may have been carried out; all of it may be repeated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.client.admin_rows import raise_refusal
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, TimedOut, code_of
from holdfast.client.core.groups.consumer_protocol import assigned_partitions
from holdfast.client.core.groups.offset_requests import ROWS_MAX
from holdfast.client.core.portions import portions
from holdfast.client.repetitions import Repetitions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from holdfast.protocol.messages.groups import (
    NO_GENERATION,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
)
from holdfast.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused, was_surely_not_done
from holdfast.runtime.api import Clock, NetworkError

_BACKOFF = Backoff(first_ms=50, max_ms=500)
_CALL_TIMEOUT_MS = 10_000
_NO_EPOCH = -1


class GroupListing(NamedTuple):
    """One group. `protocol_type` is empty when only offsets were committed."""

    group_id: str
    protocol_type: str
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member, and its partitions when the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group; `state` is Empty, PreparingRebalance, CompletingRebalance or Stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    coordinator_id: int
    members: tuple[GroupMember, ...]


class GroupOffset(NamedTuple):
    """How far a group has read; the metadata is its own."""

    offset: int
    leader_epoch: int
    metadata: str | None


class _Place(NamedTuple):
    broker_id: int
    host: str
    port: int


async def list_groups(cluster: ClusterClient, clock: Clock, timeout_ms: float) -> list[GroupListing]:
    """The groups of all live brokers, by id. Raises: ClientError, TimedOut."""
    described, _ = await cluster.ask(
        DescribeClusterRequest(),
        timeout_ms,
        code_of_answer=lambda answer: code_of(answer.error_code),
        what="listing the brokers",
    )
    found: list[GroupListing] = []
    for broker in described.brokers:
        if broker.is_fenced:
            continue
        place = _Place(broker.broker_id, broker.host, broker.port)
        answer = await _until_answered(
            cluster, clock, place, ListGroupsRequest(()), timeout_ms, "listing the groups"
        )
        found += [
            GroupListing(one.group_id, one.protocol_type, one.state, broker.broker_id)
            for one in answer.groups
        ]
    return sorted(found)


async def describe_group(
    cluster: ClusterClient, clock: Clock, group_id: str, timeout_ms: float
) -> GroupDescription:
    """One group. Raises: ClientError with GROUP_ID_NOT_FOUND when there is none, TimedOut."""
    place, answer = await _ask_coordinator(
        cluster,
        clock,
        group_id,
        DescribeGroupsRequest((group_id,)),
        lambda response: response.groups[0],
        timeout_ms,
    )
    row = answer.groups[0]
    members = tuple(
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            assigned_partitions(one.assignment),
        )
        for one in row.members
    )
    return GroupDescription(
        group_id, row.state, row.protocol_type, row.protocol_name, place.broker_id, members
    )


async def group_offsets(
    cluster: ClusterClient, clock: Clock, group_id: str, timeout_ms: float
) -> dict[TopicPartition, GroupOffset]:
    """What a group has committed; empty for one that is not there. Raises: ClientError, TimedOut."""
    _, answer = await _ask_coordinator(
        cluster, clock, group_id, OffsetFetchRequest(group_id, None), lambda response: response, timeout_ms
    )
    names = {topic_id: name for name, topic_id in (await _topic_ids(cluster, timeout_ms)).items()}
    return {
        TopicPartition(names[row.topic_id], row.partition_index): GroupOffset(
            row.offset, row.leader_epoch, row.metadata
        )
        for row in answer.partitions
        if row.topic_id in names
    }


async def alter_group_offsets(
    cluster: ClusterClient,
    clock: Clock,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    timeout_ms: float,
) -> None:
    """Commit these offsets for a group that has no members. Raises: ClientError, with NON_EMPTY_GROUP when it
    has; TimedOut. Many go in portions: the text says how many are set when a later one meets an error."""
    ids = await _topic_ids(cluster, timeout_ms)
    for topic, _ in offsets:
        if topic not in ids:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ClientError(f"there is no topic {topic}", code)
    deadline_ms = clock.now_ms() + int(timeout_ms)
    done = 0
    # One at least: the group may have members.
    for portion in [*portions(sorted(offsets.items()), ROWS_MAX)] or [()]:
        left_ms = max(1, deadline_ms - clock.now_ms())
        try:
            await _alter_group_offsets(cluster, clock, group_id, ids, portion, left_ms)
        except ClientError as error:
            if not done:
                raise
            kind = TimedOut if isinstance(error, TimedOut) else ClientError
            raise kind(f"{done:,} of {len(offsets):,} offsets are set; {error}", error.code) from error
        done += len(portion)


async def _alter_group_offsets(
    cluster: ClusterClient,
    clock: Clock,
    group_id: str,
    ids: Mapping[str, bytes],
    offsets: Sequence[tuple[TopicPartition, int]],
    timeout_ms: float,
) -> None:
    rows = tuple(
        OffsetCommitPartition(ids[partition.topic], partition.partition, offset, _NO_EPOCH, None)
        for partition, offset in offsets
    )
    request = OffsetCommitRequest(group_id, NO_GENERATION, "", None, rows)
    try:
        _, answer = await _ask_coordinator(
            cluster, clock, group_id, request, lambda response: response, timeout_ms
        )
    except ClientError as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        code = ErrorCode.NON_EMPTY_GROUP
        raise ClientError(f"group {group_id}: {code.name}: it has members; stop them first", code) from error
    for (partition, _), row in zip(offsets, answer.partitions, strict=True):
        what = f"group {group_id}, {partition.topic}-{partition.partition}"
        raise_refusal(row.error_code, None, what)


async def delete_group(cluster: ClusterClient, clock: Clock, group_id: str, timeout_ms: float) -> None:
    """Delete a group without members and its offsets. Raises: ClientError with GROUP_ID_NOT_FOUND or
    NON_EMPTY_GROUP, TimedOut."""
    await _ask_coordinator(
        cluster,
        clock,
        group_id,
        DeleteGroupsRequest((group_id,)),
        lambda response: response.groups[0],
        timeout_ms,
        done_before=ErrorCode.GROUP_ID_NOT_FOUND,
    )


# --- inside --------------------------------------------------------------------------------------------


async def _topic_ids(cluster: ClusterClient, timeout_ms: float) -> dict[str, bytes]:
    answer, _ = await cluster.ask(
        MetadataRequest(None),
        timeout_ms,
        code_of_answer=lambda response: ErrorCode.NONE,
        what="listing the topics",
    )
    return {topic.name: topic.topic_id for topic in answer.topics if topic.error_code == ErrorCode.NONE}


async def _find(cluster: ClusterClient, group_id: str, timeout_ms: float) -> _Place:
    def code(response: FindCoordinatorResponse) -> ErrorCode:
        return code_of(response.error_code or response.coordinators[0].error_code)

    what = f"looking for the coordinator of group {group_id}"
    answer, _ = await cluster.ask(
        FindCoordinatorRequest((group_id,)), timeout_ms, code_of_answer=code, what=what
    )
    raise_refusal(answer.error_code, answer.error_message, what)
    row = answer.coordinators[0]
    raise_refusal(row.error_code, row.error_message, what)
    return _Place(row.node_id, row.host, row.port)


async def _ask_coordinator(
    cluster: ClusterClient,
    clock: Clock,
    group_id: str,
    request: Any,
    row_of: Callable[[Any], Any],
    timeout_ms: float,
    done_before: ErrorCode = ErrorCode.NONE,
) -> tuple[_Place, Any]:
    """The coordinator and its answer; `row_of` has the error code that counts.

    `done_before`: what a repetition is answered when the request was carried out before. Raises: ClientError,
    TimedOut.
    """
    repetitions = Repetitions(clock, timeout_ms, _BACKOFF)
    maybe_done = False
    what = f"group {group_id}"
    while True:
        place = await _find(cluster, group_id, max(1, repetitions.deadline_ms - clock.now_ms()))
        left_ms = repetitions.left_ms(_CALL_TIMEOUT_MS)
        code, problem = ErrorCode.NETWORK_EXCEPTION, ""
        try:
            answer = await cluster.call((place.host, place.port), request, left_ms)
        except NetworkError as error:
            cluster.suspect(place.broker_id)
            problem = str(error)
            maybe_done = maybe_done or not was_surely_not_done(error)
        except CallRefused as error:
            code, problem = error.error_code, str(error)
        else:
            row = answer if answer.error_code else row_of(answer)
            code, problem = code_of(row.error_code), getattr(row, "error_message", None) or ""
            if code is ErrorCode.NONE or (maybe_done and code is done_before):
                return place, answer
            # It may still be committed. While the coordinator reads its log it decides nothing.
            maybe_done = maybe_done or code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if not code.is_retriable:
            raise ClientError(f"{what}: {code.name}: {problem}", code)
        text = f"{what}: no answer within {timeout_ms:g} ms: {code.name}: {problem}"
        await repetitions.pause(text, code)


async def _until_answered(
    cluster: ClusterClient, clock: Clock, place: _Place, request: Any, timeout_ms: float, what: str
) -> Any:
    """The answer of one broker. Raises: ClientError, TimedOut."""
    repetitions = Repetitions(clock, timeout_ms, _BACKOFF)
    while True:
        left_ms = repetitions.left_ms(_CALL_TIMEOUT_MS)
        try:
            answer = await cluster.call((place.host, place.port), request, left_ms)
        except NetworkError as error:
            code, problem = ErrorCode.NETWORK_EXCEPTION, str(error)
        except CallRefused as error:
            code, problem = error.error_code, str(error)
        else:
            code, problem = code_of(answer.error_code), answer.error_message or ""
            if code is ErrorCode.NONE:
                return answer
        text = f"{what}, broker {place.broker_id}: {code.name}: {problem}"
        if not code.is_retriable:
            raise ClientError(text, code)
        await repetitions.pause(text, code)
