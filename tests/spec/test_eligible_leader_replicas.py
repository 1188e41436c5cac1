"""KIP-966, "Eligible Leader Replicas": invariants, behaviors of brokers and controller, the update rule."""

import pytest

from holdfast.controller.core.partitions.elr import EligibleSets, next_eligible
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import PartitionChangeRecord, RegisterBrokerRecord, decode_record
from holdfast.scenario.partition import LonePartition
from holdfast.scenario.partition import registration as isr_of_one
from tests.spec.builders import run_leader_script, run_script

FOUR = """
    broker 1 2 3 4
    partition t-0 replicas=(1,2,3,4) min_isr=3
"""


def test_replication_goes_on_by_the_isr_alone() -> None:
    """Eligible Leader Replicas: the high watermark still needs the full ISR, and no ELR member (F17).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=2
        start
        append 3
        fetch replica=2 offset=3
        => hwm=3
    """)


def test_member_of_the_elr_may_be_elected_cleanly() -> None:
    """Eligible Leader Replicas: besides the ISR, members of the ELR are eligible in a clean election (R11,
    R13).

    Kept in controller.core.partitions.election.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        alter t-0 isr=(1)
        fence 1
        => t-0 leader=2@1 isr=(2) elr=(1,3)
    """)


def test_elr_election_is_no_unclean_one() -> None:
    """Eligible Leader Replicas: such an election is clean, the leader does not recover (R13).

    Kept in controller.core.partitions.partition_change.
    """
    scenario = run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        alter t-0 isr=(1)
        fence 1
    """)
    assert "recovering" not in str(scenario.quorum.partition("t"))


def test_isr_can_become_empty() -> None:
    """ISR invariants: the ISR can be empty (F7).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=1
        fence 2
        fence 1
        => t-0 leader=none@1 isr=() elr=(1)
    """)


def test_fenced_replica_leaves_the_isr() -> None:
    """ISR invariants: a replica that the controller fences is removed from the ISR, as before (R20).

    Kept in controller.core.partitions.replication_control.
    """
    run_script(
        FOUR
        + """
        fence 3
        => t-0 isr=(1,2,4)
    """
    )


def test_lagging_replica_leaves_the_isr() -> None:
    """ISR invariants: a replica that lags is removed from the ISR, as before (R51).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=1
        start
        append 3
        tick 30001
        => isr=(1,2)
        => propose isr=(1)
    """)


def registration(isr: tuple[int, ...], elr: tuple[int, ...]) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, isr[0] if isr else None, 0, 0, 2, elr)


def test_no_member_of_the_elr_is_in_the_isr() -> None:
    """ELR invariants: ELR and ISR are disjoint (R9, I-6).

    Kept in metadata.partition, controller.core.partitions.elr.
    """
    assert registration((1,), (2,)).broken_invariants() == []
    assert registration((1,), (1, 2)).broken_invariants() != []
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2)
        => t-0 isr=(1,2) elr=(3,4)
        alter t-0 isr=(1,3)
        => t-0 isr=(1,3) elr=(2,4)
    """
    )


def test_member_of_the_elr_was_in_the_isr_when_the_high_watermark_moved_last() -> None:
    """ELR invariants: its members have the data at least up to the high watermark (I-8).

    Kept in controller.core.partitions.elr.
    """
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2,3)
        => t-0 isr=(1,2,3) elr=()
        alter t-0 isr=(1,2)
        => t-0 isr=(1,2) elr=(3)
    """
    )


@pytest.mark.parametrize("what", ["stop 3", "fence 3", "show t-0"])
def test_member_of_the_elr_may_lag_or_be_fenced(what: str) -> None:
    """ELR invariants: a member can lag, or be in a state unknown to the controller (R20).

    Kept in controller.core.partitions.replication_control.
    """
    run_script(
        FOUR
        + f"""
        alter t-0 isr=(1,2)
        {what}
        show t-0
        => t-0 isr=(1,2) elr=(3,4)
    """
    )


def test_elr_with_members_means_an_isr_below_min_isr() -> None:
    """ELR invariants: if the ELR is not empty the ISR is under min ISR (R9, I-6).

    Kept in metadata.partition, controller.core.partitions.elr.
    """
    assert registration((1, 2), (3,)).broken_invariants() != []
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2)
        => t-0 elr=(3,4)
        alter t-0 isr=(1,2,3)
        => t-0 isr=(1,2,3) elr=()
    """
    )


