"""What goes in and out of the cores of brokers, controllers and voters, and what a broker's shell makes of
it, translated into facts.

Owns the taps: a node's pump tells them of each event and its effects, and they change nothing.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.events import (
    AnswerFetch,
    Append,
    Appended,
    CallController,
    CeilingsStored,
    EndWithoutAnswer,
    RequestReceived,
    Respond,
    Truncate,
)
from holdfast.broker.core.events import Effect as BrokerEffect
from holdfast.broker.core.events import Event as BrokerEvent
from holdfast.broker.core.requests.produce_path import ProduceContext
from holdfast.controller.core.events import Effect as ControllerEffect
from holdfast.controller.core.events import Event as ControllerEvent
from holdfast.controller.core.events import RequestReceived as ControllerRequest
from holdfast.controller.core.events import Resign
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationRequest
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.produce import ProduceRequest, ProduceResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.protocol.messages.quorum import EndQuorumEpochRequest, VoteRequest, VoteResponse
from holdfast.protocol.record_batch import BatchHeader
from holdfast.raft.core.effects import Answered, Reply, Send, SendFailed
from holdfast.raft.core.effects import Effect as RaftEffect
from holdfast.raft.core.effects import Event as RaftEvent
from holdfast.raft.core.effects import RequestReceived as VoterRequest
from holdfast.raft.core.node import RaftNode
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.pump import Tap
from holdfast.runtime.stats import LogLine
from holdfast.sim.checks.observe import facts
from holdfast.sim.checks.observe.views import Judged, Support


class TapRecord:
    """What was noted of a node since it was looked at."""

    __slots__ = ("bugs", "cuts", "facts", "has_taps", "has_voter_taps", "is_called", "node", "warnings")

    def __init__(self, node: Any = None) -> None:
        self.node = node
        self.is_called = True
        #: the node's pumps have taps that note all this
        self.has_taps = self.has_voter_taps = False
        #: (the replica that it is about, its class, its other fields); without a replica all fields
        self.facts: list[tuple[PartitionId | None, type[Any], tuple[Any, ...]]] = []
        #: logs that are about to be cut, and the leader epoch in which that was decided
        self.cuts: list[tuple[PartitionId, int]] = []
        #: why the core has given up by itself (D7)
        self.bugs: list[str] = []
        #: told of elections that may lose records (R68): those of a step with the count at its end
        self.warnings: list[str] = []

    def note(self, fact: type[Any], *fields: Any) -> None:
        """Something that happened at the node."""
        self.facts.append((None, fact, fields))

    def note_of(self, key: PartitionId, fact: type[Any], *fields: Any) -> None:
        """Something that happened at one of its replicas, whose view is the first field."""
        self.facts.append((key, fact, fields))


class BrokerTap(Tap[BrokerEvent, BrokerEffect]):
    """Notes what goes in and out of a broker's core, and what its shell answers to consumers."""

    def __init__(self, core: Broker, heard: TapRecord) -> None:
        self._core = core
        self._heard = heard
        #: {exchange of a producer that wants an answer: its acks}
        self._waiting: dict[object, int] = {}
        self._ids_asked: dict[object, InitProducerIdRequest] = {}
        #: requests of producers that want no answer, and what became of their batches
        self._unanswered: dict[object, Any] = {}
        #: {id: (where the result of an append goes, {partition: header})}, of idempotent producers
        self._appending: dict[int, tuple[object, dict[PartitionId, BatchHeader]]] = {}

    def before(self, event: Any, now_ms: int) -> None:
        heard = self._heard
        heard.is_called = True
        if type(event) is RequestReceived:
            self._requested(event)
        elif type(event) is CeilingsStored:
            for promise in event.rows:
                heard.note_of(promise.key, facts.CeilingStored, promise.offset)
        elif type(event) is Appended:
            _judged(self._core, self._appending, event, heard)

    def _requested(self, event: RequestReceived) -> None:
        message = event.message
        if type(message) is ProduceRequest:
            if message.required_acks in (-1, 1):
                self._waiting[event.reply_to] = message.required_acks
            elif message.required_acks == 0:
                self._unanswered[event.reply_to] = None
        elif type(message) is InitProducerIdRequest:
            self._ids_asked[event.reply_to] = message

    def after(self, event: Any, effects: Sequence[Any], now_ms: int) -> None:
        heard, core = self._heard, self._core
        for effect in effects:
            if type(effect) is Respond:
                self._responded(effect)
            elif type(effect) is AnswerFetch:
                for row in effect.rows:
                    if row.log_end_offset < 0:  # only followers are told the log end
                        heard.note_of(PartitionId(row.topic_id, row.partition_index), facts.Shown, row)
            elif type(effect) is Truncate:
                heard.cuts.append((effect.key, core.partitions[effect.key].leader_epoch))
            elif type(effect) is EndWithoutAnswer:
                for why in _wrongly_dropped(effect, self._unanswered.pop(effect.reply_to, None)):
                    heard.note(facts.WriteDropped, heard.node, why)
            elif type(effect) is Append and isinstance(effect.context, ProduceContext):
                self._appended(effect)
            elif type(effect) is CallController and type(effect.request) is BrokerHeartbeatRequest:
                heard.note(facts.HeartbeatSent, heard.node, effect.request, tuple(core.offline_replicas))

    def _responded(self, effect: Respond) -> None:
        heard, message = self._heard, effect.message
        if type(message) is ProduceResponse:
            if effect.reply_to in self._waiting:
                _answered(message, self._waiting.pop(effect.reply_to), heard)
            elif effect.reply_to in self._unanswered:
                heard.note(facts.WriteDropped, heard.node, f"answers a write with acks=0: {message}")
        elif type(message) is InitProducerIdResponse:
            asked_id = self._ids_asked.pop(effect.reply_to)
            if message.error_code == ErrorCode.NONE:
                heard.note(facts.ProducerIdGiven, heard.node, asked_id, message)

    def _appended(self, effect: Append) -> None:
        context: Any = effect.context
        if context.acks == 0:
            self._unanswered[context.reply_to] = context
        headers = {one.key: one.header for one in effect.batches if one.header.producer_id >= 0}
        if headers:
            self._appending[id(effect.context)] = effect.context, headers

    def sending(self, effect: Any, message: Any) -> None:
        if type(effect) is AnswerFetch and effect.session is None:
            self._heard.note(facts.ConsumerAnswered, self._heard.node, effect, message)


