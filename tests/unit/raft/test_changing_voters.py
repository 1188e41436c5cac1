"""K30 in random worlds: voters come and go while nodes crash, lose disks and are cut off, and the properties
of the quorum hold after every step.

`HOLDFAST_RAFT_SEEDS=5000 pytest tests/unit/raft/test_changing_voters.py` runs more seeds.
"""

import os

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
)
from tests.unit.raft.changing_world import ChangingWorld
from tests.unit.raft.test_simulation import _fault

_SEEDS = int(os.environ.get("HOLDFAST_RAFT_SEEDS", "6"))
_FIRST_SEED = int(os.environ.get("HOLDFAST_RAFT_SEED", "-1"))
_FAULTS_MS = 15_000
_PEACE_MS = 20_000


def _run(seed: int, voter_count: int) -> ChangingWorld:
    world = ChangingWorld(seed, voter_count, 6 - voter_count)
    for id in sorted(world.machines):
        world.later(world.random.randint(0, 300), lambda id=id: world.boot(id))  # type: ignore[misc]
    for _ in range(world.random.randint(5, 40)):
        world.later(world.random.randint(1_000, _FAULTS_MS - 1_500), lambda: _fault(world))
    for _ in range(80):
        world.later(world.random.randint(0, _FAULTS_MS), world.propose_everywhere)
    world.run_until(_FAULTS_MS)
    world.calm = True
    world.cut()
    world.run_until(_FAULTS_MS + _PEACE_MS - 6_000)
    world.is_settled = True
    world.run_until(_FAULTS_MS + _PEACE_MS)
    leaders = world.leaders()
    assert len(leaders) == 1, f"L-8: peace for {_PEACE_MS} ms, and the leaders are {leaders}"
    last_value = world.propose(leaders[0])
    world.run_until(_FAULTS_MS + _PEACE_MS + 1_000)
    world.check_converged()
    assert last_value in world.acked, "a quorum at peace commits"
    return world


@pytest.mark.parametrize("voter_count", [1, 3])
@pytest.mark.timeout(0)
def test_no_fault_breaks_the_quorum_properties_while_voters_change(voter_count: int) -> None:
    changed: set[type] = set()
    for seed in [_FIRST_SEED] if _FIRST_SEED >= 0 else range(_SEEDS):
        try:
            world = _run(seed, voter_count)
        except BaseException as error:
            error.add_note(f"HOLDFAST_RAFT_SEED={seed}, {voter_count} voters")
            raise
        changed |= {type(request) for request, code in world.answers if code == ErrorCode.NONE}
    if _FIRST_SEED < 0:
        assert {AddRaftVoterRequest, RemoveRaftVoterRequest} <= changed, "voters came and went"