def test_isr_and_elr_together_stay_at_min_isr_without_unclean_shutdowns() -> None:
    """ELR invariants: ISR + ELR do not drop below min ISR unless a member of the ELR had an unclean
    shutdown (A-10).

    Kept in controller.core.partitions.elr.
    """
    scenario = run_script(
        FOUR
        + """
        fence 4
        fence 1
        fence 2
        fence 3
    """
    )
    partition = scenario.quorum.partition("t")
    assert (partition.isr, partition.elr) == ((), (1, 2, 3))
    run_script("register 1 clean\n=> ok\nregister 2 unclean\n=> t-0 elr=(1,3)", scenario)


def test_member_of_the_elr_that_registers_unclean_is_removed() -> None:
    """ELR invariants: the controller removes a member of the ELR that registers after an unclean shutdown
    (R32, A-8).

    Kept in controller.core.brokers.cluster_control.
    """
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2)
        fence 3
        register 3 unclean
        => t-0 isr=(1,2) elr=(4)
    """
    )


def test_brokers_decide_by_the_isr_and_never_see_the_elr() -> None:
    """Broker behaviors: leader and follower have no behavior for the ELR, they refer to the ISR (F17).

    Kept in broker.core.replicas.partition.
    """
    seen = []
    for elr in ((), (3,)):
        alone = LonePartition()
        alone.register(isr_of_one(leader=1, isr=(1,), min_isr=2, elr=elr))
        alone.append(3)
        alone.fetch(2, 3)
        alone.fetch(3, 3)
        partition = alone.partition
        assert partition.leadership is not None
        seen.append((partition.high_watermark, partition.leadership.maximal_isr, alone.proposal))
    assert seen[0] == seen[1]


def test_new_isr_of_an_alter_partition_updates_the_elr() -> None:
    """Controller behaviors 1: AlterPartition changes the ELR as well, the broker does not know of it
    (R42).

    Kept in controller.core.partitions.replication_control.
    """
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2)
        => t-0 isr=(1,2) elr=(3,4)
    """
    )


def test_fencing_updates_the_elr() -> None:
    """Controller behaviors 2: when a replica is fenced the ELR follows from the ISR without it (R20).

    Kept in controller.core.partitions.replication_control.
    """
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2,3)
        fence 2
        => t-0 isr=(1,3) elr=(2)
    """
    )


def test_unfenced_member_of_the_elr_leads_when_the_isr_is_empty() -> None:
    """Controller behaviors 3: it is elected, added to the ISR and removed from the ELR (R13, R21).

    Kept in controller.core.partitions.replication_control, controller.core.partitions.partition_change.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        fence 3 2 1
        unfence 3
        => ok
        unfence 2
        => t-0 leader=2@2 isr=(2) elr=(1)
    """)


def test_unfenced_member_of_the_elr_waits_while_the_isr_has_members() -> None:
    """Controller behaviors 3: only an empty ISR lets a member of the ELR in by itself (R11).

    Kept in controller.core.partitions.election.
    """
    run_script(
        FOUR
        + """
        fence 4
        fence 3
        unfence 3
        => ok
        show t-0
        => t-0 leader=1@0 isr=(1,2) elr=(3)
    """
    )


def test_unclean_broker_is_out_of_isr_and_elr_before_its_registration_is_written() -> None:
    """Controller behaviors 4: it is removed from both before the registration record is persisted (F26, A-8).

    Kept in controller.core.brokers.cluster_control.
    """
    scenario = run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 isr=(1) elr=(2)
        partition u-0 replicas=(2,3) min_isr=2
        fence 2
    """)
    entries = scenario.quorum.entries
    start = len(entries)
    run_script("register 2 unclean", scenario)
    kinds = [type(decode_record(entry.value)) for entry in entries[start:]]
    assert kinds == [PartitionChangeRecord, PartitionChangeRecord, RegisterBrokerRecord]


