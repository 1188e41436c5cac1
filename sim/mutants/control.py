"""Mutants of the controller: elections, ELR, AlterPartition, registrations, commits.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.core.replicas.partition import Partition
from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.events import Respond
from holdfast.controller.core.partitions import partition_change, replication_control
from holdfast.controller.core.partitions.election import Candidates, Elected, ElectionMode, ElectionReason
from holdfast.controller.core.partitions.elr import EligibleSets, SetsRule
from holdfast.controller.core.partitions.proposal_order import ProposalOrder
from holdfast.controller.core.partitions.replication_control import Departure, ReplicationControl
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import FenceBrokerRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.mutants.mutant import Patch, Setting, mutant
from holdfast.sim.mutants.replication import BRIDGED, OVERTAKEN, REFUSED

#: the ISR falls below min ISR, the ELR fills, and members of it die and return
BELOW_MIN_ISR = Setting(
    faults={"kill_broker": 5, "kill_leader": 4, "power_broker": 3, "power_leader": 3, "isolate_leader": 1}
)
#: all brokers stop uncleanly sooner or later, and the controller moves
ACTIVE_MOVES = Setting(
    faults={"kill_active": 5, "isolate_active": 3, "pause_active": 3, "kill_leader": 3, "kill_broker": 3}
)
#: members of proposals stop and return while proposals are on their way
PROPOSALS = Setting(
    faults={
        "kill_broker": 4,
        "kill_leader": 2,
        "clog": 3,
        "cut_controllers": 3,
        "pause_broker": 3,
        "isolate_broker": 2,
    }
)
#: a refused proposal comes once more, long after it was sent
COPIES = Setting(faults={"late_copy": 6}, gap_ms=5_000, seconds=25)
#: with min ISR 3 of 3 the ELR fills while two are in sync
TALL = Setting(
    faults={"isolate_broker": 4, "isolate_leader": 3, "kill_broker": 3, "kill_leader": 4, "pause_leader": 2},
    shape={"min_isr": 3},
    gap_ms=400,
)
#: log dirs fail while the ELR fills
DIRS_FAIL_BELOW_MIN_ISR = Setting(
    faults={"fail_dir": 6, "isolate_broker": 3, "kill_broker": 2},
    shape={"log_dirs": 2, "min_isr": 3},
    gap_ms=500,
)
#: machines come back with an old disk, and its mark of an old stop
OLD_DISKS = Setting(
    band="lying-disks",
    faults={"keep_copy": 5, "restore_copy": 6, "stop_broker": 5, "kill_broker": 2},
    gap_ms=400,
)


def _nothing_broken(original: Any, change: Any, meant: Any, requested: Any, context: Any) -> None:
    return None


#: without the controller's own check of a change (D7), which meets many of these before anything is written
UNCHECKED = Patch(partition_change, "_check", _nothing_broken)


# --- ELR ---------------------------------------------------------------------------------------------------


def _sets(*, elr: Any, known: Any) -> EligibleSets:
    return EligibleSets(tuple(sorted(set(elr))), tuple(sorted(set(known) - set(elr))))


@mutant(
    partition_change,
    "next_eligible",
    breaks="R5, B4",
    by="OwnBug I-6 I-8",
    setting=BELOW_MIN_ISR,
    killed_by="OwnBug@1",
)
def elr_above_min_isr(
    original: Any,
    before: Any,
    *,
    old_isr: Any,
    new_isr: Any,
    min_isr: Any,
    replicas: Any,
    unclean: Any = (),
    forgotten: Any = (),
) -> Any:
    """A removed replica is put into the ELR although the ISR stays at min ISR."""
    sets = original(
        before,
        old_isr=old_isr,
        new_isr=new_isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=unclean,
        forgotten=forgotten,
    )
    removed = set(old_isr).difference(new_isr, unclean, forgotten).intersection(replicas)
    return _sets(elr=removed.union(sets.elr), known=sets.last_known_elr)


@mutant(partition_change, "_eligible", breaks="R2, R5", by="R2", setting=BELOW_MIN_ISR, killed_by="R2@1")
def explains_by_the_other_rule(
    original: Any, before: Any, isr: Any, min_isr: Any, replicas: Any, requested: Any, context: Any
) -> Any:
    """The sets of the ELR are right, and the record says that another rule has made them."""
    sets, rule = original(before, isr, min_isr, replicas, requested, context)
    below = SetsRule.KEPT_BELOW_MIN_ISR
    return sets, SetsRule.CLEARED_AT_MIN_ISR if rule is below else below


@mutant(partition_change, "elect", breaks="R2", by="R2", killed_by="R2@1")
def tells_of_nobody_passed_over(original: Any, candidates: Any, mode: Any) -> Any:
    """The record does not say who could not lead, and why."""
    return replace(original(candidates, mode), rejected=())


@mutant(
    partition_change,
    "next_eligible",
    breaks="R5, R32",
    by="A-8 I-8 A-9",
    setting=BELOW_MIN_ISR,
    killed_by="A-8@1",
)
def unclean_stays_in_elr(
    original: Any,
    before: Any,
    *,
    old_isr: Any,
    new_isr: Any,
    min_isr: Any,
    replicas: Any,
    unclean: Any = (),
    forgotten: Any = (),
) -> Any:
    """A broker that registers unclean stays in the ELR."""
    return original(
        before, old_isr=old_isr, new_isr=new_isr, min_isr=min_isr, replicas=replicas, forgotten=forgotten
    )


@mutant(
    partition_change,
    "next_eligible",
    breaks="R5",
    by="OwnBug I-6 A-9",
    setting=BELOW_MIN_ISR,
    killed_by="OwnBug@2",
)
def elr_not_cleared(
    original: Any,
    before: Any,
    *,
    old_isr: Any,
    new_isr: Any,
    min_isr: Any,
    replicas: Any,
    unclean: Any = (),
    forgotten: Any = (),
) -> Any:
    """The ELR outlives the ISR's return to min ISR."""
    sets = original(
        before,
        old_isr=old_isr,
        new_isr=new_isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=unclean,
        forgotten=forgotten,
    )
    kept = set(before.elr).difference(new_isr, unclean, forgotten).intersection(replicas)
    return _sets(elr=kept.union(sets.elr), known=sets.last_known_elr)


