"""What a voter says to others, where its driver says it: what it promises is on its disk by then (Q-9).

Owns the tap, and sentences about promises that a crash would take back.
"""

from typing import Any

from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import VoteRequest, VoteResponse
from holdfast.raft.core.effects import Effect, Event, Reply, Send
from holdfast.raft.core.quorum import QuorumState
from holdfast.raft.driver import RaftDriver
from holdfast.runtime.pump import Tap
from holdfast.sim.checks.observe.taps import TapRecord
from holdfast.sim.checks.observe.views import About


class SpeechTap(Tap[Event, Effect]):
    """Notes what a driver says too early."""

    def __init__(self, driver: RaftDriver, heard: TapRecord) -> None:
        self._driver = driver
        self._heard = heard

    def sending(self, effect: Any, message: Any) -> None:
        driver = self._driver
        durable = driver._state_file._durable
        if durable is not None:
            exchange = driver._exchanges.get(effect.token) if type(effect) is Reply else None
            why = why_too_early(effect, None if exchange is None else exchange.message, durable)
            if why is not None:
                self._heard.differs.append((About.SPEAKING, why))


def why_too_early(effect: Send | Reply, asked: object, durable: QuorumState) -> str | None:
    """What this says that is not durable; `asked`: what a Reply answers."""
    said: Any = effect.request if isinstance(effect, Send) else effect.response
    if _epoch(said) > durable.raft_epoch:
        return f"says {said}, on its disk is {durable}"
    # once the epoch has a leader the vote counts no more
    if type(said) is VoteResponse and said.vote_granted and durable.leader_id is None:
        assert isinstance(asked, VoteRequest)
        is_promised = durable.raft_epoch > asked.raft_epoch or durable.voted_for == asked.candidate_id
        if not asked.pre_vote and not is_promised:
            return f"votes for {asked.candidate_id} in epoch {asked.raft_epoch}, on its disk is {durable}"
    return None


def _epoch(said: Any) -> int:
    """The epoch that a message shows the voter to be in."""
    if type(said) is FetchRequest:
        epoch: int = said.partitions[0].current_leader_epoch
    elif type(said) is FetchResponse:
        epoch = said.partitions[0].leader_epoch if said.partitions else -1
    else:
        epoch = getattr(said, "raft_epoch", -1)
    return epoch
