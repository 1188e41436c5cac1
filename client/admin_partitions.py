"""Partitions as administrators move them: more of them, on other brokers, with other leaders.

Owns what a repetition means whose first attempt may have been carried out (R19).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from holdfast.client.admin_rows import ask_whole, check_complete
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.errors import RowError, row_error
from holdfast.client.core.portions import portions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListedTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Clock

#: Partitions that one request creates; also bounds the values of a request, of which eight are one new
#: partition with five brokers.
CREATIONS_PER_REQUEST = 10_000
#: Elections that one request makes (R18).
ELECTIONS_PER_REQUEST = 1_000
#: Reassignments that one request asks for: controllers refuse a request that asks for too much at once.
REASSIGNMENTS_PER_REQUEST = 1_000


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The partitions a topic shall have in all; the brokers of each new one, None: placed for you."""

    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that moves; `replicas` are all of now, those that leave included."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def create_partitions(
    cluster: ClusterClient,
    clock: Clock,
    topics: Mapping[str, NewPartitions],
    validate_only: bool,
    timeout_ms: float,
) -> dict[str, RowError | None]:
    """See `Admin.create_partitions`."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    rows = (
        CreatePartitionsTopic(name, wanted.total_count, _assignments(wanted.assignments))
        for name, wanted in topics.items()
    )
    errors: dict[str, RowError | None] = {}
    for portion in portions(rows, CREATIONS_PER_REQUEST, _creation_cost):
        errors |= await _create_partitions(cluster, clock, portion, validate_only, deadline_ms)
    check_complete(topics, errors, "CreatePartitions")
    return errors


async def _create_partitions(
    cluster: ClusterClient,
    clock: Clock,
    rows: tuple[CreatePartitionsTopic, ...],
    validate_only: bool,
    deadline_ms: int,
) -> dict[str, RowError | None]:
    left_ms = max(1, deadline_ms - clock.now_ms())
    answer: CreatePartitionsResponse
    request = CreatePartitionsRequest(left_ms, validate_only, rows)
    answer, maybe_done = await ask_whole(cluster, request, left_ms, "CreatePartitions")
    errors = {row.name: row_error(row.error_code, row.error_message) for row in answer.results}
    if maybe_done and not validate_only:
        counts = {row.name: row.count for row in rows}
        for name, error in errors.items():
            # it has as many already; exactly as many are what an earlier attempt made
            if error is not None and error.code is ErrorCode.INVALID_PARTITIONS:
                wanted = counts[name]
                if await _partition_count(cluster, name, wanted, deadline_ms, clock) == wanted:
                    errors[name] = None
    return errors


def _creation_cost(topic: CreatePartitionsTopic) -> int:
    """At least the new partitions that are named, and a fifth of the values of the topic's row. How many
    others are new is not known here."""
    named = topic.assignments or ()
    values = 4 + sum(2 + len(row.broker_ids) for row in named)
    return max(len(named), -(-values // 5))


async def _partition_count(
    cluster: ClusterClient, name: str, at_least: int, deadline_ms: int, clock: Clock
) -> int:
    """How many partitions the topic has, once a node says so many. Raises: TimedOut, ClientError."""
    while True:
        view = await cluster.topic(name, max(1, deadline_ms - clock.now_ms()))
        if len(view.leaders) >= at_least:
            return len(view.leaders)
        await cluster.refreshed(deadline_ms)


def _assignments(
    lists: tuple[tuple[int, ...], ...] | None,
) -> tuple[CreatePartitionsAssignment, ...] | None:
    return None if lists is None else tuple(CreatePartitionsAssignment(tuple(ids)) for ids in lists)


async def alter_partition_reassignments(
    cluster: ClusterClient,
    clock: Clock,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    allow_replication_factor_change: bool,
    timeout_ms: float,
) -> dict[TopicPartition, RowError | None]:
    """See `Admin.alter_partition_reassignments`."""
    errors: dict[TopicPartition, RowError | None] = {}
    deadline_ms = clock.now_ms() + int(timeout_ms)
    waiting = sorted(TopicPartition(*partition) for partition in targets)
    while waiting:
        asked, waiting = waiting[:REASSIGNMENTS_PER_REQUEST], waiting[REASSIGNMENTS_PER_REQUEST:]
        topics: list[ReassignableTopic] = []
        for topic, partitions in _by_topic(asked):
            rows: list[ReassignablePartition] = []
            for partition in partitions:
                target = targets[partition]
                moved_to = None if target is None else tuple(target)
                rows.append(ReassignablePartition(partition.partition, moved_to))
            topics.append(ReassignableTopic(topic, tuple(rows)))
        left_ms = max(1, deadline_ms - clock.now_ms())
        request = AlterPartitionReassignmentsRequest(left_ms, allow_replication_factor_change, tuple(topics))
        answer: AlterPartitionReassignmentsResponse
        answer, maybe_done = await ask_whole(cluster, request, left_ms, "AlterPartitionReassignments")
        for found in answer.responses:
            for row in found.partitions:
                error = row_error(row.error_code, row.error_message)
                if maybe_done and error is not None and error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                    error = None  # there is none to end any more
                errors[TopicPartition(found.name, row.partition_index)] = error
    check_complete(targets, errors, "AlterPartitionReassignments")
    return errors


async def list_partition_reassignments(
    cluster: ClusterClient, partitions: Iterable[TopicPartition] | None, timeout_ms: float
) -> dict[TopicPartition, Reassignment]:
    """See `Admin.list_partition_reassignments`."""
    topics: tuple[ListedTopic, ...] | None = None
    if partitions is not None:
        topics = tuple(
            ListedTopic(topic, tuple(partition.partition for partition in of_topic))
            for topic, of_topic in _by_topic(partitions)
        )
    answer: ListPartitionReassignmentsResponse
    request = ListPartitionReassignmentsRequest(int(timeout_ms), topics)
    answer, _ = await ask_whole(cluster, request, timeout_ms, "ListPartitionReassignments")
    return {
        TopicPartition(topic.name, row.partition_index): Reassignment(
            row.replicas, row.adding_replicas, row.removing_replicas
        )
        for topic in answer.topics
        for row in topic.partitions
    }


async def elect_leaders(
    cluster: ClusterClient,
    clock: Clock,
    kind: ElectionKind,
    partitions: Iterable[TopicPartition] | None,
    desired_leaders: Mapping[TopicPartition, int],
    timeout_ms: float,
) -> dict[TopicPartition, RowError | None]:
    """See `Admin.elect_leaders`."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    errors: dict[TopicPartition, RowError | None] = {}
    waiting = None if partitions is None else sorted(TopicPartition(*row) for row in partitions)
    while waiting is None or waiting:
        asked = None if waiting is None else waiting[:ELECTIONS_PER_REQUEST]
        rest = [] if waiting is None else waiting[ELECTIONS_PER_REQUEST:]
        left_ms = max(1, deadline_ms - clock.now_ms())
        rows = await _elect(cluster, kind, asked, desired_leaders, left_ms)
        errors.update(rows)
        # what was beyond the limit of the request (R18) is asked for by name, as long as it helps
        beyond = [partition for partition, error in rows.items() if _is_beyond_limit(error)]
        waiting = beyond + rest if len(beyond) < len(rows) else rest
    return dict(sorted(errors.items()))


