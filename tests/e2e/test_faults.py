"""One fault at a time on real processes: silence, too few replicas, ELR, a disk that takes no more."""

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.storage.clean_shutdown import FILE_NAME
from tests.e2e.load import HighWatermarks, Load, assert_nothing_lost, produce, read_all, wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def only_partition(cluster: LocalCluster, topic: str) -> DescribedPartition:
    return watch(cluster.bootstrap_servers).describe(topic).partitions[0]


def test_a_paused_leader_loses_leadership_and_rejoins_as_a_follower(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 1, 3, 2)
    with Load(cluster.bootstrap_servers, "t") as load:
        old = only_partition(cluster, "t")
        cluster.pause(cluster.broker(old.leader_id))
        load.wait_acked(2000)
        new = only_partition(cluster, "t")
        assert new.leader_id != old.leader_id
        assert new.leader_epoch > old.leader_epoch
        cluster.resume(cluster.broker(old.leader_id))
        look.wait_full_isr("t")
        load.wait_acked(500)
    assert not load.answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, "t", 1, load.answers)


def test_below_min_isr_acks_all_is_refused_and_acks_1_stays_invisible(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 1, 3, 2)
    servers = cluster.bootstrap_servers
    before = produce(servers, "t", 100)
    leader_id = only_partition(cluster, "t").leader_id
    others = [node for node in cluster.brokers if node.node_id != leader_id]
    cluster.kill(others)
    wait_until(lambda: only_partition(cluster, "t").isr == (leader_id,))
    row = only_partition(cluster, "t")
    # F8: who left below min ISR still holds all that was acknowledged
    (eligible,) = row.eligible_leader_replicas or ()
    arguments = ["topics", "--bootstrap-server", servers, "--describe", "--topic", "t"]
    replicas = ",".join(map(str, row.replicas))
    head = f"\tTopic: t\tPartition: 0\tLeader: {leader_id}\tReplicas: {replicas}"
    line = f"{head}\tIsr: {leader_id}\tElr: {eligible}\tLastKnownElr: \n"
    assert line in CliRunner().invoke(main, arguments).output
    refused = produce(servers, "t", 1, name="refused", delivery_timeout_ms=8_000)
    assert not refused.acked
    assert "NOT_ENOUGH_REPLICAS" in refused.failed[0]
    hidden = produce(servers, "t", 50, acks=1, name="hidden")
    assert len(hidden.acked) == 50
    # F4: acknowledged by the leader alone, so no consumer may see it
    assert set(read_all(servers, "t", 1)) == set(before.acked)
    for node in others:
        cluster.start(node)
    look.wait_full_isr("t")
    wait_until(lambda: len(read_all(servers, "t", 1)) == 150)
    assert_nothing_lost(servers, "t", 1, before, hidden)
    assert only_partition(cluster, "t").eligible_leader_replicas == ()


def test_the_high_watermark_never_moves_back_for_a_consumer(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 1, 3, 2)
    with Load(cluster.bootstrap_servers, "t") as load, HighWatermarks(cluster.bootstrap_servers, "t") as seen:
        for _ in range(3):
            leader = cluster.broker(only_partition(cluster, "t").leader_id)
            cluster.kill([leader])
            load.wait_acked(500)
            cluster.start(leader)
            look.wait_full_isr("t")
    assert len(set(seen.known)) > 10
    # a new leader whose own high watermark lags says "unknown" (-1) until it has caught up
    assert seen.known == sorted(seen.known)
    assert_nothing_lost(cluster.bootstrap_servers, "t", 1, load.answers)


def test_brokers_that_run_are_unregistered_in_turn_and_nothing_is_lost(cluster: LocalCluster) -> None:
    """B10: each registers anew with its next heartbeat, and fetches from the leader at that time."""
    servers = cluster.bootstrap_servers
    look = watch(servers)
    look.create_topic("t", 3, 3, 2)
    with Load(servers, "t") as load:
        for broker in cluster.brokers:
            words = ("cluster", "unregister", "--bootstrap-server", servers, "--id", str(broker.node_id))
            assert CliRunner().invoke(main, words).exit_code == 0
            look.wait_full_isr("t")
            load.wait_acked(500)
    assert not load.answers.failed
    assert_nothing_lost(servers, "t", 3, load.answers)


def test_a_broker_that_cannot_write_ends_without_marker_and_catches_up_later(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 1, 3, 2)
    servers = cluster.bootstrap_servers
    with Load(servers, "t") as load:
        leader = cluster.broker(only_partition(cluster, "t").leader_id)
        pid = cluster.pid(leader)
        assert pid is not None
        # no byte beyond 64 KiB in any file: as a full disk, the write fails
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
        wait_until(lambda: cluster.pid(leader) is None)
        load.wait_acked(500)
        words = cluster.last_words(leader, 3)
        assert "File too large" in words, words
        assert not (Path(cluster.data_folder(leader)) / FILE_NAME).exists()
        cluster.start(leader)
        cluster.wait_ready([leader])
        look.wait_full_isr("t")
    assert not load.answers.failed
    assert_nothing_lost(servers, "t", 1, load.answers)


def test_a_leader_whose_disk_is_nearly_full_follows_a_replica_with_room(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    def short_of_room(made: LocalCluster) -> None:
        """Broker 1 lacks a quarter of what it must keep free: it takes copies, and no records of clients."""
        file = made.properties_file(made.broker(1))
        wanted = shutil.disk_usage(file.parent).free * 4 // 3
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"holdfast.log.dirs.min.free.bytes={wanted}\n")

    cluster = make_cluster(before_up=short_of_room)
    look = watch(cluster.bootstrap_servers)
    look.ask(
        lambda admin: admin.create_topic(
            "t", assignments={0: (1, 2, 3)}, configs={"min.insync.replicas": "2"}
        )
    )
    answers = produce(cluster.bootstrap_servers, "t", 200)
    assert not answers.failed
    row = only_partition(cluster, "t")
    assert (row.leader_id, row.isr) == (2, (1, 2, 3))
    arguments = ["explain", "t", "0", "--bootstrap-server", cluster.bootstrap_servers]
    assert "too little is left of the disk of leader 1" in CliRunner().invoke(main, arguments).output
