"""KIP-966, "Other behaviors": epochs, min ISR, metrics, reassignments, last known ELR and last known
leader.
"""

from typing import Any

from holdfast.controller.core import metrics
from holdfast.protocol.messages.metadata import MetadataPartition
from holdfast.scenario.controller_commands import Scenario
from tests.spec.builders import run_script

THREE = """
    broker 1 2 3
    partition t-0 replicas=(1,2,3) min_isr=2
"""


def gauges(scenario: Scenario) -> dict[str, object]:
    """The active controller's metrics without labels."""
    return {
        family.name: family.samples[0].value
        for family in metrics.families(scenario.quorum.core)
        if len(family.samples) == 1
    }


def test_change_of_the_elr_alone_leaves_the_leader_epoch() -> None:
    """Other behaviors 1: a change of the ELR needs no new leader epoch, an unclean registration for one
    (F12, A-11).

    Kept in controller.core.partitions.partition_change.
    """
    run_script(
        THREE
        + """
        alter t-0 isr=(1)
        => t-0 leader=1@0 elr=(2,3) pe=1
        fence 2
        register 2 unclean
        => t-0 leader=1@0 elr=(3) pe=2
    """
    )


def test_min_isr_lowered_to_the_isr_removes_the_elr() -> None:
    """Other behaviors 2: a new min.insync.replicas that the ISR satisfies removes the ELR (R109).

    Kept in controller.core.operators.config_control, controller.core.partitions.elr.
    """
    run_script(
        THREE
        + """
        alter t-0 isr=(1)
        => t-0 elr=(2,3)
        config topic t min.insync.replicas=1
        => t-0 isr=(1) elr=() min_isr=1
    """
    )


def test_min_isr_above_the_isr_keeps_the_elr() -> None:
    """Other behaviors 2: any other new value leaves the ELR alone (R109).

    Kept in controller.core.operators.config_control, controller.core.partitions.elr.
    """
    run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3,4) min_isr=3 isr=(1) elr=(2,3)
        config topic t min.insync.replicas=2
        => t-0 elr=(2,3) min_isr=2
        config topic t min.insync.replicas=4
        => t-0 elr=(2,3) min_isr=4
    """)


def test_min_isr_never_clears_the_sets_of_a_leaderless_partition() -> None:
    """Other behaviors 2: an empty ISR satisfies no min ISR, nothing is forgotten (R109, B2).

    Kept in controller.core.operators.config_control, controller.core.partitions.elr.
    """
    run_script("""
        broker 4
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() elr=(1) last_known_elr=(2)
        config topic t min.insync.replicas=1
        => t-0 elr=(1) last_known_elr=(2) min_isr=1
    """)


def test_electable_leaders_are_counted() -> None:
    """Other behaviors 3: a metric of electable leaders counts ISR + ELR (F16).

    Kept in controller.core.metrics.
    """
    scenario = run_script(THREE + "alter t-0 isr=(1)\nfence 3")
    assert gauges(scenario)["kafka_controller_partition_electable_leaders"] == 3
    run_script("register 3 unclean", scenario)
    assert gauges(scenario)["kafka_controller_partition_electable_leaders"] == 2


def test_leader_completes_a_reassignment_through_alter_partition() -> None:
    """Other behaviors 4: the leader updates the ISR of a reassignment by AlterPartition requests (R101,
    R102).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3) min_isr=2
        reassign t-0 replicas=(1,2,4)
        => t-0 isr=(1,2,3) adding=(4) removing=(3)
        alter t-0 isr=(1,2,3,4)
        => t-0 isr=(1,2,4)
    """)


def test_completed_reassignment_leaves_only_final_replicas_in_the_elr() -> None:
    """Other behaviors 4: upon completion the ELR only contains replicas of the final set (F62, B4, A-17).

    Kept in controller.core.partitions.partition_change, controller.core.partitions.elr.
    """
    scenario = run_script("""
        broker 1 2 3 4 5
        partition t-0 replicas=(1,2,3) min_isr=3 isr=(1) elr=(2,3)
        reassign t-0 replicas=(1,4,5)
        alter t-0 isr=(1,4)
        => t-0 isr=(1,4) elr=(2,3) adding=(4,5) removing=(2,3)
        fence 4
        => t-0 isr=(1) elr=(2,3,4)
        unfence 4
        config topic t min.insync.replicas=2
        alter t-0 isr=(1,4,5)
        => t-0 isr=(1,4,5) elr=()
    """)
    partition = scenario.quorum.partition("t")
    assert set(partition.elr + partition.last_known_elr) <= set(partition.replicas) == {1, 4, 5}


def test_reassignment_needs_all_adding_replicas_in_the_isr() -> None:
    """Other behaviors 4a: current behavior, all the adding replicas are in the ISR when it completes (R101).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        broker 1 2 3 4 5
        partition t-0 replicas=(1,2,3) min_isr=2
        reassign t-0 replicas=(1,4,5)
        alter t-0 isr=(1,2,3,4)
        => t-0 isr=(1,2,3,4) adding=(4,5) removing=(2,3)
        alter t-0 isr=(1,2,3,4,5)
        => t-0 isr=(1,4,5)
    """)


def test_reassignment_completes_only_with_min_isr_members() -> None:
    """Other behaviors 4a: it can only be completed if the ISR has at least min ISR members (R101, F60, A-17).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3) min_isr=2 leader=3 isr=(3)
        reassign t-0 replicas=(1,2,4)
        alter t-0 isr=(3,4)
        => t-0 isr=(3,4) adding=(4) removing=(3)
        alter t-0 isr=(2,3,4)
        => t-0 isr=(2,4)
        => t-0 error=NEW_LEADER_ELECTED
    """)


def test_reassignment_is_cancelled_only_with_min_isr_members() -> None:
    """Other behaviors 4b: the requirement is enforced as well when it is cancelled (R103, B5, F61, A-17).

    Kept in controller.core.partitions.reassignment.
    """
    run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3) min_isr=2 leader=3 isr=(3)
        reassign t-0 replicas=(1,2,4)
        alter t-0 isr=(3,4)
        reassign t-0 cancel
        => t-0 error=INVALID_REPLICA_ASSIGNMENT
        alter t-0 isr=(2,3)
        reassign t-0 cancel
        => t-0 isr=(2,3)
    """)


