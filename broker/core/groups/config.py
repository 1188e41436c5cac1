"""What a coordinator goes by: settings of the broker's file, and limits of what clients may make it keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Groups of one partition of the topic, and offsets of one group: further ones are refused.
GROUPS_MAX = 10_000
OFFSETS_MAX = 100_000
#: Longest name that a client may give: of a group, a member, an instance, a protocol, itself.
NAME_MAX = 1024
#: Bytes of what one member says to the group's leader, in all its protocols; and of one assignment.
METADATA_MAX_BYTES = 512 << 10
#: The same of all members of a group: the leader gets it in one answer, and both are one record of the topic.
GROUP_METADATA_MAX_BYTES = 3 << 20
#: What a protocol costs besides its name and metadata.
PROTOCOL_BYTES = 64
#: Bytes of what members say and have in one answer to DescribeGroups; one group may always be described.
DESCRIBED_MAX_BYTES = 32 << 20
#: A member that has just joined may take so long to send its first heartbeat, in ms, as in Kafka: it may not
#: have heard its id yet.
NEW_MEMBER_TIMEOUT_MS = 300_000
#: A part of the log that could not be read is read again after so long, in ms.
RETRY_READ_MS = 1_000
#: A snapshot is written once the log has so many records since the last one, and four times as many as the
#: snapshot would have; in batches of about so many bytes.
SNAPSHOT_RECORDS_MIN = 10_000
SNAPSHOT_BATCH_BYTES = 256 << 10
#: Bytes of the log that one turn of the event loop replays.
READ_MAX_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings. Durations in ms."""

    partition_count: int
    replication_factor: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    group_size_max: int
    initial_rebalance_delay_ms: int
    metadata_max_bytes: int
    commit_timeout_ms: int
    retention_ms: int
    retention_check_ms: int
    segment_bytes: int
    snapshot_records_min: int = SNAPSHOT_RECORDS_MIN

    @classmethod
    def from_static(cls, static: Mapping[str, Any]) -> "GroupConfig":
        """By the keys of a broker's file."""
        return cls(
            partition_count=static["offsets.topic.num.partitions"],
            replication_factor=static["offsets.topic.replication.factor"],
            session_timeout_min_ms=static["group.min.session.timeout.ms"],
            session_timeout_max_ms=static["group.max.session.timeout.ms"],
            group_size_max=static["group.max.size"],
            initial_rebalance_delay_ms=static["group.initial.rebalance.delay.ms"],
            metadata_max_bytes=static["offset.metadata.max.bytes"],
            commit_timeout_ms=static["offsets.commit.timeout.ms"],
            retention_ms=static["offsets.retention.minutes"] * 60_000,
            retention_check_ms=static["offsets.retention.check.interval.ms"],
            segment_bytes=static["offsets.topic.segment.bytes"],
        )


def partition_of(group_id: str, partition_count: int) -> int:
    """Partition of the topic that has a group: Java's String.hashCode without its sign, as in Kafka."""
    hashed = 0
    utf16 = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(utf16), 2):
        hashed = (31 * hashed + (utf16[position] << 8 | utf16[position + 1])) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % partition_count
