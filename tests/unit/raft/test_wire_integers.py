"""With any integers in a request of the quorum, voters go on, and elect again."""

from typing import Any

import pytest

from holdfast.protocol.messages.fetch import METADATA_TOPIC_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    RemoveRaftVoterRequest,
    UpgradeQuorumRequest,
    VoteRequest,
)
from holdfast.raft.core.answers import EPOCH_JUMP_MAX
from holdfast.raft.core.quorum import QuorumState
from holdfast.raft.state_file import FILE_NAME
from holdfast.rpc.channel import Channel
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.checkpoint import read_text, write_atomically
from tests.unit.protocol.integers import extremes
from tests.unit.raft.cluster import FOLDER, Cluster, Machine
from tests.unit.raft.test_directories import stored
from tests.unit.raft.test_voter_changes import Changing


def requests(leader: Machine, to: int, sender: int) -> list[Any]:
    """One of each kind, as `sender` would send it now."""
    epoch, end = leader.driver.raft_epoch, leader.log.log_end_offset
    row = FetchPartition(METADATA_TOPIC_ID, 0, epoch, end, epoch, end, 1000)
    return [
        VoteRequest("test", epoch, sender, to, epoch, end, True),
        VoteRequest("test", epoch + 1, sender, to, epoch, end, False),
        BeginQuorumEpochRequest("test", leader.id, epoch, to),
        EndQuorumEpochRequest("test", leader.id, epoch, (to, sender)),
        FetchRequest("test", sender, -1, 0, 1, 1000, (row,), voter_ids=(1, 2, 3)),
        FetchRequest("test", 101, -1, 0, 1, 1000, (row,), voter_ids=(1, 2, 3)),
        DescribeQuorumRequest(),
    ]


async def requests_of_a_log_that_names_voters(leader: Machine, to: Machine, sender: Machine) -> list[Any]:
    """The same where they say more, and those that change the voters (K30)."""
    epoch, end = leader.driver.raft_epoch, leader.log.log_end_offset
    own, its = (await stored(to)).directory_id, (await stored(sender)).directory_id
    row = FetchPartition(METADATA_TOPIC_ID, 0, epoch, end, epoch, end, 1000)
    return [
        VoteRequest("test", epoch + 1, sender.id, to.id, epoch, end, False, its, voter_directory_id=own),
        BeginQuorumEpochRequest("test", leader.id, epoch, to.id, f"localhost:{9000 + leader.id}"),
        FetchRequest("test", sender.id, -1, 0, 1, 1, (row,), voter_directory_id=its, kraft_version=1),
        AddRaftVoterRequest(7, b"7" * 16, "c7:9007"),
        RemoveRaftVoterRequest(7, None),
        UpgradeQuorumRequest(1),
    ]


@pytest.mark.parametrize(
    ("names_voters", "number"), [*((False, n) for n in range(7)), *((True, n) for n in range(6))]
)
async def test_no_integer_of_a_request_ends_elections(names_voters: bool, number: int) -> None:
    cluster = Changing(voter_count=3)
    await (cluster.upgraded() if names_voters else cluster.boot())
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    first_epoch = max(machine.driver.raft_epoch for machine in cluster.machines.values())
    sent = 0
    for machine in cluster.machines.values():
        channel = Channel(runtime, *cluster.voters[machine.id], "test")
        runtime.tasks.start("connect", channel.connect(1000))
        await settle()
        sender = next(id for id in cluster.voters if id != machine.id)
        leader = await cluster.leader(within_ms=10_000)
        asked = requests(leader, machine.id, sender)
        if names_voters:
            asked = await requests_of_a_log_that_names_voters(leader, machine, cluster[sender])
        for _, request in extremes(asked[number]):
            answer = channel.call_soon(request, 1000)
            await cluster.clock.advance(10)
            sent += 1
            if answer.done():
                answer.exception()
        await cluster.clock.advance(1000)
        channel.abort()
    for machine in cluster.machines.values():
        assert machine.tasks._failure is None, f"voter {machine.id} has ended"
        assert machine.driver.raft_epoch <= first_epoch + EPOCH_JUMP_MAX
    leader = await cluster.leader(within_ms=10_000)
    await leader.kill()
    heir = await cluster.leader(within_ms=10_000)
    heir.driver.append((b"after",), heir.driver.raft_epoch)
    await cluster.clock.advance(1000)
    assert {m.recorder.values[-1] for m in cluster.machines.values() if m.is_running} == {b"after"}
    await cluster.stop()


async def test_a_voter_that_missed_more_elections_than_a_request_may_raise_catches_up() -> None:
    """It asks the others itself, whom its operator has configured."""
    cluster = Cluster(voter_count=3)
    leader = await cluster.boot()
    (late, other) = (machine for machine in cluster.machines.values() if machine is not leader)
    await late.kill()
    far = leader.driver.raft_epoch + 2 * EPOCH_JUMP_MAX
    for machine in (leader, other):
        await machine.kill()
        path = f"{FOLDER}/{FILE_NAME}"
        state = QuorumState.from_json(await read_text(machine.disk, path) or "", "test")
        await write_atomically(machine.disk, path, state.of_epoch(far).to_json("test"))
    await late.boot()
    await other.boot()
    assert (await cluster.leader(within_ms=20_000)).driver.raft_epoch > far
    assert late.driver.raft_epoch > far
    await cluster.stop()
