"""KIP-966, "Public-Facing Changes", "Compatibility, Deprecation, and Migration Plan", "Delivery plan"."""

import pytest

from tests.spec.builders import run_leader_script, run_script

PHASE_1 = "cluster manager=off unclean={unclean}\nbroker 1 2 3\n"


def test_message_is_visible_once_min_isr_members_have_it() -> None:
    """Public-Facing Changes 1: the high watermark covers only what min.insync.replicas ISR members have
    (A-2).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=2
        start
        append 3
        => hwm=0
        fetch replica=2 offset=2
        => hwm=2
    """)


def test_min_isr_1_makes_messages_of_a_lone_leader_visible() -> None:
    """Public-Facing Changes 2: with min ISR 1 users avoid that acks=0/1 messages wait for others (F4).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1) min_isr=2
        start
        append 3
        => hwm=0
        registration leader=1 isr=(1) min_isr=1 pe=1
        => hwm=3
    """)


def test_leader_waits_for_the_controller_before_a_returning_follower_counts() -> None:
    """Public-Facing Changes 3a: a follower that comes back counts after the controller acknowledged it (F3).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1) min_isr=2
        start
        append 3
        fetch replica=2 offset=3
        => hwm=0 maximal=(1,2)
        => propose isr=(1,2)
        append 1
        fetch replica=2 offset=4
        => hwm=0
    """)


def test_elr_election_does_not_ask_how_well_a_broker_replicates() -> None:
    """Public-Facing Changes 3b: a leader from the ELR may be a degraded broker, it is alive and complete
    (R15).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        alter t-0 isr=(1)
        fence 1
        => t-0 leader=2@1 isr=(2) elr=(1,3)
    """)


def test_fully_implemented_a_leader_is_elected_when_all_last_known_members_have_replied() -> None:
    """Public-Facing Changes 5a: ISR and ELR empty, all of the LastKnownELR must have replied (R64).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script("""
        cluster unclean=false
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=2 leader=none isr=() last_known_elr=(1,2) last_known_leader=1
        log_info 1 t-0 last_epoch=0 end_offset=5
        => ok
        log_info 2 t-0 last_epoch=0 end_offset=6
        => t-0 leader=2@1
        => t-0 recovery: elected 2
    """)


def test_with_elr_only_the_last_known_leader_is_preferred() -> None:
    """Public-Facing Changes 5b: only ELR implemented, the last known leader leads when both sets are empty
    (R12).

    Kept in controller.core.partitions.election.
    """
    run_script(
        PHASE_1.format(unclean="false")
        + """
        partition t-0 replicas=(1,2,3) min_isr=2 leader=3 isr=(3)
        fence 3
        register 3 unclean
        => t-0 isr=() elr=() last_known_leader=3
        unfence 3
        => t-0 leader=3@2
    """
    )


def test_member_of_the_elr_can_lead_when_all_replicas_were_fenced() -> None:
    """Ack=0/1 comparison, recovery: not the last ISR member alone, any member of the ELR can be elected
    (R13).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        fence 1 2 3
        unfence 2
        => t-0 leader=2@4
    """)


def test_high_watermark_waits_for_min_isr_without_elr_too() -> None:
    """Compatibility, high watermark: the new requirement is not guarded by any feature or version (F1).

    Kept in broker.core.replicas.partition, controller.core.partitions.partition_change.
    """
    partition = run_script("""
        cluster elr=off
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=2
        fence 2
        => t-0 isr=(1) elr=() min_isr=2
    """).quorum.partition("t")
    run_leader_script(f"""
        registration leader=1 isr=(1) min_isr={partition.min_isr}
        start
        append 3
        => hwm=0
    """)


def test_elr_starts_empty_after_the_upgrade_and_is_recorded_with_the_next_update() -> None:
    """Compatibility, ELR: states from before have an empty ELR, the next partition update records it (F64).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        cluster elr=off
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=3
        fence 3
        => t-0 isr=(1,2) elr=()
        feature elr=1
        => ok
        fence 2
        => t-0 isr=(1) elr=(2)
    """)


def test_downgrade_removes_all_fields_of_the_elr() -> None:
    """Compatibility, MV downgrade: ELR, LastKnownELR and last known leader are removed, and ignored (R108,
    B8).

    Kept in controller.core.operators.config_control, controller.core.partitions.partition_change.
    """
    scenario = run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        alter t-0 isr=(1)
        fence 2
        register 2 unclean
        => t-0 elr=(3) last_known_elr=(2)
        feature elr=0
        => t-0 isr=(1) elr=() last_known_elr=()
        fence 1
        => t-0 leader=none@1 isr=(1) elr=() last_known_leader=none
        unfence 3
        => ok
    """)
    assert not scenario.quorum.image.elr_enabled


