"""KIP-966, "Unclean recovery" and "Other": strategies, the order of decisions, whose answers count, who
wins.
"""

import pytest

from tests.spec.builders import run_script

#: 2 and 3 were removed from the ELR by unclean shutdowns, no complete replica is left
LOST = """
    broker 1 2 3
    partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3) leader_epoch=4
"""


def with_strategy(strategy: str, text: str) -> str:
    return f"cluster strategy={strategy}\n{text}"


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_baseline_elects_the_first_that_is_there_or_waits(allowed: str) -> None:
    """Unclean recovery: what unclean.leader.election.enable means without the proposal (F38, F7).

    Kept in controller.core.partitions.election, controller.core.partitions.replication_control.
    """
    scenario = run_script(f"""
        cluster elr=off manager=off unclean={allowed}
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 leader=3 isr=(3)
        fence 3
    """)
    assert scenario.quorum.partition("t").leader == (1 if allowed == "true" else None)
    run_script("unfence 3", scenario)
    assert scenario.quorum.partition("t").leader == (1 if allowed == "true" else 3)


def test_leader_is_found_by_comparison_and_not_by_chance() -> None:
    """Unclean recovery: it replaces the random election by a deterministic way to elect who has most data
    (R60).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        LOST
        + """
        log_info 1 t-0 last_epoch=3 end_offset=5
        log_info 2 t-0 last_epoch=3 end_offset=7
        log_info 3 t-0 last_epoch=3 end_offset=6
        => t-0 leader=2@5 isr=(2) recovering
        => t-0 recovery: elected 2
    """
    )


def test_highest_leader_epoch_wins_before_the_longest_log() -> None:
    """Unclean recovery: the highest leader epoch in the log, then the longest log end offset, wins (R66,
    A-14).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        LOST
        + """
        log_info 1 t-0 last_epoch=2 end_offset=90
        log_info 2 t-0 last_epoch=3 end_offset=10
        log_info 3 t-0 last_epoch=3 end_offset=9
        => t-0 leader=2@5
        => t-0 recovery: elected 2
    """
    )


def test_replicas_are_asked_once_a_recovery_is_triggered() -> None:
    """Unclean recovery: the controller queries log end offset and leader epoch of the replicas (R61).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        => t-0 leader=none@0
        => t-0 recovery: ask (2,3) also (1)
    """)


def test_isr_member_is_elected_first() -> None:
    """Leader election 1: if there are other members of the ISR, one of them (R14, A-13).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(2,1,3) min_isr=3 leader=1 isr=(1,3) elr=(2)
        fence 1
        => t-0 leader=3@1 isr=(3) elr=(1,2)
    """)


def test_unfenced_member_of_the_elr_is_elected_next() -> None:
    """Leader election 2: if there are unfenced members of the ELR, one of them (R14, A-13).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(3,2,1) min_isr=2 leader=1 isr=(1) elr=(2)
        fence 1
        => t-0 leader=2@1 isr=(2) elr=(1)
    """)


def test_aggressive_does_not_wait_for_fenced_members_of_the_elr() -> None:
    """Leader election 3a: only fenced members in the ELR and Aggressive: unclean recovery (R14).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        with_strategy(
            "Aggressive",
            """
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 leader=1 isr=(1)
        fence 1
        => t-0 leader=none@1 elr=(1)
        => t-0 recovery: ask () also (2,3)
    """,
        )
    )


@pytest.mark.parametrize("strategy", ["Balanced", "None"])
def test_other_strategies_wait_for_fenced_members_of_the_elr(strategy: str) -> None:
    """Leader election 3b: otherwise wait for the fenced members of the ELR to be unfenced (R14).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        with_strategy(
            strategy,
            """
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 leader=1 isr=(1)
        fence 1
        => t-0 leader=none@1 elr=(1)
        advance 900000
        => ok
        unfence 1
        => t-0 leader=1@2 isr=(1)
    """,
        )
    )


def test_aggressive_recovers_at_once_without_members_of_the_elr() -> None:
    """Leader election 4a: no members in the ELR and Aggressive: unclean recovery (R14).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        with_strategy(
            "Aggressive",
            """
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        => t-0 leader=none@0
        => t-0 recovery: ask () also (1,2)
    """,
        )
    )


def test_balanced_recovers_once_all_last_known_members_are_unfenced() -> None:
    """Leader election 4b: Balanced recovers when all of the LastKnownELR are unfenced (R14, R64).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script("""
        cluster strategy=Balanced
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 isr=(1) elr=(2)
        fence 1 2
        register 1 unclean
        => t-0 elr=(2) last_known_elr=(1)
        register 2 unclean
        => t-0 elr=() last_known_elr=(1,2)
        => t-0 recovery: wait (1,2)
        unfence 1
        => t-0 recovery: wait (2)
        unfence 2
        => t-0 recovery: ask (1,2) also (3)
    """)


