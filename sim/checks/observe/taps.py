"""What goes in and out of the cores of brokers, controllers and voters, noted in passing; and what a broker's
shell makes of it.

Owns the taps: a node's pump tells them of each event and its effects, and they change nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.events import (
    AnswerFetch,
    Append,
    Appended,
    AppendResult,
    CallAnswered,
    CallController,
    CeilingRow,
    CeilingsStored,
    EndWithoutAnswer,
    RequestReceived,
    Respond,
    Truncate,
)
from holdfast.broker.core.events import Effect as BrokerEffect
from holdfast.broker.core.events import Event as BrokerEvent
from holdfast.broker.core.replicas.leadership import Leadership, Proposal
from holdfast.broker.core.requests.produce_path import ProduceContext
from holdfast.controller.core.decisions import DecisionEntry
from holdfast.controller.core.events import Effect as ControllerEffect
from holdfast.controller.core.events import Event as ControllerEvent
from holdfast.controller.core.events import RequestReceived as ControllerRequest
from holdfast.controller.core.events import Resign
from holdfast.controller.core.events import Respond as ControllerResponds
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationRequest
from holdfast.protocol.messages.elect_leaders import ElectLeadersRequest
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.produce import ProduceRequest, ProduceResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.protocol.messages.quorum import (
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from holdfast.protocol.record_batch import BatchHeader
from holdfast.raft.core.effects import Answered, Reply, Send, SendFailed
from holdfast.raft.core.effects import Effect as RaftEffect
from holdfast.raft.core.effects import Event as RaftEvent
from holdfast.raft.core.effects import RequestReceived as VoterRequest
from holdfast.raft.core.node import RaftNode
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.pump import Tap
from holdfast.runtime.stats import LogLine
from holdfast.sim.checks.observe.coverage_marks import Marks
from holdfast.storage.core.producer_state import KeptBatch


class Judged(NamedTuple):
    """A batch that was taken for a repetition, or refused, and what was known of its producer then: by the
    end of the step the next one may be in the log, or the producer be forgotten."""

    header: BatchHeader
    result: AppendResult
    #: (its epoch, its last batches), None when it was not known
    known: tuple[int, tuple[KeptBatch, ...]] | None


class Late(NamedTuple):
    """A write that was told to be late, though who tells leads as when it was appended."""

    result: AppendResult
    #: what was committed when that was told
    high_watermark: int


class Support(NamedTuple):
    """A vote, or a pre-vote, that a voter has granted, and what it was when it was asked."""

    candidate_id: int
    #: that it was asked in
    raft_epoch: int
    is_pre_vote: bool
    #: it leads itself
    is_leader: bool
    #: since the leader of that epoch answered a fetch; None when it has not, or a request has failed since
    silent_ms: int | None
    #: after so long it need not wait any longer
    fetch_timeout_ms: int
    #: the log of the candidate ends before its own
    is_log_shorter: bool


class TapRecord:
    """What a node's core was asked and has answered since the node was looked at."""

    __slots__ = (
        "acknowledged",
        "acknowledged_by_leader",
        "answered",
        "bugs",
        "ceilings",
        "cuts",
        "dropped",
        "elections",
        "fetched",
        "handled",
        "has_taps",
        "has_voter_taps",
        "heartbeats",
        "is_called",
        "judged",
        "late",
        "producer_ids",
        "read",
        "refused",
        "rows",
        "support",
        "warnings",
    )

    def __init__(self) -> None:
        self.is_called = True
        #: the node's pumps have taps that note all this
        self.has_taps = self.has_voter_taps = False
        #: answers to producers with acks=all
        self.acknowledged: list[ProduceResponse] = []
        #: to those with acks=1
        self.acknowledged_by_leader: list[ProduceResponse] = []
        #: to the active controller, and the replicas in failed log dirs when it was made
        self.heartbeats: list[tuple[BrokerHeartbeatRequest, tuple[PartitionId, ...]]] = []
        #: who asked for a producer id, and was given one
        self.producer_ids: list[tuple[InitProducerIdRequest, InitProducerIdResponse]] = []
        #: batches of idempotent producers that were taken for repetitions, or refused
        self.judged: list[Judged] = []
        #: promises that the disk keeps by now (R68)
        self.ceilings: list[CeilingRow] = []
        #: logs that are about to be cut, and the leader epoch in which that was decided
        self.cuts: list[tuple[PartitionId, int]] = []
        #: proposals that were open when they were answered, with what, and whether they are open still (R44)
        self.answered: list[tuple[PartitionId, Proposal, int, bool]] = []
        #: fetches of followers, and when they came
        self.fetched: list[tuple[FetchRequest, int]] = []
        #: answers to fetches
        self.rows: list[AnswerFetch] = []
        #: answers to consumers, as they were decided and with what was read
        self.read: list[tuple[AnswerFetch, FetchResponse]] = []
        #: writes with acks=all that were told to be late
        self.late: list[Late] = []
        #: what is wrong with the end of writes with acks=0
        self.dropped: list[str] = []
        #: why the core has given up by itself (D7)
        self.bugs: list[str] = []
        #: told of elections that may lose records (R68)
        self.warnings: list[str] = []
        #: AlterPartition and registrations, with the image before and after them
        self.handled: list[tuple[Any, MetadataImage, MetadataImage]] = []
        #: moves and elections that operators have asked for, answered without waiting for any commit, and the
        #: image that they were judged by
        self.refused: list[tuple[Any, Any, MetadataImage]] = []
        #: elections that operators have asked for, and what the active controller has decided by that
        self.elections: list[tuple[ElectLeadersRequest, list[DecisionEntry]]] = []
        #: votes and pre-votes that a voter has granted
        self.support: list[Support] = []


