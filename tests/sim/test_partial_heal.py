"""A part of the cluster that is healed first: who belongs to it, and what it must come to by itself."""

from dataclasses import replace

import pytest

from holdfast.sim.campaign.run import run
from holdfast.sim.checks import liveness
from holdfast.sim.cluster.nodes import State
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults import partial_heal
from holdfast.sim.faults.partial_heal import HealedSubset, draw_healed_subset
from holdfast.sim.faults.table import Faults, Plan
from holdfast.sim.machine.choices import Choices

SHAPE = replace(ClusterSpec(), producers=2, partitions=2)
NO_FAULTS = Plan(gap_ms=1_000_000)
CORE = HealedSubset(frozenset(("c101", "c103")), frozenset(("b1", "b2")))


def under_load(shape: ClusterSpec = SHAPE) -> tuple[World, Faults]:
    """A cluster that works, and who plays its faults."""
    world = World(shape, Choices("5"))
    faults = Faults(world, NO_FAULTS)
    world.boot()
    world.start_load()
    world.pass_time(2_000)
    return world, faults


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_core_has_a_majority_of_the_voters_and_leaves_a_node_out(voters: int) -> None:
    world = World(replace(SHAPE, voters=voters), Choices("5"))
    drawn = [draw_healed_subset(world, Choices(str(seed)).stream("core")) for seed in range(40)]
    assert {len(one.voters) for one in drawn} == {voters // 2 + 1, min(voters, voters // 2 + 2)}
    assert {len(one.brokers) for one in drawn} == {1, 2}
    assert len({one.brokers for one in drawn}) == 6, "any of them"


def test_who_does_not_belong_is_away_until_all_is_healed() -> None:
    world, faults = under_load()
    faults.heal(CORE)
    liveness.settle(world, partial_heal.wanted(CORE))
    assert [node.name for node in world.nodes if node.state is State.DOWN] == ["c102", "b3"]
    assert {row.leader for _, row in world.partitions()} <= {1, 2}
    faults.heal()
    liveness.settle(world, liveness.BEFORE_THE_LOAD_ENDS)


def test_a_broker_that_may_not_be_killed_is_cut_off_from_all_nodes() -> None:
    world, faults = under_load(replace(SHAPE, min_isr=1))
    faults.budget.update()
    for place in faults.budget._rows:
        faults.budget._histories[place].lossy["b1"] = 1
        faults.budget._histories[place].unclean |= {"b1": 1, "b2": 1}  # b3 is the last that is whole
    faults.heal(CORE)
    assert [node.name for node in world.nodes if node.state is State.DOWN] == ["c102"]
    b3 = next(broker for broker in world.brokers if broker.name == "b3").machine.host
    others = [host for host in world.network.hosts.values() if host.name not in ("b3", "c102")]
    assert all(world.network.link(b3, host).is_cut and world.network.link(host, b3).is_cut for host in others)


def test_machines_that_were_about_to_return_stay_away_too() -> None:
    world, faults = under_load()
    faults._kill(world.brokers[2])
    faults.heal(CORE)
    world.pass_time(8_000)
    assert world.brokers[2].state is State.DOWN


def test_a_core_that_does_not_lead_what_it_could_is_a_violation() -> None:
    world, faults = under_load()
    faults.heal(CORE)
    liveness.settle(world, partial_heal.wanted(CORE))
    world.load.acknowledged.clear()
    (acknowledges,) = partial_heal.wanted_of_writes(CORE)
    assert not acknowledges[1](world), "nothing was acknowledged since"
    liveness.settle(world, partial_heal.wanted_of_writes(CORE))
    _, row = world.partitions()[0]
    assert partial_heal._electable(CORE, world, row)
    assert not partial_heal._electable(
        HealedSubset(CORE.voters, frozenset(("b3",))), world, replace(row, isr=(1,), elr=(2,))
    )
    assert partial_heal._electable(
        HealedSubset(CORE.voters, frozenset(("b3",))), world, replace(row, isr=(1,), elr=(3,))
    )
    world.brokers[0].kill()
    world.brokers[1].kill()
    leads = partial_heal.wanted(CORE)[-1]
    assert not leads[1](world)


def test_partitions_with_fewer_members_in_the_core_than_min_isr_need_not_acknowledge() -> None:
    alone = HealedSubset(CORE.voters, frozenset(("b2",)))
    world, faults = under_load()
    faults.heal(alone)
    liveness.settle(world, partial_heal.wanted(alone))
    world.load.acknowledged.clear()
    assert partial_heal.wanted_of_writes(alone)[0][1](world)


def test_a_story_heals_a_core_and_then_all() -> None:
    shape = replace(SHAPE, core_first=True)
    events: list[str] = []
    result = run(Choices("7"), shape, 3, plan=Plan(gap_ms=500), sink=events.append)
    assert result.violation is None, result.as_text()
    heals = [
        line.split(" ", 2)[2] for line in "".join(events).splitlines() if line.split(" ", 2)[1] == "heal"
    ]
    assert len(heals) == 2
    assert 2 <= heals[0].count("c10") <= 3
    assert 1 <= heals[0].count("b") <= 2
    assert heals[1] == ""
