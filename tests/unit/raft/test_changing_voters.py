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
from tests.unit.raft.random_faults import assert_one_leads, disturb

_SEEDS = int(os.environ.get("HOLDFAST_RAFT_SEEDS", "6"))
_FIRST_SEED = int(os.environ.get("HOLDFAST_RAFT_SEED", "-1"))
_FAULTS_MS = 15_000
_PEACE_MS = 20_000


def _run(seed: int, voter_count: int) -> ChangingWorld:
    world = ChangingWorld(seed, voter_count, 6 - voter_count)
    disturb(world, _FAULTS_MS, first_ms=1_000)
    world.run_until(_FAULTS_MS + _PEACE_MS - 6_000)
    world.is_settled = True
    world.run_until(_FAULTS_MS + _PEACE_MS)
    assert_one_leads(world, world.leaders(), _PEACE_MS)
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
