"""DeleteRecords (21): the records of a partition below an offset are deleted."""

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

#: `offset` that stands for the high watermark.
TO_HIGH_WATERMARK = -1


@message
class DeleteRecordsPartition:
    """Where one partition is to begin."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    offset: int = field(int64, "First offset to keep, at most the high watermark; -1: the high watermark.")


@message
class DeleteRecordsRequest:
    """Delete; answered when the log of each ISR member begins at or above the offset, durably."""

    timeout_ms: int = field(int32, "How long the leader may wait for the followers.")
    partitions: tuple[DeleteRecordsPartition, ...] = field(array_of(DeleteRecordsPartition), "Each once.")


@message
class DeleteRecordsPartitionResponse:
    """What became of one partition."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "NONE when no ISR member has older records.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    low_watermark: int = field(int64, "Lowest log start in the ISR, -1 on error.")


@message
class DeleteRecordsResponse:
    """One row for each of the request, in its order."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[DeleteRecordsPartitionResponse, ...] = field(
        array_of(DeleteRecordsPartitionResponse), "Rows."
    )
