"""The only maker of PartitionChangeRecord: from a registration and a requested change to the next
registration.

Owns the order of the steps (R4), when epochs grow, the last known leader, and what an unclean election clears
(R10). The new value is computed first and the record is its difference, so that no step sees another step's
partial result. The decision stored with it is what these steps found. Does not check who may request a
change.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.controller.core.decisions import UNSTATED, Cause, Decision
from holdfast.controller.core.partitions.election import (
    Candidates,
    Elected,
    ElectionMode,
    ElectionReason,
    Rejection,
    elect,
)
from holdfast.controller.core.partitions.elr import EligibleSets, SetsRule, next_eligible
from holdfast.metadata.partition import PartitionRegistration, effective_min_isr, leader_number
from holdfast.metadata.records import RECOVERING, PartitionChangeRecord


class InvariantBroken(AssertionError):
    """A change would break an invariant: a bug of Holdfast, found before anything was written (D7)."""


@dataclass(frozen=True, slots=True)
class ElectionContext:
    """What a change must know of the rest of the cluster."""

    #: registered, unfenced, not in controlled shutdown, as of after the event
    is_active: Callable[[int], bool]
    elr_enabled: bool
    #: configured for the topic; the effective value follows from it (R109)
    min_insync_replicas: int
    #: ONLINE, or UNCLEAN where the topic allows that
    mode: ElectionMode = ElectionMode.ONLINE
    #: the recovery manager is on: the last known leader is not trusted, and an unclean election keeps the
    #: last known ELR (D8.1, D8.4)
    compares_logs: bool = False
    #: why a broker that is not active may not lead
    why_inactive: Callable[[int], Rejection] = lambda broker_id: Rejection.FENCED

    def without(self, offline: tuple[int, ...]) -> "ElectionContext":
        """The same for a partition whose replicas on these brokers lie in failed log dirs (R27)."""
        is_active, why_inactive = self.is_active, self.why_inactive

        def why(broker_id: int) -> Rejection:
            if broker_id in offline and is_active(broker_id):
                return Rejection.LOG_DIR_FAILED
            return why_inactive(broker_id)

        return replace(
            self,
            is_active=lambda broker_id: broker_id not in offline and is_active(broker_id),
            why_inactive=why,
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Replica lists; `original` is None when no reassignment is under way (R100, R105)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    original: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """A requested change; None leaves a field as it is."""

    isr: tuple[int, ...] | None = None
    #: replicas whose log may have lost its tail: never eligible, kept in last_known_elr (R5, R6)
    unclean: tuple[int, ...] = ()
    #: replicas whose brokers were unregistered (B10)
    forgotten: tuple[int, ...] = ()
    leader_recovery_state: int | None = None
    assignment: Assignment | None = None
    #: for a partition without a leader: elect this replica or none (R18)
    designated: int | None = None
    #: reason of that election, unless the replica is complete
    designation: ElectionReason = ElectionReason.DESIGNATED
    #: check the third clause of R9: AlterPartition, fencing and unfencing (D7)
    keeps_candidates: bool = False


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One record, and the values before and after it."""

    before: PartitionRegistration
    after: PartitionRegistration
    record: PartitionChangeRecord
    decision: Decision
    #: members of ELR and last_known_elr that an unclean election passed over (R10, D8.4)
    dropped: tuple[int, ...] = ()

    @property
    def reason(self) -> ElectionReason | None:
        """By which rule a new leader was elected, None when there is no new leader."""
        return self.decision.reason


