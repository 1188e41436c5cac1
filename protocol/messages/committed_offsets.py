"""OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47): how far a group has read.

Topics have ids: the offsets of a deleted topic are not those of a later one with its name.
"""

from holdfast.protocol.schema.fields import (
    array_of,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    sentence,
    string,
    uuid,
)

#: `offset` of a partition that the group has not committed.
NO_OFFSET = -1


@message
class OffsetCommitPartition:
    """One offset."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    offset: int = field(int64, "Next offset to read.")
    leader_epoch: int = field(int32, "Epoch of the last record that was read, -1 when not known.")
    metadata: str | None = field(nullable(string), "Text of the member's own.")


@message
class OffsetCommitRequest:
    """From a member in a generation; or, with generation -1 and no member id, for a group without members."""

    group_id: str = field(string, "Group.")
    generation_id: int = field(int32, "Generation, -1 from no member.")
    member_id: str = field(string, "Member, or empty.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")
    partitions: tuple[OffsetCommitPartition, ...] = field(array_of(OffsetCommitPartition), "Rows.")


@message
class OffsetCommitPartitionResponse:
    """What became of one offset."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "NONE, OFFSET_METADATA_TOO_LARGE, or the error of the request.")


@message
class OffsetCommitResponse:
    """Rows in the order of the request; answered when they are committed."""

    error_code: int = field(int16, "NONE, or why nothing was committed.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[OffsetCommitPartitionResponse, ...] = field(
        array_of(OffsetCommitPartitionResponse), "Rows."
    )


@message
class OffsetPartition:
    """One partition."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")


@message
class OffsetFetchRequest:
    """What a group has committed."""

    group_id: str = field(string, "Group.")
    partitions: tuple[OffsetPartition, ...] | None = field(
        nullable(array_of(OffsetPartition)), "Partitions, null for all."
    )


@message
class CommittedOffset:
    """One offset."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    offset: int = field(int64, "Next offset to read, -1 when none is committed.")
    leader_epoch: int = field(int32, "As it was committed.")
    metadata: str | None = field(nullable(string), "As it was committed.")


@message
class OffsetFetchResponse:
    """Rows in the order of the request, or all."""

    error_code: int = field(int16, "NONE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[CommittedOffset, ...] = field(array_of(CommittedOffset), "Rows.")


@message
class OffsetDeleteRequest:
    """Forget offsets of topics to which no member subscribes."""

    group_id: str = field(string, "Group.")
    partitions: tuple[OffsetPartition, ...] = field(array_of(OffsetPartition), "Rows.")


@message
class OffsetDeletePartitionResponse:
    """What became of one."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "NONE, or GROUP_SUBSCRIBED_TO_TOPIC.")


@message
class OffsetDeleteResponse:
    """Rows in the order of the request; answered when the deletions are committed."""

    error_code: int = field(int16, "NONE, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[OffsetDeletePartitionResponse, ...] = field(
        array_of(OffsetDeletePartitionResponse), "Rows."
    )