def test_none_waits_for_the_operator() -> None:
    """Leader election 4c: None does not attempt to elect a leader, it waits for the user (R14).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script("""
        cluster strategy=None
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        => t-0 leader=none@0
        advance 900000
        => ok
        elect designated t-0 leader=2
        => t-0 leader=2@1 isr=(2) recovering
    """)


def test_answer_of_an_earlier_incarnation_elects_no_leader() -> None:
    """Unclean recovery, broker epoch: a broker that rebooted after its answer is not elected by it (R62,
    R63, N-3).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        LOST
        + """
        log_info 2 t-0 last_epoch=3 end_offset=9
        register 2 clean
        => t-0 recovery: wait (2)
        unfence 2
        => t-0 recovery: ask (2,3) also (1)
        log_info 3 t-0 last_epoch=3 end_offset=1
        log_info 1 t-0 last_epoch=3 end_offset=1
        => ok
        log_info 2 t-0 last_epoch=3 end_offset=5 broker_epoch=stale
        => ok
        log_info 2 t-0 last_epoch=3 end_offset=5
        => t-0 leader=2@5
        => t-0 recovery: elected 2
    """
    )


def test_answer_from_older_metadata_does_not_count() -> None:
    """Unclean recovery, current leader epoch: it fences stale GetReplicaLogInfo responses (R62).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        LOST
        + """
        log_info 1 t-0 last_epoch=3 end_offset=1
        log_info 2 t-0 last_epoch=3 end_offset=9
        log_info 3 t-0 last_epoch=3 end_offset=9 leader_epoch=stale
        => ok
        log_info 3 t-0 last_epoch=3 end_offset=2
        => t-0 leader=2@5
        => t-0 recovery: elected 2
    """
    )


def test_balanced_needs_every_last_known_member_and_takes_who_else_answers_in_time() -> None:
    """Unclean recovery, start of the election: all of the LastKnownELR, others that replied in time (R64).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        "cluster recovery_timeout_ms=30000\n"
        + LOST
        + """
        log_info 1 t-0 last_epoch=3 end_offset=99
        advance 30000
        => ok
        log_info 2 t-0 last_epoch=3 end_offset=5
        => ok
        log_info 3 t-0 last_epoch=3 end_offset=6
        => t-0 leader=1@5
        => t-0 recovery: elected 1
    """
    )


def test_balanced_does_not_wait_for_the_others_after_the_timeout() -> None:
    """Unclean recovery, start of the election: replicas outside the LastKnownELR have until the timeout
    (R64).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        "cluster recovery_timeout_ms=30000\n"
        + LOST
        + """
        log_info 2 t-0 last_epoch=3 end_offset=5
        log_info 3 t-0 last_epoch=3 end_offset=6
        => ok
        advance 29999
        => ok
        advance 1
        => t-0 leader=3@5
        => t-0 recovery: elected 3
    """
    )


def test_aggressive_takes_the_best_answer_at_the_timeout() -> None:
    """Unclean recovery, start of the election: Aggressive uses what was replied within a fixed time (R65).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        "cluster strategy=Aggressive recovery_timeout_ms=30000\n"
        + LOST
        + """
        log_info 1 t-0 last_epoch=3 end_offset=5
        advance 29999
        => ok
        advance 1
        => t-0 leader=1@5
        => t-0 recovery: elected 1
    """
    )


def test_aggressive_takes_the_first_answer_after_the_timeout() -> None:
    """Unclean recovery, start of the election: or the first response after the timeout (R65).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        "cluster strategy=Aggressive recovery_timeout_ms=30000\n"
        + LOST
        + """
        advance 30000
        => ok
        log_info 3 t-0 last_epoch=0 end_offset=1
        => t-0 leader=3@5
        => t-0 recovery: elected 3
    """
    )


def test_replica_that_failed_before_it_was_asked_answers_with_its_present_epoch() -> None:
    """Broker failover: failing before the request does no harm, it answers with its current broker epoch
    (R62).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(
        LOST
        + """
        fence 3
        => t-0 recovery: wait (3)
        register 3 unclean
        unfence 3
        => t-0 recovery: ask (2,3) also (1)
        log_info 3 t-0 last_epoch=3 end_offset=9
        log_info 2 t-0 last_epoch=3 end_offset=5
        log_info 1 t-0 last_epoch=3 end_offset=5
        => t-0 leader=3@5
        => t-0 recovery: elected 3
    """
    )


