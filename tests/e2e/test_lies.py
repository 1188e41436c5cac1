"""A peer that tells well-formed lies in the names of nodes ends none, and what it does heals by itself."""

import asyncio

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import assert_nothing_lost, produce, watch
from tests.fuzz.lies import lies, tell

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_cluster_that_was_lied_to_heals(cluster: LocalCluster, seed: int) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 3, 3, 2)
    topic_id = look.describe("t").topic_id
    pids = {node: cluster.pid(node) for node in cluster.nodes}
    ports = [node.port for node in cluster.nodes]
    asyncio.run(tell(ports, lies(seed, cluster.cluster_id, [topic_id]), 1_000))
    cluster.wait_ready(cluster.nodes)
    look.wait_full_isr("t")
    answers = produce(cluster.bootstrap_servers, "t", 300)
    assert not answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, "t", 3, answers)
    assert {node: cluster.pid(node) for node in cluster.nodes} == pids
