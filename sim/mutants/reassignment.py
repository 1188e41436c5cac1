"""Mutants of what operators may do: reassignments, changes of min ISR, designated and preferred elections.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.operators import requests
from holdfast.controller.core.operators.config_control import ConfigControl
from holdfast.controller.core.operators.operations import DONE
from holdfast.controller.core.partitions import election, leader_elections, partition_change, reassignment
from holdfast.controller.core.partitions.election import Elected, ElectionReason, NoLeader
from holdfast.controller.core.partitions.elr import EligibleSets
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.mutants.control import UNCHECKED
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

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
#: as MOVES, with every replica needed
TALL_MOVES = Setting(
    faults={"move_partition": 8, "cancel_move": 4, "kill_broker": 4, "cut_pair": 3, "isolate_broker": 3},
    shape={"brokers": 5, "min_isr": 3},
    gap_ms=400,
)
#: operators move what has too few in sync
UNDER_MIN_ISR = replace(MOVES, faults={"move_partition": 6, "kill_broker": 6, "cut_followers": 4})
#: moves are called off while some of the added are in sync and others of the ISR have gone
CALLED_OFF = Setting(faults={"tear_move": 3, "kill_broker": 1}, shape={"brokers": 5}, gap_ms=1_500)
#: without ELR moves are all but at their end when only those are there who are to leave
STRANDED = Setting(
    band="unclean-no-elr", faults={"strand_move": 1}, shape={"brokers": 4}, gap_ms=9_000, seconds=25
)
#: the min ISR goes up and down while the ISR is below and above it
MIN_ISRS = Setting(
    faults={
        "min_isr_with_elr": 6,
        "change_min_isr": 6,
        "kill_broker": 4,
        "kill_leader": 2,
        "power_broker": 2,
    },
    gap_ms=400,
)
#: beyond the budget operators elect by hand when no replica may lead
BY_HAND = Setting(
    band="over-budget",
    faults={
        "kill_all_brokers": 6,
        "power_broker": 4,
        "power_leader": 4,
        "elect_unclean": 12,
        "fence_leader": 2,
    },
    gap_ms=300,
    seconds=20,
)
#: as BY_HAND, of one partition, and logs are not compared instead
UNCLEAN_OF_ONE = Setting(
    band="over-budget",
    faults={"elect_unclean": 5, "crumble": 3, "kill_all_brokers": 3, "power_broker": 3},
    shape={"recovery_manager": False},
    seconds=25,
)
PREFERRED = Setting(faults={"elect_preferred": 8, "kill_leader": 5, "kill_broker": 3, "isolate_leader": 3})
#: the partitions of a topic lose their preferred leaders together
PREFERRED_OF_MANY = Setting(
    faults={"elect_preferred": 6, "kill_leader": 4, "kill_broker": 2}, shape={"partitions": 6}, gap_ms=400
)


# --- reassignment ------------------------------------------------------------------------------------------


@mutant(breaks="R101", by="A-17 I-8 Refinement", setting=MOVES, killed_by="Refinement@1")
def move_ends_without_the_added() -> Changes:
    """A reassignment is complete though those that were added are not in sync."""
    return patch(
        partition_change, "_assignment_and_isr", "set(staying).issuperset(assignment.adding)", "True"
    )


@mutant(breaks="R101", by="A-17 I-8 Refinement", setting=TALL_MOVES, killed_by="Refinement@7")
def move_ends_below_min_isr() -> Changes:
    """A reassignment is complete once the added are in sync, however few stay in the ISR."""
    return patch(
        partition_change,
        "_assignment_and_isr",
        "len(staying) >= effective_min_isr(context.min_insync_replicas, len(final))",
        "staying",
    )


@mutant(breaks="R102", by="I-6 OwnBug", setting=MOVES, killed_by="OwnBug@1")
def leavers_stay_in_isr() -> Changes:
    """A reassignment that is complete leaves those who leave in the ISR."""
    return patch(
        partition_change,
        "_assignment_and_isr",
        "return Assignment(final), staying",
        "return Assignment(final), isr",
    )


@mutant(breaks="R100", by="A-17 I-8 Refinement L-9", setting=MOVES, killed_by="Refinement@3")
def moves_at_once() -> Changes:
    """The new replicas take the place of the old ones before they have a byte."""
    return begin(reassignment, "_towards", "return Assignment(target)")


@mutant(breaks="R105, B12", by="L-7 A-17 Refinement", setting=MOVES, killed_by="Refinement@1")
def redirects_from_merged_list() -> Changes:
    """A second reassignment takes the merged list of the first for where the partition was."""
    return patch(
        reassignment, "_towards", "partition.original_replicas or partition.replicas", "partition.replicas"
    )


@mutant(breaks="R100", by="K20 L-10", setting=MOVES, killed_by="K20@1")
def moves_sort_their_targets() -> Changes:
    """A moved partition has the replicas that were asked for in another order: another one is preferred."""
    return begin(reassignment, "_towards", "target = tuple(sorted(target))")


@mutant(breaks="R103, B5, R9", by="A-17 A-10 I-8 I-12", setting=CALLED_OFF, killed_by="Refinement@1")
def calls_off_below_min_isr() -> Changes:
    """A move is called off, or sent elsewhere, though too few of those who stay are in sync."""
    return patch(requests, "reassign", "is_cut and len(staying) < partition.min_isr", "False")


@mutant(breaks="R2, R102", by="A-11 Refinement", setting=MOVES, killed_by="Refinement@3")
def epoch_stays_when_a_replica_leaves() -> Changes:
    """The leader epoch does not grow when a replica leaves and the leader stays."""
    return (
        patch(
            PartitionRegistration,
            "merge",
            "self.leader_epoch + decided",
            "self.leader_epoch + (decided and (_leader_value(record.leader) != self.leader or "
            "set(self.replicas) <= set(_given(record.replicas, self.replicas))))",
        ),
        UNCHECKED,
    )


# --- min ISR -----------------------------------------------------------------------------------------------


@mutant(breaks="R109, B2", by="A-9 A-10 A-12 Refinement", setting=MIN_ISRS, killed_by="Refinement@1")
def min_isr_change_forgets_elr() -> Changes:
    """A change of min ISR clears both sets, with any ISR (as Kafka does)."""
    return patch(
        partition_change,
        "_eligible",
        "return sets, rule",
        "return (EligibleSets(), rule) if min_isr != before.min_isr else (sets, rule)",
    )


@mutant(breaks="R109, N-5", by="R109", setting=MIN_ISRS, killed_by="R109@1")
def min_isr_stays_in_partitions() -> Changes:
    """The partitions of a topic keep the min ISR that they had when it was configured anew."""
    return begin(ReplicationControl, "refresh", "if cause.kind is CauseKind.MIN_ISR_CONFIGURED: return")


@replacing(
    partition_change,
    "effective_min_isr",
    breaks="F2, R109",
    by="R109 I-6 Refinement OwnBug",
    setting=MOVES,
    killed_by="Refinement@1",
)
def min_isr_off_by_one(original: Any, configured: int, replica_count: int) -> Any:
    """The effective min ISR is one less than what is configured."""
    # the refinement calls the right one
    return max(1, original(configured, replica_count) - 1)


# --- elections by hand -------------------------------------------------------------------------------------


@replacing(
    election,
    "_designated",
    breaks="R18",
    by="A-13 OwnBug Refinement",
    setting=BY_HAND,
    killed_by="Refinement@6",
)
def designates_another(original: Any, candidates: Any, replica: int, reason: Any) -> Any:
    """When the replica that was named may not lead, another one does."""
    others = [r for r in candidates.replicas if candidates.is_active(r) and r != replica]
    found = original(candidates, replica, reason)
    if reason is not ElectionReason.DESIGNATED or not others:
        return found
    return Elected(others[0], reason) if isinstance(found, NoLeader) or others[0] < replica else found


@replacing(
    partition_change,
    "_after_unclean_election",
    breaks="R10",
    by="A-9 I-6 Refinement",
    setting=BY_HAND,
    killed_by="R2@1",
)
def unclean_election_keeps_elr(
    original: Any, isr: Any, sets: Any, leader: int, min_isr: int, context: Any
) -> Any:
    """After an unclean election the ELR is what it was: its members may hold other records."""
    forgotten, rule = original(isr, sets, leader, min_isr, context)
    kept = tuple(r for r in sets.elr if r != leader)
    known = tuple(r for r in forgotten.last_known_elr if r not in kept)
    return EligibleSets(kept, known), rule


@mutant(breaks="R10, F45", by="Refinement A-13", setting=BY_HAND, killed_by="Refinement@1")
def unclean_leader_counts_as_recovered() -> Changes:
    """An unclean election leaves no mark of itself in the partition."""
    return (
        begin(partition_change, "_difference", "after = replace(after, leader_recovery_state=0)"),
        UNCHECKED,
    )


@replacing(
    leader_elections,
    "_elect_preferred",
    breaks="R17, B15",
    by="A-13 A-11 Refinement",
    setting=PREFERRED,
    killed_by="Refinement@2",
)
def prefers_whoever_is_first(
    original: Any, draft: Any, topic: Any, index: int, partition: Any, replication: Any
) -> Any:
    """The preferred replica leads once it is asked for, in sync or not."""
    context = replication.context(draft.image, topic.name, draft.image.is_active)
    preferred = partition.replicas[0]
    if partition.leader == preferred or not draft.image.is_active(preferred):
        return original(draft, topic, index, partition, replication)
    requested = RequestedChange(designated=preferred, designation=ElectionReason.PREFERRED)
    replication.change(draft, topic, index, partition, requested, context, Cause(CauseKind.PREFERRED_ASKED))
    return DONE


# --- what operators are told ------------------------------------------------------------------------------


@mutant(breaks="R100", by="L-10", killed_by="L-10@1")
def moves_nothing() -> Changes:
    """Every reassignment is refused."""
    return begin(requests, "reassign", 'return OperationResult(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")')


@mutant(breaks="R109, K20", by="K20 L-10", killed_by="K20@1")
def takes_no_configuration_away() -> Changes:
    """A value that is taken away stays, and operators are told that it is gone."""
    return begin(ConfigControl, "alter", "if request.value is None: return DONE")


@mutant(breaks="R17, K20", by="K20 L-10", setting=PREFERRED, killed_by="K20@1")
def elects_on_paper() -> Changes:
    """Operators are told of an election that was not made."""
    return begin(requests, "elect_leader", "return DONE")


@mutant(breaks="R101, F7", by="K20 Refinement OwnBug", setting=STRANDED, killed_by="Refinement@10")
def move_drops_who_is_elected() -> Changes:
    """A reassignment ends by the very record that elects one of those who leave."""
    return begin(partition_change, "_needs_leaver", "return False")


@mutant(breaks="R103", by="R103", setting=UNDER_MIN_ISR, killed_by="R103@1")
def moves_nothing_below_min_isr() -> Changes:
    """A move is refused below min ISR, also one that takes no seat from anybody who may be needed."""
    return patch(
        requests,
        "reassign",
        "is_cut and len(staying) < partition.min_isr",
        "len(partition.isr) < partition.min_isr",
    )


@mutant(breaks="R17", by="R103", setting=PREFERRED, killed_by="R103@6")
def prefers_nobody_while_one_is_away() -> Changes:
    """The preferred replica is elected only if all replicas are in sync."""
    return patch(
        leader_elections,
        "_elect_preferred",
        " or preferred not in partition.electable",
        " or len(partition.isr) < len(partition.replicas)",
    )


@replacing(
    leader_elections, "_elect_unclean", breaks="R17, R10", by="R17", setting=UNCLEAN_OF_ONE, killed_by="R17@1"
)
def unclean_for_one_is_for_all(
    original: Any, draft: Any, topic: Any, index: int, partition: Any, replication: Any
) -> Any:
    """Who allows an unclean election of one partition allows it of all that have no leader."""
    outcome = original(draft, topic, index, partition, replication)
    if outcome is DONE:
        for other, number, row in draft.image.leaderless_partitions():
            original(draft, other, number, row, replication)
    return outcome


@replacing(
    leader_elections, "_elect_preferred", breaks="R17", by="R17", setting=PREFERRED_OF_MANY, killed_by="R17@1"
)
def preferred_for_one_is_for_its_topic(
    original: Any, draft: Any, topic: Any, index: int, partition: Any, replication: Any
) -> Any:
    """Who asks for the preferred leader of one partition gets that of all partitions of its topic."""
    outcome = original(draft, topic, index, partition, replication)
    for number, row in draft.image.topics[topic.topic_id].sorted_partitions():
        if number != index:
            original(draft, topic, number, row, replication)
    return outcome
