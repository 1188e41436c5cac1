"""Leaders that followers cannot fetch from, though the controller hears them: another replica leads instead.

Owns which partitions move and to whom. A leader cut off from its followers keeps its session, and without
this rule no write with acks=all would ever end there. Two followers must say so: one of them alone may be
the broken one. Nothing is lost: only an active ISR member is elected.
"""

from collections.abc import Callable, Set

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration

#: Followers that must report a leader.
REPORTS_MIN = 2
#: Elections in one event; the next one goes on.
PASS_MAX = 200


def replace_leader(
    draft: Draft,
    leader_id: int,
    reporters: Set[int],
    is_short: Callable[[int, PartitionId], bool],
    replication: ReplicationControl,
) -> bool:
    """Elect another leader where all other ISR members cannot fetch from this one. False when some partitions
    are left for the next call. `is_short(broker_id, partition)`: it has too little room for records."""
    image = draft.image
    count = 0
    for topic, index, partition in image.partitions_of(leader_id):
        key = PartitionId(topic.topic_id, index)
        successor = _successor(image, key, partition, leader_id, reporters, is_short)
        if successor is None:
            continue
        if count == PASS_MAX:
            return False
        context = replication.context(image, topic.name, image.is_active)
        cause = Cause(CauseKind.LEADER_UNREACHABLE, leader_id)
        requested = RequestedChange(designated=successor)
        replication.change(draft, topic, index, partition, requested, context, cause)
        count += 1
    return True


def _successor(
    image: MetadataImage,
    key: PartitionId,
    partition: PartitionRegistration,
    leader_id: int,
    reporters: Set[int],
    is_short: Callable[[int, PartitionId], bool],
) -> int | None:
    """The first replica of the assignment that is in the ISR and may lead instead, one with room for records
    before others; None for no change."""
    others = set(partition.isr) - {leader_id}
    if partition.leader != leader_id or len(others) < REPORTS_MIN or not others <= reporters:
        return None
    able = [
        replica
        for replica in partition.replicas
        if replica in others
        and replica not in partition.removing_replicas
        and image.is_active_replica(replica, key)
    ]
    # One without room would hand the leadership on, perhaps to this leader again.
    return next((replica for replica in able if not is_short(replica, key)), able[0] if able else None)
