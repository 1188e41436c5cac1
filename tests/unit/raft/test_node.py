"""The node as a whole, one test a rule; what reads better as a story is in tests/scenarios/raft."""

from collections.abc import Sequence

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import EndQuorumEpochRequest, VoteRequest, VoteResponse
from holdfast.raft.core.effects import (
    Answered,
    AppendFetched,
    Committed,
    Flushed,
    Persist,
    Persisted,
    Propose,
    Reply,
    RequestReceived,
    Send,
    SendFailed,
    Start,
    Tick,
    Truncate,
    Truncated,
)
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import BadQuorumState, QuorumState
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine
from holdfast.scenario.raft import (
    CLUSTER_ID,
    LowRandom,
    batches,
    fetch_request,
    fetch_response,
    make_config,
    shape_of,
)

#: voter 2 follows leader 1 in epoch 4
FOLLOWING = QuorumState(4, None, 1)


def make_node(state: QuorumState = FOLLOWING, log: str = "4:3") -> tuple[RaftNode, list[Send]]:
    """Voter 2 of three, started, and what it sent first."""
    node = RaftNode(make_config(2, (1, 2, 3)), LowRandom(), state, shape_of(log))
    return node, [effect for effect in node.handle(Start(), 0) if isinstance(effect, Send)]


