"""The fault budget: who may be hit while the promise still holds, partition by partition."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.client.admin_configs import Resource
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.load import operators
from holdfast.sim.machine.choices import Choices

SMALL = replace(ClusterSpec(), voters=1, partitions=1, producers=1)


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.close()


def booted(worlds: list[World], shape: ClusterSpec) -> tuple[World, Budget]:
    world = World(shape, Choices("budget"))
    worlds.append(world)
    world.boot()
    world.start_load()
    world.eventually("all in sync", lambda: all(len(row.isr) == 3 for _, row in world.partitions()))
    budget = Budget(world)
    budget.update()
    return world, budget


def come_back(world: World, name: str) -> None:
    """A machine loses its power and is in sync again."""
    broker = next(broker for broker in world.brokers if broker.name == name)
    broker.lose_power()
    world.pass_time(100)
    broker.boot()
    world.pass_time(2_500)
    world.eventually("in sync", lambda: all(broker.node_id in row.isr for _, row in world.partitions()))


def test_min_isr_minus_one_replicas_may_be_lossy_until_they_are_back_b1(worlds: list[World]) -> None:
    world, budget = booted(worlds, SMALL)
    first, second, _ = world.brokers
    assert budget.may_lose(first)
    budget.lost(first)
    assert not budget.may_lose(second)
    assert budget.may_lose(first), "who is lossy may lose more"
    come_back(world, first.name)
    budget.update()
    assert budget.may_lose(second)


def test_being_in_the_isr_proves_nothing_before_a_new_process_has_fetched(worlds: list[World]) -> None:
    world, budget = booted(worlds, SMALL)
    budget.lost(world.brokers[0])
    budget.update()
    assert not budget.may_lose(world.brokers[1])


def test_on_the_edge_one_more_may_be_lossy_and_beyond_it_every_broker(worlds: list[World]) -> None:
    world, budget = booted(worlds, replace(SMALL, over_budget=True, on_edge=True))
    first, second, third = world.brokers
    budget.lost(first)
    assert budget.may_lose(second)
    budget.lost(second)
    assert not budget.may_lose(third)
    _, beyond = booted(worlds, replace(SMALL, over_budget=True))
    beyond.lost(first)
    beyond.lost(second)
    assert beyond.may_lose(third)


def test_where_every_write_is_flushed_power_cuts_are_free_b3(worlds: list[World]) -> None:
    world, budget = booted(worlds, replace(SMALL, every_write=True))
    for broker in world.brokers:
        assert budget.may_lose(broker)
        budget.lost(broker)
    assert budget.may_lose_all()


def test_flushed_writes_do_not_help_against_disks_that_rot(worlds: list[World]) -> None:
    world, budget = booted(worlds, replace(SMALL, every_write=True))
    assert budget.may_rot(world.brokers[0])


def test_without_the_recovery_manager_a_kill_needs_a_witness(worlds: list[World]) -> None:
    world, budget = booted(worlds, SMALL)
    first, second, third = world.brokers
    budget.lost(first)
    budget.killed(second)
    assert not budget.may_kill(third)
    assert budget.may_kill(second), "the third is whole and in sync"
    assert not budget.may_kill_all()
    other, free = booted(worlds, replace(SMALL, recovery_manager=True))
    free.lost(other.brokers[0])
    free.killed(other.brokers[1])
    assert free.may_kill(other.brokers[2])
    assert free.may_kill_all()


def test_a_raised_min_isr_counts_once_the_isr_has_as_many(worlds: list[World]) -> None:
    world, budget = booted(worlds, SMALL)
    first, second, _ = world.brokers
    assert budget.may_set_min_isr("t", 3)
    budget.lost(first)
    assert not budget.may_lose(second), "what is committed may be on two replicas"
    world.operator_queue.put("raise", operators.set_config(Resource.topic("t"), "min.insync.replicas", "3"))
    world.eventually("it is raised", lambda: all(row.min_isr == 3 for _, row in world.partitions()))
    budget.update()
    assert budget.may_lose(second)


def test_min_isr_is_not_lowered_below_who_is_lossy_and_counts_at_once(worlds: list[World]) -> None:
    world, budget = booted(worlds, replace(SMALL, min_isr=3, recovery_manager=True))
    first, second, third = world.brokers
    budget.lost(first)
    assert budget.may_lose(second)
    budget.lost(second)
    assert not budget.may_set_min_isr("t", 2)
    assert not budget.may_lose(third)
    _, other = booted(worlds, replace(SMALL, min_isr=3, recovery_manager=True))
    assert other.may_set_min_isr("t", 2)
    other.lost(first)
    assert not other.may_lose(second)


def test_without_the_manager_the_last_witness_neither_stops_nor_counts_once_it_has(
    worlds: list[World],
) -> None:
    """It leaves the ISR as soon as anybody hears of it; then all that are left have stopped uncleanly."""
    world, budget = booted(worlds, replace(SMALL, recovery_manager=False))
    first, second, third = world.brokers
    budget.lost(first)
    budget.killed(second)
    assert not budget.may_stop(third)
    assert budget.may_stop(second), "the third is a witness"
    third.stop()
    world.eventually("it has stopped", lambda: third.exit_code is not None)
    assert not budget.may_stop(second)