def test_isr_of_min_isr_members_empties_the_elr() -> None:
    """ELR update 1: a proposed ISR of at least min ISR becomes the ISR, and the ELR is emptied (R5).

    Kept in controller.core.partitions.elr.
    """
    before = EligibleSets((3,), (4,))
    after = next_eligible(before, old_isr=(1,), new_isr=(1, 2), min_isr=2, replicas=(1, 2, 3, 4))
    assert after == EligibleSets()


def test_smaller_isr_retains_the_members_of_the_elr() -> None:
    """ELR update 2a: with a proposed ISR below min ISR the members of the ELR stay (R5).

    Kept in controller.core.partitions.elr.
    """
    after = next_eligible(EligibleSets((3,)), old_isr=(1,), new_isr=(1,), min_isr=2, replicas=(1, 2, 3))
    assert after.elr == (3,)


def test_smaller_isr_adds_those_who_leave_it_to_the_elr() -> None:
    """ELR update 2b: current ISR minus proposed ISR is added to the ELR (R5).

    Kept in controller.core.partitions.elr.
    """
    after = next_eligible(
        EligibleSets((4,)), old_isr=(1, 2, 3), new_isr=(1,), min_isr=2, replicas=(1, 2, 3, 4)
    )
    assert after.elr == (2, 3, 4)


def test_smaller_isr_takes_its_members_out_of_the_elr() -> None:
    """ELR update 2c: a replica in both ISR and ELR is removed from the ELR (R5).

    Kept in controller.core.partitions.elr.
    """
    after = next_eligible(EligibleSets((2, 3)), old_isr=(1,), new_isr=(1, 2), min_isr=3, replicas=(1, 2, 3))
    assert after.elr == (3,)


def test_only_who_was_in_the_isr_when_it_fell_below_min_isr_joins_the_elr() -> None:
    """ELR update: only members of the last ISR snapshot when it drops below min ISR can join (R5).

    Kept in controller.core.partitions.elr.
    """
    run_script(
        FOUR
        + """
        fence 4
        => t-0 isr=(1,2,3) elr=()
        fence 3
        => t-0 isr=(1,2) elr=(3)
        unfence 4
        => ok
        show t-0
        => t-0 elr=(3)
    """
    )


def test_timeline_of_four_brokers_is_that_of_the_picture() -> None:
    """ELR update, example T0 to T7: four brokers, min ISR 3 (R5, R6, R13).

    Kept in controller.core.partitions.partition_change.
    """
    run_script(
        FOUR
        + """
        alter t-0 isr=(1,2)
        => t-0 isr=(1,2) elr=(3,4)
        alter t-0 isr=(1,2,3)
        => t-0 isr=(1,2,3) elr=()
        expire 2 3
        => t-0 isr=(1) elr=(2,3)
        alter t-0 isr=(1,4)
        => t-0 isr=(1,4) elr=(2,3)
        expire 4 1
        => t-0 leader=none@1 isr=() elr=(1,2,3,4)
        register 3 unclean
        => t-0 elr=(1,2,4) last_known_elr=(3)
        register 1 unclean
        => t-0 elr=(2,4) last_known_elr=(1,3)
        unfence 2
        => t-0 leader=2@2 isr=(2) elr=(4) last_known_elr=(1,3)
        unfence 1 3
        => ok
        alter t-0 isr=(1,2,3)
        => t-0 isr=(1,2,3) elr=() last_known_elr=()
    """
    )
