"""KIP-966, "Motivation": what the proposal is for."""

from tests.spec.builders import run_script


def test_replica_that_lost_its_tail_is_out_of_the_isr_until_it_has_caught_up() -> None:
    """Motivation: after an unclean shutdown a replica leaves the ISR and is only added back once caught up
    (R32).

    Kept in controller.core.brokers.cluster_control, controller.core.partitions.replication_control.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        fence 2
        register 2 unclean
        unfence 2
        => ok
        show t-0
        => t-0 isr=(1,3)
        alter t-0 isr=(1,2,3)
        => t-0 isr=(1,2,3)
    """)


def test_last_replica_standing_loses_nothing_that_was_acknowledged() -> None:
    """Motivation: T0 to T4, with the proposal the lossy last leader is not elected again (R5, R11).

    Kept in controller.core.partitions.elr, controller.core.partitions.election.
    """
    run_script("""
        broker 0 1 2
        partition t-0 replicas=(0,1,2) min_isr=2 leader=2
        fence 0
        => t-0 isr=(1,2) elr=()
        fence 1
        => t-0 leader=2@0 isr=(2) elr=(1)
        fence 2
        => t-0 leader=none@1 isr=() elr=(1,2)
        unfence 0
        => ok
        unfence 1
        => t-0 leader=1@2 isr=(1) elr=(2)
        register 2 unclean
        => t-0 leader=1@2 isr=(1) elr=()
        unfence 2
        => ok
    """)


def test_min_isr_less_one_lossy_shutdowns_leave_a_complete_replica_electable() -> None:
    """Motivation: min ISR - 1 unclean shutdowns with lost data are survived (G-1).

    Kept in controller.core.partitions.elr.
    """
    run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3,4) min_isr=3
        fence 4
        fence 3
        => t-0 isr=(1,2) elr=(3)
        fence 2
        fence 1
        => t-0 leader=none@1 isr=() elr=(1,2,3)
        register 1 unclean
        => t-0 elr=(2,3)
        register 2 unclean
        => t-0 elr=(3)
        unfence 1 2
        => ok
        unfence 3
        => t-0 leader=3@2 isr=(3)
    """)


def test_without_the_proposal_the_lossy_last_leader_is_elected_again() -> None:
    """Motivation: what the old behaviour does at T2 to T4, the baseline: the ISR keeps its last member (F7).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        cluster elr=off
        broker 0 1 2
        partition t-0 replicas=(0,1,2) min_isr=2 leader=2
        fence 0
        fence 1
        fence 2
        => t-0 leader=none@1 isr=(2) elr=()
        unfence 0 1
        => ok
        register 2 unclean
        => ok
        unfence 2
        => t-0 leader=2@2 isr=(2)
    """)