def test_leader_that_failed_unnoticed_is_fenced_when_it_registers() -> None:
    """Broker failover: a replica that failed after its answer may be elected, and is fenced when it
    registers (R32).

    Kept in controller.core.brokers.cluster_control.
    """
    run_script(
        LOST
        + """
        log_info 1 t-0 last_epoch=3 end_offset=1
        log_info 2 t-0 last_epoch=3 end_offset=9
        log_info 3 t-0 last_epoch=3 end_offset=2
        => t-0 leader=2@5
        => t-0 recovery: elected 2
        fence 2
        register 2 unclean
        => t-0 leader=none@6 isr=() elr=()
        => t-0 recovery: wait (2)
    """
    )


def test_controller_failover_starts_the_recovery_anew() -> None:
    """Controller failover: nothing of a recovery is in the metadata log, the next controller begins anew
    (R60, F43).

    Kept in controller.core.partitions.unclean_recovery.
    """
    scenario = run_script(LOST + "log_info 2 t-0 last_epoch=3 end_offset=9")
    before = len(scenario.quorum.entries)
    run_script(
        """
        failover
        => t-0 recovery: ask (2,3) also (1)
        log_info 1 t-0 last_epoch=3 end_offset=1
        log_info 3 t-0 last_epoch=3 end_offset=1
        => ok
    """,
        scenario,
    )
    assert len(scenario.quorum.entries) == before


def test_operator_names_the_leader() -> None:
    """Other 1a: a leader can be selected directly (R18).

    Kept in controller.core.partitions.leader_elections.
    """
    run_script(
        LOST
        + """
        elect designated t-0 leader=3
        => t-0 leader=3@5 isr=(3) recovering
        => t-0 recovery: cancelled
    """
    )


@pytest.mark.parametrize(
    ("kind", "asked"),
    [("longest_log_aggressive", "ask () also (1,2)"), ("longest_log_balanced", "wait (3)")],
)
def test_operator_asks_for_the_longest_log(kind: str, asked: str) -> None:
    """Other 1b: an unclean recovery can be triggered, in Aggressive or in Balanced mode (R17).

    Kept in controller.core.partitions.leader_elections, controller.core.partitions.unclean_recovery.
    """
    run_script(f"""
        cluster strategy=None
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        elect {kind} t-0
        => t-0 recovery: {asked}
    """)


@pytest.mark.parametrize(("enabled", "asked"), [("true", "ask () also (1,2)"), ("false", "wait (3)")])
def test_old_key_stands_for_a_strategy(enabled: str, asked: str) -> None:
    """Other 3a, 3b: unclean.leader.election.enable false means Balanced and true means Aggressive (R69, F41).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script(f"""
        cluster unclean={enabled}
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        => t-0 leader=none@0
        => t-0 recovery: {asked}
    """)


def test_strategy_that_is_set_beats_the_old_key() -> None:
    """Other 3: the old key is for compatibility; unclean.recovery.strategy decides where it is set (R69, D8).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script("""
        cluster unclean=true strategy=Balanced
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        => t-0 leader=none@0
        => t-0 recovery: wait (3)
    """)


def test_two_first_answers_are_not_enough_for_balanced() -> None:
    """Rejected alternatives: electing after a number of replies would lose data; all of the LastKnownELR
    must (F66).

    Kept in controller.core.partitions.unclean_recovery.
    """
    run_script("""
        broker 0 1 2
        partition t-0 replicas=(0,1,2) min_isr=2
        fence 2
        fence 1
        fence 0
        => t-0 leader=none@1 isr=() elr=(0,1)
        register 1 unclean
        register 0 unclean
        => t-0 elr=() last_known_elr=(0,1)
        => t-0 recovery: wait (0,1)
        unfence 2 1
        => t-0 recovery: wait (0)
        log_info 2 t-0 last_epoch=0 end_offset=3
        log_info 1 t-0 last_epoch=0 end_offset=4
        => ok
        unfence 0
        => t-0 recovery: ask (0,1) also (2)
        log_info 0 t-0 last_epoch=0 end_offset=9
        log_info 1 t-0 last_epoch=0 end_offset=4
        log_info 2 t-0 last_epoch=0 end_offset=3
        => t-0 leader=0@2
        => t-0 recovery: elected 0
    """)
