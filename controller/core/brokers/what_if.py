"""What would become of a partition if brokers stopped: the controller's own rules, tried on a copy.

Owns the translation of a described partition back into a registration, and the questions of tools about the
future. Every answer comes from `partition_change`, so a tool cannot disagree with the controller.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from holdfast.controller.core.partitions.election import ElectionMode, ElectionReason
from holdfast.controller.core.partitions.partition_change import (
    ElectionContext,
    PartitionChange,
    RequestedChange,
    change_partition,
)
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import NO_LEADER
from holdfast.protocol.messages.topics import DescribedPartition

_ANY_TOPIC = bytes(16)


@dataclass(frozen=True, slots=True)
class NextLeader:
    """The next leader if the present one fails; for a leaderless partition, the leader once it is back."""

    leader: int | None
    #: by which rule, None when no replica would lead
    reason: ElectionReason | None
    #: complete replicas that could lead once they are unfenced, in order of assignment
    waits_for: tuple[int, ...]


def registration_of(described: DescribedPartition) -> PartitionRegistration:
    """The registration that DescribeTopicPartitions describes; without a reassignment."""
    return PartitionRegistration(
        replicas=described.replicas,
        isr=described.isr,
        leader=None if described.leader_id == NO_LEADER else described.leader_id,
        leader_epoch=described.leader_epoch,
        partition_epoch=described.partition_epoch,
        min_isr=described.min_isr,
        elr=described.eligible_leader_replicas or (),
        last_known_elr=described.last_known_elr or (),
        last_known_leader=None if described.last_known_leader == NO_LEADER else described.last_known_leader,
        leader_recovery_state=described.leader_recovery_state,
    )


def context_of(
    described: DescribedPartition,
    is_active: Callable[[int], bool],
    *,
    elects_uncleanly: bool = False,
    compares_logs: bool = False,
) -> ElectionContext:
    """The cluster around a described partition; the flags are what is configured for its topic."""
    return ElectionContext(
        is_active=lambda broker_id: is_active(broker_id) and broker_id not in described.offline_replicas,
        elr_enabled=described.eligible_leader_replicas is not None,
        min_insync_replicas=described.min_isr,
        mode=ElectionMode.UNCLEAN if elects_uncleanly and not compares_logs else ElectionMode.ONLINE,
        compares_logs=compares_logs,
    )


def after_stops(
    partition: PartitionRegistration, stopped: Collection[int], context: ElectionContext
) -> PartitionRegistration:
    """The partition after these brokers have stopped cleanly, all at the same time (R20)."""
    changed = trial(
        partition, RequestedChange(_without(partition.isr, stopped)), _without_brokers(context, stopped)
    )
    return partition if changed is None else changed.after


def next_leader(partition: PartitionRegistration, context: ElectionContext) -> NextLeader:
    """Who would lead next (R11-R13)."""
    gone = () if partition.leader is None else (partition.leader,)
    around = _without_brokers(context, gone)
    changed = trial(partition, RequestedChange(_without(partition.isr, gone)), around)
    after = partition if changed is None else changed.after
    if after.leader is not None:
        assert changed is not None
        return NextLeader(after.leader, changed.reason, ())
    # the failed leader cannot help: which other replicas are complete?
    waits_for = tuple(r for r in after.replicas if r in after.electable and r not in gone)
    return NextLeader(None, None, waits_for)


def trial(
    partition: PartitionRegistration, requested: RequestedChange, context: ElectionContext
) -> PartitionChange | None:
    """What the controller would change if that was wished now, None when nothing."""
    return change_partition(_ANY_TOPIC, 0, partition, requested, context)


def _without(ids: tuple[int, ...], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in ids if replica not in gone)


def _without_brokers(context: ElectionContext, gone: Collection[int]) -> ElectionContext:
    is_active = context.is_active
    return replace(context, is_active=lambda broker_id: broker_id not in gone and is_active(broker_id))