def change_partition(
    topic_id: bytes,
    partition_index: int,
    before: PartitionRegistration,
    requested: RequestedChange,
    context: ElectionContext,
    cause: Cause = UNSTATED,
) -> PartitionChange | None:
    """The change that grants the wish, or None when nothing changes (R3). Raises: InvariantBroken."""
    assignment, isr = _assignment_and_isr(before, requested, context)
    replicas = assignment.replicas
    counted = replicas if assignment.original is None else assignment.original
    min_isr = effective_min_isr(context.min_insync_replicas, len(counted))
    sets, sets_rule = _eligible(before, isr, min_isr, replicas, requested, context)
    known = before.last_known_leader if before.last_known_leader in replicas else None
    candidates = Candidates(
        replicas,
        isr,
        sets.elr,
        before.leader,
        known,
        context.is_active,
        context.why_inactive,
        trusts_last_known_leader=context.elr_enabled and not context.compares_logs,
        designated=None if requested.designated is None else (requested.designated, requested.designation),
        last_known_elr=sets.last_known_elr,
    )
    election = elect(candidates, context.mode)
    recovery_state = before.leader_recovery_state
    if requested.leader_recovery_state is not None:
        recovery_state = requested.leader_recovery_state
    dropped: tuple[int, ...] = ()
    leader: int | None = None
    takes_over = False
    if isinstance(election, Elected):
        leader = election.leader
        takes_over = leader not in isr
        if takes_over and election.reason.is_unclean:
            dropped = tuple(r for r in sorted(sets.elr + sets.last_known_elr) if r != leader)
            sets, sets_rule = _after_unclean_election(isr, sets, leader, min_isr, context)
            isr, recovery_state = (leader,), RECOVERING
        elif takes_over:
            isr = (leader,)
            sets, sets_rule = _eligible(before, isr, min_isr, replicas, requested, context)
        known = None
    else:
        if not context.elr_enabled and not isr:
            # without ELR the last member stays, though it is fenced (F7)
            isr = tuple(r for r in before.isr if r in replicas)
        known = _last_to_lead(before, isr, requested) if context.elr_enabled else None
        known = known if known in replicas else None
    lost_replica = not set(before.replicas).issubset(replicas)
    # R2: any decision about the leader raises the epoch, also for no leader; R4 step 4: so does a lost
    # replica
    decides = leader != before.leader or takes_over or lost_replica
    after = PartitionRegistration(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=before.leader_epoch + decides,
        partition_epoch=before.partition_epoch,
        min_isr=min_isr,
        elr=sets.elr,
        last_known_elr=sets.last_known_elr,
        last_known_leader=known,
        leader_recovery_state=recovery_state,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
        original_replicas=assignment.original,
    )
    if after == before:
        return None
    reason = election.reason if isinstance(election, Elected) and leader != before.leader else None
    decision = Decision(cause, reason, election.rejected, sets_rule)
    record = _difference(topic_id, partition_index, before, after, decision)
    change = PartitionChange(before, before.merge(record), record, decision, dropped)
    _check(change, after, requested, context)
    return change


def _last_to_lead(
    before: PartitionRegistration, isr: tuple[int, ...], requested: RequestedChange
) -> int | None:
    """The last known leader of a partition without a leader (F40).

    Without ELR the last ISR member, which led, stays in the ISR, and none is noted (F7). When ELR is on again
    and that member leaves, it is the last to have led.
    """
    if before.leader is not None:
        return before.leader
    if before.last_known_leader is None and len(before.isr) == 1 and not isr:
        return None if before.isr[0] in requested.forgotten else before.isr[0]
    return before.last_known_leader


def _after_unclean_election(
    isr: tuple[int, ...], sets: EligibleSets, leader: int, min_isr: int, context: ElectionContext
) -> tuple[EligibleSets, SetsRule]:
    """R10: all is forgotten, as in Kafka; where logs are compared the seats are kept for another time."""
    if not context.compares_logs or min_isr <= 1:
        return EligibleSets(), SetsRule.FORGOTTEN_BY_UNCLEAN_ELECTION
    seats = set(isr).union(sets.elr, sets.last_known_elr).difference((leader,))
    return EligibleSets((), tuple(sorted(seats))), SetsRule.SEATS_AFTER_UNCLEAN_ELECTION


def _eligible(
    before: PartitionRegistration,
    isr: tuple[int, ...],
    min_isr: int,
    replicas: tuple[int, ...],
    requested: RequestedChange,
    context: ElectionContext,
) -> tuple[EligibleSets, SetsRule]:
    if not context.elr_enabled:
        return EligibleSets(), SetsRule.ELR_OFF
    rule = SetsRule.CLEARED_AT_MIN_ISR if len(isr) >= min_isr else SetsRule.KEPT_BELOW_MIN_ISR
    sets = next_eligible(
        EligibleSets(before.elr, before.last_known_elr),
        old_isr=before.isr,
        new_isr=isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=requested.unclean,
        forgotten=requested.forgotten,
    )
    return sets, rule


