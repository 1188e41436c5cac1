"""Leaders that followers cannot fetch from, though the controller hears them: another replica leads instead.

Owns which partitions move and to whom. A leader cut off from its followers keeps its session, and without
this rule no write with acks=all would ever end there. Two followers must say so: one of them alone may be
the broken one. Nothing is lost: only an active ISR member is elected.
"""

from collections.abc import Callable, Set

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration

#: Followers that must report a leader.
REPORTS_MIN = 2
#: Elections in one event; the next one goes on.
PASS_MAX = 75


def replace_leader(
    draft: Draft,
    leader_id: int,
    reporters: Set[int],
    is_short: Callable[[int, PartitionId], bool],
    replication: ReplicationControl,
    rest: PartitionPass,
) -> bool:
    """Elect another leader where all other ISR members cannot fetch from this one. False when some partitions
    are left for the next call with the same `rest`. `is_short(broker_id, partition)`: it has too little room
    for records."""
    image = draft.image
    return replication.move_leaders(
        draft,
        lambda now: now.assigned_to(leader_id),
        lambda key, partition: _successor(image, key, partition, leader_id, reporters, is_short),
        Cause(CauseKind.LEADER_UNREACHABLE, leader_id),
        rest=rest,
        visits_max=PASS_MAX,
    )


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
    if partition.leader != leader_id:
        return None
    others = set(partition.isr) - {leader_id}
    if len(others) < REPORTS_MIN or not others <= reporters:
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