def test_downgrade_is_refused_while_a_partition_lives_by_its_elr() -> None:
    """Compatibility, MV downgrade: with an empty ISR no replica could be elected afterwards (B8, R108).

    Kept in controller.core.operators.config_control.
    """
    run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=1
        fence 2 1
        feature elr=0
        => error=INVALID_UPDATE_VERSION
    """)


def test_metadata_log_holds_all_that_a_downgrade_changed() -> None:
    """Compatibility, software downgrade: the downgrade writes a delta of the metadata with the present
    state (B8).

    Kept in controller.core.operators.config_control.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 isr=(1) elr=(2)
        feature elr=0
        => t-0 elr=() pe=1
        failover
        show t-0
        => t-0 isr=(1) elr=() pe=1
    """)


def test_without_the_feature_no_shutdown_takes_a_seat() -> None:
    """Compatibility, clean shutdown: guarded by the feature, before it clean and unclean make no difference
    (F25).

    Kept in controller.core.brokers.cluster_control.
    """
    for how in ("clean", "unclean"):
        run_script(f"""
            cluster elr=off
            broker 1 2
            partition t-0 replicas=(1,2) min_isr=1 isr=(1)
            fence 1
            register 1 {how}
            => ok
            unfence 1
            => t-0 leader=1@2 isr=(1)
        """)


def test_recovery_manager_needs_its_switch() -> None:
    """Compatibility, unclean recovery: guarded by unclean.recovery.manager.enabled (R69).

    Kept in controller.core.partitions.replication_control.
    """
    run_script("""
        cluster manager=off
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(1,2)
        => t-0 leader=none@0
        elect longest_log_aggressive t-0
        => t-0 error=INVALID_REQUEST
        config cluster unclean.recovery.manager.enabled=true
        => t-0 recovery: ask (1,2) also ()
    """)


@pytest.mark.parametrize("unclean", ["true", "false"])
def test_phase_1_elects_members_of_the_isr_then_of_the_elr(unclean: str) -> None:
    """Delivery plan: with or without unclean election, an ISR member first, then an unfenced ELR member
    (R12).

    Kept in controller.core.partitions.election.
    """
    run_script(
        PHASE_1.format(unclean=unclean)
        + """
        partition t-0 replicas=(1,2,3) min_isr=3 leader=1 isr=(1,3) elr=(2)
        fence 1
        => t-0 leader=3@1 isr=(3) elr=(1,2)
        fence 3
        => t-0 leader=2@2 isr=(2) elr=(1,3)
    """
    )


def test_phase_1_waits_for_the_first_member_of_the_elr_to_be_unfenced() -> None:
    """Delivery plan: fenced ELR members, unclean election off: the first of them that is unfenced (F39).

    Kept in controller.core.partitions.election.
    """
    run_script(
        PHASE_1.format(unclean="false")
        + """
        fence 2
        fence 3
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() elr=(2) last_known_leader=3
        unfence 3
        => ok
        unfence 2
        => t-0 leader=2@1 isr=(2)
    """
    )


@pytest.mark.parametrize("sets", ["isr=(2)", "isr=(2) elr=(3)"])
def test_phase_1_elects_uncleanly_where_that_is_allowed(sets: str) -> None:
    """Delivery plan: no unfenced ELR member and unclean election on: an unclean leader election (F38).

    Kept in controller.core.partitions.election.
    """
    run_script(
        PHASE_1.format(unclean="true")
        + f"""
        fence 3
        partition t-0 replicas=(3,1,2) min_isr=2 leader=2 {sets}
        fence 2
        => t-0 leader=1@1 isr=(1) elr=() recovering
    """
    )


def test_phase_1_waits_for_the_last_known_leader() -> None:
    """Delivery plan: no ELR members, unclean election off: the last known leader once it is unfenced (F40).

    Kept in controller.core.partitions.election.
    """
    run_script(
        PHASE_1.format(unclean="false")
        + """
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_leader=3
        unfence 1
        => ok
        fence 3
        unfence 3
        => t-0 leader=3@1 recovering
    """
    )


def test_legacy_unclean_election_takes_any_replica_that_is_there() -> None:
    """Delivery plan: the unclean election picks an unfenced replica, the first in assignment order (F38).

    Kept in controller.core.partitions.election.
    """
    run_script(
        PHASE_1.format(unclean="true")
        + """
        fence 3
        partition t-0 replicas=(3,2,1) min_isr=1 leader=1 isr=(1)
        fence 1
        => t-0 leader=2@1 isr=(2) recovering
    """
    )


# --- rejected alternatives -------------------------------------------------------------------------------


def test_isr_falls_below_min_isr() -> None:
    """Rejected alternatives, soft min ISR: the ISR is not kept at min ISR by fenced or lagging members (F66).

    Kept in controller.core.partitions.replication_control.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=3
        fence 2
        => t-0 isr=(1,3) elr=(2)
        alter t-0 isr=(1)
        => t-0 isr=(1) elr=(2,3)
    """)


def test_lossy_last_replica_is_no_leader_even_if_it_comes_back_first() -> None:
    """Rejected alternatives, shadow ISR: the last replica does not lead after an unclean shutdown (F66).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        fence 3 2 1
        register 1 unclean
        => t-0 elr=(2) last_known_elr=(1)
        unfence 1
        => ok
        unfence 2
        => t-0 leader=2@2
    """)
