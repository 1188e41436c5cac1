"""Voters whose owners cannot lead (K29): others lead before them, and they lead only to pass their log on."""

import pytest

from holdfast.raft.core.effects import CannotLead, Resign
from tests.unit.raft.simulation import World

A_MINUTE_MS = 60_000


def tell(world: World, voter_id: int, reason: str | None = "a later record") -> None:
    machine = world.machines[voter_id]
    world.step(machine, machine.life, CannotLead(reason))


def made(seed: int, voter_count: int = 3) -> World:
    world = World(seed, voter_count, calm=True)
    for voter_id in world.voter_ids:
        world.boot(voter_id)
    world.run_until(5_000)
    return world


def leader(world: World) -> int | None:
    return next((id for id in world.voter_ids if world.role(id) == "Leader"), None)


def epoch(world: World) -> int:
    nodes = [world.machines[id].node for id in world.voter_ids]
    return max(node.raft_epoch for node in nodes if node is not None)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("able", [1, 2, 3])
def test_the_one_voter_that_can_lead_does_so_after_a_few_epochs_and_stays(seed: int, able: int) -> None:
    world = made(seed)
    before = epoch(world)
    for voter_id in world.voter_ids:
        if voter_id != able:
            tell(world, voter_id)
    world.run_until(20_000)
    assert leader(world) == able
    after = epoch(world)
    assert after <= before + 5
    world.run_until(20_000 + A_MINUTE_MS)
    assert (leader(world), epoch(world)) == (able, after)


@pytest.mark.parametrize("seed", range(5))
def test_where_none_can_lead_elections_are_few(seed: int) -> None:
    world = made(seed)
    before = epoch(world)
    for voter_id in world.voter_ids:
        tell(world, voter_id)
    world.run_until(5_000 + A_MINUTE_MS)
    assert before < epoch(world) <= before + 30


@pytest.mark.parametrize("seed", range(5))
def test_a_voter_that_lacks_records_gets_them_from_one_that_cannot_lead(seed: int) -> None:
    world = made(seed)
    first = leader(world)
    assert first is not None
    late, other = (id for id in world.voter_ids if id != first)
    world.crash(late)
    for _ in range(20):
        world.propose(first)
        world.run_until(world.now_ms + 50)
    tell(world, first)
    tell(world, other)
    world.boot(late)
    world.run_until(world.now_ms + A_MINUTE_MS)
    assert leader(world) == late
    assert world.machines[late].disk.end_offset > 20


def test_a_successor_that_cannot_lead_lets_the_next_one_run_at_once() -> None:
    world = made(1)
    first = leader(world)
    assert first is not None
    successor, able = (id for id in world.voter_ids if id != first)
    tell(world, successor)
    machine = world.machines[first]
    world.step(machine, machine.life, Resign("told to"))
    world.run_until(world.now_ms + 900)
    assert leader(world) == able


@pytest.mark.parametrize("seed", range(5))
def test_when_a_leader_falls_silent_the_voter_that_can_lead_follows_it(seed: int) -> None:
    world = made(seed)
    first = leader(world)
    assert first is not None
    unable, able = (id for id in world.voter_ids if id != first)
    tell(world, unable)
    world.crash(first)
    world.run_until(world.now_ms + 30_000)
    assert leader(world) == able


def test_a_voter_that_can_lead_again_keeps_the_leadership() -> None:
    world = made(1)
    first = leader(world)
    assert first is not None
    before = epoch(world)
    tell(world, first)
    tell(world, first, None)
    world.run_until(A_MINUTE_MS)
    assert (leader(world), epoch(world)) == (first, before)


def test_the_only_voter_goes_on() -> None:
    world = made(1, voter_count=1)
    before = epoch(world)
    tell(world, 1)
    world.run_until(A_MINUTE_MS)
    assert (leader(world), epoch(world)) == (1, before)