@mutant(
    partition_change,
    "next_eligible",
    breaks="R5, R9",
    by="A-12 A-9 A-10",
    setting=BELOW_MIN_ISR,
    killed_by="A-12@1",
)
def elr_forgets(
    original: Any,
    before: Any,
    *,
    old_isr: Any,
    new_isr: Any,
    min_isr: Any,
    replicas: Any,
    unclean: Any = (),
    forgotten: Any = (),
) -> Any:
    """Only who leaves the ISR now is eligible, not who was before."""
    return original(
        replace(before, elr=()),
        old_isr=old_isr,
        new_isr=new_isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=unclean,
        forgotten=forgotten,
    )


@mutant(
    partition_change,
    "next_eligible",
    breaks="R6",
    by="A-12 I-14 A-9",
    setting=BELOW_MIN_ISR,
    killed_by="A-12@11",
)
def last_known_elr_cleared_by_election(
    original: Any,
    before: Any,
    *,
    old_isr: Any,
    new_isr: Any,
    min_isr: Any,
    replicas: Any,
    unclean: Any = (),
    forgotten: Any = (),
) -> Any:
    """The last known ELR is forgotten as soon as a replica is in sync, not when min ISR is reached."""
    sets = original(
        before,
        old_isr=old_isr,
        new_isr=new_isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=unclean,
        forgotten=forgotten,
    )
    known = set(sets.last_known_elr).intersection(unclean) if new_isr else sets.last_known_elr
    return _sets(elr=sets.elr, known=known)


@mutant(
    partition_change,
    "next_eligible",
    breaks="R6",
    by="A-12 I-14 A-9",
    setting=BELOW_MIN_ISR,
    killed_by="A-12@1",
)
def last_known_elr_forgets_unclean(
    original: Any,
    before: Any,
    *,
    old_isr: Any,
    new_isr: Any,
    min_isr: Any,
    replicas: Any,
    unclean: Any = (),
    forgotten: Any = (),
) -> Any:
    """Members with an unclean shutdown do not become last known."""
    sets = original(
        before,
        old_isr=old_isr,
        new_isr=new_isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=unclean,
        forgotten=forgotten,
    )
    return _sets(elr=sets.elr, known=set(sets.last_known_elr).difference(unclean))


# --- elections ---------------------------------------------------------------------------------------------


@mutant(
    Candidates,
    "verdict_on",
    breaks="R11, R12",
    by="A-3 I-8 I-9",
    setting=BELOW_MIN_ISR,
    killed_by="A-3@2",
)
def elects_any_unfenced(original: Any, self: Candidates, replica: int) -> Any:
    """The first active replica is elected, in the ISR or not."""
    verdict = original(self, replica)
    if isinstance(verdict, ElectionReason) or replica not in self.replicas or not self.is_active(replica):
        return verdict
    return ElectionReason.ELR


