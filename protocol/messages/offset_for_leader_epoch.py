"""OffsetForLeaderEpoch (23): where an epoch ends in the leader's log (R80)."""

from holdfast.protocol.schema.fields import (
    array_of,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    sentence,
    uuid,
)


@message
class EpochPartition:
    """One question."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    current_leader_epoch: int = field(int32, "Leader epoch that the caller believes in, -1 for none.")
    leader_epoch: int = field(int32, "Epoch asked for.")


@message
class OffsetForLeaderEpochRequest:
    """Questions to a leader."""

    replica_id: int = field(int32, "-1 for a client.")
    partitions: tuple[EpochPartition, ...] = field(array_of(EpochPartition), "Rows.")


@message
class EpochPartitionResponse:
    """The largest epoch not above the one asked for, and its end."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "NONE or as in fetch (R55).")
    leader_epoch: int = field(int32, "Epoch found, -1 when none.")
    end_offset: int = field(int64, "First offset after it, -1 when none.")


@message
class OffsetForLeaderEpochResponse:
    """Answers in the order of the questions."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[EpochPartitionResponse, ...] = field(array_of(EpochPartitionResponse), "Rows.")