def test_metadata_api_does_not_tell_of_the_elr() -> None:
    """Other behaviors 5: the ELR is not embedded in the Metadata API (F17).

    Kept in protocol.messages.metadata.
    """
    fields: dict[str, Any] = MetadataPartition.__annotations__
    assert not [name for name in fields if "elr" in name or "eligible" in name]


def test_member_of_the_elr_with_an_unclean_shutdown_is_remembered() -> None:
    """Other behaviors 6a: it is removed from the ELR and added to the LastKnownELR (R6).

    Kept in controller.core.partitions.elr.
    """
    run_script(
        THREE
        + """
        alter t-0 isr=(1)
        fence 2
        register 2 unclean
        => t-0 elr=(3) last_known_elr=(2)
    """
    )


def test_last_known_elr_is_cleaned_when_the_isr_reaches_min_isr() -> None:
    """Other behaviors 6a: the LastKnownELR is cleaned when the ISR reaches min ISR, and not before (R6,
    A-12).

    Kept in controller.core.partitions.elr.
    """
    run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3,4) min_isr=3 isr=(1) elr=(2,3)
        fence 2
        register 2 unclean
        => t-0 last_known_elr=(2)
        alter t-0 isr=(1,4)
        => t-0 last_known_elr=(2)
        alter t-0 isr=(1,3,4)
        => t-0 last_known_elr=()
    """)


def test_last_known_elr_is_in_the_metadata_log() -> None:
    """Other behaviors 6b: the LastKnownELR is stored in the metadata log (R1).

    Kept in metadata.records, metadata.delta.
    """
    run_script(
        THREE
        + """
        alter t-0 isr=(1)
        fence 2
        register 2 unclean
        failover
        show t-0
        => t-0 elr=(3) last_known_elr=(2)
    """
    )


def test_last_leader_is_recorded_when_it_is_fenced() -> None:
    """Other behaviors 7, 7b: the controller records the last member of the ISR, the leader, when it is
    fenced (R7).

    Kept in controller.core.partitions.partition_change.
    """
    run_script(
        THREE
        + """
        fence 3
        fence 2
        fence 1
        => t-0 leader=none@1 last_known_leader=1
        failover
        show t-0
        => t-0 last_known_leader=1
    """
    )


def test_last_known_leader_is_cleaned_when_a_leader_is_elected() -> None:
    """Other behaviors 7c: the last known leader is cleaned with the next election (R7).

    Kept in controller.core.partitions.partition_change.
    """
    run_script(
        THREE
        + """
        fence 3 2 1
        unfence 2
        => t-0 leader=2@2 last_known_leader=none
    """
    )


def test_last_known_leader_is_used_when_logs_are_not_compared() -> None:
    """Other behaviors 7a: it can be used while unclean recovery is not enabled (R12).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        cluster manager=off
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=1 isr=(1)
        fence 1
        register 1 unclean
        => t-0 elr=() last_known_elr=(1) last_known_leader=1
        unfence 1
        => t-0 leader=1@2 isr=(1) recovering
    """)
