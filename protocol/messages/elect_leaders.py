"""ElectLeaders (43) with the fields of KIP-966's version 3: elections that an operator asks for (R17-R19).

Brokers forward it to the active controller.
"""

from enum import IntEnum

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    field,
    int8,
    int16,
    int32,
    message,
    nullable,
    sentence,
    string,
)


class ElectionKind(IntEnum):
    """How a leader is to be found: Kafka's two, then KIP-966's in its order."""

    PREFERRED = 0
    UNCLEAN = 1
    LONGEST_LOG_AGGRESSIVE = 2
    LONGEST_LOG_BALANCED = 3
    DESIGNATION = 4


@message
class ElectionTopicPartitions:
    """Partitions of one topic."""

    topic: str = field(string, "Topic.")
    partitions: tuple[int, ...] = field(array(int32), "Indices, each once.")
    desired_leaders: tuple[int, ...] | None = field(
        nullable(array(int32)), "With DESIGNATION only: a replica for each of the partitions, in their order."
    )


@message
class ElectLeadersRequest:
    """At most 1000 elections are made; answered when they are committed."""

    election_type: int = field(
        int8,
        "0 PREFERRED, 1 UNCLEAN, 2 LONGEST_LOG_AGGRESSIVE, 3 LONGEST_LOG_BALANCED, 4 DESIGNATION; all but "
        "the first are for partitions without a leader.",
    )
    topic_partitions: tuple[ElectionTopicPartitions, ...] | None = field(
        nullable(array_of(ElectionTopicPartitions)),
        "Null for all, then those that need none have no row (R17).",
    )
    timeout_ms: int = field(int32, "How long the caller waits.")


@message
class ElectionPartitionResult:
    """What became of one partition."""

    partition_id: int = field(int32, "Index.")
    error_code: int = field(
        int16,
        "NONE, ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE, "
        "ELIGIBLE_LEADERS_NOT_AVAILABLE, INVALID_REQUEST, or REQUEST_LIMIT_REACHED beyond the limit.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class ReplicaElectionResult:
    """What became of one topic."""

    topic: str = field(string, "Topic.")
    partition_results: tuple[ElectionPartitionResult, ...] = field(
        array_of(ElectionPartitionResult), "In order of the request; by index when all were asked for."
    )


@message
class ElectLeadersResponse:
    """One row a partition."""

    error_code: int = field(int16, "NOT_CONTROLLER, INVALID_REQUEST for a bad type; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    replica_election_results: tuple[ReplicaElectionResult, ...] = field(
        array_of(ReplicaElectionResult), "In order of the request; by name when all were asked for."
    )