def sends(effects: Sequence[object]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def vote(epoch: int, candidate_id: int = 3) -> VoteRequest:
    return VoteRequest(CLUSTER_ID, epoch, candidate_id, 2, 4, 99, False)


def test_an_answer_waits_for_a_state_that_is_being_written_already() -> None:
    """Q-9: a repeated vote request must not be answered ahead of the write that the first one caused."""
    node, _ = make_node()
    first = node.handle(RequestReceived(1, vote(5)), 1)
    again = node.handle(RequestReceived(2, vote(5)), 2)
    for effects in (first, again):
        kinds = [type(effect) for effect in effects if isinstance(effect, (Persist, Reply, Send))]
        assert kinds[0] is Persist
    node.handle(Persisted(QuorumState(5, 3)), 3)
    assert not [e for e in node.handle(RequestReceived(3, vote(5)), 4) if isinstance(e, Persist)]


def test_an_older_state_on_disk_is_not_enough() -> None:
    """Q-9."""
    node, _ = make_node()
    node.handle(RequestReceived(1, vote(5)), 1)
    node.handle(RequestReceived(2, vote(6, candidate_id=1)), 2)
    node.handle(Persisted(QuorumState(5, 3)), 3)
    effects = node.handle(RequestReceived(3, vote(6, candidate_id=1)), 4)
    assert isinstance(effects[0], Persist)
    assert effects[0].state == QuorumState(6, 1)


def test_epochs_in_the_log_count_even_if_the_file_is_behind() -> None:
    """Q-6, N-1: an epoch that has records is never led again. A sole voter appends before that
    is written."""
    node = RaftNode(make_config(1, (1,)), LowRandom(), QuorumState(3, 1, None), shape_of("4:3"))
    assert node.raft_epoch == 4
    assert node.snapshot().voted_for is None


@pytest.mark.parametrize("state", [QuorumState(), QuorumState(3, 1, None)])
def test_a_voter_whose_file_is_lost_does_not_start_for_it_may_have_voted(state: QuorumState) -> None:
    """Q-9, K5: its epoch was on disk before its first record. No file reads as a fresh state."""
    with pytest.raises(BadQuorumState, match="put the file back"):
        make_node(state, log="4:3")


def test_an_observer_starts_without_a_file_for_it_never_votes() -> None:
    node = RaftNode(make_config(101, (1, 2, 3), is_voter=False), LowRandom(), QuorumState(), shape_of("4:3"))
    assert node.raft_epoch == 4


def answer_of_a_voter(fetch: Send) -> FetchResponse:
    """Voter 1 leads epoch 4 and 2 follows it; 3 is a candidate in epoch 5 that the others cannot hear."""
    assert isinstance(fetch.request, FetchRequest)
    asked_epoch = fetch.request.partitions[0].current_leader_epoch
    if fetch.voter_id == 3:
        return fetch_response(-1, 5, error=ErrorCode.FENCED_LEADER_EPOCH)
    if asked_epoch > 4:
        return fetch_response(1, 4, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
    if fetch.voter_id == 2:
        return fetch_response(1, 4, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return fetch_response(1, 4, high_watermark=3)


@pytest.mark.parametrize(
    "known", [QuorumState(4, None, 1), QuorumState(3)], ids=["knows 1", "knows no leader"]
)
@pytest.mark.parametrize("lost_fetches", [0, 1, 2, 3])
def test_an_observer_follows_the_leader_of_a_majority_though_a_voter_is_in_a_later_epoch(
    known: QuorumState, lost_fetches: int
) -> None:
    """The leader of a majority serves no fetch of a later epoch than its own, and has no reason to resign."""
    node = RaftNode(make_config(101, (1, 2, 3), is_voter=False), LowRandom(), known, shape_of("4:3"))
    effects, now_ms, asked = node.handle(Start(), 0), 0, 0
    for _ in range(20):
        fetches = sends(effects)
        if fetches and asked < lost_fetches:
            effects = node.handle(SendFailed(fetches[0].request_id, CallFailure.TIMED_OUT), now_ms)
        elif fetches:
            effects = node.handle(Answered(fetches[0].request_id, answer_of_a_voter(fetches[0])), now_ms)
        else:
            now_ms = max(now_ms, node.next_deadline_ms() or 0)
            effects = node.handle(Tick(), now_ms)
        asked += len(fetches)
    assert (node.leader_id, node.raft_epoch, node.high_watermark) == (1, 4, 3)


def test_an_observer_follows_the_leader_of_a_later_epoch() -> None:
    node = RaftNode(make_config(101, (1, 2, 3), is_voter=False), LowRandom(), FOLLOWING, shape_of("4:3"))
    (fetch,) = sends(node.handle(Start(), 0))
    named = fetch_response(3, 6, error=ErrorCode.FENCED_LEADER_EPOCH)
    (fetch,) = sends(node.handle(Answered(fetch.request_id, named), 1))
    assert (fetch.voter_id, node.raft_epoch, node.leader_id) == (3, 6, 3)


def test_late_answer_to_an_earlier_fetch_changes_nothing() -> None:
    """N-4: it may even come from a leader of the same epoch."""
    node, (first,) = make_node()
    (second,) = sends(node.handle(SendFailed(first.request_id, CallFailure.TIMED_OUT), 10))
    late = fetch_response(1, 4, records=batches(3, "4:1"), high_watermark=4)
    assert node.handle(Answered(first.request_id, late), 20) == []
    effects = node.handle(Answered(second.request_id, late), 30)
    assert [e for e in effects if isinstance(e, AppendFetched)]


def test_high_watermark_never_passes_the_own_log() -> None:
    node, (fetch,) = make_node()
    effects = node.handle(Answered(fetch.request_id, fetch_response(1, 4, high_watermark=50)), 1)
    assert [e for e in effects if isinstance(e, Committed)] == [Committed(3)]


def test_a_cut_below_the_high_watermark_is_refused() -> None:
    """K14: no leader can take back committed records. The next leader is followed again."""
    node, (fetch,) = make_node()
    effects = node.handle(Answered(fetch.request_id, fetch_response(1, 4, high_watermark=3)), 1)
    (fetch,) = sends(effects)
    effects = node.handle(Answered(fetch.request_id, fetch_response(1, 4, diverging=(4, 2))), 2)
    assert not [e for e in effects if isinstance(e, Truncate)]
    assert any("below the high watermark" in e.text for e in effects if isinstance(e, LogLine))
    assert node.log_end_offset == 3
    (again,) = sends(effects)
    effects = node.handle(Answered(again.request_id, fetch_response(1, 4, high_watermark=3)), 3)
    assert node.snapshot().role == "Follower"


def test_no_voter_runs_for_office_while_its_log_is_being_cut() -> None:
    """An append of a new leader must not meet a file that is being cut."""
    node, (fetch,) = make_node()
    effects = node.handle(Answered(fetch.request_id, fetch_response(1, 4, diverging=(4, 1))), 1)
    assert [e for e in effects if isinstance(e, Truncate)] == [Truncate(1)]
    assert node.handle(Tick(), 60_000) == []
    assert node.next_deadline_ms() is None
    node.handle(Truncated(1), 60_001)
    assert node.snapshot().role == "Prospective"


def test_voter_fetches_again_only_when_all_is_flushed() -> None:
    """K11: in any role that fetches, also when the records came from an own leadership."""
    node, (fetch,) = make_node()
    answer = fetch_response(1, 4, records=batches(3, "4:2"), high_watermark=3)
    assert not sends(node.handle(Answered(fetch.request_id, answer), 1))
    assert not sends(node.handle(Flushed(4), 2))
    (fetch,) = sends(node.handle(Flushed(5), 3))
    assert isinstance(fetch.request, FetchRequest)
    assert fetch.request.partitions[0].fetch_offset == 5


def test_answer_of_another_leader_is_not_appended() -> None:
    """A-15: only the leader of the epoch is a source of records."""
    node, (fetch,) = make_node(state=QuorumState(4))
    assert fetch.voter_id == 3
    foreign = fetch_response(1, 4, records=batches(3, "4:1"))
    effects = node.handle(Answered(fetch.request_id, foreign), 1)
    assert not [e for e in effects if isinstance(e, AppendFetched)]
    assert node.leader_id == 1


def test_a_step_behind_the_epoch_of_the_log_is_unbelievable() -> None:
    """An answer in another epoch than the fetch is no data of this leader."""
    node, (fetch,) = make_node()
    stale = fetch_response(1, 3, records=batches(3, "4:1"))
    effects = node.handle(Answered(fetch.request_id, stale), 1)
    assert not [e for e in effects if isinstance(e, AppendFetched)]


def test_who_asks_for_pre_votes_already_remembers_that_the_leader_is_gone_d9() -> None:
    """Else it would wait a whole fetch timeout for that leader once its pre-votes are lost."""
    node, _ = make_node()
    now_ms = node.next_deadline_ms() or 0
    node.handle(Tick(), now_ms)
    assert node.snapshot().role == "Prospective"
    node.handle(RequestReceived(9, EndQuorumEpochRequest(CLUSTER_ID, 1, 4, (3, 2))), now_ms + 1)
    while node.snapshot().role == "Prospective":
        now_ms += 10
        node.handle(Tick(), now_ms)
    assert node.snapshot().role == "Follower"
    left_ms = (node.next_deadline_ms() or 0) - now_ms
    assert left_ms <= node._config.election_backoff_max_ms < node._config.fetch_timeout_ms


def test_time_never_runs_backwards() -> None:
    node, _ = make_node()
    node.handle(Tick(), 10)
    with pytest.raises(AssertionError):
        node.handle(Tick(), 9)


def test_only_a_leader_appends() -> None:
    """A-15."""
    node, _ = make_node()
    with pytest.raises(AssertionError):
        node.handle(Propose((b"a",)), 1)


def test_leader_that_steps_down_answers_what_it_had_parked() -> None:
    """No peer waits for an answer that will not come."""
    node = RaftNode(make_config(2, (1, 2, 3)), LowRandom(), QuorumState(4), LogShape([], 0))
    node.handle(Start(), 0)
    effects = node.handle(Tick(), 100)
    for role in ("Prospective", "Candidate"):
        assert node.snapshot().role == role
        request = next(s for s in sends(effects) if isinstance(s.request, VoteRequest))
        granted = VoteResponse(ErrorCode.NONE, None, node.raft_epoch, -1, True)
        effects = node.handle(Answered(request.request_id, granted), 101)
    assert node.is_leader
    node.handle(Flushed(1), 102)
    node.handle(RequestReceived(1, fetch_request(3, 5, 0, -1)), 103)
    node.handle(RequestReceived(2, fetch_request(3, 5, 1, 5)), 104)
    node.handle(RequestReceived(3, fetch_request(3, 5, 1, 5)), 105)
    effects = node.handle(RequestReceived(4, vote(9)), 106)
    replies = [e for e in effects if isinstance(e, Reply)]
    assert [reply.token for reply in replies] == [3, 4]
    assert isinstance(replies[0].response, FetchResponse)
    assert replies[0].response.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