@mutant(
    Candidates,
    "verdict_on",
    breaks="R11",
    by="A-11 I-5 A-12",
    setting=BELOW_MIN_ISR,
    more=(UNCHECKED,),
    killed_by="A-11@2",
)
def elects_fenced_elr(original: Any, self: Candidates, replica: int) -> Any:
    """A member of the ELR is elected although it is fenced."""
    if not self.isr and replica in self.elr and replica in self.replicas:
        return ElectionReason.ELR
    return original(self, replica)


@mutant(
    Candidates,
    "verdict_on",
    breaks="R11, D7",
    by="A-11 OwnBug L-4",
    setting=BELOW_MIN_ISR,
    killed_by="A-11@2",
)
def means_to_elect_fenced_elr(original: Any, self: Candidates, replica: int) -> Any:
    """As elects-fenced-elr, but the controller's own check of the change is still there (D7)."""
    return elects_fenced_elr(original, self, replica)


@mutant(
    partition_change,
    "elect",
    breaks="R13",
    by="A-13 I-5",
    setting=BELOW_MIN_ISR,
    more=(UNCHECKED,),
    killed_by="A-13@2",
)
def elects_fenced_last_known_leader(original: Any, candidates: Any, mode: ElectionMode) -> Any:
    """The last known leader is elected without a look at whether it is there."""
    election = original(candidates, mode)
    known = candidates.last_known_leader
    is_open = candidates.trusts_last_known_leader and not candidates.isr and not candidates.elr
    if isinstance(election, Elected) or not is_open or known not in candidates.replicas:
        return election
    return Elected(known, ElectionReason.LAST_KNOWN_LEADER)


@mutant(
    partition_change, "elect", breaks="R13", by="A-12 A-13 I-8 I-9", setting=BELOW_MIN_ISR, killed_by="A-13@2"
)
def last_known_leader_before_elr(original: Any, candidates: Any, mode: ElectionMode) -> Any:
    """The last known leader is elected although members of the ELR are only fenced."""
    election = original(candidates, mode)
    known = candidates.last_known_leader
    if isinstance(election, Elected) or candidates.isr or known is None or known not in candidates.replicas:
        return election
    return Elected(known, ElectionReason.LAST_KNOWN_LEADER) if candidates.is_active(known) else election


@mutant(
    Candidates,
    "verdict_on",
    breaks="R12",
    by="A-13 A-3",
    setting=TALL,
    killed_by="A-3@7",
)
def elects_elr_before_isr(original: Any, self: Candidates, replica: int) -> Any:
    """Members of the ELR are candidates while the ISR has active ones."""
    if replica in self.elr and replica in self.replicas and self.is_active(replica):
        return ElectionReason.ELR
    return original(self, replica)


def _epoch_stays(original: Any, self: Any, record: Any) -> Any:
    after = original(self, record)
    return replace(after, leader_epoch=self.leader_epoch) if after.leader is not None else after


@mutant(
    PartitionRegistration,
    "merge",
    breaks="R2",
    by="A-11 I-10 I-15",
    more=(UNCHECKED,),
    killed_by="A-11@1",
)
def leader_epoch_not_bumped(original: Any, self: Any, record: Any) -> Any:
    """A new leader keeps the leader epoch."""
    return _epoch_stays(original, self, record)


@mutant(
    PartitionRegistration, "merge", breaks="R2, N-5", by="A-11 A-8", more=(UNCHECKED,), killed_by="A-11@1"
)
def partition_epoch_not_bumped(original: Any, self: Any, record: Any) -> Any:
    """The partition epoch grows with elections only."""
    after = original(self, record)
    is_election = after.leader_epoch > self.leader_epoch
    return after if is_election else replace(after, partition_epoch=self.partition_epoch)


# --- AlterPartition ----------------------------------------------------------------------------------------


def _in_any_incarnation(original: Any, self: Any, progress: Any) -> Any:
    return progress.replica_id in self._brokers.acceptable and progress.broker_epoch >= 0


@mutant(
    replication_control,
    "_proposal_error",
    breaks="R41, R50, KAFKA-15221",
    by="A-4 A-5 I-8",
    setting=BRIDGED,
    more=(Patch(Partition, "_is_eligible", _in_any_incarnation),),
    killed_by="Refinement@5",
)
def accepts_stale_broker_epochs(
    original: Any, image: Any, partition: Any, sender_id: int, proposal: Any
) -> Any:
    """Neither the leader nor AlterPartition compares the members' broker epochs."""
    members = tuple(replace(member, broker_epoch=-1) for member in proposal.new_isr)
    return original(image, partition, sender_id, replace(proposal, new_isr=members))


