"""The replication text, chapter 5, "Asynchronous storage and recovery", where KIP-966 is silent."""

from collections.abc import AsyncIterator

import pytest

from holdfast.controller.core.partitions.placement import place_replicas
from holdfast.metadata.configs import TOPIC_KEY_BY_NAME, parse_value
from holdfast.runtime.stats import Level
from holdfast.storage.core.flush_policy import FlushPolicy
from tests.spec.builders import run_leader_script, run_script
from tests.unit.broker.cluster import Cluster, batch


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers and a controller over the in-memory runtime, one topic with min ISR 2."""
    made = await Cluster().boot()
    await made.topic(min_insync_replicas="2")
    yield made
    await made.end()


def test_every_write_flushed_means_durable_before_the_high_watermark_passes() -> None:
    """Asynchronous storage, flush every write: the high watermark advances by what is flushed (D6, G-3).

    Kept in broker.core.replicas.partition, storage.core.flush_policy.
    """
    run_leader_script("""
        every_write_is_flushed
        registration leader=1 isr=(1,2) min_isr=2
        start
        append 5
        fetch replica=2 offset=5 flushed=5
        => hwm=0
        flush
        => hwm=5
    """)
    assert FlushPolicy(flush_messages=1).is_every_write


def test_other_flush_policies_let_the_high_watermark_pass_what_is_not_flushed() -> None:
    """Asynchronous storage: the high watermark may advance between flushes (D6).

    Kept in broker.core.replicas.partition.
    """
    run_leader_script("""
        registration leader=1 isr=(1,2) min_isr=2
        start
        append 5
        fetch replica=2 offset=5 flushed=0
        => hwm=5
    """)


def test_every_nth_write_starts_a_flush() -> None:
    """Asynchronous storage, flush every nth write: a flush starts once n records wait for one (D6).

    Kept in storage.core.flush_policy.
    """
    policy = FlushPolicy(flush_messages=3)
    assert [policy.appended(1, 0) for _ in range(3)] == [False, False, True]


def test_flush_starts_when_records_have_waited_long_enough() -> None:
    """Asynchronous storage, flush every n milliseconds: by the age of the oldest record that waits (D6).

    Kept in storage.core.flush_policy.
    """
    policy = FlushPolicy(flush_ms=50)
    assert not policy.appended(1, 1000)
    policy.appended(1, 1040)
    assert [policy.is_due(at) for at in (1049, 1050)] == [False, True]


def test_without_a_policy_nothing_is_flushed_before_the_segment_rolls() -> None:
    """Asynchronous storage, flush on roll: the page cache is left to the operating system (F29).

    Kept in storage.core.flush_policy.
    """
    policy = FlushPolicy()
    assert not policy.appended(1_000_000, 0)
    assert policy.deadline_ms is None


async def test_killed_process_keeps_what_its_page_cache_held(cluster: Cluster) -> None:
    """Unclean shutdowns: the page cache outlives a process that is killed, nothing is lost (G-2, D10).

    Kept in storage.log, storage.clean_shutdown.
    """
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one"))
    await leader.kill()
    await leader.boot()
    await cluster.in_sync(1, 2, 3)
    assert leader.values() == ["one"]
    assert leader.node.core.lifecycle.was_clean is False


async def test_lossy_replica_recovers_from_the_leader(cluster: Cluster) -> None:
    """General approach: an unclean replica is made complete again through replication (R80, R86).

    Kept in broker.core.replicas.fetcher, storage.log.
    """
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one", "two"))
    await leader.lose_power()
    other = await cluster.leader(not_one_of=(leader.id,))
    await leader.boot()
    await cluster.in_sync(1, 2, 3)
    assert leader.values() == other.values() == ["one", "two"]


def test_unclean_replica_is_excluded_until_it_has_caught_up() -> None:
    """Unclean Exclusion: out of leadership, ISR and ELR until it has provably caught up to the leader (F28).

    Kept in controller.core.brokers.cluster_control, controller.core.partitions.elr.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 isr=(1) elr=(2)
        fence 1
        => t-0 leader=2@1 isr=(2) elr=(1)
        register 1 unclean
        => t-0 leader=2@1 isr=(2) elr=() last_known_elr=(1)
        unfence 1
        => ok
        fence 2
        => t-0 leader=none@2 elr=(2) last_known_elr=(1)
        unfence 2
        alter t-0 isr=(1,2)
        => t-0 isr=(1,2) elr=() last_known_elr=()
    """)


def test_broker_boots_fenced_and_out_of_every_leadership_and_isr() -> None:
    """Clean recovery: clean or not, a broker is fenced and out of all ISRs before it goes on (F27, R31).

    Kept in controller.core.brokers.cluster_control.
    """
    scenario = run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=1
        register 1 clean
        => t-0 leader=2@1 isr=(2)
    """)
    assert scenario.quorum.image.brokers[1].is_fenced