def _answered(response: ProduceResponse, acks: int, heard: TapRecord) -> None:
    for row in response.partitions:
        key = PartitionId(row.topic_id, row.partition_index)
        if row.error_code != ErrorCode.NONE:
            heard.note_of(key, facts.WriteRefused, acks, ErrorCode(row.error_code))
        else:
            fact = facts.Acknowledged if acks == -1 else facts.AcknowledgedByLeader
            heard.note_of(key, fact, row.base_offset, row.leader_epoch)


def _wrongly_dropped(effect: EndWithoutAnswer, context: Any) -> list[str]:
    """F4: who waits for no answer hears of a refusal by the end of its connection, and of nothing else."""
    rows = () if context is None else (*context.rows, *context.results)
    is_refused = context is None or any(one is not None and one.error_code != ErrorCode.NONE for one in rows)
    if is_refused is (effect.refusal is not None):
        return []
    return [f"has {'refused' if is_refused else 'taken'} a write with acks=0, and ends with {effect.refusal}"]


def _judged(
    core: Broker,
    appending: dict[int, tuple[object, dict[PartitionId, BatchHeader]]],
    event: Appended,
    heard: TapRecord,
) -> None:
    _, headers = appending.get(id(event.context), (None, None))
    if headers is None:
        return
    for result in event.results:
        header = headers.pop(result.key, None)
        if header is not None and (result.is_duplicate or result.error_code != ErrorCode.NONE):
            replica = core.partitions.get(result.key)
            if replica is not None:
                log: Any = replica.log
                one = log.producer_state.producers.get(header.producer_id)
                known = None if one is None else (one.epoch, tuple(one.batches))
                heard.note_of(result.key, facts.BatchJudged, Judged(header, result, known))
    if not headers:
        del appending[id(event.context)]


