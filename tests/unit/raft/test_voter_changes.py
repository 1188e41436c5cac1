"""K30: the metadata log names the voters, and an operator changes them one at a time."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import METADATA_TOPIC_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UpgradeQuorumRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core import answers
from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.effects import Answered, Reply, RequestReceived, Send, Start, Tick
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import BadQuorumState, QuorumState
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.scenario.raft import LowRandom, make_config, shape_of
from tests.unit.raft.cluster import Cluster, Machine
from tests.unit.raft.test_directories import stored, wipe, write


class Changing(Cluster):
    """A cluster with the words of an operator, who asks again while the answer is "not now"."""

    async def change(self, leader: Machine, request: Any) -> Machine:
        """The leader once the change is committed."""
        answer = await self.ask(leader, request)
        for _ in range(20):
            if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
                break
            await self.clock.advance(500)
            answer = await self.ask(leader, request)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return await self.leader(within_ms=5_000)

    async def add(self, leader: Machine, voter_id: int) -> Machine:
        host, port = self.addresses[voter_id]
        return await self.change(leader, AddRaftVoterRequest(voter_id, None, f"{host}:{port}"))

    async def remove(self, leader: Machine, voter_id: int) -> Machine:
        return await self.change(leader, RemoveRaftVoterRequest(voter_id, None))

    async def upgraded(self) -> Machine:
        """All run, and the log names the voters."""
        leader = await self.boot()
        await self.clock.advance(600)
        return await self.change(leader, UpgradeQuorumRequest(1))


@pytest.fixture
async def cluster() -> AsyncIterator[Changing]:
    made = Changing(joiner_count=2, observer_count=1)
    yield made
    await made.stop()


async def code_of(cluster: Cluster, machine: Machine, request: Any) -> tuple[int, str]:
    answer = await cluster.ask(machine, request)
    return answer.error_code, answer.error_message or ""


async def test_voters_go_from_three_to_five_and_back_and_nothing_is_lost(cluster: Changing) -> None:
    leader = await cluster.upgraded()
    await write(cluster, leader, b"three")
    for voter_id in (4, 5):
        leader = await cluster.add(leader, voter_id)
    assert leader.driver.voter_ids == (1, 2, 3, 4, 5)
    await write(cluster, leader, b"five")
    gone = [leader.id, next(id for id in (1, 2, 3) if id != leader.id)]
    for voter_id in gone:
        await cluster[voter_id].kill()
    leader = await cluster.leader(within_ms=10_000)  # three of five are enough
    await write(cluster, leader, b"three of five")
    for voter_id in gone:
        leader = await cluster.remove(leader, voter_id)
    await write(cluster, leader, b"three others")
    await cluster.clock.advance(2_000)
    assert cluster[101].recorder.values == [b"three", b"five", b"three of five", b"three others"]
    assert cluster[101].driver.voter_ids == leader.driver.voter_ids == (*sorted({1, 2, 3} - {*gone}), 4, 5)


async def test_one_controller_becomes_three() -> None:
    alone = Changing(1, joiner_count=2)
    leader = await alone.upgraded()
    await write(alone, leader, b"a")
    for voter_id in (2, 3):
        leader = await alone.add(leader, voter_id)
    await leader.kill()
    leader = await alone.leader(within_ms=10_000)
    await write(alone, leader, b"b")
    assert leader.recorder.values == [b"a", b"b"]
    await alone.stop()


async def test_a_leader_that_is_removed_resigns_and_follows_the_others(cluster: Changing) -> None:
    leader = await cluster.upgraded()
    former = leader.id
    leader = await cluster.remove(leader, former)
    assert leader.id != former
    await write(cluster, leader, b"without it")
    described = await cluster.ask(leader, DescribeQuorumRequest())
    rest = [id for id in (1, 2, 3) if id != former]
    assert [(row.replica_id, row.endpoint) for row in described.voters] == [
        (id, f"localhost:{9000 + id}") for id in rest
    ]
    assert {row.replica_id: row.directory_id for row in (*described.voters, *described.observers)} == {
        id: (await stored(cluster[id])).directory_id for id in (1, 2, 3, 4, 5, 101)
    }
    await cluster.clock.advance(1_000)
    assert cluster[former].recorder.values == [b"without it"]
    assert not cluster[former].driver.is_leader


async def test_a_replaced_disk_is_a_new_voter(cluster: Changing) -> None:
    leader = await cluster.upgraded()
    await write(cluster, leader, b"a")
    lost = next(
        machine for id, machine in cluster.machines.items() if id in (1, 2, 3) and machine is not leader
    )
    old_directory = (await stored(lost)).directory_id
    await wipe(lost)
    await lost.boot()
    await cluster.clock.advance(5_000)
    assert lost.recorder.values == []
    host, port = cluster.addresses[lost.id]
    again = AddRaftVoterRequest(lost.id, None, f"{host}:{port}")
    code, text = await code_of(cluster, leader, again)
    assert (code, "remove it, and add it again" in text) == (ErrorCode.DUPLICATE_VOTER, True)
    leader = await cluster.remove(leader, lost.id)
    leader = await cluster.change(leader, again)
    await cluster.clock.advance(2_000)
    assert (await stored(lost)).directory_id != old_directory
    other = next(id for id in (1, 2, 3) if id not in (leader.id, lost.id))
    await cluster[other].kill()
    await write(cluster, leader, b"b")  # it makes a majority again
    assert lost.recorder.values == [b"a", b"b"]


async def test_voters_come_back_by_their_log_and_by_their_snapshot() -> None:
    cluster = Changing(joiner_count=1, snapshot_bytes=2_000)
    leader = await cluster.upgraded()
    leader = await cluster.add(leader, 4)
    for number in range(40):
        await write(cluster, leader, b"%040d" % number)
    for machine in cluster.machines.values():
        await machine.kill()
    for machine in cluster.machines.values():
        await machine.boot()
    leader = await cluster.leader(within_ms=10_000)
    assert [machine.driver.voter_ids for machine in cluster.machines.values()] == [(1, 2, 3, 4)] * 4
    leader = await cluster.remove(leader, next(id for id in (1, 2, 3) if id != leader.id))
    assert len(leader.recorder.values) == 40
    await cluster.stop()


async def test_a_wiped_voter_fetches_a_snapshot_that_names_the_voters() -> None:
    cluster = Changing(joiner_count=1, snapshot_bytes=2_000)
    leader = await cluster.upgraded()
    lost = next(id for id in (1, 2, 3) if id != leader.id)
    leader = await cluster.remove(leader, lost)
    for number in range(60):
        await write(cluster, leader, b"%040d" % number)
    await wipe(cluster[lost])
    await cluster[lost].boot()
    await cluster.clock.advance(3_000)
    assert cluster[lost].driver.voter_ids == leader.driver.voter_ids
    await cluster.add(leader, lost)
    await cluster.stop()


async def test_an_upgrade_waits_for_all_voters_and_is_done_once(cluster: Changing) -> None:
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    away = next(
        machine for id, machine in cluster.machines.items() if id in (1, 2, 3) and machine is not leader
    )
    await away.kill()
    code, text = await code_of(cluster, leader, UpgradeQuorumRequest(1))
    assert (code, f"the voters [{away.id}] have not noted" in text) == (ErrorCode.REQUEST_TIMED_OUT, True)
    await away.boot()
    leader = await cluster.change(leader, UpgradeQuorumRequest(1))
    end_offset = leader.driver.log_end_offset
    assert await code_of(cluster, leader, UpgradeQuorumRequest(1)) == (ErrorCode.NONE, "")
    assert leader.driver.log_end_offset == end_offset


async def test_what_cannot_be_done_is_refused_with_a_sentence(cluster: Changing) -> None:
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    add, remove = AddRaftVoterRequest(4, None, "localhost:9004"), RemoveRaftVoterRequest(2, None)
    for request in (add, remove):
        code, text = await code_of(cluster, leader, request)
        assert (code, "let the metadata log name them first" in text) == (ErrorCode.INVALID_REQUEST, True)
    leader = await cluster.change(leader, UpgradeQuorumRequest(1))
    follower = next(cluster[id] for id in (1, 2, 3) if id != leader.id)
    refused: list[tuple[Machine, Any, int, str]] = [
        (follower, add, ErrorCode.NOT_LEADER_OR_FOLLOWER, "not the leader"),
        (leader, UpgradeQuorumRequest(2), ErrorCode.INVALID_REQUEST, "kraft.version 2 is not known"),
        (leader, AddRaftVoterRequest(2, None, "h:1"), ErrorCode.DUPLICATE_VOTER, "is a voter already"),
        (leader, AddRaftVoterRequest(4, None, "h"), ErrorCode.INVALID_REQUEST, "is no host:port"),
        (leader, AddRaftVoterRequest(4, None, None), ErrorCode.INVALID_REQUEST, "is no host:port"),
        (
            leader,
            AddRaftVoterRequest(4, b"x" * 16, "h:1"),
            ErrorCode.INVALID_REQUEST,
            "fetches with directory",
        ),
        (leader, AddRaftVoterRequest(6, None, "h:1"), ErrorCode.REQUEST_TIMED_OUT, "start it, and ask again"),
        (leader, AddRaftVoterRequest(101, None, "h:1"), ErrorCode.INVALID_REQUEST, "is a broker's"),
        (
            leader,
            RemoveRaftVoterRequest(4, None),
            ErrorCode.VOTER_NOT_FOUND,
            "is not one of the voters [1, 2, 3]",
        ),
        (leader, RemoveRaftVoterRequest(2, b"x" * 16), ErrorCode.VOTER_NOT_FOUND, "not with this directory"),
    ]
    for machine, request, code, text in refused:
        answered, sentence = await code_of(cluster, machine, request)
        assert (answered, text in sentence) == (code, True), (request, sentence)
    others = [id for id in (1, 2, 3) if id != leader.id]
    await cluster[others[0]].kill()
    await cluster.clock.advance(2_500)
    code, text = await code_of(cluster, leader, RemoveRaftVoterRequest(others[1], None))
    assert (code, "which is no majority" in text) == (ErrorCode.INVALID_REQUEST, True)


async def test_a_build_that_takes_voters_from_its_configuration_does_not_start_on_the_disk(
    cluster: Changing,
) -> None:
    """Two builds that disagree about who the voters are could elect two leaders."""
    leader = await cluster.upgraded()
    for voter_id in (1, 2, 3):
        assert (await stored(cluster[voter_id])).kraft_version == 1
    later = '{"clusterId": "test", "leaderId": 1, "leaderEpoch": 9, "votedId": 1, "data_version": 2}'
    with pytest.raises(BadQuorumState, match="quorum-state has version 2, this software reads 0 to 1"):
        QuorumState.from_json(later, "test")
    assert leader.driver.voter_ids == (1, 2, 3)


async def test_an_observer_finds_the_voters_though_its_configuration_names_some_that_are_gone(
    cluster: Changing,
) -> None:
    leader = await cluster.upgraded()
    for voter_id in (4, 5):
        leader = await cluster.add(leader, voter_id)
    for voter_id in (1, 2):
        leader = await cluster.remove(leader, voter_id)
        await cluster[voter_id].kill()
    leader = await cluster.leader(within_ms=5_000)
    observer = cluster[101]
    await observer.kill()
    observer.disk = MemoryDisk()
    await observer.boot()
    await write(cluster, leader, b"found")
    await cluster.clock.advance(5_000)
    assert observer.recorder.values == [b"found"]
    assert observer.driver.voter_ids == (3, 4, 5)


def _node(kraft_version: int, log: str = "1:5") -> RaftNode:
    state = QuorumState(1, None, 1, b"2" * 16, kraft_version=kraft_version)
    node = RaftNode(make_config(2, (1, 2, 3)), LowRandom(), state, shape_of(log))
    node.handle(Start(), 0)
    return node


def _answer(node: RaftNode, request: Any) -> Any:
    effects = node.handle(RequestReceived(1, request), node.now_ms + 1)
    return next(effect.response for effect in effects if isinstance(effect, Reply))


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_leaders_that_are_not_configured_are_followed_once_the_log_may_name_them(kraft_version: int) -> None:
    """Before, a node that is no voter could make itself the leader."""
    node = _node(kraft_version)
    begin = BeginQuorumEpochRequest("test", 7, 2, 2, "c7:9007")
    code = _answer(node, begin).error_code
    assert code == (ErrorCode.NONE if kraft_version else ErrorCode.INVALID_REQUEST)
    assert node.leader_id == (7 if kraft_version else 1)
    assert node.address_of(7) == (("c7", 9007) if kraft_version else None)


@pytest.mark.parametrize("leader_id", [-5, -1, 2])
@pytest.mark.parametrize("endpoint", ["c7:9007", "nowhere"])
def test_a_leader_that_cannot_be_one_is_refused(leader_id: int, endpoint: str) -> None:
    node = _node(1)
    answer = _answer(node, BeginQuorumEpochRequest("test", leader_id, 2, 2, endpoint))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert node.raft_epoch == 1


@pytest.mark.parametrize(
    ("kraft_version", "named", "code", "granted"),
    [
        (0, b"2" * 16, ErrorCode.INVALID_REQUEST, False),
        (1, b"2" * 16, ErrorCode.NONE, True),
        (1, b"3" * 16, ErrorCode.INVALID_VOTER_KEY, False),
        (1, None, ErrorCode.INVALID_REQUEST, False),
    ],
)
def test_a_candidate_that_is_not_configured_gets_a_vote_where_its_log_names_this_directory(
    kraft_version: int, named: bytes | None, code: ErrorCode, granted: bool
) -> None:
    node = _node(kraft_version)
    request = VoteRequest("test", 2, 7, 2, 1, 9, False, b"7" * 16, voter_directory_id=named)
    answer = _answer(node, request)
    assert (answer.error_code, answer.vote_granted) == (code, granted)


def test_a_node_of_an_earlier_build_goes_by_its_configuration_and_is_refused_where_that_differs() -> None:
    row = FetchPartition(METADATA_TOPIC_ID, 0, 1, 5, 1, 5, 100)
    fetch = FetchRequest("test", 101, -1, 0, 1, 100, (row,), voter_ids=(1, 2, 3))
    assert answers.check_earlier_build(fetch, (1, 2, 3)) is None
    refusal = answers.check_earlier_build(fetch, (1, 2, 4))
    assert refusal is not None
    assert "names the voters [1, 2, 4], node 101 goes by its configuration, [1, 2, 3]" in refusal[1]
    assert answers.check_earlier_build(replace(fetch, kraft_version=0), (1, 2, 4)) is None


async def test_a_leader_tells_which_voters_fetch_as_an_earlier_build_does(
    cluster: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    assert list(leader.driver.earlier_voters) == []
    node = leader.driver._node
    assert node is not None
    role = node._member.role
    assert isinstance(role, Leader)
    for voter in role.voters.values():
        monkeypatch.setattr(voter, "kraft_version", -1)
    others = [id for id in (1, 2, 3) if id != leader.id]
    assert list(leader.driver.earlier_voters) == others
    assert list(cluster[others[0]].driver.earlier_voters) == []


async def test_an_upgrade_writes_nothing_while_a_node_is_of_an_earlier_build(
    cluster: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.boot()
    await cluster.clock.advance(600)
    node = leader.driver._node
    assert node is not None
    role = node._member.role
    assert isinstance(role, Leader)
    end_offset = leader.driver.log_end_offset
    monkeypatch.setattr(role.observers[101], "kraft_version", -1)
    code, text = await code_of(cluster, leader, UpgradeQuorumRequest(1))
    assert (code, "the nodes [101] are of an earlier build" in text) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert leader.driver.log_end_offset == end_offset


def test_a_leader_changes_no_voter_before_it_has_committed_a_record_of_its_epoch() -> None:
    """It may not know of the latest committed set: a majority of the set that it makes may have no member in
    common with one of that."""
    voters = tuple(Voter(id, b"%d" % id * 16, f"c{id}", 9000 + id) for id in (1, 2, 3))
    state = QuorumState(1, None, None, b"2" * 16, kraft_version=1)
    directories = VoterDirectories([(0, {voter.voter_id: voter.directory_id for voter in voters})])
    sets = VoterSets([(0, voters)])
    node = RaftNode(make_config(2, (1, 2, 3)), LowRandom(), state, shape_of("1:5"), directories, sets=sets)
    node.handle(Start(), 0)
    now_ms = 0
    while not node.is_leader:
        now_ms += 1
        for effect in node.handle(Tick(), now_ms):
            if isinstance(effect, Send) and isinstance(effect.request, VoteRequest):
                directory_id = effect.request.voter_directory_id
                assert directory_id == b"%d" % effect.voter_id * 16, "it asks those whom its log names"
                answer = VoteResponse(ErrorCode.NONE, None, effect.request.raft_epoch, -1, True, directory_id)
                pending = node.handle(Answered(effect.request_id, answer), now_ms)
                for more in pending:
                    if isinstance(more, Send) and isinstance(more.request, VoteRequest):
                        granted = replace(answer, raft_epoch=more.request.raft_epoch)
                        granted = replace(granted, directory_id=more.request.voter_directory_id)
                        node.handle(Answered(more.request_id, granted), now_ms)
    answer = _answer(node, RemoveRaftVoterRequest(3, None))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "has committed no record of its epoch yet" in answer.error_message


async def test_a_removed_voter_is_not_added_again_by_what_its_old_disk_said(cluster: Changing) -> None:
    """Else a disk that is gone would be a voter again, before the new one has come."""
    leader = await cluster.upgraded()
    lost = next(cluster[id] for id in (1, 2, 3) if id != leader.id)
    await wipe(lost)
    leader = await cluster.remove(leader, lost.id)
    again = AddRaftVoterRequest(lost.id, None, f"localhost:{9000 + lost.id}")
    code, text = await code_of(cluster, leader, again)
    assert (code, "start it, and ask again" in text) == (ErrorCode.REQUEST_TIMED_OUT, True)
    await lost.boot()
    leader = await cluster.change(leader, again)
    await next(cluster[id] for id in (1, 2, 3) if id not in (leader.id, lost.id)).kill()
    await write(cluster, leader, b"by both")