class BrokerTap(Tap[BrokerEvent, BrokerEffect]):
    """Notes what goes in and out of a broker's core, and what its shell answers to consumers."""

    def __init__(self, core: Broker, heard: TapRecord) -> None:
        self._core = core
        self._heard = heard
        #: exchanges of producers that want an answer, and where it is noted
        self._waiting: dict[object, list[ProduceResponse]] = {}
        self._noted = {-1: heard.acknowledged, 1: heard.acknowledged_by_leader}
        self._ids_asked: dict[object, InitProducerIdRequest] = {}
        #: requests of producers that want no answer, and what became of their batches
        self._unanswered: dict[object, Any] = {}
        #: {id: (where the result of an append goes, {partition: header})}, of idempotent producers
        self._appending: dict[int, tuple[object, dict[PartitionId, BatchHeader]]] = {}
        #: requests with acks=all whose batches are appended, and not answered yet
        self._replicating: dict[object, Any] = {}
        #: the open proposals that the event tells of
        self._asked: list[tuple[PartitionId, Leadership, Proposal, int]] = []

    def before(self, event: Any, now_ms: int) -> None:
        heard = self._heard
        heard.is_called = True
        if type(event) is RequestReceived:
            self._requested(event, now_ms)
        elif type(event) is CeilingsStored:
            heard.ceilings += event.rows
        elif type(event) is Appended:
            _judged(self._core, self._appending, event, heard)
        elif type(event) is CallAnswered:
            self._asked = _asked(self._core, event)

    def _requested(self, event: RequestReceived, now_ms: int) -> None:
        message = event.message
        if type(message) is ProduceRequest:
            if message.required_acks in self._noted:
                self._waiting[event.reply_to] = self._noted[message.required_acks]
            elif message.required_acks == 0:
                self._unanswered[event.reply_to] = None
        elif type(message) is InitProducerIdRequest:
            self._ids_asked[event.reply_to] = message
        elif type(message) is FetchRequest and message.replica_id >= 0 and message.partitions:
            self._heard.fetched.append((message, now_ms))

    def after(self, event: Any, effects: Sequence[Any], now_ms: int) -> None:
        heard, core = self._heard, self._core
        for key, leadership, proposal, code in self._asked:
            heard.answered.append((key, proposal, code, leadership.proposal is proposal))
        self._asked = []
        for effect in effects:
            if type(effect) is Respond:
                self._responded(effect)
            elif type(effect) is AnswerFetch:
                heard.rows.append(effect)
            elif type(effect) is Truncate:
                heard.cuts.append((effect.key, core.partitions[effect.key].leader_epoch))
            elif type(effect) is EndWithoutAnswer:
                heard.dropped += _wrongly_dropped(effect, self._unanswered.pop(effect.reply_to, None))
            elif type(effect) is Append and isinstance(effect.context, ProduceContext):
                self._appended(effect)
            elif type(effect) is CallController and type(effect.request) is BrokerHeartbeatRequest:
                heard.heartbeats.append((effect.request, tuple(core.offline_replicas)))

    def _responded(self, effect: Respond) -> None:
        heard, message = self._heard, effect.message
        if type(message) is ProduceResponse:
            if effect.reply_to in self._waiting:
                self._waiting.pop(effect.reply_to).append(message)
                heard.late += _late(self._core, self._replicating.pop(effect.reply_to, None), message)
            elif effect.reply_to in self._unanswered:
                heard.dropped.append(f"answers a write with acks=0: {message}")
        elif type(message) is InitProducerIdResponse:
            asked_id = self._ids_asked.pop(effect.reply_to)
            if message.error_code == ErrorCode.NONE:
                heard.producer_ids.append((asked_id, message))

    def _appended(self, effect: Append) -> None:
        context: Any = effect.context
        if context.acks == 0:
            self._unanswered[context.reply_to] = context
        elif context.acks == -1:
            self._replicating[context.reply_to] = context
        headers = {one.key: one.header for one in effect.batches if one.header.producer_id >= 0}
        if headers:
            self._appending[id(effect.context)] = effect.context, headers

    def sending(self, effect: Any, message: Any) -> None:
        if type(effect) is AnswerFetch and effect.session is None:
            self._heard.read.append((effect, message))


