"""An operator lets the quorum's leader resign (K6)."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import ResignQuorumLeaderRequest
from tests.unit.raft.cluster import Cluster, Machine


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.stop()


async def resigned(cluster: Cluster, machine: Machine, raft_epoch: int) -> ErrorCode:
    answer = await cluster.ask(machine, ResignQuorumLeaderRequest(raft_epoch))
    return ErrorCode(answer.error_code)


async def test_another_voter_leads_once_the_leader_has_resigned(cluster: Cluster) -> None:
    former = await cluster.boot()
    epoch = former.driver.raft_epoch
    assert await resigned(cluster, former, epoch) == ErrorCode.NONE
    leader = await cluster.leader(within_ms=1_000)
    assert leader is not former
    assert leader.driver.raft_epoch > epoch


async def test_who_asks_again_for_the_end_of_an_epoch_that_is_over_ends_no_other(cluster: Cluster) -> None:
    former = await cluster.boot()
    epoch = former.driver.raft_epoch
    await resigned(cluster, former, epoch)
    leader = await cluster.leader(within_ms=1_000)
    assert await resigned(cluster, leader, epoch) == ErrorCode.NONE
    assert leader.driver.is_leader


async def test_who_does_not_lead_says_so(cluster: Cluster) -> None:
    leader = await cluster.boot()
    follower = next(machine for machine in cluster.machines.values() if machine is not leader)
    assert await resigned(cluster, follower, leader.driver.raft_epoch) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_epoch_that_was_not_yet_cannot_end(cluster: Cluster) -> None:
    leader = await cluster.boot()
    later = leader.driver.raft_epoch + 1
    assert await resigned(cluster, leader, later) == ErrorCode.INVALID_REQUEST
    assert leader.driver.is_leader


async def test_the_only_voter_does_not_resign() -> None:
    cluster = Cluster(1)
    leader = await cluster.boot()
    assert await resigned(cluster, leader, leader.driver.raft_epoch) == ErrorCode.INVALID_REQUEST
    assert leader.driver.is_leader
    await cluster.stop()
