"""K30: controllers that make themselves voters, where their operator has allowed it."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.messages.quorum import RemoveRaftVoterRequest, UpgradeQuorumRequest
from tests.unit.raft.test_directories import stored, wipe, write
from tests.unit.raft.test_voter_changes import Changing


@pytest.fixture
async def cluster() -> AsyncIterator[Changing]:
    made = Changing(1, joiner_count=2, is_joined_by_itself=True)
    yield made
    await made.stop()


async def test_one_controller_becomes_three_by_itself(cluster: Changing) -> None:
    leader = await cluster.boot()
    await write(cluster, leader, b"a")
    await cluster.clock.advance(10_000)
    assert leader.driver.voter_ids == (1,), "the log does not name the voters yet"
    leader = await cluster.change(leader, UpgradeQuorumRequest(1))
    await cluster.clock.advance(10_000)
    assert {machine.driver.voter_ids for machine in cluster.machines.values()} == {(1, 2, 3)}
    await leader.kill()
    leader = await cluster.leader(within_ms=10_000)
    await write(cluster, leader, b"b")
    assert leader.recorder.values == [b"a", b"b"]


async def test_a_new_disk_joins_when_the_old_one_was_removed(cluster: Changing) -> None:
    """The leader cannot know whether the old disk is gone."""
    leader = await cluster.upgraded()
    await cluster.clock.advance(10_000)
    lost = cluster[2] if leader.id != 2 else cluster[3]
    await wipe(lost)
    await lost.boot()
    await cluster.clock.advance(20_000)
    assert lost.recorder.offsets == []
    leader = await cluster.change(leader, RemoveRaftVoterRequest(lost.id, None))
    await cluster.clock.advance(10_000)
    assert leader.driver.voter_ids == (1, 2, 3)
    assert (await stored(lost)).is_admitted
    await next(cluster[id] for id in (1, 2, 3) if id not in (leader.id, lost.id)).kill()
    await write(cluster, leader, b"by both")
    assert lost.recorder.values == [b"by both"]
