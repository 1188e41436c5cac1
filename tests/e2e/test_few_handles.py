"""Many more files than a process may have open: the cluster lives, serves and comes back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.drills.demo.watch import ClusterWatch
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import assert_nothing_lost, produce, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

OPEN_FILES_MAX, PARTITIONS = 256, 500


def open_files(cluster: LocalCluster) -> list[int]:
    pids = [cluster.pid(node) for node in cluster.nodes]
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids]


def test_five_hundred_partitions_live_with_two_hundred_and_fifty_six_handles(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    """A replica is three files, so there are six times as many on each broker as it may have open."""
    cluster = make_cluster(open_files_max=OPEN_FILES_MAX, broker_session_timeout_ms="9000")
    servers = cluster.bootstrap_servers
    look = ClusterWatch(servers, patience_s=120)  # each log is recovered, one after the other
    pids = [cluster.pid(node) for node in cluster.nodes]
    look.create_topic("t", PARTITIONS, 3, 2)
    before = produce(servers, "t", 2 * PARTITIONS, partitions=PARTITIONS)
    assert max(open_files(cluster)) < OPEN_FILES_MAX
    assert [cluster.pid(node) for node in cluster.nodes] == pids, "none has ended"

    victim = cluster.brokers[0]
    cluster.kill([victim])
    wait_until(
        lambda: all(row.leader_id not in (-1, victim.node_id) for row in look.describe("t").partitions)
    )
    meanwhile = produce(servers, "t", PARTITIONS, name="meanwhile", partitions=PARTITIONS)
    cluster.start(victim)
    look.wait_full_isr("t")

    cluster.down()
    cluster.up()
    look.wait_full_isr("t")
    after = produce(servers, "t", PARTITIONS, name="after", partitions=PARTITIONS)
    assert before.failed == meanwhile.failed == after.failed == []
    assert_nothing_lost(servers, "t", PARTITIONS, before, meanwhile, after)