class ControllerTap(Tap[ControllerEvent, ControllerEffect]):
    """Notes what goes in and out of a controller's core, by its quorum."""

    def __init__(self, core: QuorumController, heard: TapRecord) -> None:
        self._core = core
        self._heard = heard
        #: what the core knew before the event
        self._before = core.latest

    def before(self, event: Any, now_ms: int) -> None:
        self._before = self._core.latest

    def after(self, event: Any, effects: Sequence[Any], now_ms: int) -> None:
        heard, core, before = self._heard, self._core, self._before
        if type(event) is ControllerRequest and core.is_active:
            message = event.message
            if type(message) is AlterPartitionRequest:
                heard.note(facts.ProposalHandled, message, before, core.latest)
            elif type(message) is BrokerRegistrationRequest:
                heard.note(facts.RegistrationHandled, message, before, core.latest)
        heard.note(facts.ControllerSaid, effects)
        for effect in effects:
            if type(effect) is Resign:
                heard.bugs.append(effect.reason)
            elif type(effect) is LogLine and "records may be lost" in effect.text:
                heard.warnings.append(effect.text)


class VoterTap(Tap[RaftEvent, RaftEffect]):
    """Notes who is supported in an election, and when the leader was heard last."""

    def __init__(self, voter: RaftNode, heard: TapRecord) -> None:
        self._voter = voter
        self._heard = heard
        #: of the newest fetch: an answer to an older one, before it knew its leader, says nothing
        self._fetch_id = -1
        #: (epoch, when), of the newest good answer to a fetch
        self._leader_heard: tuple[int, int] | None = None
        #: what it was when the event asks for its support
        self._support: Support | None = None

    def before(self, event: Any, now_ms: int) -> None:
        voter = self._voter
        self._support = None
        if type(event) is VoterRequest and type(event.request) is VoteRequest:
            self._support = _asked_for_support(voter, event.request, self._leader_heard, now_ms)

    def after(self, event: Any, effects: Sequence[Any], now_ms: int) -> None:
        heard, voter = self._heard, self._voter
        request = event.request if type(event) is VoterRequest else None
        if self._support is not None:
            if _is_granted(effects, event.token):
                heard.note(facts.SupportGiven, heard.node, self._support)
        elif type(event) is Answered and type(event.response) is FetchResponse:
            is_heard = event.request_id == self._fetch_id and _is_leaders(event.response, voter)
            self._leader_heard = (voter.raft_epoch, now_ms) if is_heard else None
        elif type(request) is EndQuorumEpochRequest or _is_refused(event):
            self._leader_heard = None  # which may be evidence that the leader is gone (D9)
        for effect in effects:
            if type(effect) is Send and type(effect.request) is FetchRequest:
                self._fetch_id = effect.request_id


def _is_refused(event: object) -> bool:
    """No process listens where it asked: only that tells that a leader is gone (D9)."""
    return type(event) is SendFailed and event.failure is CallFailure.REFUSED


def _asked_for_support(
    voter: RaftNode, request: VoteRequest, leader_heard: tuple[int, int] | None, now_ms: int
) -> Support:
    own = voter.snapshot()
    # a voter that hears of a later epoch neither leads nor follows in it, from any sender (K3)
    is_news = request.raft_epoch > own.raft_epoch
    is_heard = leader_heard is not None and leader_heard[0] == own.raft_epoch and not is_news
    return Support(
        candidate_id=request.candidate_id,
        raft_epoch=request.raft_epoch,
        is_pre_vote=request.pre_vote,
        is_leader=voter.is_leader and not is_news,
        silent_ms=now_ms - leader_heard[1] if leader_heard is not None and is_heard else None,
        fetch_timeout_ms=voter._config.fetch_timeout_ms,
        is_log_shorter=(request.last_epoch, request.last_epoch_end_offset)
        < (own.last_epoch, own.log_end_offset),
    )


def _is_leaders(response: FetchResponse, voter: RaftNode) -> bool:
    """The leader that the voter follows has answered."""
    if response.error_code != ErrorCode.NONE or not response.partitions:
        return False
    row = response.partitions[0]
    is_of_now = (row.leader_epoch, row.leader_id) == (voter.raft_epoch, voter.leader_id)
    return is_of_now and row.error_code == ErrorCode.NONE


def _is_granted(effects: Sequence[Any], token: int) -> bool:
    answers = [effect.response for effect in effects if type(effect) is Reply and effect.token == token]
    return any(type(answer) is VoteResponse and answer.vote_granted for answer in answers)
