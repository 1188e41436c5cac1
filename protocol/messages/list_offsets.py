"""ListOffsets (2): first, last, newest or by timestamp."""

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

#: `timestamp` values with a meaning of their own.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
#: of the record with the largest timestamp
MAX_TIMESTAMP = -3
#: of the first record on the broker's own disk: there is no other storage
EARLIEST_LOCAL_TIMESTAMP = -4
#: of the last record in another storage: there is none
LATEST_TIERED_TIMESTAMP = -5


@message
class ListOffsetsPartition:
    """One question."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    current_leader_epoch: int = field(int32, "Leader epoch that the client believes in, -1 for none.")
    timestamp: int = field(
        int64,
        "-1 latest (high watermark), -2 and -4 earliest, -3 newest record, -5 none, else ms since the epoch.",
    )


@message
class ListOffsetsRequest:
    """Questions to a leader."""

    partitions: tuple[ListOffsetsPartition, ...] = field(array_of(ListOffsetsPartition), "Rows.")


@message
class ListOffsetsPartitionResponse:
    """One answer."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(
        int16, "OFFSET_NOT_AVAILABLE until the high watermark reaches the epoch's start (F6, A-6)."
    )
    timestamp: int = field(int64, "Timestamp of the record found, -1 when none was asked for or found.")
    offset: int = field(int64, "The offset, -1 when there is none.")
    leader_epoch: int = field(int32, "Leader epoch of the answer.")


@message
class ListOffsetsResponse:
    """Answers in the order of the questions."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = field(
        array_of(ListOffsetsPartitionResponse), "Rows."
    )
