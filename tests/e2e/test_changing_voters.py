"""Voters of the metadata quorum go from three to five and back under load, while nodes are killed."""

import re
import shutil
from collections.abc import Callable

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch
from tests.e2e.test_metadata_quorum import metadata_quorum

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def first_three_vote(cluster: LocalCluster) -> None:
    """All nodes are configured with three voters; the other controllers may join them."""
    voters = ",".join(f"{node.node_id}@127.0.0.1:{node.port}" for node in cluster.controllers[:3])
    for node in cluster.nodes:
        file = cluster.properties_file(node)
        text = re.sub(
            r"(?m)^controller\.quorum\.voters=.*$", f"controller.quorum.voters={voters}", file.read_text()
        )
        if node in cluster.controllers[3:]:
            text += "holdfast.controller.joins=true\n"
        file.write_text(text)


def test_voters_go_from_three_to_five_and_back_under_load(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(brokers=3, controllers=5, before_up=first_three_vote)
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 3, 3, 2)

    def voters() -> list[int]:
        rows = metadata_quorum(cluster, "describe")["data"]["replicas"]
        return sorted(row["node_id"] for row in rows if row["status"] != "Observer")

    def change(action: str, *words: str) -> None:
        body = metadata_quorum(cluster, action, "--timeout-ms", "60000", *words)
        assert body["ok"], body

    old, new = cluster.controllers[:3], cluster.controllers[3:]
    with Load(cluster.bootstrap_servers, "t") as load:
        load.wait_acked(100)
        change("upgrade")
        for node in new:
            change("add-controller", "--controller", f"{node.node_id}@127.0.0.1:{node.port}")
        assert voters() == [node.node_id for node in cluster.controllers]
        cluster.kill([old[0], cluster.brokers[0]])
        load.wait_acked(100)
        cluster.start(cluster.brokers[0])
        for node in old[:2]:
            change("remove-controller", "--controller", str(node.node_id))
        assert voters() == [node.node_id for node in cluster.controllers[2:]]
        cluster.kill([old[1]])

        # A new disk of a voter: removed, and added as another one.
        lost = new[0]
        cluster.kill([lost])
        shutil.rmtree(cluster.home(lost) / "metadata")
        change("remove-controller", "--controller", str(lost.node_id))
        cluster.start(lost)
        change("add-controller", "--controller", f"{lost.node_id}@127.0.0.1:{lost.port}")
        cluster.kill([new[1]])
        load.wait_acked(100)
        look.create_topic("after", 1, 1, 1)
        cluster.wait_ready(cluster.brokers)
    assert_nothing_lost(cluster.bootstrap_servers, "t", 3, load.answers)
    wait_until(lambda: "after" in look.ask(lambda admin: admin.list_topics()))