def _late(core: Broker, context: Any, response: ProduceResponse) -> list[Late]:
    """Rows that are told to be late by who leads still, and how far it has come by then."""
    found = []
    for result in () if context is None else context.results:
        row = response.partitions[context.index_of[result.key]]
        replica = core.partitions.get(result.key)
        if row.error_code == ErrorCode.REQUEST_TIMED_OUT and replica is not None:
            if replica.leads_in(result.leader_epoch):
                found.append(Late(result, replica.high_watermark))
    return found


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
                one = log.producer_state._producers.get(header.producer_id)
                known = None if one is None else (one.epoch, tuple(one.batches))
                heard.judged.append(Judged(header, result, known))
    if not headers:
        del appending[id(event.context)]


def _asked(core: Broker, event: CallAnswered) -> list[tuple[PartitionId, Leadership, Proposal, int]]:
    """The open proposals that an answer tells of, before it is taken in, and what it says."""
    response = event.response
    if event.call_id not in core._link._calls or not isinstance(response, AlterPartitionResponse):
        return []
    asked = core._link.alter._in_flight or {}
    found = []
    for row in response.partitions if response.error_code == ErrorCode.NONE else ():
        key = PartitionId(row.topic_id, row.partition_index)
        replica = core.partitions.get(key)
        leadership = None if replica is None else replica.leadership
        proposal = None if leadership is None else leadership.proposal
        if leadership is not None and proposal is not None and asked.get(key) is proposal:
            found.append((key, leadership, proposal, row.error_code))
    return found


class ControllerTap(Tap[ControllerEvent, ControllerEffect]):
    """Notes what goes in and out of a controller's core, by its quorum."""

    def __init__(self, core: QuorumController, heard: TapRecord, marks: Marks) -> None:
        self._core = core
        self._heard = heard
        self._marks = marks
        #: what the core knew before the event
        self._before = core.latest

    def before(self, event: Any, now_ms: int) -> None:
        self._before = self._core.latest

    def after(self, event: Any, effects: Sequence[Any], now_ms: int) -> None:
        heard, core, before = self._heard, self._core, self._before
        if type(event) is ControllerRequest and core.is_active:
            if type(event.message) in (AlterPartitionRequest, BrokerRegistrationRequest):
                heard.handled.append((event.message, before, core.latest))
            elif type(event.message) in (AlterPartitionReassignmentsRequest, ElectLeadersRequest):
                answers = [one for one in effects if type(one) is ControllerResponds]
                heard.refused += [(event.message, one.message, before) for one in answers]
            if type(event.message) is ElectLeadersRequest:
                made = [one for one in core.decisions if one.offset >= before.offset]
                heard.elections.append((event.message, made))
        self._marks.controller_said(effects)
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
                heard.support.append(self._support)
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
