"""K30: voters of which the log has two directories, or that it names no more."""

from typing import Any

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.control_records import Voter, VoterNews
from holdfast.raft.core.effects import Answered, Effect, Persist, Reply, RequestReceived, Send, Start, Tick
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import QuorumState
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.scenario.raft import LowRandom, make_config, shape_of


def voter(voter_id: int, directory: bytes | None = None) -> Voter:
    return Voter(voter_id, (directory or b"%d" % voter_id) * 16, f"c{voter_id}", 9000 + voter_id)


FOUR = tuple(map(voter, (1, 2, 3, 4)))
WITHOUT_4 = FOUR[:3]


def start(node_id: int, state: QuorumState | None = None, sets: VoterSets | None = None) -> RaftNode:
    """A voter whose log ends with the removal of voter 4."""
    state = state or QuorumState(1, None, None, b"%d" % node_id * 16, kraft_version=1)
    sets = sets or VoterSets([(0, FOUR), (5, WITHOUT_4)])
    node = RaftNode(make_config(node_id, (1, 2, 3, 4)), LowRandom(), state, shape_of("1:6"), sets=sets)
    node.handle(Start(), 0)
    return node


def ask(node: RaftNode, request: Any) -> tuple[Any, list[Effect]]:
    """The answer, and all effects."""
    effects = node.handle(RequestReceived(1, request), node.now_ms)
    return next(effect.response for effect in effects if isinstance(effect, Reply)), effects


def vote_request(candidate_id: int, directory_id: bytes | None) -> VoteRequest:
    return VoteRequest("test", 2, candidate_id, 2, 1, 6, False, directory_id, voter_directory_id=b"2" * 16)


def test_two_directories_of_one_voter_do_not_both_get_a_vote_of_one_epoch() -> None:
    """The voter was replaced, its old disk runs on, and this log ends before the new one: each names this
    voter, so each could lead the epoch."""
    node = start(2)
    answer, effects = ask(node, vote_request(4, b"X" * 16))
    assert answer.vote_granted
    (state,) = [effect.state for effect in effects if isinstance(effect, Persist)]
    assert (state.voted_for, state.voted_directory) == (4, b"X" * 16)
    assert not ask(node, vote_request(4, b"Y" * 16))[0].vote_granted

    again = start(2, QuorumState.from_json(state.to_json("c"), "c"))
    assert not ask(again, vote_request(4, b"Y" * 16))[0].vote_granted
    assert ask(again, vote_request(4, b"X" * 16))[0].vote_granted


@pytest.mark.parametrize(
    ("candidate_id", "directory_id"), [(-1, b"X" * 16), (-5, b"X" * 16), (2, b"X" * 16), (4, None)]
)
def test_a_candidate_that_is_no_other_node_gets_no_vote(
    candidate_id: int, directory_id: bytes | None
) -> None:
    """Such a vote in the file is no vote, or one that two could have."""
    node = start(2)
    answer, _ = ask(node, vote_request(candidate_id, directory_id))
    assert (answer.error_code, answer.vote_granted) == (ErrorCode.INVALID_REQUEST, False)
    assert node.raft_epoch == 1


def test_a_leader_that_the_log_leaves_out_is_followed_where_it_says_where_it_is() -> None:
    """It has the removal of itself, which others lack, and is to bring it to them."""
    answer, _ = ask(start(2), BeginQuorumEpochRequest("test", 4, 2, 2, None))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "does not say where it is reached" in answer.error_message
    node = start(2)
    assert ask(node, BeginQuorumEpochRequest("test", 4, 2, 2, "c4:9004"))[0].error_code == ErrorCode.NONE
    assert node.leader_id == 4


def test_the_resignation_of_a_stranger_ends_no_epoch() -> None:
    node = start(2)
    answer, _ = ask(node, EndQuorumEpochRequest("test", 9, 5, (2,)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert node.raft_epoch == 1


def test_a_leader_that_has_removed_itself_resigns() -> None:
    node = start(2)
    ask(node, BeginQuorumEpochRequest("test", 4, 2, 2, "c4:9004"))
    assert ask(node, EndQuorumEpochRequest("test", 4, 2, (2,)))[0].error_code == ErrorCode.NONE
    assert node.leader_id is None


def test_a_leader_that_has_removed_itself_resigns_though_it_never_said_where_it_is() -> None:
    """The configuration did, before the upgrade: the log named no voters then."""
    node = start(2, QuorumState(1, None, None, b"2" * 16), VoterSets())
    ask(node, BeginQuorumEpochRequest("test", 4, 2, 2, None))
    node._member.hear(6, VoterNews({}, 1, FOUR))
    node._member.hear(7, VoterNews({}, voters=WITHOUT_4))
    assert node.leader_id == 4
    assert ask(node, EndQuorumEpochRequest("test", 4, 2, (2,)))[0].error_code == ErrorCode.NONE
    assert node.leader_id is None


def test_a_leader_that_its_own_log_leaves_out_says_where_it_is() -> None:
    leader, now_ms = start(4), 0
    begins: list[BeginQuorumEpochRequest] = []
    while not begins:
        now_ms += 1
        effects = leader.handle(Tick(), now_ms)
        while effects:
            effect = effects.pop(0)
            match effect:
                case Send(request_id, _, VoteRequest() as request):
                    directory_id = request.voter_directory_id
                    granted = VoteResponse(ErrorCode.NONE, None, request.raft_epoch, -1, True, directory_id)
                    effects += leader.handle(Answered(request_id, granted), now_ms)
                case Send(_, _, BeginQuorumEpochRequest() as request):
                    begins.append(request)
    assert leader.is_leader
    assert [(begin.voter_id, begin.leader_endpoint) for begin in begins] == [
        (id, "c4:9004") for id in (1, 2, 3)
    ]
