"""What a voter should say before, at and after an election, and how long it should wait, worked out once more
(K2, K4, K6, K7, D9).

Owns a second opinion: sentences about where the voter differs.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.protocol.messages.fetch import FetchRequest
from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.effects import Answered, RequestReceived, Send, SendFailed
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.roles import Candidate, Follower, Prospective, Resigned
from holdfast.rpc.core.failures import CallFailure

#: so many equal ones of hundreds are no chance
_EQUAL_MAX = 3


class Elections:
    """Of one voter's process."""

    def __init__(self, voter: RaftNode) -> None:
        self._voter = voter
        config = voter._config
        self._own_id, self._voters = config.node_id, config.voters
        #: longest turn of a voter when a leader is surely gone, or its back-off when it has lost since
        self._hurry_ms = max(
            (len(config.voters) + 1) * config.backoff_step_ms, config.election_backoff_max_ms
        )
        self._role: type | None = None
        #: the pre-votes of this round: {request: whom it asks}, and who has granted one
        self._asked: dict[int, int] = {}
        self._granted: set[int] = set()
        #: the last epoch that it has run for
        self._ran_for = -1
        #: of the newest fetch: an answer to an older one, before it knew its leader, says nothing
        self.fetch_id = -1
        #: whom it asks, and in which epoch
        self._fetches_from = -1, -1

    def differs(self, event: Any, effects: Sequence[Any], now_ms: int) -> list[str]:
        """What is wrong with what an event has led to."""
        former, self._role = self._role, type(self._voter._member.role)
        if type(event) is Answered and type(event.response) is VoteResponse and event.response.vote_granted:
            if event.request_id in self._asked:
                self._granted.add(self._asked[event.request_id])
        if self._role is not former and self._role is Prospective:
            self._asked, self._granted = {}, {self._own_id}
        found: list[str] = []
        if type(event) is SendFailed or type(event) is RequestReceived:
            found += self._not_in_a_hurry(event, now_ms)
        for effect in effects:
            if type(effect) is Send:
                if type(effect.request) is FetchRequest:
                    self.fetch_id = effect.request_id
                    self._fetches_from = effect.voter_id, self._voter.raft_epoch
                elif type(effect.request) is VoteRequest and (text := self._asks(effect)) is not None:
                    found.append(text)
        if former is not None and self._role is not former:
            found += self._not_told(effects)
        return found

    def _asks(self, send: Send) -> str | None:
        request = send.request
        assert isinstance(request, VoteRequest)
        if request.pre_vote:
            self._asked[send.request_id] = send.voter_id
            return None
        if request.raft_epoch <= self._ran_for:
            return None
        self._ran_for = request.raft_epoch
        if 2 * len(self._granted) > len(self._voters):
            return None
        return f"runs for epoch {request.raft_epoch}, supported by {sorted(self._granted)} only (K4)"

    def _not_told(self, effects: Sequence[Any]) -> list[str]:
        """A leader tells all other voters, and so does a leader that resigns (K6)."""
        if self._role not in (Leader, Resigned):
            return []
        kind = BeginQuorumEpochRequest if self._role is Leader else EndQuorumEpochRequest
        told = {
            effect.voter_id for effect in effects if type(effect) is Send and type(effect.request) is kind
        }
        left = [one for one in self._voters if one != self._own_id and one not in told]
        return [f"does not send {kind.__name__} to {left} (K6)"] if left else []

    def _not_in_a_hurry(self, event: Any, now_ms: int) -> list[str]:
        """No voter waits for a leader that has said that it leads no more, or whose process is gone (D9)."""
        role = self._voter._member.role
        if not isinstance(role, Follower) or role.deadline_ms is None:
            return []
        is_gone = False
        if type(event) is RequestReceived and type(event.request) is EndQuorumEpochRequest:
            asked = event.request
            is_gone = (asked.leader_id, asked.raft_epoch) == (role.leader_id, self._voter.raft_epoch)
        elif type(event) is SendFailed and event.failure is CallFailure.REFUSED:
            is_its = self._fetches_from == (role.leader_id, self._voter.raft_epoch)
            is_gone = event.request_id == self.fetch_id and is_its
        wait_ms = role.deadline_ms - now_ms
        if not is_gone or wait_ms <= self._hurry_ms:
            return []
        return [f"waits for {wait_ms} ms for {role.leader_id}, which is gone (D9)"]


class Waits:
    """How long one voter waits for a leader, for an election, and before it tries again (K2, K7)."""

    def __init__(self, voter: RaftNode) -> None:
        self._voter = voter
        self._config = voter._config
        self._role: Any = None
        #: times for elections
        self._drawn: list[int] = []

    def differs(self, now_ms: int) -> list[str]:
        """What is wrong with the time that it has from now on."""
        role, former = self._voter._member.role, self._role
        self._role = role
        # who starts has its turn by rank (D9)
        if former is None or isinstance(role, Leader) or role.deadline_ms is None:
            return []
        wait_ms, config = role.deadline_ms - now_ms, self._config
        if isinstance(role, Follower):
            return self._too_long(wait_ms, config.fetch_timeout_ms)
        if isinstance(role, Candidate) and role.is_backing_off:
            return self._too_long(wait_ms, config.election_backoff_max_ms)
        if role is former or len(config.voters) == 1:
            return []
        self._drawn.append(wait_ms)
        if wait_ms < config.election_timeout_ms:
            return [f"waits for {wait_ms} ms only, as {type(role).__name__} (K7)"]
        if len(self._drawn) > _EQUAL_MAX and len({*self._drawn}) == 1:
            return [f"has waited for {wait_ms} ms each time: no voter may win an election (K7)"]
        return self._too_long(wait_ms, 2 * config.election_timeout_ms)

    def _too_long(self, wait_ms: int, most_ms: int) -> list[str]:
        name = type(self._role).__name__
        return [] if wait_ms <= most_ms else [f"waits for {wait_ms} ms, as {name} (K7)"]
