"""The part of a cluster that is healed first: a majority of the voters and some brokers; the others are away.

Owns who belongs to it, and what it must come to by itself (the second phase of TigerBeetle's VOPR): a cluster
that needs all nodes would come to rest as well once all is healed. Changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.checks import liveness
from holdfast.sim.checks.liveness import Wanted
from holdfast.sim.cluster.nodes import SimBroker, SimNode
from holdfast.sim.cluster.world import World
from holdfast.sim.machine.choices import Stream, between

#: longer than a leader waits for voters that are away (K7)
CALM_MS = 4_000


@dataclass(frozen=True, slots=True)
class HealedSubset:
    """Names of machines."""

    voters: frozenset[str]
    brokers: frozenset[str]

    def has(self, node: SimNode) -> bool:
        """It is healed first."""
        return node.name in self.voters or node.name in self.brokers


def draw_healed_subset(world: World, stream: Stream) -> HealedSubset:
    """A majority of the voters, mostly without one to spare, and at least one broker; a node is left out
    where there are more."""
    voters = [voter for voter in world.controllers if voter.name not in world.lost]
    brokers = world.brokers
    majority = len(world.controllers) // 2 + 1
    return HealedSubset(
        _some(voters, majority + (stream.draw(4) == 3 and majority < len(voters)), stream),
        _some(brokers, between(stream, 1, max(1, len(brokers) - 1)), stream),
    )


def _some(nodes: Sequence[SimNode], count: int, stream: Stream) -> frozenset[str]:
    left = [node.name for node in nodes]
    return frozenset(left.pop(stream.draw(len(left))) for _ in range(count))


# --- what it comes to --------------------------------------------------------------------------------------


def wanted(healed: HealedSubset) -> tuple[Wanted, ...]:
    """In the order in which it comes about."""
    return (
        ("L-8 the voters of the core have a leader", partial(_has_leader, healed)),
        ("L-1 every broker of the core is unfenced", partial(_are_brokers_ready, healed)),
        ("L-9 the core leads what it can lead", partial(_leads, healed)),
    )


def wanted_of_writes(healed: HealedSubset) -> tuple[Wanted, ...]:
    """Since it leads."""
    return (("L-5 the core acknowledges what it can", partial(_acknowledges, healed)),)


def leader_epoch(world: World) -> int | None:
    """Of the quorum; None while it has no leader."""
    leader = world.active_controller()
    return None if leader is None or leader.server is None else leader.server.driver.raft_epoch


def _has_leader(healed: HealedSubset, world: World) -> bool:
    return liveness.follow_one_leader(world, filter(healed.has, world.controllers))


def _are_brokers_ready(healed: HealedSubset, world: World) -> bool:
    return all(broker.is_ready for broker in world.brokers if healed.has(broker))


def _leads(healed: HealedSubset, world: World) -> bool:
    rows = world.partitions()
    return bool(rows) and all(
        bool(_members(healed, world, (row.leader,))) and liveness.is_led(world, place, row)
        for place, row in rows
        if _electable(healed, world, row)
    )


def _acknowledges(healed: HealedSubset, world: World) -> bool:
    load = world.load
    acknowledged = {place for _, place in load.acknowledged}
    rows = world.partitions()
    asked = {
        place
        for place, row in rows
        if place in load.places
        and place not in load.resting
        and len(_members(healed, world, row.replicas)) >= row.min_isr
        and _electable(healed, world, row)
    }
    return bool(rows) and (not load.writers or acknowledged >= asked)


def _electable(healed: HealedSubset, world: World, row: PartitionRegistration) -> bool:
    """One of the core has everything: it leads once all of the ISR that are away are fenced (R11). Otherwise
    recovery says which replica may lead, and may wait for more."""
    return bool(_members(healed, world, row.isr + row.elr))


def _members(healed: HealedSubset, world: World, ids: Sequence[int | None]) -> list[SimBroker]:
    return [broker for broker in world.brokers if broker.node_id in ids and healed.has(broker)]
