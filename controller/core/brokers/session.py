"""What the active controller knows of a broker from its heartbeats: soft state, which no record has."""

from dataclasses import dataclass, field

from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.messages.broker_registration import OfflineTopic


@dataclass(slots=True)
class Session:
    """The active controller's soft state about a broker."""

    #: time of its last heartbeat, or of the session's start
    last_contact_ms: int
    #: the connection of its last heartbeat; None before the first, and when that is closed
    connection_id: int | None = None
    #: a heartbeat has come
    was_connected: bool = False
    #: end (exclusive) of the metadata that it has applied, as it last reported
    metadata_offset: int = -1
    #: (metadata offset, time) when it was first seen behind at that offset; None while it is not behind
    behind: tuple[int, int] | None = None
    #: metadata offset that the others must have applied before it may stop: the log's end when its controlled
    #: shutdown began, or when this controller took over; None while it does not shut down
    shutdown_offset: int | None = None
    #: leaders that it cannot fetch from, as it last reported
    unreachable: frozenset[int] = frozenset()
    #: not all partitions of those were looked at
    must_replace: bool = False
    #: not all leaderships that it has no room for were moved where they can be
    must_hand_over: bool = False
    #: replicas without room for records, as it last reported, and the same as a set
    low_on_space: tuple[OfflineTopic, ...] = ()
    short: frozenset[PartitionId] = frozenset()
    #: what is left of both passes over the partitions that it leads
    replaced: PartitionPass = field(default_factory=PartitionPass)
    handed_over: PartitionPass = field(default_factory=PartitionPass)
