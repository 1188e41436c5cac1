"""Mutants of the controller: elections, ELR, AlterPartition, registrations, commits.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.core.replicas.partition import Partition
from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.brokers.departures import Departures
from holdfast.controller.core.partitions import partition_change, replication_control
from holdfast.controller.core.partitions.election import Candidates
from holdfast.controller.core.partitions.proposal_order import ProposalOrder
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.mutants.mutant import Changes, Patch, Setting, mutant, replacing
from holdfast.sim.mutants.replication import BRIDGED, OVERTAKEN, REFUSED
from holdfast.sim.mutants.source_patch import begin, patch

#: the ISR falls below min ISR, the ELR fills, and members of it die and return
BELOW_MIN_ISR = Setting(
    faults={"kill_broker": 5, "kill_leader": 4, "power_broker": 3, "power_leader": 3, "isolate_leader": 1}
)
#: all brokers stop uncleanly sooner or later, and the controller moves
ACTIVE_MOVES = Setting(
    faults={"kill_active": 5, "isolate_active": 3, "pause_active": 3, "kill_leader": 3, "kill_broker": 3}
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


@mutant(breaks="R5, B4", by="OwnBug I-6 I-8", setting=BELOW_MIN_ISR, killed_by="OwnBug@1")
def elr_above_min_isr() -> Changes:
    """A removed replica is put into the ELR although the ISR stays at min ISR."""
    return patch(
        partition_change,
        "next_eligible",
        "return EligibleSets()",
        "return EligibleSets(tuple(sorted(set(old_isr).difference(new_isr, unclean, "
        "forgotten).intersection(replicas))))",
    )


@mutant(breaks="R2, R5", by="R2", setting=BELOW_MIN_ISR, killed_by="R2@1")
def explains_by_the_other_rule() -> Changes:
    """The sets of the ELR are right, and the record says that another rule has made them."""
    return (
        patch(
            partition_change, "_eligible", "SetsRule.CLEARED_AT_MIN_ISR if", "SetsRule.KEPT_BELOW_MIN_ISR if"
        ),
        patch(
            partition_change,
            "_eligible",
            "else SetsRule.KEPT_BELOW_MIN_ISR",
            "else SetsRule.CLEARED_AT_MIN_ISR",
        ),
    )


@replacing(partition_change, "elect", breaks="R2", by="R2", killed_by="R2@1")
def tells_of_nobody_passed_over(original: Any, candidates: Any, mode: Any) -> Any:
    """The record does not say who could not lead, and why."""
    return replace(original(candidates, mode), rejected=())


@mutant(breaks="R5, R32", by="A-8 I-8 A-9", setting=BELOW_MIN_ISR, killed_by="A-8@1")
def unclean_stays_in_elr() -> Changes:
    """A broker that registers unclean stays in the ELR."""
    return begin(partition_change, "next_eligible", "unclean = ()")


@mutant(breaks="R5", by="OwnBug I-6 A-9", setting=BELOW_MIN_ISR, killed_by="OwnBug@2")
def elr_not_cleared() -> Changes:
    """The ELR outlives the ISR's return to min ISR."""
    return patch(
        partition_change,
        "next_eligible",
        "return EligibleSets()",
        "return EligibleSets(tuple(sorted(set(before.elr).difference(new_isr, unclean, "
        "forgotten).intersection(replicas))))",
    )


@mutant(breaks="R5, R9", by="A-12 A-9 A-10", setting=BELOW_MIN_ISR, killed_by="Refinement@1")
def elr_forgets() -> Changes:
    """Only who leaves the ISR now is eligible, not who was before."""
    return patch(partition_change, "next_eligible", "set(before.elr).union(old_isr)", "set(old_isr)")


@mutant(breaks="R6", by="A-12 I-14 A-9", setting=BELOW_MIN_ISR, killed_by="Refinement@11")
def last_known_elr_cleared_by_election() -> Changes:
    """The last known ELR is forgotten as soon as a replica is in sync, not when min ISR is reached."""
    return patch(
        partition_change,
        "next_eligible",
        "tuple(sorted(seats - elr))",
        "tuple(sorted((seats - elr).intersection(unclean) if new_isr else seats - elr))",
    )


@mutant(breaks="R6", by="A-12 I-14 A-9", setting=BELOW_MIN_ISR, killed_by="Refinement@1")
def last_known_elr_forgets_unclean() -> Changes:
    """Members with an unclean shutdown do not become last known."""
    return patch(
        partition_change,
        "next_eligible",
        "tuple(sorted(seats - elr))",
        "tuple(sorted((seats - elr).difference(unclean)))",
    )


