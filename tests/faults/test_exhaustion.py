"""Running out of handles or memory is no damage: no node ends, others are served, and it is over when healed.

(what runs out) x (where: a leader, a follower, the active controller, from the start on).
"""

from collections.abc import Callable

import pytest

from holdfast.localcluster.faults import limits
from holdfast.localcluster.faults.fault import Fault
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import Load, assert_nothing_lost, produce, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.xdist_group("faults")]

KINDS: dict[str, Callable[[LocalCluster, Node], Fault]] = {
    "handles": lambda c, node: limits.FewHandles(c, node),
    "memory": lambda c, node: limits.LittleMemory(c, node),
}
WHERE = {
    "leader": lambda t: t.one("leader of run-0"),
    "follower": lambda t: t.one("follower of run-0"),
    "active controller": lambda t: t.one("active controller"),
}


@pytest.fixture(autouse=True)
def topic(shared: LocalCluster) -> None:
    """A topic that rolls its segments all the time, so that its logs need handles."""
    shared.up()
    look = watch(shared.bootstrap_servers)
    if "run" not in look.ask(lambda admin: admin.list_topics()):
        configs = {"segment.bytes": "4096", "min.insync.replicas": "2"}
        look.ask(lambda admin: admin.create_topic("run", 1, 3, configs=configs))
    look.wait_full_isr("run")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", KINDS)
def test_running_out_ends_no_node(cluster: LocalCluster, targets: Targets, kind: str, where: str) -> None:
    look = watch(cluster.bootstrap_servers)
    pids = {node: cluster.pid(node) for node in cluster.nodes}
    fault = KINDS[kind](cluster, WHERE[where](targets))
    with Load(cluster.bootstrap_servers, "run", name=f"{kind}-{where}") as load:
        fault.apply()
        load.wait_acked(1_000)
        fault.heal()
        look.wait_full_isr("run")
        load.wait_acked(200)
    assert {node: cluster.pid(node) for node in cluster.nodes} == pids
    assert not load.answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, "run", 1, load.answers)


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_node_with_few_handles_from_its_start_on_serves_many_partitions(
    cluster: LocalCluster, targets: Targets, role: str
) -> None:
    look = watch(cluster.bootstrap_servers)
    topic = f"many-{role}"
    look.create_topic(topic, 100, 3, 2)
    produce(cluster.bootstrap_servers, topic, 100)
    node = targets.one("leader of run-0" if role == "broker" else "active controller")
    cluster.stop([node])
    limits.LimitedStart(cluster, node, handles=128).apply()
    cluster.start(node)
    cluster.wait_ready([node])
    pid = cluster.pid(node)
    look.wait_full_isr(topic)
    answers = produce(cluster.bootstrap_servers, topic, 200, name="limited")
    assert not answers.failed
    assert cluster.pid(node) == pid
    assert_nothing_lost(cluster.bootstrap_servers, topic, 100, answers)
