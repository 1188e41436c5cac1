"""CreatePartitions (37): more partitions for topics that exist. Brokers forward it to the controller."""

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
class CreatePartitionsAssignment:
    """Brokers of one new partition, chosen by hand."""

    broker_ids: tuple[int, ...] = field(array(int32), "Replicas, preferred first.")


@message
class CreatePartitionsTopic:
    """A topic that is to have more partitions."""

    name: str = field(string, "Topic.")
    count: int = field(int32, "Partitions that it shall have, those it has included.")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = field(
        nullable(array_of(CreatePartitionsAssignment)),
        "One a new partition, null to let the controller place.",
    )


@message
class CreatePartitionsRequest:
    """Answered when the records are committed."""

    timeout_ms: int = field(int32, "How long the caller waits.")
    validate_only: bool = field(boolean, "Check, change nothing.")
    topics: tuple[CreatePartitionsTopic, ...] = field(array_of(CreatePartitionsTopic), "Each once.")


@message
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = field(string, "Topic.")
    error_code: int = field(int16, "NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, ...")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class CreatePartitionsResponse:
    """One row a topic."""

    error_code: int = field(int16, "NOT_CONTROLLER and the like; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    results: tuple[CreatePartitionsTopicResult, ...] = field(
        array_of(CreatePartitionsTopicResult), "In order of the request."
    )
