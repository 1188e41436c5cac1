from dataclasses import replace

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest
from holdfast.raft.core import answers
from holdfast.raft.core.quorum import QuorumState
from holdfast.scenario.raft import CLUSTER_ID, fetch_request, make_config

CONFIG = make_config(1, (1, 2, 3))
STATE = QuorumState(5, None, 3)
VOTE = VoteRequest(CLUSTER_ID, 6, 2, 1, 5, 10, False)
BEGIN = BeginQuorumEpochRequest(CLUSTER_ID, 2, 6, 1)
END = EndQuorumEpochRequest(CLUSTER_ID, 3, 5, (1, 2))
FETCH = fetch_request(2, 5, 10, 5)


def code(refusal: answers.Refusal | None) -> ErrorCode:
    """The error of a refusal, which always says what to do."""
    if refusal is None:
        return ErrorCode.NONE
    assert len(refusal[1]) > 20
    return refusal[0]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (VOTE, ErrorCode.NONE),
        (replace(VOTE, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (replace(VOTE, voter_id=2), ErrorCode.INVALID_VOTER_KEY),
        (replace(VOTE, candidate_id=1), ErrorCode.INVALID_REQUEST),
        (replace(VOTE, candidate_id=9), ErrorCode.INVALID_REQUEST),
        (replace(VOTE, last_epoch=6), ErrorCode.INVALID_REQUEST),
        (replace(VOTE, last_epoch=6, pre_vote=True), ErrorCode.NONE),
        (replace(VOTE, last_epoch=7, pre_vote=True), ErrorCode.INVALID_REQUEST),
        (replace(VOTE, last_epoch=-1), ErrorCode.INVALID_REQUEST),
        (replace(VOTE, last_epoch_end_offset=-1), ErrorCode.INVALID_REQUEST),
        (replace(VOTE, raft_epoch=4, last_epoch=3), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_votes_are_asked_for_properly_or_refused(request_: VoteRequest, expected: ErrorCode) -> None:
    """K6."""
    assert code(answers.check_vote(request_, CONFIG, STATE.raft_epoch)) == expected


def test_observer_has_no_vote() -> None:
    observer = make_config(7, (1, 2, 3), is_voter=False)
    assert code(answers.check_vote(replace(VOTE, voter_id=7), observer, 5)) == ErrorCode.INVALID_VOTER_KEY


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (BEGIN, ErrorCode.NONE),
        (replace(BEGIN, leader_id=3, raft_epoch=5), ErrorCode.NONE),
        (replace(BEGIN, raft_epoch=5), ErrorCode.INVALID_REQUEST),
        (replace(BEGIN, raft_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(BEGIN, leader_id=9), ErrorCode.INVALID_REQUEST),
        (replace(BEGIN, voter_id=3), ErrorCode.INVALID_VOTER_KEY),
        (replace(BEGIN, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_leaders_are_accepted_once_an_epoch(request_: BeginQuorumEpochRequest, expected: ErrorCode) -> None:
    assert code(answers.check_begin(request_, CONFIG, STATE)) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (END, ErrorCode.NONE),
        (replace(END, leader_id=2), ErrorCode.INVALID_REQUEST),
        (replace(END, raft_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(END, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_resignations_come_from_the_leader(request_: EndQuorumEpochRequest, expected: ErrorCode) -> None:
    assert code(answers.check_end(request_, CONFIG, STATE)) == expected


def test_fetches_are_complete_or_refused() -> None:
    """K10."""
    row = FETCH.partitions[0]
    assert code(answers.check_fetch(FETCH, CONFIG)) == ErrorCode.NONE
    for request, expected in (
        (replace(FETCH, cluster_id=None), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (replace(FETCH, replica_id=-2), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, voter_ids=(1, 2, 3)), ErrorCode.NONE),
        (replace(FETCH, voter_ids=(1,)), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, voter_ids=(1, 2, 3, 4)), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, replica_id=1), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, partitions=()), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, partitions=(row, row)), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, partitions=(replace(row, topic_id=bytes(16)),)), ErrorCode.UNKNOWN_TOPIC_ID),
        (replace(FETCH, partitions=(replace(row, fetch_offset=-1),)), ErrorCode.INVALID_REQUEST),
        (replace(FETCH, partitions=(replace(row, last_fetched_epoch=-1),)), ErrorCode.INVALID_REQUEST),
    ):
        assert code(answers.check_fetch(request, CONFIG)) == expected
