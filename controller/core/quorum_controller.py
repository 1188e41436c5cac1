"""The controller's core: `handle` takes an event and returns effects; answers wait for the commit.

Owns activation and resignation (K22, K23), the routing of requests and the order of writes. State changes
only by replay of records: `latest` is what this active controller has appended, `committed` what the quorum
has committed; losing the leadership sets `latest = committed`. The decisions are in `cluster_control`,
`replication_control` and `topics`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.controller.core import producer_ids
from holdfast.controller.core.active_timers import ActiveTimers
from holdfast.controller.core.answers import WRITES, refusal, undecided
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.brokers.departures import SLICE_RECORDS_MAX
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import DecisionRing
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.durations import Durations
from holdfast.controller.core.events import (
    AppendRecords,
    AppendVoters,
    CannotLead,
    ConnectionClosed,
    Effect,
    EntriesCommitted,
    Entry,
    Event,
    LaterSnapshot,
    LeaderChanged,
    LogInfoAnswered,
    LogInfoArrived,
    LogInfoFailed,
    Probed,
    RecoveryElected,
    RecoveryStated,
    RequestReceived,
    Resign,
    Respond,
    SnapshotLoaded,
    Tick,
    VotersWanted,
)
from holdfast.controller.core.operators import topics
from holdfast.controller.core.operators.requests import OperatorRequests
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.leader_balance import LeaderBalance
from holdfast.controller.core.partitions.log_questions import LogQuestions
from holdfast.controller.core.partitions.partition_change import ElectionContext, InvariantBroken
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.controller.core.partitions.proposal_order import ProposalOrder
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity, UncleanRecovery
from holdfast.controller.core.pending_writes import PendingWrite, PendingWrites
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory, committed_record
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, MetadataImage
from holdfast.metadata.questions import Asked, answer_question
from holdfast.metadata.records import (
    ELR_FEATURE,
    ConfigRecord,
    FeatureLevelRecord,
    LaterRecord,
    NoOpRecord,
    encode_record,
)
from holdfast.metadata.snapshot import MetadataState
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationRequest
from holdfast.protocol.messages.features import UpdateFeaturesRequest
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest
from holdfast.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from holdfast.raft.core.config import BATCH_MAX_BYTES
from holdfast.runtime.api import Random
from holdfast.runtime.stats import Level, LogLine

#: Bytes of records in one atomic batch; raft accepts twice as many.
APPEND_BYTES_MAX = 4 << 20


@dataclass(slots=True)
class ControllerCounts:
    """Running totals since the process started."""

    elections: dict[ElectionReason, int] = field(default_factory=lambda: dict.fromkeys(ElectionReason, 0))
    events: int = 0
    records_appended: int = 0
    #: committed records that contradict the state (D7)
    replay_violations: int = 0
    #: partitions that the recovery manager gave a leader
    recoveries: int = 0


class QuorumController:
    """One controller, active or standby. Synchronous: `handle` runs to its end and returns effects."""

    def __init__(self, config: ControllerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        replication = ReplicationControl(config)
        self._replication = replication
        self._cluster = ClusterControl(config, replication)
        self._recovery = UncleanRecovery(config, replication)
        self._questions = LogQuestions(config)
        self._balance = LeaderBalance(config, replication)
        self._proposal_order = ProposalOrder()
        self._operators = OperatorRequests(config, replication, self._cluster.departures, self._recovery)
        #: committed state; readers are answered from it
        self._committed = MetadataImage()
        #: what happened below `_committed.offset`
        self._history = MetadataHistory()
        #: with the records that this active controller has appended; on a standby the same object as
        #: `_committed`
        self._latest = self._committed
        self._is_active = False
        #: elections that the previous controller left are still to be made
        self._is_taking_over = False
        self._take_over_rest = PartitionPass()
        self._leader_id: int | None = None
        self._raft_epoch = 0
        #: why committed records from some offset on are not applied; None while they are
        self._later_record: str | None = None
        #: end of the log that must be applied before this leader becomes active; None when it does not lead
        self._claim_offset: int | None = None
        #: offset of the next record that this active controller appends
        self._next_offset = 0
        #: the quorum waits for a place for its own record
        self._are_voters_wanted = False
        self._pending = PendingWrites()
        #: own committed entries inside a batch that is not committed to its end
        self._unapplied: list[Entry] = []
        #: end of the last record that is not a NoOp
        self._change_offset = 0
        self._timers = ActiveTimers(config.unclean_election_interval_ms, config.max_idle_interval_ms)
        self._counts = ControllerCounts()
        self._decisions = DecisionRing()
        self._durations = Durations()

    # --- looking -----------------------------------------------------------------------------------------

    @property
    def config(self) -> ControllerConfig:
        return self._config

    @property
    def committed(self) -> MetadataImage:
        """The committed state."""
        return self._committed

    @property
    def state(self) -> MetadataState:
        """The committed state and what led to it: what a snapshot holds."""
        return MetadataState(self._committed, self._history)

    @property
    def latest(self) -> MetadataImage:
        """The state with this active controller's appended records; equals `committed` on a standby."""
        return self._latest

    @property
    def is_active(self) -> bool:
        """True when it leads the quorum, has applied its whole log and takes requests."""
        return self._is_active

    @property
    def later_record(self) -> str | None:
        """Why it applies no more committed records: a later build wrote one. None while it applies them."""
        return self._later_record

    @property
    def leader_id(self) -> int | None:
        """The quorum's leader as known here, None when it is not."""
        return self._leader_id

    @property
    def raft_epoch(self) -> int:
        """The quorum's epoch as known here."""
        return self._raft_epoch

    @property
    def counts(self) -> ControllerCounts:
        """Running totals; read only."""
        return self._counts

    @property
    def decisions(self) -> DecisionRing:
        """Why partitions changed lately; only on the active controller; read only."""
        return self._decisions

    def election_context(self, topic_name: str, key: PartitionId) -> ElectionContext:
        """What an election of this partition would look at now, in what is committed."""
        image = self.committed
        return self._replication.context(
            image, topic_name, lambda broker_id: image.is_active_replica(broker_id, key)
        )

    @property
    def durations(self) -> Durations:
        """Durations of elections and recoveries; read only."""
        return self._durations

    @property
    def unclean_registrations(self) -> dict[int, int]:
        """{broker: registrations after an unclean shutdown} since this process started."""
        return self._cluster.unclean_registrations

    @property
    def short_count(self) -> int:
        """Replicas that take no records for want of room; only on the active controller."""
        return self._cluster.short_count

    @property
    def recovery(self) -> UncleanRecovery:
        """The recoveries under way; only on the active controller; read only."""
        return self._recovery

    @property
    def log_replies(self) -> dict[tuple[int, str], int]:
        """{(broker, result): answers about logs} since this process started."""
        return self._questions.replies

    def next_deadline_ms(self) -> int | None:
        """When the next Tick is due."""
        if self._is_taking_over:
            return 0
        deadlines = (
            self._cluster.next_deadline_ms(),
            self._recovery.next_deadline_ms(),
            self._questions.next_deadline_ms(),
            self._balance.next_deadline_ms(),
            self._timers.next_deadline_ms(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # --- the door ----------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event; the shell carries out the effects in order."""
        self._counts.events += 1
        effects = self._take(event, now_ms)
        if self._is_active and self._recovery.is_due(now_ms):
            effects += self._recover(now_ms)
        if self._is_active:
            effects += self._questions.requests(self._latest, now_ms)
        return effects

    def _recover(self, now_ms: int) -> list[Effect]:
        """Continue the recoveries, and ask brokers for logs as their statements require."""
        stated: list[RecoveryStated] = []
        effects = self._write(lambda draft: stated.extend(self._recovery.run(draft, now_ms)), now_ms)
        if not self._is_active:
            return effects
        for one in stated:
            key = PartitionId(one.topic_id, one.partition_index)
            self._questions.want(key, self._recovery.unanswered(self._latest, key))
            self._counts.recoveries += isinstance(one.statement, RecoveryElected)
            self._durations.stated(one, now_ms)
        return [*effects, *stated]

    def _take(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case RequestReceived():
                return self._on_request(event, now_ms)
            case EntriesCommitted():
                return self._on_committed(event, now_ms)
            case SnapshotLoaded():
                return self._on_snapshot(event, now_ms)
            case LaterSnapshot():
                return self._left_behind(event.reason)
            case LeaderChanged():
                return self._on_leader_changed(event, now_ms)
            case VotersWanted():
                return self._on_voters_wanted(event)
            case Tick():
                return self._on_timer(now_ms)
            case ConnectionClosed():
                return (
                    list(self._cluster.on_connection_closed(self._latest, event)) if self._is_active else []
                )
            case Probed():
                return self._on_probed(event, now_ms)
            case LogInfoArrived():
                if self._is_active:
                    self._recovery.take_log_info(self._latest, event)
                return []
            case LogInfoAnswered():
                return self._on_logs_told(event, now_ms)
            case LogInfoFailed():
                self._questions.failed(event, now_ms)
                return []

    # --- requests ----------------------------------------------------------------------------------------

    def _on_request(self, event: RequestReceived, now_ms: int) -> list[Effect]:
        message = event.message
        if not isinstance(message, WRITES):
            return [Respond(event.request_id, self._read(event))]
        if not self._is_active:
            return [Respond(event.request_id, refusal(message, ErrorCode.NOT_CONTROLLER, self._who_leads()))]
        if self._pending.answer_count >= self._config.waiting_requests_max:
            text = f"{self._pending.answer_count} requests wait for the quorum; try again later"
            return [Respond(event.request_id, refusal(message, ErrorCode.REQUEST_LIMIT_REACHED, text))]
        return self._write(lambda draft: self._answer(draft, event, now_ms), now_ms, event)

    def _answer(self, draft: Draft, event: RequestReceived, now_ms: int) -> Any:
        """The answer to a write; its records are in the draft.

        An answer that confirms a state waits for the commit of a record, also when nothing changes (K20): a
        deposed controller that does not know it yet would confirm what another one has changed. Records that
        are pending already do not prove it: their acknowledgements may be older than the request.
        """
        answer = self._decide(draft, event, now_ms)
        if draft.confirms and not draft.records:
            draft.write(NoOpRecord())
        return answer

    def _decide(self, draft: Draft, event: RequestReceived, now_ms: int) -> Any:
        message = event.message
        match message:
            case BrokerHeartbeatRequest():
                return self._cluster.heartbeat(draft, message, event.connection_id, now_ms)
            case AlterPartitionRequest():
                broker = draft.image.brokers.get(message.broker_id)
                registered_epoch = None if broker is None else broker.broker_epoch
                late = self._proposal_order.refusal(message, registered_epoch)
                return late or self._replication.alter_partition(draft, message)
            case BrokerRegistrationRequest():
                return self._cluster.register(draft, message, now_ms, event.voter_ids)
            case CreateTopicsRequest():
                return topics.create_topics(draft, message, self._config, self._random)
            case DeleteTopicsRequest():
                return topics.delete_topics(draft, message)
            case AllocateProducerIdsRequest():
                return producer_ids.allocate(draft, message)
            case UpdateFeaturesRequest():
                return self._operators.update_features(draft, message, event.earlier_voters)
        return self._operators.answer(draft, message)

    def _read(self, event: RequestReceived) -> Any:
        """The answer to a question, from the committed image; a standby controller answers too."""
        return answer_question(self._committed, event.message, self.asked_through(event.listener_name))

    def asked_through(self, listener_name: str) -> Asked:
        """What answers to questions that come through a listener need besides the image."""
        return Asked(
            listener_name=listener_name,
            cluster_id=self._config.cluster_id,
            controller_id=self._leader_id,
            controller_epoch=self._raft_epoch,
            partition_limit=self._config.partition_size_limit,
            static=self._config.static,
        )

    def _who_leads(self) -> str:
        if self._leader_id is None:
            return "no active controller is known; try another controller, or try again later"
        if self._leader_id == self._config.node_id:
            return f"controller {self._leader_id} was just elected and is not ready yet; try again"
        return f"controller {self._leader_id} is active; send the request there"

    # --- writing -----------------------------------------------------------------------------------------

    def _write(
        self, decide: Callable[[Draft], Any], now_ms: int, request: RequestReceived | None = None
    ) -> list[Effect]:
        """Let `decide` draft records, append them as one atomic batch, and hold its answer until the
        commit."""
        if not self._is_active:
            return []
        draft = Draft(self._latest, self._next_offset, self._raft_epoch)
        try:
            answer = decide(draft)
        except InvariantBroken as broken:
            return self._fail(broken, request)
        parts = [[encode_record(record, draft.record_version) for record in part] for part in draft.parts()]
        largest = max((sum(map(len, part)) for part in parts), default=0)
        if largest > BATCH_MAX_BYTES:
            assert request is not None, "only requests write what must not be cut"
            text = f"the request needs {largest} bytes of metadata in one batch, at most "
            text += f"{BATCH_MAX_BYTES} are possible; change less per request (topics instead of the cluster)"
            refused = refusal(request.message, ErrorCode.POLICY_VIOLATION, text)
            return [Respond(request.request_id, refused)]
        effects: list[Effect] = list(draft.all_notes())
        if draft.records:
            effects += self._appends(draft.base_offset, parts)
            self._recovery.observe(self._latest, draft.image, draft.changed_partitions)
            self._durations.changed(draft.image, draft.changed_partitions, now_ms)
            self._latest = draft.image
            self._next_offset = draft.next_offset
            reasons = [entry.decision.reason for entry in draft.decisions]
            elected = [reason for reason in reasons if reason is not None]
            self._pending.add(PendingWrite(draft.next_offset, draft.image, now_ms, len(elected)))
            self._counts.records_appended += len(draft.records)
            for reason in elected:
                self._counts.elections[reason] += 1
            self._decisions.extend(draft.decisions)
            if any(type(record) is not NoOpRecord for record in draft.records):
                self._change_offset = draft.next_offset
            self._timers.appended(now_ms)
        if request is not None:
            if self._pending:
                # decided on uncommitted state: the answer waits for the commit (K20)
                self._pending.hold(request, answer)
            else:
                effects.append(Respond(request.request_id, answer))
        return effects

    def _appends(self, base_offset: int, parts: Sequence[Sequence[bytes]]) -> list[AppendRecords]:
        """One atomic batch; several only when it is too large, cut between parts (F26, K21). The next leader
        may find only the first ones."""
        appends: list[AppendRecords] = []
        values: list[bytes] = []
        size_bytes = 0
        for part in parts:
            part_bytes = sum(map(len, part))
            if values and size_bytes + part_bytes > APPEND_BYTES_MAX:
                appends.append(AppendRecords(tuple(values), self._raft_epoch, base_offset))
                base_offset += len(values)
                values, size_bytes = [], 0
            values += part
            size_bytes += part_bytes
        return [*appends, AppendRecords(tuple(values), self._raft_epoch, base_offset)]

    def _fail(self, broken: InvariantBroken, request: RequestReceived | None) -> list[Effect]:
        """After a broken invariant: write nothing, answer with an error, and let another controller lead
        (D7)."""
        story = f"invariant broken while handling {request.message if request else 'a timer'}: {broken}"
        effects: list[Effect] = [LogLine(Level.ERROR, story)]
        if request is not None:
            text = "the controller found a bug of its own and resigned; nothing was changed"
            effects.append(
                Respond(request.request_id, refusal(request.message, ErrorCode.UNKNOWN_SERVER_ERROR, text))
            )
        effects += self._renounce()
        effects.append(Resign(f"invariant broken: {broken}"))
        return effects

    # --- timers ------------------------------------------------------------------------------------------

    def _on_timer(self, now_ms: int) -> list[Effect]:
        if not self._is_active:
            return []
        effects = self._write(lambda draft: self._cluster.check_sessions(draft, now_ms), now_ms)
        # not while a broker leaves in slices: it counts as active until the last, and would be elected again
        if self._is_taking_over and not self._cluster.departures.is_busy:
            effects += self._write(self._elect_after_take_over, now_ms)
        if self._timers.take_unclean_pass(now_ms):
            effects += self._write(self._replication.elect_unclean, now_ms)
        if self._balance.is_due(now_ms):
            effects += self._write(
                lambda draft: self._balance.run(draft, now_ms, self._cluster.is_short), now_ms
            )
        if self._timers.take_noop(now_ms):
            # only while a broker has to report that it applied the last change: an idle log does not grow
            if self._cluster.waits_for_progress(self._latest, self._change_offset, now_ms):
                effects += self._write(lambda draft: draft.write(NoOpRecord()), now_ms)
        return effects

    def _on_probed(self, event: Probed, now_ms: int) -> list[Effect]:
        further: list[Effect] = []

        def decide(draft: Draft) -> None:
            probe = self._cluster.on_probed(draft, event)
            if probe is not None:
                further.append(probe)

        return self._write(decide, now_ms) + further

    def _on_logs_told(self, event: LogInfoAnswered, now_ms: int) -> list[Effect]:
        superseded = 0

        def judge(row: LogInfoArrived) -> AnswerValidity:
            nonlocal superseded
            verdict = self._recovery.take_log_info(self._latest, row)
            superseded += verdict is AnswerValidity.SUPERSEDED
            return verdict

        self._questions.answered(event, now_ms, judge)
        if not superseded:
            return []
        # R62. It does not resign: records of a deposed controller are never committed, and one broker with
        # wrong metadata must not depose a rightful one.
        text = (
            f"broker {event.broker_id} has later leader epochs of {superseded} partitions than this "
            "controller; another one must be active, so these answers elect no leader here"
        )
        return [LogLine(Level.WARNING, text)]

    # --- the quorum --------------------------------------------------------------------------------------

    def _on_committed(self, event: EntriesCommitted, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if not self._is_active:
            effects += self._replay(list(event.entries), event.committed_offset)
            self._latest = self._committed
            return effects + self._claim_if_ready(now_ms)
        # own records: the images after them are known
        self._unapplied += event.entries
        before = self._committed
        for pending in self._pending.take_committed(event.committed_offset):
            self._committed = pending.image
            self._durations.elected(pending.elections, pending.drafted_ms, now_ms)
            effects += [Respond(request.request_id, answer) for request, answer in pending.answers]
        applied = [entry for entry in self._unapplied if entry.offset < self._committed.offset]
        self._history.note(before, _records_of(applied))
        self._unapplied = self._unapplied[len(applied) :]
        return effects

    def _on_snapshot(self, event: SnapshotLoaded, now_ms: int) -> list[Effect]:
        assert not self._is_active, "a leader takes no snapshot of another"
        self._committed = self._latest = event.state.image
        self._history = event.state.history
        effects: list[Effect] = []
        if self._later_record is not None:
            self._later_record = None  # all of the state was read, also what was left out before
            effects.append(CannotLead(None))
        return effects + self._claim_if_ready(now_ms)

    def _replay(self, entries: list[Entry], committed_offset: int) -> list[Effect]:
        """Apply committed entries. An entry that contradicts the state is logged and counted, and does not
        stop the node (D7). Nor does one of a later build: neither it nor what follows is applied (K29)."""
        if self._later_record is not None:
            return []
        try:
            records = _records_of(entries)
        except LaterRecord as later:
            return self._left_behind(str(later))
        delta = MetadataDelta(self._committed)
        for entry, committed in zip(entries, records, strict=True):
            delta.replay(committed.record, entry.offset, entry.raft_epoch, committed.version)
        self._history.note(self._committed, records)
        self._committed = delta.apply(committed_offset)
        self._counts.replay_violations += len(delta.violations)
        return [LogLine(Level.ERROR, f"committed record does not fit: {text}") for text in delta.violations]

    def _left_behind(self, reason: str) -> list[Effect]:
        self._later_record = reason
        text = f"{reason}: this controller applies nothing more and leads no more; upgrade it"
        return [LogLine(Level.ERROR, text), CannotLead(reason)]

    def _on_leader_changed(self, event: LeaderChanged, now_ms: int) -> list[Effect]:
        effects = self._renounce()
        self._are_voters_wanted = False
        self._leader_id = event.leader_id
        self._raft_epoch = event.raft_epoch
        self._claim_offset = event.log_end_offset if event.leader_id == self._config.node_id else None
        return effects + self._claim_if_ready(now_ms)

    def _on_voters_wanted(self, event: VotersWanted) -> list[Effect]:
        if event.raft_epoch != self._raft_epoch:
            return []
        self._are_voters_wanted = True
        return self._append_voters() if self._is_active else []

    def _append_voters(self) -> list[Effect]:
        """Give the quorum's own record its place among those of this controller."""
        if not self._are_voters_wanted:
            return []
        self._are_voters_wanted = False
        self._next_offset += 1
        return [AppendVoters(self._raft_epoch, self._next_offset - 1)]

    def _claim_if_ready(self, now_ms: int) -> list[Effect]:
        """Become active once everything in the log at the election is applied (K22)."""
        if self._claim_offset is None or self._committed.offset < self._claim_offset:
            return []
        self._next_offset = self._claim_offset
        self._claim_offset = None
        self._is_active = True
        self._change_offset = self._next_offset
        self._cluster.start(self._latest, now_ms)
        self._proposal_order.start(self._raft_epoch)
        self._recovery.start(self._latest)
        self._durations.start(self._latest, now_ms)
        self._balance.start(now_ms)
        self._timers.start(now_ms)
        text = f"active controller, raft epoch {self._raft_epoch}, metadata offset {self._next_offset}"
        return [LogLine(Level.INFO, text), *self._append_voters(), *self._write(self._take_over, now_ms)]

    def _take_over(self, draft: Draft) -> None:
        """Write what every cluster must have, and finish what the previous controller left half done
        (K21)."""
        self._take_over_rest = PartitionPass()
        self._bootstrap(draft)
        self._cluster.departures.take_over(draft)
        self._elect_after_take_over(draft)

    def _elect_after_take_over(self, draft: Draft) -> None:
        """In slices, between which brokers are answered."""
        is_done = self._replication.take_over(draft, rest=self._take_over_rest, visits_max=SLICE_RECORDS_MAX)
        self._is_taking_over = not is_done

    def _bootstrap(self, draft: Draft) -> None:
        """Write the features and the one min ISR that every cluster has before its first broker (F14)."""
        if ELR_FEATURE in draft.image.features:
            return  # not a new cluster: an operator removed a missing value while ELR was off
        draft.write(FeatureLevelRecord(ELR_FEATURE, int(self._config.elr_enabled)))
        draft.note(f"{ELR_FEATURE} is {'on' if self._config.elr_enabled else 'off'}")
        cluster = draft.image.configs.get(CLUSTER_RESOURCE)
        if cluster is None or "min.insync.replicas" not in cluster:
            value = str(self._config.min_insync_replicas)
            draft.write(ConfigRecord(*CLUSTER_RESOURCE, "min.insync.replicas", value))
            draft.note(f"min.insync.replicas of the cluster is {value}")

    def _renounce(self) -> list[Effect]:
        """Stop being active: fail the pending requests, go back to the committed state, drop soft state
        (K23)."""
        if not self._is_active:
            return []
        self._is_active = self._is_taking_over = False
        effects: list[Effect] = [
            LogLine(Level.INFO, f"no longer the active controller, raft epoch {self._raft_epoch}")
        ]
        effects += [
            Respond(request.request_id, undecided(request.message)) for request in self._pending.give_up()
        ]
        if self._unapplied:
            unapplied, self._unapplied = self._unapplied, []
            effects += self._replay(unapplied, unapplied[-1].offset + 1)
        self._latest = self._committed
        self._cluster.stop()
        self._recovery.stop()
        self._durations.stop()
        self._questions.stop()
        self._balance.stop()
        self._decisions.clear()
        self._claim_offset = None
        self._timers.stop()
        return effects


def _records_of(entries: Sequence[Entry]) -> list[CommittedRecord]:
    return [committed_record(entry.offset, entry.timestamp_ms, entry.value) for entry in entries]
