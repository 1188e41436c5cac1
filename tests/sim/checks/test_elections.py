"""The second opinion on elections: what voters ask and tell (K4, K6), whom they do not wait for (D9)."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.effects import Answered, RequestReceived, Send, SendFailed, Tick
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.roles import Candidate, Follower, Prospective, Resigned, Unattached
from holdfast.rpc.core.failures import CallFailure
from holdfast.sim.checks.opinions.elections import Elections, Waits
from tests.sim.checks.test_quorum import fetch

HURRY_MS = 500


class Voter:
    """Voter 101 of three, in a role, in epoch 5."""

    def __init__(self, role: Any) -> None:
        self._config = SimpleNamespace(
            node_id=101, voters=(101, 102, 103), backoff_step_ms=20, election_backoff_max_ms=HURRY_MS
        )
        self._member = SimpleNamespace(role=role)
        self.raft_epoch = 5
        self._elections = Elections(self)  # type: ignore[arg-type]
        #: what is wrong with what it has done
        self.wrong: list[str] = []
        self.does(Tick())

    def does(self, event: Any, *sends: Send, becomes: Any = None, now_ms: int = 0) -> None:
        if becomes is not None:
            self._member.role = becomes
        self.wrong += self._elections.differs(event, sends, now_ms)


def a(role: type) -> Any:
    """One in that role, of which nothing else counts."""
    return object.__new__(role)


def vote(request_id: int, voter: int, epoch: int = 5, *, pre_vote: bool = True) -> Send:
    """A question for support."""
    return Send(request_id, voter, VoteRequest("c", epoch, 101, voter, 5, 10, pre_vote), 500)


def answer(request_id: int, *, granted: bool = True) -> Answered:
    """To such a question."""
    return Answered(request_id, VoteResponse(0, None, 5, -1, granted))


RUNS = vote(9, 102, 6, pre_vote=False)


@pytest.mark.parametrize(
    ("answers", "is_wrong"),
    [([answer(1)], False), ([answer(1, granted=False)], True), ([], True), ([answer(4)], True)],
    ids=[
        "one more is a majority",
        "it was refused",
        "no voter has answered",
        "an answer to another question",
    ],
)
def test_no_voter_runs_without_the_support_of_a_majority_k4(answers: list[Answered], is_wrong: bool) -> None:
    voter = Voter(a(Unattached))
    voter.does(Tick(), vote(1, 102), vote(2, 103), becomes=a(Prospective))
    for one in answers:
        voter.does(one)
    voter.does(Tick(), RUNS, becomes=a(Candidate))
    assert bool(voter.wrong) is is_wrong
    voter.wrong.clear()
    voter.does(Tick(), RUNS)
    assert not voter.wrong  # it is asked for the same epoch again


def test_support_of_a_former_round_is_none_k4() -> None:
    voter = Voter(a(Unattached))
    voter.does(Tick(), vote(1, 102), becomes=a(Prospective))
    voter.does(answer(1))
    voter.does(Tick(), becomes=a(Unattached))
    voter.does(Tick(), vote(3, 102), becomes=a(Prospective))
    voter.does(Tick(), RUNS, becomes=a(Candidate))
    assert voter.wrong == ["runs for epoch 6, supported by [101] only (K4)"]


@pytest.mark.parametrize(
    ("former", "role", "told"),
    [
        (Candidate, Leader, BeginQuorumEpochRequest("c", 101, 5, 102)),
        (Leader, Resigned, EndQuorumEpochRequest("c", 101, 5, (103,))),
    ],
)
def test_who_leads_and_who_leads_no_more_tells_all_voters_k6(former: type, role: type, told: Any) -> None:
    voter = Voter(a(former))
    voter.does(Tick(), Send(1, 102, told, 500), becomes=a(role))
    assert voter.wrong == [f"does not send {type(told).__name__} to [103] (K6)"]
    other = Voter(a(former))
    other.does(Tick(), Send(1, 102, told, 500), Send(2, 103, told, 500), becomes=a(role))
    assert not other.wrong


@pytest.mark.parametrize(
    ("event", "is_gone"),
    [
        (RequestReceived(1, EndQuorumEpochRequest("c", 102, 5, (103,))), True),
        (RequestReceived(1, EndQuorumEpochRequest("c", 102, 4, (103,))), False),
        (RequestReceived(1, EndQuorumEpochRequest("c", 103, 5, (101,))), False),
        (SendFailed(8, CallFailure.REFUSED), True),
        (SendFailed(7, CallFailure.REFUSED), False),
        (SendFailed(8, CallFailure.TIMED_OUT), False),
    ],
    ids=[
        "it resigns",
        "of a former epoch",
        "of another leader",
        "its process is gone",
        "an older fetch",
        "silence",
    ],
)
@pytest.mark.parametrize("wait_ms", [HURRY_MS, HURRY_MS + 1])
def test_no_node_waits_for_a_leader_that_is_gone_d9(event: Any, is_gone: bool, wait_ms: int) -> None:
    voter = Voter(Follower(102, 100 + wait_ms))
    voter.does(Tick(), Send(8, 102, fetch(101).request, 500))
    voter.does(event, now_ms=100)
    assert bool(voter.wrong) is (is_gone and wait_ms > HURRY_MS)


class Waiting:
    """Voter 101 of three: 500 to 1000 ms for an election, 800 for its leader, 300 for a pause."""

    def __init__(self, voters: int = 3) -> None:
        self._config = SimpleNamespace(
            voters=tuple(range(101, 101 + voters)),
            election_timeout_ms=500,
            fetch_timeout_ms=800,
            election_backoff_max_ms=300,
        )
        self._member = SimpleNamespace(role=a(Leader))
        self._waits = Waits(self)  # type: ignore[arg-type]
        self.wrong = self._waits.differs(0)

    def has(self, role: type, wait_ms: int | None, now_ms: int = 70, *, pauses: bool = False) -> bool:
        """A new role; whether something is wrong with its deadline."""
        self._member.role = a(role)
        self._member.role.deadline_ms = None if wait_ms is None else now_ms + wait_ms
        if role is Candidate:
            self._member.role.is_backing_off = pauses
        self.wrong += (found := self._waits.differs(now_ms))
        return bool(found)


@pytest.mark.parametrize("role", [Unattached, Prospective, Candidate, Resigned])
@pytest.mark.parametrize(("wait_ms", "is_wrong"), [(499, True), (500, False), (1_000, False), (1_001, True)])
def test_a_voter_has_its_time_for_an_election_k7(role: type, wait_ms: int, is_wrong: bool) -> None:
    assert Waiting().has(role, wait_ms) is is_wrong


@pytest.mark.parametrize(
    ("role", "pauses", "wait_ms", "is_wrong"),
    [
        (Follower, False, 800, False),
        (Follower, False, 801, True),
        (Follower, False, 5, False),
        (Candidate, True, 300, False),
        (Candidate, True, 301, True),
        (Candidate, True, 1, False),
        (Unattached, False, None, False),
    ],
    ids=["leader", "too long", "gone", "pause", "too long a pause", "a short one", "an observer"],
)
def test_a_voter_does_not_wait_too_long_for_its_leader_and_after_an_election_k2(
    role: type, pauses: bool, wait_ms: int | None, is_wrong: bool
) -> None:
    assert Waiting().has(role, wait_ms, pauses=pauses) is is_wrong


@pytest.mark.parametrize(("last_ms", "is_wrong"), [(600, True), (601, False)])
def test_times_for_elections_are_drawn_k7(last_ms: int, is_wrong: bool) -> None:
    voter = Waiting()
    assert not any(voter.has(role, 600) for role in (Unattached, Prospective, Candidate))
    assert voter.has(Prospective, last_ms) is is_wrong


def test_one_deadline_is_one_draw_k7() -> None:
    voter = Waiting()
    assert not voter.has(Unattached, 600)
    assert not any(voter._waits.differs(now_ms) for now_ms in range(70, 600))


def test_a_voter_alone_waits_for_no_other() -> None:
    assert not Waiting(voters=1).has(Prospective, 0)
