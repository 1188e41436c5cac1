"""Leaders whose disk has too little room for records of clients: a follower with room leads instead.

Owns which partitions move and to whom. Such a leader refuses records and keeps its session, so without this
rule its partitions would take none until an operator makes room. Nothing is lost: only an active ISR member
is elected. One that is short of room itself is not, so two full disks do not pass leaderships to and fro.
"""

from collections.abc import Callable, Iterable, Iterator

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.messages.broker_registration import OfflineTopic

#: Elections in one event; the next one goes on.
PASS_MAX = 75


def hand_over(
    draft: Draft,
    leader_id: int,
    short: Iterable[OfflineTopic],
    is_short: Callable[[int, PartitionId], bool],
    replication: ReplicationControl,
    rest: PartitionPass,
) -> bool:
    """Elect followers with room for the partitions of `short` that this broker leads. False when some are
    left for the next call with the same `rest`. `is_short(broker_id, partition)`: that broker takes no
    records of it either."""
    image = draft.image
    return replication.move_leaders(
        draft,
        lambda now: _known(now, short),
        lambda key, partition: _successor(image, key, partition, leader_id, is_short),
        Cause(CauseKind.LOW_ON_SPACE, leader_id),
        rest=rest,
        visits_max=PASS_MAX,
    )


def _known(image: MetadataImage, rows: Iterable[OfflineTopic]) -> Iterator[PartitionId]:
    for row in rows:
        topic = image.topics.get(row.topic_id)
        if topic is None:
            continue
        for index in row.partitions:
            if index in topic.partitions:
                yield PartitionId(row.topic_id, index)


def _successor(
    image: MetadataImage,
    key: PartitionId,
    partition: PartitionRegistration,
    leader_id: int,
    is_short: Callable[[int, PartitionId], bool],
) -> int | None:
    """The first replica of the assignment that is in the ISR, may lead and has room; None for no change."""
    if partition.leader != leader_id:
        return None
    return next(
        (
            replica
            for replica in partition.replicas
            if replica != leader_id
            and replica in partition.isr
            and replica not in partition.removing_replicas
            and image.is_active_replica(replica, key)
            and not is_short(replica, key)
        ),
        None,
    )