@mutant(
    replication_control, "_proposal_error", breaks="R41", by="A-4 A-3 I-5", setting=REFUSED, killed_by="A-4@1"
)
def accepts_fenced_members(original: Any, image: Any, partition: Any, sender_id: int, proposal: Any) -> Any:
    """AlterPartition does not look whether the members are fenced."""
    error = original(image, partition, sender_id, proposal)
    return ErrorCode.NONE if error is ErrorCode.INELIGIBLE_REPLICA else error


@mutant(
    replication_control,
    "_proposal_error",
    breaks="R41",
    by="A-4 I-7",
    setting=OVERTAKEN,
    killed_by="A-4@14",
)
def accepts_old_partition_epoch(
    original: Any, image: Any, partition: Any, sender_id: int, proposal: Any
) -> Any:
    """AlterPartition does not compare partition epochs."""
    epoch = min(proposal.partition_epoch, partition.partition_epoch)
    fresh = replace(proposal, partition_epoch=max(epoch, partition.partition_epoch))
    return original(image, partition, sender_id, fresh)


@mutant(
    replication_control,
    "_proposal_error",
    breaks="R41",
    by="A-4 I-9",
    setting=OVERTAKEN,
    killed_by="A-4@1",
)
def accepts_old_leader_epoch(original: Any, image: Any, partition: Any, sender_id: int, proposal: Any) -> Any:
    """AlterPartition is granted also to a former leader, if the present one is a member."""
    error = original(image, partition, sender_id, proposal)
    isr = [member.broker_id for member in proposal.new_isr]
    if error is ErrorCode.FENCED_LEADER_EPOCH and partition.leader in isr:
        return ErrorCode.NONE
    return error


@mutant(
    ProposalOrder,
    "refusal",
    breaks="N-4, A-15",
    by="A-4 I-7 I-8",
    setting=COPIES,
    killed_by="I-7@2",
)
def grants_late_copies(original: Any, self: Any, request: Any, registered_epoch: Any) -> Any:
    """A refused proposal may be granted by a late copy of itself."""
    return None


# --- brokers -----------------------------------------------------------------------------------------------


@mutant(
    ClusterControl,
    "register",
    breaks="R32",
    by="A-8 I-8 A-14",
    setting=BELOW_MIN_ISR,
    killed_by="R32@1",
)
def every_start_is_clean(original: Any, self: Any, draft: Any, request: Any, now_ms: int) -> Any:
    """No registration is ever taken for one after an unclean shutdown."""
    old = draft.image.brokers.get(request.broker_id)
    if old is not None:
        request = replace(request, previous_broker_epoch=old.broker_epoch)
    return original(self, draft, request, now_ms)


@mutant(
    ReplicationControl,
    "take_out",
    breaks="R32, R5",
    by="A-8 I-8 A-9",
    setting=BELOW_MIN_ISR,
    killed_by="A-8@1",
)
def unclean_leaves_like_clean(
    original: Any,
    self: Any,
    draft: Any,
    broker_id: int,
    departure: Any,
    cause: Any,
    *,
    records_max: Any = None,
) -> Any:
    """An unclean registration takes the broker out of the ISR, not out of the ELR."""
    clean = Departure.CLEAN if departure is Departure.UNCLEAN else departure
    return original(self, draft, broker_id, clean, cause, records_max=records_max)


@mutant(ClusterControl, "_registration_error", breaks="R30, D14", by="A-7 I-5 A-14", killed_by="A-7@3")
def registers_over_live_epoch(original: Any, self: Any, image: Any, request: Any) -> Any:
    """A registration is granted while the session of the old epoch lives, also without any proof."""
    error, text = original(self, image, request)
    if error is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return ErrorCode.NONE, None
    return error, text


@mutant(ClusterControl, "register", breaks="R32", by="R32", setting=OLD_DISKS, killed_by="R32@1")
def any_epoch_proves_a_clean_stop(original: Any, self: Any, draft: Any, request: Any, now_ms: int) -> Any:
    """A stop counts as clean whichever epoch of that broker it names."""
    old = draft.image.brokers.get(request.broker_id)
    if old is not None and request.previous_broker_epoch >= 0:
        request = replace(request, previous_broker_epoch=old.broker_epoch)
    return original(self, draft, request, now_ms)