def test_missing_epoch_takes_the_broker_out_of_all_its_elrs() -> None:
    """Clean recovery: without an epoch in the registration the broker leaves the ELR of all partitions (R32).

    Kept in controller.core.brokers.cluster_control, controller.core.partitions.replication_control.
    """
    run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=2
        partition u-0 replicas=(2,1) min_isr=2
        fence 1
        => t-0 leader=2@1 isr=(2) elr=(1)
        => u-0 leader=2@0 isr=(2) elr=(1)
        register 1 unclean
        => t-0 elr=()
        => u-0 elr=()
    """)


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        ("isr=(1,2)", "fence 2", "isr=(1) elr=(2)"),
        ("isr=(1) elr=(2)", "fence 1", "leader=2@1 isr=(2) elr=(1)"),
        ("isr=(1,2)", "fence 1", "leader=2@1 isr=(2) elr=(1)"),
        ("isr=(1,2,3)", "fence 1", "leader=2@1 isr=(2,3) elr=()"),
        ("isr=(1,2)", "alter t-0 isr=(1,2,3)", "isr=(1,2,3) elr=()"),
        ("isr=(1,2,3)", "alter t-0 isr=(1,2)", "isr=(1,2) elr=()"),
        ("isr=(1) elr=(3)", "alter t-0 isr=(1,2)", "isr=(1,2) elr=()"),
    ],
    ids=["A", "B", "C", "D", "E", "F", "G"],
)
def test_replica_gains_and_loses_its_guarantee_with_min_isr(before: str, event: str, after: str) -> None:
    """ISR, ELR and replica completeness: the transitions A to G of one replica (R5, R11).

    Kept in controller.core.partitions.elr, controller.core.partitions.election.
    """
    run_script(f"""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2 {before}
        {event}
        => t-0 {after}
    """)


def test_lossy_sole_leader_hands_over_to_the_member_of_the_elr() -> None:
    """Clean ELR-based recovery example: ISR down to the leader, which crashes; 3 leads, 1 catches up (R13).

    Kept in controller.core.partitions.partition_change.
    """
    run_script("""
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        alter t-0 isr=(1,3)
        => t-0 isr=(1,3) elr=()
        alter t-0 isr=(1)
        => t-0 isr=(1) elr=(3)
        fence 1
        => t-0 leader=3@1 isr=(3) elr=(1)
        register 1 unclean
        => t-0 leader=3@1 isr=(3) elr=()
        unfence 1
        alter t-0 isr=(1,3)
        => t-0 leader=3@1 isr=(1,3) elr=() last_known_elr=()
    """)


@pytest.mark.parametrize(
    ("alias", "name"), [("proactive", "Aggressive"), ("balanced", "Balanced"), ("manual", "None")]
)
def test_strategies_have_the_names_of_the_text_too(alias: str, name: str) -> None:
    """Unclean recovery, modes: proactive, balanced and manual are Aggressive, Balanced and None (D8).

    Kept in metadata.config_keys, metadata.configs.
    """
    assert parse_value(TOPIC_KEY_BY_NAME["unclean.recovery.strategy"], alias) == name


def test_recovery_quorum_has_at_least_min_isr_members() -> None:
    """Balanced-mode guarantees: ISR and ELR empty, then the LastKnownELR has min ISR members or more (I-14).

    Kept in controller.core.partitions.elr.
    """
    scenario = run_script("""
        broker 1 2 3 4
        partition t-0 replicas=(1,2,3,4) min_isr=3
        fence 1 2 3 4
        register 1 unclean
        register 2 unclean
        register 3 unclean
        register 4 unclean
    """)
    partition = scenario.quorum.partition("t")
    assert (partition.isr, partition.elr) == ((), ())
    assert len(partition.last_known_elr) >= partition.min_isr


def test_unclean_recovery_is_reported_as_a_possible_loss() -> None:
    """Balanced-mode guarantees: every unclean recovery must be reported as a potential data loss (R68).

    Kept in controller.core.partitions.replication_control.
    """
    scenario = run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=2 leader=none isr=() last_known_elr=(1,2)
        log_info 1 t-0 last_epoch=0 end_offset=5
        log_info 2 t-0 last_epoch=0 end_offset=6
    """)
    warnings = [note.text for note in scenario.quorum.notes if note.level is Level.WARNING]
    assert any("t-0" in text and "records may be lost" in text for text in warnings)


def test_power_cut_of_all_brokers_loses_nothing_while_one_log_is_complete() -> None:
    """Balanced recovery example: fenced one by one, all come back unclean, 2 has the best log (R66, B1).

    Kept in controller.core.partitions.unclean_recovery, controller.core.partitions.elr.
    """
    run_script("""
        cluster strategy=Balanced
        broker 1 2 3
        partition t-0 replicas=(1,2,3) min_isr=2
        expire 1
        => t-0 leader=2@1 isr=(2,3) elr=() last_known_elr=()
        expire 2
        => t-0 leader=3@2 isr=(3) elr=(2) last_known_elr=()
        expire 3
        => t-0 leader=none@3 isr=() elr=(2,3) last_known_elr=()
        register 1 unclean
        => ok
        register 2 unclean
        => t-0 leader=none@3 isr=() elr=(3) last_known_elr=(2)
        register 3 unclean
        => t-0 leader=none@3 isr=() elr=() last_known_elr=(2,3)
        => t-0 recovery: wait (2,3)
        unfence 2 3
        => t-0 recovery: ask (2,3) also ()
        log_info 2 t-0 last_epoch=1 end_offset=12
        log_info 3 t-0 last_epoch=1 end_offset=9
        => t-0 leader=2@4 isr=(2) recovering
        => t-0 recovery: elected 2
    """)


def test_replicas_are_spread_over_failure_domains() -> None:
    """Deploying across failure-domains: the replicas of a partition stand in different racks (R106).

    Kept in controller.core.partitions.placement.
    """
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas([*racks.items()], (), partition_count=12, replication_factor=3, start=0)
    assert all({racks[replica] for replica in replicas} == {"a", "b", "c"} for replicas in placed)
    assert {replicas[0] for replicas in placed} == racks.keys()
