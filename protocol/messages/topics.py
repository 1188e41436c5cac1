"""CreateTopics (19), DeleteTopics (20), DescribeTopicPartitions (74).

Brokers forward the first two to the active controller.
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
    struct,
    uuid,
)


@message
class TopicConfig:
    """One override."""

    name: str = field(string, "Key, such as min.insync.replicas.")
    value: str | None = field(nullable(string), "Value; null takes the default.")


@message
class ReplicaAssignment:
    """Brokers of one partition, chosen by hand."""

    partition_index: int = field(int32, "Index.")
    broker_ids: tuple[int, ...] = field(array(int32), "Replicas, preferred first.")


@message
class CreatableTopic:
    """A topic to be made."""

    name: str = field(string, "1 to 249 of [a-zA-Z0-9._-], not '.' nor '..'.")
    num_partitions: int = field(int32, "Count, -1 for the cluster's default or with an assignment.")
    replication_factor: int = field(int16, "Replicas, -1 for the cluster's default or with an assignment.")
    assignments: tuple[ReplicaAssignment, ...] = field(array_of(ReplicaAssignment), "By hand, or empty.")
    configs: tuple[TopicConfig, ...] = field(array_of(TopicConfig), "Overrides.")


@message
class CreateTopicsRequest:
    """Answered when the records are committed."""

    timeout_ms: int = field(int32, "How long the caller waits.")
    validate_only: bool = field(boolean, "Check, change nothing.")
    topics: tuple[CreatableTopic, ...] = field(array_of(CreatableTopic), "Topics.")


@message
class CreatableTopicResult:
    """What became of one topic."""

    name: str = field(string, "Name.")
    topic_id: bytes = field(uuid, "Id, zeros on error.")
    error_code: int = field(int16, "NONE, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, ...")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    num_partitions: int = field(int32, "Count made, -1 on error.")
    replication_factor: int = field(int16, "Replicas, -1 on error.")
    min_isr: int = field(int32, "Effective min.insync.replicas, -1 on error and when only checked.")


@message
class CreateTopicsResponse:
    """One row a topic."""

    error_code: int = field(int16, "NOT_CONTROLLER and the like; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    topics: tuple[CreatableTopicResult, ...] = field(
        array_of(CreatableTopicResult), "In order of the request."
    )


@message
class DeleteTopicsRequest:
    """By name. Answered when the records are committed."""

    timeout_ms: int = field(int32, "How long the caller waits.")
    names: tuple[str, ...] = field(array(string), "Topics.")


@message
class DeletableTopicResult:
    """What became of one topic."""

    name: str = field(string, "Name.")
    topic_id: bytes = field(uuid, "Id, zeros when unknown.")
    error_code: int = field(int16, "NONE or UNKNOWN_TOPIC_OR_PARTITION.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class DeleteTopicsResponse:
    """One row a topic."""

    error_code: int = field(int16, "NOT_CONTROLLER and the like; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    topics: tuple[DeletableTopicResult, ...] = field(
        array_of(DeletableTopicResult), "In order of the request."
    )


@message
class TopicPartitionCursor:
    """A place to go on from."""

    topic_name: str = field(string, "Topic.")
    partition_index: int = field(int32, "First partition not returned.")


@message
class DescribeTopicPartitionsRequest:
    """Everything the image knows of partitions, ELR included (R110-R114). Any broker answers."""

    topics: tuple[str, ...] = field(array(string), "Names; empty for all.")
    response_partition_limit: int = field(int32, "Most partitions in the answer.")
    cursor: TopicPartitionCursor | None = field(
        nullable(struct(TopicPartitionCursor)), "Where to go on, or null."
    )


@message
class DescribedPartition:
    """One partition. A leaderless one has error NONE and leader_id -1 (R114)."""

    error_code: int = field(int16, "NONE.")
    partition_index: int = field(int32, "Index.")
    leader_id: int = field(int32, "-1 for none.")
    leader_epoch: int = field(int32, "Grows with each leader decision.")
    partition_epoch: int = field(int32, "Grows with each change.")
    replicas: tuple[int, ...] = field(array(int32), "Assigned ids, preferred first.")
    isr: tuple[int, ...] = field(array(int32), "In-sync ids, ascending.")
    eligible_leader_replicas: tuple[int, ...] | None = field(
        nullable(array(int32)), "ELR; null when ELR is off."
    )
    last_known_elr: tuple[int, ...] | None = field(nullable(array(int32)), "Seats lost to unclean shutdown.")
    last_known_leader: int = field(int32, "Last leader before none, -1 for none.")
    min_isr: int = field(int32, "Effective min ISR.")
    leader_recovery_state: int = field(int16, "0 RECOVERED, 1 RECOVERING.")
    offline_replicas: tuple[int, ...] = field(
        array(int32), "Replicas on fenced or unknown brokers, or in failed log dirs."
    )


@message
class DescribedTopic:
    """One topic."""

    error_code: int = field(int16, "UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION or NONE.")
    name: str = field(string, "Name.")
    topic_id: bytes = field(uuid, "Id, zeros when unknown.")
    is_internal: bool = field(boolean, "Made by the cluster itself.")
    configs: tuple[TopicConfig, ...] = field(array_of(TopicConfig), "Overrides of the topic, by name.")
    partitions: tuple[DescribedPartition, ...] = field(array_of(DescribedPartition), "By index.")


@message
class DescribeTopicPartitionsResponse:
    """Topics by name."""

    error_code: int = field(int16, "INVALID_REQUEST for a bad cursor.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    topics: tuple[DescribedTopic, ...] = field(array_of(DescribedTopic), "Topics.")
    next_cursor: TopicPartitionCursor | None = field(
        nullable(struct(TopicPartitionCursor)), "Null when complete."
    )
