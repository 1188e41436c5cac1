"""One partition on this broker: its role, its high watermark, and as leader the ISR that it may propose.

Owns role, high watermark and the rules of the ISR; `broker.core.replicas.leadership` has the state of a
leader. Reads its log through `LogView` and never writes it. Registrations from AlterPartition answers and
from metadata records meet in `apply_registration`, ordered by `partition_epoch`; min ISR travels with them
(N-5). `broker.core.replicas.divergence` compares logs.

    role  NONE -> LEADER | FOLLOWER by a registration with a higher leader epoch
          -> NONE when roles are dropped
"""

from dataclasses import replace
from enum import Enum

from holdfast.broker.core.registration.known_brokers import KnownBrokers
from holdfast.broker.core.replicas import divergence
from holdfast.broker.core.replicas.ceiling import Ceiling, Urgency
from holdfast.broker.core.replicas.divergence import LogView, Refusal
from holdfast.broker.core.replicas.leadership import AlterVerdict, Leadership, Proposal
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.broker.core.replicas.silent_followers import Silence
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERING
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionPartitionResponse
from holdfast.protocol.messages.fetch import FetchPartition
from holdfast.protocol.topic_names import OFFSETS_TOPIC


class Role(Enum):
    """What this broker does for a partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class RoleChange(Enum):
    """What a registration changed for this broker."""

    #: older than the known one, or nothing new
    IGNORED = "ignored"
    #: same role and leader epoch, new ISR, min ISR or replicas
    UPDATED = "updated"
    BECAME_LEADER = "became leader"
    BECAME_FOLLOWER = "became follower"


class Partition:
    """Decisions of one replica."""

    __slots__ = (
        "broker_id",
        "key",
        "topic_name",
        "log",
        "counts_flushed",
        "registration",
        "role",
        "high_watermark",
        "leadership",
        "ceiling",
        "_brokers",
        "_held_back",
        "_lag_ms_max",
        "_leader_end",
        "_told_high_watermark",
    )

    def __init__(
        self,
        broker_id: int,
        key: PartitionId,
        topic_name: str,
        log: LogView,
        *,
        high_watermark: int,
        brokers: KnownBrokers,
        lag_ms_max: int,
        ceiling: Ceiling,
        counts_flushed: bool,
    ) -> None:
        self.broker_id = broker_id
        self.key = key
        self.topic_name = topic_name
        self.log = log
        #: every write is flushed: the high watermark, the ISR and the lag count flushed offsets (D6)
        self.counts_flushed = counts_flushed
        #: the last one applied; None before the first and after roles were dropped
        self.registration: PartitionRegistration | None = None
        self.role = Role.NONE
        #: end (exclusive) of the committed part as known here; always within [log start, log end]
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self.leadership: Leadership | None = None
        #: highest high watermark known of this history, also above the log's end: after a lost tail or a lag
        self._told_high_watermark = high_watermark
        self._brokers = brokers
        self._lag_ms_max = lag_ms_max
        #: durable upper bound of the log end that others are shown (R68)
        self.ceiling = ceiling
        #: log end of the leader in its last answer, -1 when not known
        self._leader_end = -1
        #: the leader's high watermark within the local log, while the ceiling is below it; -1 otherwise
        self._held_back = -1

    # --- queries
    # ----------------------------------------------------------------------------------------------

    @property
    def lag_ms_max(self) -> int:
        """How long a member of the ISR may lag before it is dropped (R51)."""
        return self._lag_ms_max

    @property
    def leader_epoch(self) -> int:
        """Epoch of the registration, -1 without one."""
        return -1 if self.registration is None else self.registration.leader_epoch

    @property
    def leader_id(self) -> int:
        """Leader as known here, -1 for none."""
        leader = None if self.registration is None else self.registration.leader
        return -1 if leader is None else leader

    @property
    def is_serving(self) -> bool:
        """True for a leader whose log has recorded its epoch."""
        return self.leadership is not None and self.leadership.start_offset is not None

    @property
    def visible_high_watermark(self) -> int:
        """The high watermark for consumers: -1 until it has reached the start of this leader's epoch (F6,
        A-6)."""
        leadership = self.leadership
        if (
            leadership is None
            or leadership.start_offset is None
            or self.high_watermark < leadership.start_offset
        ):
            return -1
        return self.high_watermark

    @property
    def claimed_high_watermark(self) -> int:
        """The highest high watermark that this replica knows of, also above its log end; an unclean recovery
        uses it to predict the loss (R68)."""
        return max(self.high_watermark, self._told_high_watermark)

    @property
    def known_end(self) -> int | None:
        """Where consumers' records end as far as this replica knows, also above its log end; None for one
        that has not heard from its present leader."""
        is_known = self.role is Role.LEADER or self._leader_end >= 0
        return self.claimed_high_watermark if is_known else None

    @property
    def is_under_min_isr(self) -> bool:
        """The committed ISR is smaller than min ISR (F1)."""
        registration = self.registration
        return registration is not None and len(registration.isr) < registration.min_isr

    @property
    def low_watermark(self) -> int:
        """Leader: the lowest durable log start in the maximal ISR, below which no next leader has records; -1
        while that of a member is unknown, and below min ISR: a member of the ELR may lead then."""
        leadership = self.leadership
        if leadership is None or self.is_under_min_isr:
            return -1
        progress = leadership.progress
        starts = [progress[r].log_start_offset for r in leadership.maximal_isr if r in progress]
        return min([self.log.durable_start_offset, *starts])

    @property
    def position(self) -> int:
        """This replica's log end as counted for the high watermark: the flushed offset where every write is
        flushed (D6)."""
        return self.log.flushed_offset if self.counts_flushed else self.log.log_end_offset

    # --- registrations --------------------------------------------------------------------------------------

    def apply_registration(self, registration: PartitionRegistration, now_ms: int) -> RoleChange:
        """Apply a committed registration, from metadata or from an AlterPartition answer. An older one is
        ignored. An equal partition epoch is the same state learnt again; the one from metadata is
        complete."""
        known = self.registration
        if known is not None:
            if registration.partition_epoch < known.partition_epoch:
                return RoleChange.IGNORED
            assert registration.leader_epoch >= known.leader_epoch, (
                f"{self.topic_name}-{self.key.partition_index}: a newer registration with an older leader "
                f"epoch: {known} -> {registration}"
            )
        self.registration = registration
        if known is None and registration.leader_recovery_state == RECOVERING:
            self._told_high_watermark = -1  # the checkpoint may be from before the unclean election
        if known is None or registration.leader_epoch > known.leader_epoch:
            return self._take_role(registration, now_ms)
        leadership = self.leadership
        if leadership is not None:
            if (
                leadership.proposal is None
                or registration.partition_epoch > leadership.proposal.partition_epoch
            ):
                leadership.proposal = None
                leadership.maximal_isr = registration.isr
            self._follow_replicas(leadership, registration)
        if known.partition_epoch == registration.partition_epoch:
            return RoleChange.IGNORED
        return RoleChange.UPDATED

    def _take_role(self, registration: PartitionRegistration, now_ms: int) -> RoleChange:
        if registration.leader is not None and registration.leader_recovery_state == RECOVERING:
            # An unclean election starts another history; its record reported what the former one has lost.
            self._told_high_watermark = -1
        self._leader_end = self._held_back = -1
        if registration.leader != self.broker_id:
            self.role = Role.FOLLOWER
            self.leadership = None
            return RoleChange.BECAME_FOLLOWER
        self.role = Role.LEADER
        progress = {
            replica_id: ReplicaProgress(replica_id, now_ms if replica_id in registration.isr else None)
            for replica_id in sorted(registration.replicas)
            if replica_id != self.broker_id
        }
        self.leadership = Leadership(registration.leader_epoch, progress, registration.isr)
        return RoleChange.BECAME_LEADER

    def _follow_replicas(self, leadership: Leadership, registration: PartitionRegistration) -> None:
        wanted = [replica_id for replica_id in sorted(registration.replicas) if replica_id != self.broker_id]
        if wanted != list(leadership.progress):
            progress = leadership.progress
            leadership.progress = {r: progress.get(r) or ReplicaProgress(r, None) for r in wanted}

    def drop_role(self) -> None:
        """Drop the role until metadata gives one again: the registration is over (N-2)."""
        self.registration = None
        self.leadership = None
        self.role = Role.NONE

    def epoch_started(self, leader_epoch: int, start_offset: int) -> bool:
        """The log has recorded the leader epoch at its end (R54). False when that epoch is over already."""
        leadership = self.leadership
        if leadership is None or leadership.leader_epoch != leader_epoch:
            return False
        leadership.start_offset = start_offset
        leadership.position = self.position
        return True

    # --- checks of requests ---------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Check a request's leader epoch (-1 for none) and that this replica leads (R55)."""
        known = self.leader_epoch
        if current_leader_epoch >= 0 and known >= 0:
            if current_leader_epoch < known:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > known:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_serving:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def check_produce(self, required_acks: int) -> ErrorCode:
        """Check whether a batch may be appended; with acks=all only while the ISR has min ISR members
        (F5)."""
        if not self.is_serving:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == -1 and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def leads_in(self, leader_epoch: int) -> bool:
        """True while this replica leads in that leader epoch."""
        return self.leadership is not None and self.leadership.leader_epoch == leader_epoch

    def check_waiting(self, leader_epoch: int, required_acks: int = -1) -> ErrorCode:
        """Check whether a batch appended in `leader_epoch` may still be acknowledged. After a refusal it may
        commit all the same (F5, A-18)."""
        if not self.leads_in(leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == -1 and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def check_reader(self, row: FetchPartition) -> Refusal | None:
        """Check a consumer's row (R55), and that this log holds what the consumer has read (R88)."""
        code = self.check_leader(row.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return Refusal(code)
        if row.last_fetched_epoch > self.leader_epoch:
            return Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return divergence.check_read(self.log, row.fetch_offset, row.last_fetched_epoch)

    # --- leader: followers' fetches -------------------------------------------------------------------------

    def check_follower(
        self,
        replica_id: int,
        broker_epoch: int,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
    ) -> Refusal | None:
        """Check which replica fetches, and that its log is a prefix of this one (R55, R80). None when it
        is."""
        error_code = self.check_leader(current_leader_epoch)
        if error_code is not ErrorCode.NONE:
            return Refusal(error_code)
        assert self.leadership is not None
        if replica_id not in self.leadership.progress:
            return Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if 0 <= broker_epoch < self._brokers.epochs.get(replica_id, -1):
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # a former incarnation
        is_isr_or_elr_member = self.is_isr_or_elr_member(replica_id)
        return divergence.check_copy(
            self.log, fetch_offset, last_fetched_epoch, is_isr_or_elr_member=is_isr_or_elr_member
        )

    def is_isr_or_elr_member(self, replica_id: int) -> bool:
        """It has, or has had, all that is committed in this history: what is gone was deleted."""
        registration = self.registration
        return registration is not None and (replica_id in registration.isr or replica_id in registration.elr)

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, flushed_offset: int, now_ms: int
    ) -> Proposal | None:
        """Count a fetch that passed `check_follower`: it proves what the follower holds. Returns a proposal
        if the follower may join the ISR now. The caller advances the high watermark afterwards."""
        leadership = self.leadership
        assert leadership is not None
        progress = leadership.progress[replica_id]
        position = min(flushed_offset, fetch_offset) if self.counts_flushed else fetch_offset
        progress.fetched(position, broker_epoch, self.position, now_ms)
        if replica_id in leadership.maximal_isr:
            return None
        return self._maybe_expand(leadership, progress, now_ms)

    def follower_begins(self, replica_id: int, log_start_offset: int) -> None:
        """Count where the log of a follower begins, as told in a fetch that passed `check_follower`."""
        assert self.leadership is not None
        self.leadership.progress[replica_id].log_start_offset = log_start_offset

    def _maybe_expand(
        self, leadership: Leadership, progress: ReplicaProgress, now_ms: int
    ) -> Proposal | None:
        registration = self.registration
        assert registration is not None
        if leadership.proposal is not None or not self._may_join(leadership, progress, now_ms):
            return None
        replica_id = progress.replica_id
        isr = tuple(sorted((*registration.isr, replica_id)))
        proposal = self._propose(leadership, isr)
        leadership.maximal_isr = isr
        return proposal

    def _may_join(self, leadership: Leadership, progress: ReplicaProgress, now_ms: int) -> bool:
        # R50, A-5: the follower has fetched in this epoch and reached the high watermark and the epoch's
        # start. KAFKA-19996: below min ISR the high watermark stands still and proves nothing, so the lag
        # behind the leader's end is bounded in time too.
        start_offset = leadership.start_offset
        return (
            start_offset is not None
            and not progress.is_silent
            and progress.position >= self.high_watermark
            and progress.position >= start_offset
            and self._is_eligible(progress)
            and progress.is_caught_up(self.position, now_ms, self._lag_ms_max)
            and not self._shows_deleted(progress)
        )

    def _shows_deleted(self, progress: ReplicaProgress) -> bool:
        # As leader it could show again what was told to be deleted; an earlier build does not say. In a topic
        # of offsets its coordinators alone delete, and say all that counts anew.
        is_told = self.topic_name != OFFSETS_TOPIC
        return is_told and 0 <= progress.log_start_offset < self.log.durable_start_offset

    def _is_eligible(self, progress: ReplicaProgress) -> bool:
        # Unfenced, not shutting down, log dir online (R27), and still the incarnation that fetched (R50,
        # KAFKA-15221). A follower that has not fetched in this leader epoch has no broker epoch here.
        # Unlike in Kafka, an unknown broker epoch (-1) does not pass: it proves no incarnation.
        epoch = self._brokers.acceptable.get(progress.replica_id)
        is_same = epoch is not None and epoch == progress.broker_epoch
        return is_same and not self._brokers.is_offline(progress.replica_id, self.key)

    def _propose(self, leadership: Leadership, isr: tuple[int, ...]) -> Proposal:
        registration = self.registration
        assert registration is not None and leadership.proposal is None
        assert self.broker_id in isr and set(isr) <= set(registration.replicas)
        epochs = tuple(-1 if r == self.broker_id else self._member_epoch(leadership, r) for r in isr)
        proposal = Proposal(isr, epochs, leadership.leader_epoch, registration.partition_epoch)
        leadership.proposal = proposal
        return proposal

    def _member_epoch(self, leadership: Leadership, replica_id: int) -> int:
        # A member that has not fetched in this leader epoch is proposed with the epoch that metadata has.
        known = leadership.progress[replica_id].broker_epoch
        return known if known >= 0 else self._brokers.acceptable.get(replica_id, -1)

    def maybe_shrink(self, now_ms: int) -> Proposal | None:
        """Propose an ISR without the followers that have lagged for the lag time (R51)."""
        leadership, registration = self.leadership, self.registration
        if leadership is None or registration is None or not leadership.may_propose:
            return None
        position = self.position
        out_of_sync = [
            replica_id
            for replica_id in registration.isr
            if replica_id != self.broker_id
            and not leadership.progress[replica_id].may_stay(position, now_ms, self._lag_ms_max)
        ]
        if not out_of_sync:
            return None
        return self._propose(leadership, tuple(r for r in registration.isr if r not in out_of_sync))

    def maybe_drop_silent(self, silence: Silence) -> Proposal | None:
        """Propose an ISR without the silent followers that hold back the high watermark (R115). Only where
        that lets it move: what is left is min ISR, and another member asks, so the leader itself is heard."""
        leadership, registration = self.leadership, self.registration
        if leadership is None or registration is None or not leadership.may_propose:
            return None
        isr, progress, position = registration.isr, leadership.progress, self.position
        followers = silence.silent - {self.broker_id}  # a stranger may have asked in its name
        silent = [
            r
            for r in isr
            if r in followers
            and progress[r].position < position
            and progress[r].has_owed_since(silence.since_ms)
        ]
        rest = tuple(r for r in isr if r not in silent)
        is_heard = any(r in silence.heard for r in rest if r != self.broker_id)
        if not silent or len(rest) < registration.min_isr or not is_heard:
            return None
        for replica_id in silent:
            progress[replica_id].is_silent = True
        return self._propose(leadership, rest)

    def retry_expand(self, now_ms: int) -> Proposal | None:
        """Check the followers outside the ISR again, after a proposal was closed or a broker was unfenced. A
        caught-up follower lists its row only when that changes, so its next fetch may be far away."""
        leadership = self.leadership
        if leadership is None or leadership.proposal is not None:
            return None
        for replica_id, progress in leadership.progress.items():
            if replica_id not in leadership.maximal_isr:
                proposal = self._maybe_expand(leadership, progress, now_ms)
                if proposal is not None:
                    return proposal
        return None

    def alter_answered(
        self, proposal: Proposal, answer: AlterPartitionPartitionResponse, now_ms: int
    ) -> tuple[AlterVerdict, RoleChange]:
        """Apply the controller's row for `proposal` (R44). A success is one more committed registration."""
        leadership, registration = self.leadership, self.registration
        if leadership is None or registration is None or leadership.proposal is not proposal:
            return AlterVerdict.CLOSED, RoleChange.IGNORED  # a metadata record came first
        code = answer.error_code
        if code == ErrorCode.NONE:
            if (
                answer.leader_epoch != leadership.leader_epoch
                or answer.partition_epoch < proposal.partition_epoch
            ):
                return AlterVerdict.WAIT, RoleChange.IGNORED
            leadership.proposal = None
            change = self.apply_registration(
                replace(
                    registration,
                    isr=answer.isr,
                    leader_recovery_state=answer.leader_recovery_state,
                    partition_epoch=answer.partition_epoch,
                    min_isr=answer.min_isr,
                ),
                now_ms,
            )
            return AlterVerdict.CLOSED, change
        if code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            leadership.proposal = None
            leadership.maximal_isr = registration.isr
            return AlterVerdict.CLOSED, RoleChange.IGNORED
        if code in _WAIT_FOR_METADATA:
            return AlterVerdict.WAIT, RoleChange.IGNORED
        return AlterVerdict.RESEND, RoleChange.IGNORED

    # --- leader: high watermark -----------------------------------------------------------------------------

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Move the high watermark to the lowest position among this replica, the maximal ISR and caught-up
        replicas that may join and are not silent (F3, R52, R115). It stays while the committed ISR is below
        min ISR (F1, A-2) or the ceiling is below the new value (R68), and never moves back on a leader. True
        when it moved."""
        leadership, registration = self.leadership, self.registration
        if leadership is None or leadership.start_offset is None:
            return False
        assert registration is not None
        position = self.position
        followers = leadership.progress.values()
        if position > leadership.position:
            for progress in followers:
                progress.leader_moved(leadership.position, now_ms)
            leadership.position = position
        if len(registration.isr) < registration.min_isr:
            return False
        end = position
        known = self.high_watermark
        if end <= known:
            return False
        maximal_isr = leadership.maximal_isr
        for progress in followers:
            if progress.position < end and (
                progress.replica_id in maximal_isr
                or (
                    not progress.is_silent
                    and self._is_eligible(progress)
                    and progress.is_caught_up(position, now_ms, self._lag_ms_max)
                )
            ):
                end = progress.position
                if end <= known:
                    return False
        if end > self.ceiling.limit:
            return False
        self.high_watermark = end
        return True

    # --- ceiling --------------------------------------------------------------------------------------------

    def ceiling_urgency(self) -> Urgency:
        """How urgently the log as it is needs a higher ceiling. A replica outside the ISR that has none yet
        needs the leader's log end first."""
        registration = self.registration
        if registration is None or (
            self.broker_id not in registration.isr and self._leader_end < 0 and self.ceiling.limit < 0
        ):
            return Urgency.NOT_NOW
        return self.ceiling.urgency(self.log.log_end_offset)

    @property
    def is_above_ceiling(self) -> bool:
        """The log end must not be shown to others yet."""
        return self.log.log_end_offset > self.ceiling.limit and (
            self.ceiling.is_storing or self.ceiling_urgency() is Urgency.NOW
        )

    def promise_ceiling(self, now_ms: int) -> int:
        """The next ceiling, to be stored. A replica outside the ISR may have lost committed records: its
        ceiling is not lowered, and covers the leader's log end."""
        registration, end = self.registration, self.log.log_end_offset
        is_in_sync = registration is not None and self.broker_id in registration.isr
        return self.ceiling.promise(
            end if is_in_sync else max(end, self._leader_end), now_ms, may_lower=is_in_sync
        )

    def ceiling_stored(self, offset: int) -> None:
        """A ceiling is durable: a high watermark that it held back is applied."""
        self.ceiling.stored(offset)
        if self.role is Role.FOLLOWER and self._held_back > self.high_watermark:
            self.high_watermark = min(self._held_back, self.ceiling.limit)

    def is_ceiling_too_high(self, now_ms: int) -> bool:
        """A lower ceiling would do: all that is committed is in the log."""
        registration = self.registration
        return (
            registration is not None
            and self.broker_id in registration.isr
            and self.ceiling.is_too_high(self.log.log_end_offset, now_ms)
        )

    # --- follower -------------------------------------------------------------------------------------------

    def truncation_offset(self, diverging_epoch: int, leader_end_offset: int) -> int | None:
        """Where to cut after a diverging answer, None to begin anew where the leader begins (R81)."""
        is_isr_or_elr_member = self.is_isr_or_elr_member(self.broker_id)
        return divergence.truncation_offset(
            self.log, diverging_epoch, leader_end_offset, is_isr_or_elr_member=is_isr_or_elr_member
        )

    def leader_answered(self, leader_high_watermark: int, leader_end: int) -> None:
        """Apply the leader's high watermark as far as the local log goes, also backwards (R52). Only after a
        diverging answer was acted upon (R82). `leader_end`: the leader's log end, -1 when not given."""
        assert self.role is not Role.LEADER
        self._leader_end = leader_end
        if leader_high_watermark < 0:
            return  # the leader does not know it in its epoch yet: keep the known one
        self._told_high_watermark = leader_high_watermark
        log = self.log
        wanted = max(log.log_start_offset, min(leader_high_watermark, log.log_end_offset))
        # A later unclean election must not find a high watermark above this replica's ceiling (R68).
        is_above = 0 <= self.ceiling.limit < wanted
        self.high_watermark = max(log.log_start_offset, self.ceiling.limit) if is_above else wanted
        self._held_back = wanted if is_above else -1

    def log_was_cut(self) -> None:
        """The log was truncated or reset: keep the high watermark within it."""
        self._held_back = -1
        log = self.log
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))


_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
