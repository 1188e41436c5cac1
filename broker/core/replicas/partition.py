"""One partition on this broker: its role, its high watermark, and as leader the ISR that it may propose.

Owns role, high watermark and the rules of the ISR; what only a leader has is in
`broker.core.replicas.leadership`. Reads its log through `LogView` and never writes it. Registrations come
from AlterPartition answers and metadata records and meet in `apply_registration`, ordered by
`partition_epoch` (N-5: min ISR travels with them). `broker.core.replicas.divergence` compares logs. Rules:
R50-R56, R82, F1-F6.

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
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERING
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionPartitionResponse
from holdfast.protocol.messages.fetch import FetchPartition


class Role(Enum):
    """What this broker does for a partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class RoleChange(Enum):
    """What a registration meant for this broker."""

    #: older than what is known, or nothing new
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
        #: every write is flushed: the high watermark, joins and catch-up count flushed offsets (D6)
        self.counts_flushed = counts_flushed
        #: last one applied; None before the first and after roles were dropped
        self.registration: PartitionRegistration | None = None
        self.role = Role.NONE
        #: end (exclusive) of the committed part as known here; within [log start, log end] always
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self.leadership: Leadership | None = None
        #: high watermark of this history as last told, also above the log's end: after a lost tail, or a lag
        self._told_high_watermark = high_watermark
        self._brokers = brokers
        self._lag_ms_max = lag_ms_max
        #: what others are shown of the log stays below (R68)
        self.ceiling = ceiling
        #: of the log that we follow as its leader told last, -1 when not known
        self._leader_end = -1
        #: the leader's high watermark as far as our log goes, while our ceiling is below it; -1 else
        self._held_back = -1

    # --- what others may ask -------------------------------------------------------------------------------

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
        """Leader whose log has taken the epoch."""
        return self.leadership is not None and self.leadership.start_offset is not None

    @property
    def visible_high_watermark(self) -> int:
        """What consumers may know: -1 until it has reached the start of this leader's epoch (F6, A-6)."""
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
        """The highest that this replica knows of, wherever its own log ends: what a recovery may have lost
        (R68)."""
        return max(self.high_watermark, self._told_high_watermark)

    @property
    def is_under_min_isr(self) -> bool:
        """The committed ISR is smaller than min ISR (F1)."""
        registration = self.registration
        return registration is not None and len(registration.isr) < registration.min_isr

    @property
    def position(self) -> int:
        """Own end as counted for the high watermark (D6)."""
        return self.log.flushed_offset if self.counts_flushed else self.log.log_end_offset

    # --- registrations --------------------------------------------------------------------------------------

    def apply_registration(self, registration: PartitionRegistration, now_ms: int) -> RoleChange:
        """Take a committed state, from metadata or from an AlterPartition answer. Older ones are ignored;
        an equal partition epoch is the same state learnt a second time, in full when it comes from
        metadata."""
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
            self._told_high_watermark = -1  # what was read from a disk may be of the history before this one
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
            # another history begins, and what this one has lost was told with the election
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
        """Forget the role until metadata gives one again: our registration is not valid any more (N-2)."""
        self.registration = None
        self.leadership = None
        self.role = Role.NONE

    def epoch_started(self, leader_epoch: int, start_offset: int) -> bool:
        """The log has taken the leader epoch at its end (R54). False when the epoch is over already."""
        leadership = self.leadership
        if leadership is None or leadership.leader_epoch != leader_epoch:
            return False
        leadership.start_offset = start_offset
        leadership.position = self.position
        return True

    # --- checks of requests ---------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Compare a reader's leader epoch (-1 for none) and demand that we lead (R55)."""
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
        """May a batch be appended here? With acks=all only while the ISR has min ISR members (F5)."""
        if not self.is_serving:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == -1 and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def leads_in(self, leader_epoch: int) -> bool:
        """True while this replica leads in that leader epoch."""
        return self.leadership is not None and self.leadership.leader_epoch == leader_epoch

    def check_waiting(self, leader_epoch: int, required_acks: int = -1) -> ErrorCode:
        """May a batch appended in `leader_epoch` still be acknowledged? (F5, A-18: it may commit all the
        same.)"""
        if not self.leads_in(leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == -1 and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def check_reader(self, row: FetchPartition) -> Refusal | None:
        """Check a consumer's row (R55) and whether this log holds what it has read (R88)."""
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
        """Check who fetches and whether its log is a prefix of ours (R55, R80). None when it may go on."""
        error_code = self.check_leader(current_leader_epoch)
        if error_code is not ErrorCode.NONE:
            return Refusal(error_code)
        assert self.leadership is not None
        if replica_id not in self.leadership.progress:
            return Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if 0 <= broker_epoch < self._brokers.epochs.get(replica_id, -1):
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # a former incarnation
        is_isr_or_elr_member = self._is_isr_or_elr_member(replica_id)
        return divergence.check_copy(
            self.log, fetch_offset, last_fetched_epoch, is_isr_or_elr_member=is_isr_or_elr_member
        )

    def _is_isr_or_elr_member(self, replica_id: int) -> bool:
        """It has, or has had, all that is committed in this history: what is gone was deleted."""
        registration = self.registration
        return registration is not None and (replica_id in registration.isr or replica_id in registration.elr)

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, flushed_offset: int, now_ms: int
    ) -> Proposal | None:
        """Count a fetch that passed `check_follower`: the request proves what the follower holds. Returns the
        proposal to let it into the ISR, if that is due now. The caller advances the high watermark
        afterwards."""
        leadership = self.leadership
        assert leadership is not None
        progress = leadership.progress[replica_id]
        position = min(flushed_offset, fetch_offset) if self.counts_flushed else fetch_offset
        progress.fetched(position, broker_epoch, self.position, now_ms)
        if replica_id in leadership.maximal_isr:
            return None
        return self._maybe_expand(leadership, progress, now_ms)

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
        # R50 and A-5: fetched in this epoch, reached the high watermark and the start of the epoch.
        # KAFKA-19996: below min ISR the high watermark stands still and proves nothing, so the lag behind
        # our end is bounded in time too.
        start_offset = leadership.start_offset
        return (
            start_offset is not None
            and progress.position >= self.high_watermark
            and progress.position >= start_offset
            and self._is_eligible(progress)
            and progress.is_caught_up(self.position, now_ms, self._lag_ms_max)
        )

    def _is_eligible(self, progress: ReplicaProgress) -> bool:
        # Unfenced, not shutting down, log dir online, and in the incarnation that fetched (R50, KAFKA-15221,
        # R27). Who has not
        # fetched in this leader epoch has no broker epoch here. Differs from Kafka: an unknown broker
        # epoch (-1) proves no incarnation and does not pass.
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
        # A member that has not fetched in this leader epoch is named with the epoch that metadata knows.
        known = leadership.progress[replica_id].broker_epoch
        return known if known >= 0 else self._brokers.acceptable.get(replica_id, -1)

    def maybe_shrink(self, now_ms: int) -> Proposal | None:
        """Propose an ISR without the followers that have not been caught up for the lag time (R51)."""
        leadership, registration = self.leadership, self.registration
        if (
            leadership is None
            or registration is None
            or leadership.start_offset is None
            or leadership.proposal
        ):
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

    def retry_expand(self, now_ms: int) -> Proposal | None:
        """Look again at followers outside the ISR: a proposal that stood in the way is closed, or a broker
        was unfenced. Later fetches would find them too, but a caught-up follower lists its row only when it
        changes."""
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
        """React to the controller's row for `proposal` (R44). Success is one more committed registration."""
        leadership, registration = self.leadership, self.registration
        if leadership is None or registration is None or leadership.proposal is not proposal:
            return AlterVerdict.CLOSED, RoleChange.IGNORED  # metadata was faster
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
        """Move it to the lowest position over us, the maximal ISR and caught-up replicas that may join (F3,
        R52), unless the committed ISR is below min ISR (F1, A-2) or the ceiling below that (R68). Never moves
        back on a leader. True when it moved."""
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
                or (self._is_eligible(progress) and progress.is_caught_up(position, now_ms, self._lag_ms_max))
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
        """How much a higher ceiling is needed for what the log holds now. Who is not in sync and has none yet
        cannot promise before its leader has told how much there is."""
        registration = self.registration
        if registration is None or (
            self.broker_id not in registration.isr and self._leader_end < 0 and self.ceiling.limit < 0
        ):
            return Urgency.NOT_NOW
        return self.ceiling.urgency(self.log.log_end_offset)

    @property
    def is_above_ceiling(self) -> bool:
        """The log must not be shown as far as it goes."""
        return self.log.log_end_offset > self.ceiling.limit and (
            self.ceiling.is_storing or self.ceiling_urgency() is Urgency.NOW
        )

    def promise_ceiling(self, now_ms: int) -> int:
        """The next ceiling, to be stored. Who is not in sync may have lost what was committed: it keeps what
        it promised before, and promises what its leader holds."""
        registration, end = self.registration, self.log.log_end_offset
        is_in_sync = registration is not None and self.broker_id in registration.isr
        return self.ceiling.promise(
            end if is_in_sync else max(end, self._leader_end), now_ms, may_lower=is_in_sync
        )

    def ceiling_stored(self, offset: int) -> None:
        """A promise is durable: what it held back may be shown, and be believed."""
        self.ceiling.stored(offset)
        if self.role is Role.FOLLOWER and self._held_back > self.high_watermark:
            self.high_watermark = min(self._held_back, self.ceiling.limit)

    def is_ceiling_too_high(self, now_ms: int) -> bool:
        """A lower one would do: all that was committed is in the log."""
        registration = self.registration
        return (
            registration is not None
            and self.broker_id in registration.isr
            and self.ceiling.is_too_high(self.log.log_end_offset, now_ms)
        )

    # --- follower -------------------------------------------------------------------------------------------

    def truncation_offset(self, diverging_epoch: int, leader_end_offset: int) -> int | None:
        """Where to cut after a diverging answer, None to begin anew where the leader begins (R81)."""
        is_isr_or_elr_member = self._is_isr_or_elr_member(self.broker_id)
        return divergence.truncation_offset(
            self.log, diverging_epoch, leader_end_offset, is_isr_or_elr_member=is_isr_or_elr_member
        )

    def leader_answered(self, leader_high_watermark: int, leader_end: int) -> None:
        """Follow the leader's high watermark as far as our log goes, also backwards (R52). Only after a
        diverging answer was acted upon (R82). `leader_end`: of its log, -1 when not told."""
        assert self.role is not Role.LEADER
        self._leader_end = leader_end
        if leader_high_watermark < 0:
            return  # not known yet in its epoch: what we know stays true
        self._told_high_watermark = leader_high_watermark
        log = self.log
        wanted = max(log.log_start_offset, min(leader_high_watermark, log.log_end_offset))
        # elected uncleanly now it begins with no more than it has promised (R68)
        is_above = 0 <= self.ceiling.limit < wanted
        self.high_watermark = max(log.log_start_offset, self.ceiling.limit) if is_above else wanted
        self._held_back = wanted if is_above else -1

    def log_was_cut(self) -> None:
        """The log has become shorter or starts later: the high watermark stays inside of it."""
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