# --- elections ---------------------------------------------------------------------------------------------


@mutant(breaks="R11, R12", by="A-3 I-8 I-9", setting=BELOW_MIN_ISR, killed_by="Refinement@2")
def elects_any_unfenced() -> Changes:
    """The first active replica is elected, in the ISR or not."""
    return patch(
        Candidates,
        "verdict_on",
        "if self.isr:\n",
        "if True:\n            return ElectionReason.ELR\n        if self.isr:\n",
    )


@mutant(breaks="R11", by="A-11 I-5 A-12", setting=BELOW_MIN_ISR, killed_by="Refinement@2")
def elects_fenced_elr() -> Changes:
    """A member of the ELR is elected although it is fenced."""
    return (
        begin(
            Candidates,
            "verdict_on",
            "if not self.isr and replica in self.elr and replica in self.replicas:\n"
            "    return ElectionReason.ELR",
        ),
        UNCHECKED,
    )


@mutant(breaks="R11, D7", by="A-11 OwnBug L-4", setting=BELOW_MIN_ISR, killed_by="Refinement@2")
def means_to_elect_fenced_elr() -> Changes:
    """As elects-fenced-elr, but the controller's own check of the change is still there (D7)."""
    return begin(
        Candidates,
        "verdict_on",
        "if not self.isr and replica in self.elr and replica in self.replicas:\n"
        "    return ElectionReason.ELR",
    )


@mutant(breaks="R13", by="A-13 I-5", setting=BELOW_MIN_ISR, killed_by="Refinement@2")
def elects_fenced_last_known_leader() -> Changes:
    """The last known leader is elected without a look at whether it is there."""
    return (patch(partition_change, "elect", "candidates.is_active(known)", "True"), UNCHECKED)


@mutant(breaks="R13", by="A-12 A-13 I-8 I-9", setting=BELOW_MIN_ISR, killed_by="Refinement@2")
def last_known_leader_before_elr() -> Changes:
    """The last known leader is elected although members of the ELR are only fenced."""
    return (
        patch(partition_change, "elect", "candidates.trusts_last_known_leader", "True"),
        patch(partition_change, "elect", "not candidates.elr", "True"),
    )


@mutant(breaks="R12", by="A-13 A-3", setting=TALL, killed_by="Refinement@7")
def elects_elr_before_isr() -> Changes:
    """Members of the ELR are candidates while the ISR has active ones."""
    return patch(
        Candidates,
        "verdict_on",
        "if replica in self.isr:",
        "if replica in self.elr:\n            return ElectionReason.ELR\n        if replica in self.isr:",
    )


@mutant(breaks="R2", by="A-11 I-10 I-15", killed_by="Refinement@1")
def leader_epoch_not_bumped() -> Changes:
    """A new leader keeps the leader epoch."""
    return (
        patch(
            PartitionRegistration,
            "merge",
            "self.leader_epoch + decided",
            "self.leader_epoch + (decided and not _leader_value(record.leader))",
        ),
        UNCHECKED,
    )


@mutant(breaks="R2, N-5", by="A-11 A-8", killed_by="Refinement@1")
def partition_epoch_not_bumped() -> Changes:
    """The partition epoch grows with elections only."""
    return (
        patch(PartitionRegistration, "merge", "self.partition_epoch + 1", "self.partition_epoch + decided"),
        UNCHECKED,
    )


# --- AlterPartition ----------------------------------------------------------------------------------------


@mutant(breaks="R41, R50, KAFKA-15221", by="A-4 A-5 I-8", setting=BRIDGED, killed_by="Refinement@5")
def accepts_stale_broker_epochs() -> Changes:
    """Neither the leader nor AlterPartition compares the members' broker epochs."""
    return (
        patch(
            replication_control,
            "_proposal_error",
            "member.broker_epoch not in (-1, broker.broker_epoch)",
            "False",
        ),
        patch(Partition, "_is_eligible", "epoch == progress.broker_epoch", "progress.broker_epoch >= 0"),
    )


@mutant(breaks="R41", by="A-4 A-3 I-5", setting=REFUSED, killed_by="A-4@1")
def accepts_fenced_members() -> Changes:
    """AlterPartition does not look whether the members are fenced."""
    return patch(
        replication_control,
        "_proposal_error",
        "broker is None or not image.is_active_replica(member.broker_id, key)",
        "broker is None",
    )


@mutant(breaks="R41", by="A-4 I-7", setting=OVERTAKEN, killed_by="A-4@14")
def accepts_old_partition_epoch() -> Changes:
    """AlterPartition does not compare partition epochs."""
    return patch(
        replication_control,
        "_proposal_error",
        "proposal.partition_epoch < partition.partition_epoch",
        "False",
    )


