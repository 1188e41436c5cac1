"""Mutants of the controller: elections, ELR, AlterPartition, registrations, commits.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.replicas.partition import Partition
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.brokers.departures import Departures
from holdfast.controller.core.partitions import partition_change, reassignment, replication_control
from holdfast.controller.core.partitions.election import Candidates
from holdfast.controller.core.partitions.proposal_order import ProposalOrder
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.mutants.mutant import Changes, Patch, Setting, mutant
from holdfast.sim.mutants.replication import BRIDGED, OVERTAKEN
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.sim.mutants.unclean_recovery import BY_OPERATORS

#: the ISR falls below min ISR, the ELR fills, and members of it die and return
BELOW_MIN_ISR = Setting(
    faults={"kill_broker": 5, "kill_leader": 4, "power_broker": 3, "power_leader": 3, "isolate_leader": 1}
)
#: all brokers stop uncleanly sooner or later, and the controller moves
ACTIVE_MOVES = Setting(
    faults={"kill_active": 5, "isolate_active": 3, "pause_active": 3, "kill_leader": 3, "kill_broker": 3}
)
#: machines come back with an old disk, and its mark of an old stop
OLD_DISKS = Setting(
    band="lying-disks",
    faults={"keep_copy": 5, "restore_copy": 6, "stop_broker": 5, "kill_broker": 2},
    gap_ms=400,
)
#: a refused proposal comes once more, long after it was sent
COPIES = Setting(faults={"late_copy": 6}, gap_ms=5_000, seconds=25)


def _nothing_broken(original: Any, change: Any, meant: Any, requested: Any, context: Any) -> None:
    return None


#: without the controller's own check of a change (D7), which meets many of these before anything is written
UNCHECKED = Patch(partition_change, "_check", _nothing_broken)


# --- ELR ---------------------------------------------------------------------------------------------------


@mutant(breaks="R5, R32", by="A-8 I-8 A-9", setting=BELOW_MIN_ISR, killed_by="A-8@1")
def unclean_stays_in_elr() -> Changes:
    """A broker that registers unclean stays in the ELR."""
    return begin(partition_change, "next_eligible", "unclean = ()")


@mutant(breaks="R5, R9", by="A-12 A-9 A-10", setting=BELOW_MIN_ISR, killed_by="Refinement@1")
def elr_forgets() -> Changes:
    """Only who leaves the ISR now is eligible, not who was before."""
    return patch(partition_change, "next_eligible", "set(before.elr).union(old_isr)", "set(old_isr)")


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


@mutant(breaks="R41", by="A-4 I-7", setting=OVERTAKEN, killed_by="A-4@14")
def accepts_old_partition_epoch() -> Changes:
    """AlterPartition does not compare partition epochs."""
    return patch(
        replication_control,
        "_proposal_error",
        "proposal.partition_epoch < partition.partition_epoch",
        "False",
    )


# --- brokers -----------------------------------------------------------------------------------------------


@mutant(breaks="R32", by="A-8 I-8 A-14", setting=BELOW_MIN_ISR, killed_by="R32@1")
def every_start_is_clean() -> Changes:
    """No registration is ever taken for one after an unclean shutdown."""
    return patch(ClusterControl, "register", "request.previous_broker_epoch == old.broker_epoch", "True")


@mutant(breaks="R32", by="R32", setting=OLD_DISKS, killed_by="R32@1")
def any_epoch_proves_a_clean_stop() -> Changes:
    """A stop counts as clean whichever epoch of that broker it names."""
    return patch(
        ClusterControl,
        "register",
        "request.previous_broker_epoch == old.broker_epoch",
        "request.previous_broker_epoch >= 0",
    )


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


# --- operators, and what records mean -----------------------------------------------------------------------

#: partitions move, come back and are called off on the way, while brokers come and go
MOVES = Setting(
    faults={
        "move_partition": 8,
        "move_back": 3,
        "cancel_move": 3,
        "kill_broker": 3,
        "kill_leader": 2,
        "isolate_broker": 2,
        "cut_followers": 2,
        "stop_broker": 2,
    },
    shape={"brokers": 5},
    gap_ms=500,
)


@mutant(breaks="R100", by="K20 L-10", setting=MOVES, killed_by="K20@1")
def moves_sort_their_targets() -> Changes:
    """A moved partition has the replicas that were asked for in another order: another one is preferred."""
    return begin(reassignment, "_towards", "target = tuple(sorted(target))")


@mutant(breaks="D7, R2", by="Refinement", setting=BY_OPERATORS, killed_by="Refinement@1")
def rows_recover_by_any_change() -> Changes:
    """Any change of a partition that was elected uncleanly makes it recovered."""
    return patch(
        PartitionRegistration,
        "merge",
        "self.leader_recovery_state\n                if",
        "0\n                if",
    )


@mutant(breaks="D7", by="R107", killed_by="R107@1")
def who_leaves_stays_in_the_index() -> Changes:
    """A partition that a broker gave up is still looked for there."""
    return patch(
        MetadataDelta, "_index", "self._assigned[broker_id].delete(key)", "self._assigned[broker_id]"
    )


@mutant(breaks="N-4, A-15", by="A-4 I-7 I-8", setting=COPIES, killed_by="I-7@3")
def grants_late_copies() -> Changes:
    """A refused proposal may be granted by a late copy of itself."""
    return begin(ProposalOrder, "refusal", "return None")
