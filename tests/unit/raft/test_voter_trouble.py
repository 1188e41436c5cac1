"""K30: what goes wrong while voters change."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import METADATA_TOPIC_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpgradeQuorumRequest,
    VoteRequest,
)
from tests.unit.raft.cluster import Machine
from tests.unit.raft.test_directories import stored, wipe, write
from tests.unit.raft.test_voter_changes import Changing, code_of


@pytest.fixture
async def cluster() -> AsyncIterator[Changing]:
    made = Changing(joiner_count=2)
    yield made
    await made.stop()


def followers(cluster: Changing, leader: Machine) -> list[Machine]:
    return [cluster[id] for id in (1, 2, 3) if id != leader.id]


async def test_a_change_that_is_not_committed_holds_back_the_next_one(cluster: Changing) -> None:
    leader = await cluster.upgraded()
    await cluster.clock.advance(1_000)
    for machine in followers(cluster, leader):
        await machine.kill()
    asked = await cluster.begin(leader, AddRaftVoterRequest(4, None, "localhost:9004"))
    await cluster.clock.advance(50)
    for request in (AddRaftVoterRequest(5, None, "localhost:9005"), RemoveRaftVoterRequest(1, None)):
        code, text = await code_of(cluster, leader, request)
        assert code == ErrorCode.REQUEST_TIMED_OUT
        assert "another change of the voters is under way" in text
    assert (await cluster.answer_of(asked)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_majority_that_is_lost_while_a_voter_is_added_comes_back_and_ends_the_change(
    cluster: Changing,
) -> None:
    leader = await cluster.upgraded()
    await write(cluster, leader, b"before")
    gone = followers(cluster, leader)
    for machine in (*gone, cluster[4]):
        await machine.kill()
    asked = await cluster.begin(leader, AddRaftVoterRequest(4, None, "localhost:9004"))
    answer = await cluster.answer_of(asked)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "ask again whether it is" in answer.error_message
    await cluster.clock.advance(5_000)
    assert not leader.driver.is_leader
    await gone[0].boot()
    await cluster[4].boot()
    leader = await cluster.leader(within_ms=10_000)
    if leader.driver.voter_ids == (1, 2, 3):
        leader = await cluster.add(leader, 4)
    assert leader.driver.voter_ids == (1, 2, 3, 4)
    await write(cluster, leader, b"after")
    assert leader.recorder.values == [b"before", b"after"]


async def test_a_removed_voter_that_comes_back_disturbs_no_leader(cluster: Changing) -> None:
    leader = await cluster.upgraded()
    removed, other = followers(cluster, leader)
    await removed.kill()
    leader = await cluster.remove(leader, removed.id)
    epoch = leader.driver.raft_epoch
    for machine in (leader, other):
        own, its = (await stored(machine)).directory_id, (await stored(removed)).directory_id
        pre_vote = VoteRequest(
            "test", epoch, removed.id, machine.id, epoch, 1_000, True, its, voter_directory_id=own
        )
        answer = await cluster.ask(machine, pre_vote)
        assert (answer.error_code, answer.vote_granted) == (ErrorCode.NONE, False)
    await removed.boot()
    await cluster.clock.advance(20_000)
    assert (leader.driver.is_leader, leader.driver.raft_epoch) == (True, epoch)
    assert removed.driver.voter_ids == leader.driver.voter_ids == tuple(sorted((leader.id, other.id)))


async def test_a_controller_is_caught_up_by_what_its_own_disk_has(cluster: Changing) -> None:
    """Two run with one id, or a disk was replaced: what the other one has makes no majority."""
    leader = await cluster.upgraded()
    await cluster.clock.advance(1_000)
    await wipe(cluster[4])
    row = FetchPartition(METADATA_TOPIC_ID, 0, leader.driver.raft_epoch, 0, 0, 0, 100)
    fetch = FetchRequest("test", 4, -1, 0, 1, 100, (row,), voter_directory_id=b"x" * 16, kraft_version=1)
    assert (await cluster.ask(leader, fetch)).error_code == ErrorCode.NONE
    code, text = await code_of(cluster, leader, AddRaftVoterRequest(4, None, "localhost:9004"))
    assert (code, "controller 4 has not caught up" in text) == (ErrorCode.REQUEST_TIMED_OUT, True)


async def test_a_broker_and_a_voter_never_share_an_id(cluster: Changing) -> None:
    """The voter would be held for a broker that fetches, or the broker be kept from the log."""
    leader = await cluster.upgraded()
    await cluster.clock.advance(1_000)
    row = FetchPartition(METADATA_TOPIC_ID, 0, leader.driver.raft_epoch, 0, 0, 0, 100)
    answer = await cluster.ask(leader, FetchRequest("test", 2, -1, 0, 1, 100, (row,), kraft_version=1))
    assert answer.error_code == ErrorCode.INVALID_VOTER_KEY
    assert "a broker needs another" in answer.error_message
    await cluster.ask(leader, FetchRequest("test", 4, -1, 0, 1, 100, (row,), kraft_version=1))
    await cluster.clock.advance(1_000)
    code, text = await code_of(cluster, leader, AddRaftVoterRequest(4, None, "localhost:9004"))
    assert (code, "node.id 4 is a broker's" in text) == (ErrorCode.INVALID_REQUEST, True)
    await cluster.clock.advance(5_000)
    await cluster.add(leader, 4)


async def test_no_directory_is_replaced_while_the_log_takes_over_the_voters(cluster: Changing) -> None:
    """The set that is about to be written names the directories as they were."""
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    away = followers(cluster, leader)[0]
    await away.kill()
    asked = await cluster.begin(leader, UpgradeQuorumRequest(1))
    await cluster.clock.advance(50)
    refused = await cluster.readmit(leader, away.id, b"x" * 16)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "a change of the voters is under way: ask again",
    )
    assert (await cluster.answer_of(asked)).error_code == ErrorCode.REQUEST_TIMED_OUT
    # the change is over; what is wrong now is that no voter has shown this directory
    refused = await cluster.readmit(leader, away.id, b"x" * 16)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