@mutant(breaks="R41", by="A-4 I-9", setting=OVERTAKEN, killed_by="A-4@1")
def accepts_old_leader_epoch() -> Changes:
    """AlterPartition is granted also to a former leader, if the present one is a member."""
    return patch(
        replication_control,
        "_proposal_error",
        "return ErrorCode.FENCED_LEADER_EPOCH",
        "return ErrorCode.NONE if partition.leader in isr else ErrorCode.FENCED_LEADER_EPOCH",
    )


@mutant(breaks="N-4, A-15", by="A-4 I-7 I-8", setting=COPIES, killed_by="I-7@2")
def grants_late_copies() -> Changes:
    """A refused proposal may be granted by a late copy of itself."""
    return begin(ProposalOrder, "refusal", "return None")


# --- brokers -----------------------------------------------------------------------------------------------


@mutant(breaks="R32", by="A-8 I-8 A-14", setting=BELOW_MIN_ISR, killed_by="R32@1")
def every_start_is_clean() -> Changes:
    """No registration is ever taken for one after an unclean shutdown."""
    return patch(ClusterControl, "register", "request.previous_broker_epoch == old.broker_epoch", "True")


@mutant(breaks="R32, R5", by="A-8 I-8 A-9", setting=BELOW_MIN_ISR, killed_by="A-8@1")
def unclean_leaves_like_clean() -> Changes:
    """An unclean registration takes the broker out of the ISR, not out of the ELR."""
    return begin(
        ReplicationControl,
        "take_out",
        "departure = Departure.CLEAN if departure is Departure.UNCLEAN else departure",
    )


@mutant(breaks="R30, D14", by="A-7 I-5 A-14", killed_by="A-7@3")
def registers_over_live_epoch() -> Changes:
    """A registration is granted while the session of the old epoch lives, also without any proof."""
    return patch(ClusterControl, "_registration_error", "not old.is_fenced", "False")


@mutant(breaks="R32", by="R32", setting=OLD_DISKS, killed_by="R32@1")
def any_epoch_proves_a_clean_stop() -> Changes:
    """A stop counts as clean whichever epoch of that broker it names."""
    return patch(
        ClusterControl,
        "register",
        "request.previous_broker_epoch == old.broker_epoch",
        "request.previous_broker_epoch >= 0",
    )


@mutant(breaks="R27, R5", by="A-9", setting=DIRS_FAIL_BELOW_MIN_ISR, killed_by="Refinement@1")
def replicas_of_failed_dirs_stay_eligible() -> Changes:
    """A replica in a failed log dir leaves the ISR as if its log were whole."""
    return patch(cluster_control, "take_offline", "unclean=(broker_id,)", "unclean=()")


@mutant(breaks="R20", by="I-5 ValidControllerState", killed_by="Refinement@1")
def fences_without_taking_out() -> Changes:
    """A fenced broker stays in its ISRs, and leads what it led."""
    return patch(Departures, "fence", "self._take_out(draft, broker_id, Departure.CLEAN, kind)", "True")


# One that was really overtaken names a metadata offset before the new registration, unfencing no broker.
@mutant(
    breaks="R24",
    by="D3 R25",
    setting=Setting(faults={"kill_broker": 2, "kill_leader": 1}, shape={"intrudes": True}),
    killed_by="D3@1",
)
def believes_stale_heartbeats() -> Changes:
    """A heartbeat of a former incarnation counts for the present one."""
    return patch(ClusterControl, "heartbeat", "broker.broker_epoch != request.broker_epoch", "False")


@mutant(breaks="R21", by="L-9 L-4 L-1", setting=BELOW_MIN_ISR, killed_by="Refinement@2")
def unfencing_elects_nobody() -> Changes:
    """A replica that returns leads nothing."""
    return begin(ReplicationControl, "elect_leaderless", "return True")


# --- the quorum --------------------------------------------------------------------------------------------


@mutant(breaks="K20", by="I-10 A-2", setting=ACTIVE_MOVES, killed_by="R29@1")
def answers_before_commit() -> Changes:
    """The controller answers a write before the quorum has its records."""
    return patch(QuorumController, "_write", "if self._pending:", "if False:")


@mutant(breaks="K23", by="I-11 A-8 I-13", setting=ACTIVE_MOVES, killed_by="I-11@1")
def keeps_uncommitted_state() -> Changes:
    """A controller that lost the quorum goes on from what was never committed."""
    return patch(
        QuorumController, "_renounce", "self._latest = self._committed", "self._committed = self._latest"
    )


@replacing(
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
