"""GetReplicaLogInfo (70) of KIP-966: where the log of each replica ends, and how old what it knows is (R61).

The active controller asks before it elects without proof, tools ask before they designate. Every row that
was asked for is answered, also one that failed (B23).
"""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    sentence,
    uuid,
)

#: Rows that one answer gives; further ones are answered with REQUEST_LIMIT_REACHED.
LOG_INFO_ROWS_MAX = 1_000
#: Rows that one request may ask for; a larger one is refused as a whole.
LOG_INFO_ROWS_ASKED_MAX = 2_000


@message
class LogInfoTopic:
    """Partitions of one topic."""

    topic_id: bytes = field(uuid, "Topic.")
    partitions: tuple[int, ...] = field(array(int32), "Indices.")


@message
class GetReplicaLogInfoRequest:
    """At most 2000 partitions; the first 1000 of them are looked up."""

    broker_id: int = field(int32, "Broker that is meant: another one at this address refuses.")
    topic_partitions: tuple[LogInfoTopic, ...] = field(array_of(LogInfoTopic), "What is asked for.")


@message
class ReplicaLogInfo:
    """One replica's log at the moment of the answer; -1 where nothing is known."""

    partition: int = field(int32, "Index, also with an error.")
    last_written_leader_epoch: int = field(int32, "Of the last batch in the log, -1 for an empty one (R66).")
    current_leader_epoch: int = field(int32, "Of the partition, as this broker knows it.")
    log_end_offset: int = field(int64, "Exclusive.")
    flushed_offset: int = field(int64, "End of what is durable, exclusive.")
    high_watermark: int = field(
        int64, "The highest that this replica knows of; above its log's end when records are gone or behind."
    )
    error_code: int = field(
        int16,
        "NONE; REPLICA_NOT_AVAILABLE while the log is not ready, UNKNOWN_TOPIC_ID, "
        "UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER without a replica here, KAFKA_STORAGE_ERROR, or "
        "REQUEST_LIMIT_REACHED beyond the limit: ask again for these rows.",
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    ceiling: int = field(
        int64,
        "No reader was shown that this replica holds more, -1 when nothing is stored: no high watermark that "
        "counted it was above.",
        since=1,
        default=-1,
    )


@message
class LogInfoTopicResult:
    """Replicas of one topic."""

    topic_id: bytes = field(uuid, "Topic.")
    partitions: tuple[ReplicaLogInfo, ...] = field(array_of(ReplicaLogInfo), "In order of the request.")


@message
class GetReplicaLogInfoResponse:
    """One row for each that was asked for."""

    error_code: int = field(int16, "INVALID_REQUEST, BROKER_NOT_AVAILABLE; then there are no rows.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    broker_epoch: int = field(
        int64, "Of the registration that this process holds, -1 without one: of a rebooted broker it differs."
    )
    has_more_data: bool = field(boolean, "Some rows were beyond the limit.")
    topics: tuple[LogInfoTopicResult, ...] = field(array_of(LogInfoTopicResult), "In order of the request.")