def _assignment_and_isr(
    before: PartitionRegistration, requested: RequestedChange, context: ElectionContext
) -> tuple[Assignment, tuple[int, ...]]:
    """Step 1 of R4: replica lists and ISR, with a reassignment completed if it can be (R101, R102)."""
    assignment = requested.assignment or Assignment(
        before.replicas, before.adding_replicas, before.removing_replicas, before.original_replicas
    )
    isr = before.isr if requested.isr is None else tuple(sorted(requested.isr))
    if assignment.original is not None:
        final = tuple(r for r in assignment.replicas if r not in assignment.removing)
        staying = tuple(r for r in isr if r in final)
        if (
            set(staying).issuperset(assignment.adding)
            and len(staying) >= effective_min_isr(context.min_insync_replicas, len(final))
            and not _needs_leaver(assignment.removing, staying, requested, context)
        ):
            return Assignment(final), staying
    return assignment, isr


def _needs_leaver(
    removing: tuple[int, ...], staying: tuple[int, ...], requested: RequestedChange, context: ElectionContext
) -> bool:
    """Without ELR the last ISR member stays though it is fenced (F7), so a reassignment may be complete while
    only leaving replicas are active. The record that elects one of them must not remove it."""
    if requested.designated is not None:
        return requested.designated in removing
    return (
        context.mode is ElectionMode.UNCLEAN
        and not any(map(context.is_active, staying))
        and any(map(context.is_active, removing))
    )


def _difference(
    topic_id: bytes,
    partition_index: int,
    before: PartitionRegistration,
    after: PartitionRegistration,
    decision: Decision,
) -> PartitionChangeRecord:
    def changed(name: str) -> tuple[int, ...] | None:
        new: tuple[int, ...] = getattr(after, name)
        return None if new == getattr(before, name) else new

    def changed_number(name: str) -> int | None:
        new: int = getattr(after, name)
        return None if new == getattr(before, name) else new

    return PartitionChangeRecord(
        topic_id=topic_id,
        partition_index=partition_index,
        isr=changed("isr"),
        leader=None if after.leader_epoch == before.leader_epoch else leader_number(after.leader),
        replicas=changed("replicas"),
        removing_replicas=changed("removing_replicas"),
        adding_replicas=changed("adding_replicas"),
        original_replicas=(
            None if after.original_replicas == before.original_replicas else after.original_replicas or ()
        ),
        elr=changed("elr"),
        last_known_elr=changed("last_known_elr"),
        last_known_leader=(
            None
            if after.last_known_leader == before.last_known_leader
            else leader_number(after.last_known_leader)
        ),
        leader_recovery_state=changed_number("leader_recovery_state"),
        min_isr=changed_number("min_isr"),
        decision=decision.stored(),
    )


def _check(
    change: PartitionChange,
    meant: PartitionRegistration,
    requested: RequestedChange,
    context: ElectionContext,
) -> None:
    """Raise InvariantBroken when the record does not do what is meant, or breaks R9.

    Replay checks what can be seen in the value alone.
    """
    before, after = change.before, change.after
    broken: list[str] = []
    if (after.leader, after.isr, after.elr, after.last_known_elr, after.leader_epoch) != (
        meant.leader,
        meant.isr,
        meant.elr,
        meant.last_known_elr,
        meant.leader_epoch,
    ):
        broken.append(f"{change.record} does not lead to {meant}")
    if after.leader is not None and after.leader != before.leader and not context.is_active(after.leader):
        broken.append(f"elected {after.leader}, which is not active")
    counts_candidates = (
        requested.keeps_candidates
        and context.elr_enabled
        and len(after.isr) < after.min_isr == before.min_isr
        and (change.reason is None or not change.reason.is_unclean)
    )
    if counts_candidates and len(after.isr + after.elr) < len(before.isr + before.elr):
        broken.append("isr and elr lost a member below min_isr (R9)")
    if broken:
        raise InvariantBroken(f"{before} -> {after}: {'; '.join(broken)}")
