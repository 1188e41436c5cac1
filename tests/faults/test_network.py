"""Partitions of every shape on real processes: what is cut stays cut, everything comes back when healed."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.localcluster.faults.fault import heal_cluster, healing
from holdfast.localcluster.faults.network import Partition, SlowLinks
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.launch import shared_launcher
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.xdist_group("faults-network")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers and three controllers with links."""
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("faults") / "cluster",
        3,
        3,
        properties=QUICK,
        launcher=shared_launcher(),
        has_links=True,
    )
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.destroy()


@pytest.fixture
def cluster(shared: LocalCluster) -> Iterator[LocalCluster]:
    """The same, all nodes up and ready, no link held."""
    shared.up()
    with healing(shared):
        yield shared


Shape = Callable[[LocalCluster, Targets, str], Partition]


def leader(targets: Targets, topic: str) -> Node:
    return targets.one(f"leader of {topic}-0")


SHAPES: dict[str, Shape] = {
    "leader isolated": lambda c, t, topic: Partition.isolate(c, leader(t, topic), also_clients=True),
    "leader from controllers": lambda c, t, topic: Partition.isolate_from_controllers(c, leader(t, topic)),
    "leader from followers": lambda c, t, topic: Partition.isolate_from_brokers(c, leader(t, topic)),
    "follower one way": lambda c, t, topic: Partition.one_way(
        c, [t.one(f"follower of {topic}-0")], [leader(t, topic)]
    ),
    "active controller isolated": lambda c, t, topic: Partition.isolate(c, t.one("active controller")),
    "bridge": lambda c, t, topic: Partition.bridge(c, c.controllers[0]),
}
#: where writes with acks=all may wait until the fault is over: no two replicas reach each other
WAITS = ("bridge", "leader from followers")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_partition_stops_writes_at_most_for_a_while_and_loses_nothing(
    cluster: LocalCluster, shape: str
) -> None:
    topic = shape.replace(" ", "-")
    look = watch(cluster.bootstrap_servers)
    look.create_topic(topic, 1, 3, 2)
    pids = {node: cluster.pid(node) for node in cluster.nodes}
    targets = Targets(cluster)
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_acked(200)
        fault = SHAPES[shape](cluster, targets, topic)
        fault.apply()
        if shape not in WAITS:
            load.wait_acked(2_000, 60.0)
        fault.heal()
        look.wait_full_isr(topic)
        load.wait_acked(500)
    targets.close()
    assert not load.answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, topic, 1, load.answers)
    assert {node: cluster.pid(node) for node in cluster.nodes} == pids


def test_an_isolated_broker_is_fenced_and_back_in_sync_when_healed(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("cut", 1, 3, 2)
    node = cluster.broker(3)
    Partition.isolate(cluster, node).apply()
    wait_until(lambda: node.node_id not in look.describe("cut").partitions[0].isr)
    assert cluster.pid(node) is not None
    heal_cluster(cluster)
    look.wait_full_isr("cut")


def test_slow_links_delay_what_is_written(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("slow", 1, 3, 2)
    fault = SlowLinks(cluster, cluster.brokers, cluster.brokers, 100)
    with Load(cluster.bootstrap_servers, "slow") as load:
        fault.apply()
        load.wait_acked(200)
        fault.heal()
        load.wait_acked(200)
    assert not load.answers.failed


def test_a_killed_node_still_refuses_connections_and_is_fenced_at_once(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("gone", 1, 3, 2)
    node = cluster.broker(2)
    cluster.kill([node])
    wait_until(lambda: node.node_id not in look.describe("gone").partitions[0].isr)
    cluster.start(node)
    look.wait_full_isr("gone")
