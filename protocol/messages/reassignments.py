"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): partitions on the move (R100-R105).

Brokers forward the first to the active controller; any node answers the second from its image.
"""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int16,
    int32,
    message,
    nullable,
    sentence,
    string,
)


@message
class ReassignablePartition:
    """Where one partition shall be."""

    partition_index: int = field(int32, "Index.")
    replicas: tuple[int, ...] | None = field(
        nullable(array(int32)), "Brokers, preferred first; null ends the move that runs."
    )


@message
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = field(string, "Topic.")
    partitions: tuple[ReassignablePartition, ...] = field(array_of(ReassignablePartition), "Each once.")


@message
class AlterPartitionReassignmentsRequest:
    """Answered when the moves are committed as begun, not when they are complete."""

    timeout_ms: int = field(int32, "How long the caller waits.")
    allow_replication_factor_change: bool = field(
        boolean, "Lists may be longer or shorter than before (R104)."
    )
    topics: tuple[ReassignableTopic, ...] = field(array_of(ReassignableTopic), "Each once.")


@message
class ReassignablePartitionResult:
    """What became of one partition."""

    partition_index: int = field(int32, "Index.")
    error_code: int = field(
        int16,
        "NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, "
        "NO_REASSIGNMENT_IN_PROGRESS or INVALID_REQUEST.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class ReassignableTopicResult:
    """What became of one topic."""

    name: str = field(string, "Topic.")
    partitions: tuple[ReassignablePartitionResult, ...] = field(
        array_of(ReassignablePartitionResult), "In order of the request."
    )


@message
class AlterPartitionReassignmentsResponse:
    """One row a partition."""

    error_code: int = field(int16, "NOT_CONTROLLER and the like; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    responses: tuple[ReassignableTopicResult, ...] = field(
        array_of(ReassignableTopicResult), "In order of the request."
    )


@message
class ListedTopic:
    """Partitions of one topic that are asked for."""

    name: str = field(string, "Topic.")
    partition_indexes: tuple[int, ...] = field(array(int32), "Indices.")


@message
class ListPartitionReassignmentsRequest:
    """Which partitions move."""

    timeout_ms: int = field(int32, "How long the caller waits.")
    topics: tuple[ListedTopic, ...] | None = field(nullable(array_of(ListedTopic)), "Null for all.")


@message
class OngoingPartitionReassignment:
    """A partition that moves."""

    partition_index: int = field(int32, "Index.")
    replicas: tuple[int, ...] = field(array(int32), "All of them now, those that leave included.")
    adding_replicas: tuple[int, ...] = field(array(int32), "Those that join.")
    removing_replicas: tuple[int, ...] = field(array(int32), "Those that will leave.")


@message
class OngoingTopicReassignment:
    """Partitions of one topic that move."""

    name: str = field(string, "Topic.")
    partitions: tuple[OngoingPartitionReassignment, ...] = field(
        array_of(OngoingPartitionReassignment), "By index."
    )


@message
class ListPartitionReassignmentsResponse:
    """What does not move, or does not exist, is left out."""

    error_code: int = field(int16, "NONE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    topics: tuple[OngoingTopicReassignment, ...] = field(array_of(OngoingTopicReassignment), "By name.")
