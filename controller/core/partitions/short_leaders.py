"""Leaders whose disk has too little room for records of clients: a follower with room leads instead.

Owns which partitions move and to whom. Such a leader refuses records and keeps its session, so without this
rule its partitions would take none until an operator makes room. Nothing is lost: only an active ISR member
is elected. One that is short of room itself is not, so two full disks do not pass leaderships to and fro.
"""

from collections.abc import Callable, Iterable, Iterator

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, PartitionRow
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.messages.broker_registration import OfflineTopic

#: Elections in one event; the next one goes on.
PASS_MAX = 200


def hand_over(
    draft: Draft,
    leader_id: int,
    short: Iterable[OfflineTopic],
    is_short: Callable[[int, PartitionId], bool],
    replication: ReplicationControl,
) -> bool:
    """Elect followers with room for the partitions of `short` that this broker leads. False when some are
    left for the next call. `is_short(broker_id, partition)`: that broker takes no records of it either."""
    image = draft.image
    count = 0
    for topic, index, partition in _led(image, leader_id, short):
        successor = _successor(image, PartitionId(topic.topic_id, index), partition, is_short)
        if successor is None:
            continue
        if count == PASS_MAX:
            return False
        context = replication.context(image, topic.name, image.is_active)
        cause = Cause(CauseKind.LOW_ON_SPACE, leader_id)
        requested = RequestedChange(designated=successor)
        replication.change(draft, topic, index, partition, requested, context, cause)
        count += 1
    return True


def _led(image: MetadataImage, leader_id: int, rows: Iterable[OfflineTopic]) -> Iterator[PartitionRow]:
    for row in rows:
        topic = image.topics.get(row.topic_id)
        if topic is None:
            continue
        for index in row.partitions:
            partition = topic.partitions.get(index)
            if partition is not None and partition.leader == leader_id:
                yield topic, index, partition


def _successor(
    image: MetadataImage,
    key: PartitionId,
    partition: PartitionRegistration,
    is_short: Callable[[int, PartitionId], bool],
) -> int | None:
    """The first replica of the assignment that is in the ISR, may lead and has room; None for no change."""
    return next(
        (
            replica
            for replica in partition.replicas
            if replica != partition.leader
            and replica in partition.isr
            and replica not in partition.removing_replicas
            and image.is_active_replica(replica, key)
            and not is_short(replica, key)
        ),
        None,
    )
