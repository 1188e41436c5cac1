"""Voters of the metadata quorum go from three to five and back under load, while nodes are killed."""

import re
import shutil
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch
from tests.e2e.test_metadata_quorum import metadata_quorum

#: Of controllers that wait for an operator, and of those that do not.
JOINS, JOINS_BY_ITSELF = "holdfast.quorum.joins", "controller.quorum.auto.join.enable"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def first_vote(cluster: LocalCluster, count: int, key: str) -> None:
    """All nodes are configured with the first voters; the other controllers have the key."""
    voters = ",".join(f"{node.node_id}@127.0.0.1:{node.port}" for node in cluster.controllers[:count])
    for node in cluster.nodes:
        file = cluster.properties_file(node)
        text = re.sub(
            r"(?m)^controller\.quorum\.voters=.*$", f"controller.quorum.voters={voters}", file.read_text()
        )
        if node in cluster.controllers[count:]:
            text += f"{key}=true\n"
        file.write_text(text)


def voters_of(cluster: LocalCluster) -> list[int]:
    """Empty while no leader answers."""
    found = metadata_quorum(cluster, "describe")["data"] or {"replicas": ()}
    rows = found["replicas"]
    return sorted(row["node_id"] for row in rows if row["status"] != "Observer")


def test_voters_go_from_three_to_five_and_back_under_load(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(brokers=3, controllers=5, before_up=partial(first_vote, count=3, key=JOINS))
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 3, 3, 2)

    def change(action: str, *words: str) -> None:
        body = metadata_quorum(cluster, action, "--timeout-ms", "60000", *words)
        assert body["ok"], body

    old, new = cluster.controllers[:3], cluster.controllers[3:]
    with Load(cluster.bootstrap_servers, "t") as load:
        load.wait_acked(100)
        change("upgrade")
        for node in new:
            change("add-controller", "--controller", f"{node.node_id}@127.0.0.1:{node.port}")
        assert voters_of(cluster) == [node.node_id for node in cluster.controllers]
        cluster.kill([old[0], cluster.brokers[0]])
        load.wait_acked(100)
        cluster.start(cluster.brokers[0])
        for node in old[:2]:
            change("remove-controller", "--controller", str(node.node_id))
        assert voters_of(cluster) == [node.node_id for node in cluster.controllers[2:]]
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


def test_one_controller_becomes_three_that_join_by_themselves(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(
        brokers=1, controllers=3, before_up=partial(first_vote, count=1, key=JOINS_BY_ITSELF)
    )
    look = watch(cluster.bootstrap_servers)
    look.create_topic("before", 1, 1, 1)
    assert metadata_quorum(cluster, "upgrade", "--timeout-ms", "60000")["ok"]
    wait_until(lambda: voters_of(cluster) == [node.node_id for node in cluster.controllers])
    cluster.kill([cluster.controllers[0]])
    look.create_topic("after", 1, 1, 1)
    assert {"before", "after"} <= set(look.ask(lambda admin: admin.list_topics()))
