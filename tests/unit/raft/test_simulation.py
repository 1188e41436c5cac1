"""Random worlds of pure raft nodes: Q-1 to Q-9 and N-1 hold after every step, and peace brings one leader.

`HOLDFAST_RAFT_SEEDS=5000 pytest tests/unit/raft/test_simulation.py` runs more seeds, `HOLDFAST_RAFT_SEED=17`
one of them.
"""

import os

import pytest

from tests.cases import slow
from tests.unit.raft.random_faults import assert_one_leads, disturb, fault
from tests.unit.raft.simulation import OBSERVER_ID, World

_SEEDS = int(os.environ.get("HOLDFAST_RAFT_SEEDS", "40"))
_FIRST_SEED = int(os.environ.get("HOLDFAST_RAFT_SEED", "-1"))
_FAULTS_MS = 12_000
_PEACE_MS = 15_000


def _run(seed: int, voter_count: int) -> World:
    world = World(seed, voter_count, observer_count=1)
    disturb(world, _FAULTS_MS)
    world.run_until(_FAULTS_MS + _PEACE_MS)
    assert_one_leads(world, [id for id in world.voter_ids if world.role(id) == "Leader"], _PEACE_MS)
    return world


def _run_seeds(voter_count: int) -> None:
    seeds = [_FIRST_SEED] if _FIRST_SEED >= 0 else range(_SEEDS)
    for seed in seeds:
        try:
            _run(seed, voter_count)
        except BaseException as error:
            error.add_note(f"HOLDFAST_RAFT_SEED={seed}, {voter_count} voters")
            raise


@pytest.mark.parametrize("voter_count", [3, *slow(5)])
@pytest.mark.timeout(0)
def test_no_fault_breaks_the_quorum_properties(voter_count: int) -> None:
    _run_seeds(voter_count)


def _peace_but_for(world: World, cuts: set[tuple[int, int]]) -> None:
    """After some faults; a few links never heal."""
    for id in sorted(world.machines):
        world.later(world.random.randint(0, 300), lambda id=id: world.boot(id))  # type: ignore[misc]
    for _ in range(10):
        world.later(world.random.randint(2_000, 5_000), lambda: fault(world))
    world.run_until(7_000)
    world.calm = True
    world.cut_links(cuts)
    world.run_until(17_000)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "cuts",
    [
        {(1, 3), (3, 1)},
        {(1, 3)},
        {(1, 2), (2, 1), (1, 3), (3, 1)},
        {(2, 1), (3, 1)},
        {(1, 2), (1, 3)},
        {(1, OBSERVER_ID), (OBSERVER_ID, 1), (1, 3), (3, 1)},
    ],
    ids=["one link", "one way", "a voter", "a deaf voter", "a mute voter", "a link and the observer's"],
)
def test_voters_that_reach_a_majority_keep_one_leader(seed: int, cuts: set[tuple[int, int]]) -> None:
    """L-8: links that never heal neither stop the quorum nor make its voters depose each other."""
    world = World(seed, 3, observer_count=1)
    world.keeps_disks = True
    _peace_but_for(world, cuts)
    epochs = sorted(world.leader_of_epoch)
    world.run_until(27_000)
    assert sorted(world.leader_of_epoch) == epochs, "a leader was deposed"
    leader_id = world.leader_of_epoch[epochs[-1]]
    assert world.role(leader_id) == "Leader"
    value = world.propose(leader_id)
    world.run_until(29_000)
    assert value in world.acked