@mutant(
    ClusterControl,
    "register",
    breaks="R32",
    by="R32",
    masked="a broker that lacks a log dir of its configuration names no epoch (R33): it takes an operator "
    "who changes log.dirs",
)
def proves_also_dirs_that_are_gone(original: Any, self: Any, draft: Any, request: Any, now_ms: int) -> Any:
    """A stop counts as clean though log dirs are missing that were there."""
    old = draft.image.brokers.get(request.broker_id)
    if old is not None and request.previous_broker_epoch == old.broker_epoch:
        request = replace(request, log_dirs=tuple(dict.fromkeys((*request.log_dirs, *old.log_dirs))))
    return original(self, draft, request, now_ms)


@mutant(
    cluster_control,
    "take_offline",
    breaks="R27, R5",
    by="A-9",
    setting=DIRS_FAIL_BELOW_MIN_ISR,
    killed_by="A-9@1",
)
def replicas_of_failed_dirs_stay_eligible(
    original: Any, draft: Any, replication: Any, broker: Any, reported: Any
) -> None:
    """A replica in a failed log dir leaves the ISR as if its log were whole."""
    change = replication.change

    def change_as_clean(
        given: Any, topic: Any, index: Any, partition: Any, requested: Any, *more: Any
    ) -> Any:
        return change(given, topic, index, partition, replace(requested, unclean=()), *more)

    replication.change = change_as_clean
    try:
        original(draft, replication, broker, reported)
    finally:
        del replication.change


@mutant(ClusterControl, "fence", breaks="R20", by="I-5 ValidControllerState", killed_by="Refinement@1")
def fences_without_taking_out(
    original: Any,
    self: Any,
    draft: Any,
    broker_id: int,
    kind: Any,
    detail: str = "",
    level: Any = None,
) -> Any:
    """A fenced broker stays in its ISRs, and leads what it led."""
    draft.write(FenceBrokerRecord(broker_id, draft.image.brokers[broker_id].broker_epoch))


@mutant(
    ClusterControl,
    "heartbeat",
    breaks="R24",
    by="D3 R25",
    # One that was really overtaken names a metadata offset before the new registration, unfencing no broker.
    setting=Setting(faults={"kill_broker": 2, "kill_leader": 1}, shape={"intrudes": True}),
    killed_by="D3@1",
)
def believes_stale_heartbeats(
    original: Any, self: Any, draft: Any, request: Any, connection_id: int, now_ms: int
) -> Any:
    """A heartbeat of a former incarnation counts for the present one."""
    broker = draft.image.brokers.get(request.broker_id)
    if broker is not None:
        request = replace(request, broker_epoch=broker.broker_epoch)
    return original(self, draft, request, connection_id, now_ms)


@mutant(
    ReplicationControl,
    "elect_leaderless",
    breaks="R21",
    by="L-9 L-4 L-1",
    setting=BELOW_MIN_ISR,
    killed_by="Refinement@2",
)
def unfencing_elects_nobody(
    original: Any, self: Any, draft: Any, cause: Any, *, mode: Any = None, records_max: Any = None
) -> Any:
    """A replica that returns leads nothing."""
    return True


# --- the quorum --------------------------------------------------------------------------------------------


@mutant(QuorumController, "_write", breaks="K20", by="N-5 I-10 A-2", setting=ACTIVE_MOVES, killed_by="R29@1")
def answers_before_commit(original: Any, self: Any, decide: Any, now_ms: int, request: Any = None) -> Any:
    """The controller answers a write before the quorum has its records."""
    effects = original(self, decide, now_ms, request)
    if request is not None and self._pending and self._pending[-1].answers:
        asked, answer = self._pending[-1].answers[-1]
        if asked is request:
            self._pending[-1].answers.pop()
            self._waiting_answers -= 1
            effects.append(Respond(request.request_id, answer))
    return effects


@mutant(
    QuorumController, "_renounce", breaks="K23", by="I-11 A-8 I-13", setting=ACTIVE_MOVES, killed_by="I-11@1"
)
def keeps_uncommitted_state(original: Any, self: Any) -> Any:
    """A controller that lost the quorum goes on from what was never committed."""
    latest, was_active = self._latest, self._is_active
    effects = original(self)
    if was_active:
        self._committed = self._latest = latest
    return effects


@mutant(
    QuorumController,
    "_claim_if_ready",
    breaks="K22",
    by="I-11 A-8 I-13",
    setting=ACTIVE_MOVES,
    killed_by="I-11@1",
)
def claims_before_applied(original: Any, self: Any, now_ms: int) -> Any:
    """A new leader of the quorum is active before it has applied its log."""
    if self._claim_offset is None or self._committed.offset >= self._claim_offset:
        return original(self, now_ms)
    self._committed = self._latest = replace(self._committed, offset=self._claim_offset)
    return original(self, now_ms)
