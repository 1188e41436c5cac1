"""Produce (0): append record batches to partitions that this broker leads."""

from holdfast.protocol.schema.fields import (
    array_of,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    records,
    sentence,
    uuid,
)

#: Why a second batch of a partition is refused.
NAMED_TWICE = "send one batch per partition and request"


@message
class ProducePartition:
    """One partition's batch."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    records: memoryview = field(
        records, "One record batch in the v2 format; the broker sets offset and leader epoch."
    )


@message
class ProduceRequest:
    """Append; answered when `required_acks` is satisfied. With acks 0 there is no answer at all."""

    required_acks: int = field(
        int16, "0: no answer; 1: the leader has appended; -1: the high watermark has passed."
    )
    timeout_ms: int = field(int32, "How long the leader may wait for the high watermark.")
    partitions: tuple[ProducePartition, ...] = field(
        array_of(ProducePartition), "At most one batch a partition."
    )


@message
class ProducePartitionResponse:
    """What became of one batch."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "NONE when the batch is in the log.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    base_offset: int = field(int64, "Offset of the first record, -1 on error.")
    log_start_offset: int = field(int64, "First offset still kept, -1 on error.")
    leader_id: int = field(int32, "Leader as this broker knows it, -1 when unknown.")
    leader_epoch: int = field(int32, "Epoch of that leader; on success the epoch stamped into the batch.")


@message
class ProduceResponse:
    """One row for each batch of the request, in its order."""

    partitions: tuple[ProducePartitionResponse, ...] = field(array_of(ProducePartitionResponse), "Rows.")