def _is_beyond_limit(error: RowError | None) -> bool:
    return error is not None and error.code is ErrorCode.REQUEST_LIMIT_REACHED


async def _elect(
    cluster: ClusterClient,
    kind: ElectionKind,
    partitions: list[TopicPartition] | None,
    desired_leaders: Mapping[TopicPartition, int],
    timeout_ms: float,
) -> dict[TopicPartition, RowError | None]:
    topics: tuple[ElectionTopicPartitions, ...] | None = None
    if partitions is not None:
        topics = tuple(
            _election_topic(kind, topic, of_topic, desired_leaders)
            for topic, of_topic in _by_topic(partitions)
        )
    answer: ElectLeadersResponse
    request = ElectLeadersRequest(kind, topics, int(timeout_ms))
    answer, maybe_done = await ask_whole(cluster, request, timeout_ms, "ElectLeaders")
    errors: dict[TopicPartition, RowError | None] = {}
    for found in answer.replica_election_results:
        for row in found.partition_results:
            error = row_error(row.error_code, row.error_message)
            if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED and maybe_done:
                error = _after_a_lost_answer(kind, error)
            errors[TopicPartition(found.topic, row.partition_id)] = error
    check_complete(partitions or (), errors, "ElectLeaders")
    return errors


def _election_topic(
    kind: ElectionKind,
    topic: str,
    partitions: list[TopicPartition],
    desired_leaders: Mapping[TopicPartition, int],
) -> ElectionTopicPartitions:
    desired: tuple[int, ...] | None = None
    if kind is ElectionKind.DESIGNATION:
        # one that is missing is refused by the controller, and nothing else is elected for it
        desired = tuple(desired_leaders.get(partition, -1) for partition in partitions)
    return ElectionTopicPartitions(topic, tuple(partition.partition for partition in partitions), desired)


def _after_a_lost_answer(kind: ElectionKind, error: RowError) -> RowError | None:
    if kind is ElectionKind.PREFERRED:
        return None  # the preferred replica leads, as asked
    # R19: a replica leads; whether this call chose it cannot be known
    text = f"{error.message}; an earlier attempt of this request, whose answer was lost, may have elected it"
    return RowError(error.code, text)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """The partitions by topic and index."""
    ordered = sorted(TopicPartition(*partition) for partition in partitions)
    return [(topic, list(rows)) for topic, rows in groupby(ordered, key=lambda partition: partition.topic)]
