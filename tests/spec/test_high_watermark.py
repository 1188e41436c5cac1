"""KIP-966, "Additional High Watermark advancement requirement" and "Ack=0/1 comparison"."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.errors import ErrorCode
from tests.spec.builders import run_leader_script, run_script
from tests.unit.broker.cluster import Cluster, batch, values


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers and a controller over the in-memory runtime, one topic with min ISR 2."""
    made = await Cluster().boot()
    await made.topic(min_insync_replicas="2")
    yield made
    await made.end()


def test_high_watermark_stands_still_while_the_isr_is_below_min_isr() -> None:
    """Additional High Watermark advancement requirement: it advances only while the ISR has min ISR members
    (F1).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=2
        start
        append 4
        fetch replica=2 offset=4
        => hwm=4
        registration leader=1 isr=(1) min_isr=2 pe=1
        append 3
        => end=7 hwm=4
    """)


def test_high_watermark_is_what_every_isr_member_has() -> None:
    """High Watermark: the highest offset that is known to be on all in-sync replicas (R52).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2,3) min_isr=2
        start
        append 10
        fetch replica=2 offset=10
        => hwm=0
        fetch replica=3 offset=6
        => hwm=6
        fetch replica=3 offset=10
        => hwm=10
    """)


async def test_consumers_see_only_what_is_below_the_high_watermark(cluster: Cluster) -> None:
    """High Watermark: consumers see only the messages that it has passed (R52).

    Kept in broker.core.requests.fetch_path.
    """
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("seen"))
    for machine in cluster.machines.values():
        if machine is not leader:
            await machine.kill()
    await cluster.in_sync(leader.id)
    await cluster.produce(leader.id, batch("unseen"), acks=1)
    fetched = await cluster.fetch(leader.id)
    assert (values(fetched.records), fetched.high_watermark) == (["seen"], 1)
    assert leader.values() == ["seen", "unseen"]


async def test_ack_1_is_answered_once_the_leader_has_it(cluster: Cluster) -> None:
    """Ack=0/1/all: with acks=1 the leader's own log is enough, also while min ISR is missed (F4).

    Kept in broker.core.requests.produce_path.
    """
    leader = await cluster.leader()
    for machine in cluster.machines.values():
        if machine is not leader:
            await machine.kill()
    row = await cluster.produce(leader.id, batch("one"), acks=1)
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
    assert leader.values() == ["one"]


def test_ack_all_is_answered_once_the_whole_isr_has_it_and_is_large_enough() -> None:
    """Ack=0/1/all: acks=all needs every ISR member, and min ISR of them (F5).

    Kept in broker.core.replicas.partition, broker.core.requests.purgatory.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=2
        start
        produce acks=-1
        => NONE
        append 5
        => hwm=0
        fetch replica=2 offset=5
        => hwm=5
        registration leader=1 isr=(1) min_isr=2 pe=1
        produce acks=-1
        => NOT_ENOUGH_REPLICAS
        waiting le=0
        => NOT_ENOUGH_REPLICAS_AFTER_APPEND
    """)


def test_acks_0_and_1_are_taken_but_stay_invisible_below_min_isr() -> None:
    """Clarification 1: the requirement holds for acks=0/1 too, the leader still acknowledges them (F4).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1) min_isr=2
        start
        produce acks=0
        => NONE
        produce acks=1
        => NONE
        append 2
        => end=2 hwm=0
    """)


def test_isr_that_counts_is_the_one_that_the_controller_persisted() -> None:
    """Clarification 2: replicas that are only asked into the ISR do not make up min ISR (F3, A-2).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1) min_isr=2
        start
        append 3
        fetch replica=2 offset=3
        => hwm=0 isr=(1) maximal=(1,2)
        => propose isr=(1,2)
        answer isr=(1,2) pe=1
        => closed
        => hwm=3 isr=(1,2)
    """)


def test_message_must_be_on_the_maximal_isr_before_the_high_watermark_passes_it() -> None:
    """Clarification 3: with a pending expand the high watermark waits for the replicas asked in too (F3).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=2
        start
        fetch replica=2 offset=0
        fetch replica=3 offset=0
        => isr=(1,2) maximal=(1,2,3)
        => propose isr=(1,2,3)
        append 5
        fetch replica=2 offset=5
        => hwm=0
        fetch replica=3 offset=5
        => hwm=5
    """)


def test_effective_min_isr_is_at_most_the_replication_factor() -> None:
    """Additional High Watermark advancement requirement: effective min ISR = min(configured, replicas) (F2).

    Kept in metadata.partition.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2) min_isr=3
        => t-0 min_isr=2
        config topic t min.insync.replicas=9
        => ok
        config topic t min.insync.replicas=1
        => t-0 min_isr=1
    """)


def test_partition_with_all_its_replicas_moves_on_with_a_higher_min_isr() -> None:
    """Additional High Watermark advancement requirement: min.insync.replicas above the replicas
    does not block writes (F2).

    Kept in metadata.partition, broker.core.replicas.partition.
    """
    text = run_script("""
        broker 1
        partition t-0 replicas=(1) min_isr=3
        => t-0 min_isr=1
    """).quorum.partition("t")
    run_leader_script(f"""
        registration leader=1 replicas=(1) isr=(1) min_isr={text.min_isr}
        start
        append 2
        => hwm=2
    """)


def test_high_watermark_does_not_pass_a_member_of_the_elr() -> None:
    """Controller behaviors (question after the example): ISR=[0], ELR=[1], 2 joins: no advance before the
    commit (I-7).

    Kept in broker.core.replicas.partition, controller.core.partitions.elr.
    """
    run_script("""
        broker 0 1 2
        partition t-0 replicas=(0,1,2) min_isr=2 isr=(0) elr=(1)
        alter t-0 isr=(0,2)
        => t-0 isr=(0,2) elr=()
    """)
    run_leader_script("""
        registration leader=1 isr=(1) min_isr=2
        start
        append 3
        fetch replica=3 offset=3
        => hwm=0 maximal=(1,3)
        => propose isr=(1,3)
        answer isr=(1,3) pe=1
        => closed
        => hwm=3
    """)


def test_leader_switches_min_isr_together_with_the_isr() -> None:
    """Additional High Watermark advancement requirement: controller and leader never count by two values
    (R109, N-5).

    Kept in controller.core.partitions.partition_change, broker.core.replicas.partition.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=1 isr=(1,2)
        config topic t min.insync.replicas=2
        => t-0 isr=(1,2) elr=() min_isr=2 pe=1
        fence 2
        => t-0 isr=(1) elr=(2) min_isr=2 pe=2
    """)
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=1
        start
        registration leader=1 isr=(1,2) min_isr=2 pe=1
        registration leader=1 isr=(1) min_isr=2 pe=2
        append 3
        => hwm=0
    """)
