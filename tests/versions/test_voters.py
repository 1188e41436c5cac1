"""The metadata log takes over the voters only when no node of the earlier build is left."""

from typing import Any

import pytest

from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import wait_until, watch
from tests.e2e.test_metadata_quorum import metadata_quorum, says
from tests.versions.conftest import Builds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def refusal(cluster: LocalCluster, timeout_ms: int = 1_000) -> tuple[str, str]:
    """Of an upgrade of the quorum: code and sentence, empty when it is done."""
    answer: dict[str, Any] = metadata_quorum(cluster, "upgrade", "--timeout-ms", str(timeout_ms))
    return next(((error["code"], error["message"]) for error in answer["errors"]), ("", ""))


def test_a_quorum_is_upgraded_when_no_node_of_the_earlier_build_is_left(
    cluster: LocalCluster, builds: Builds
) -> None:
    first, second, third = cluster.controllers
    look = watch(cluster.bootstrap_servers)
    look.create_topic("by-the-earlier-build", 1, 3, 2)

    def replace(*nodes: Node) -> None:
        for node in nodes:
            cluster.stop([node])
            builds.present ^= {node.name}
            cluster.start(node)
            cluster.wait_ready([node])

    def is_refused_for(node: Node) -> bool:
        code, sentence = refusal(cluster)
        return code == "REQUEST_TIMED_OUT" and f"[{node.node_id}] are of an earlier build" in sentence

    assert refusal(cluster)[0] == "UNSUPPORTED_VERSION"
    replace(*cluster.brokers, first, second)
    # One of the others leads then.
    cluster.stop([third])
    cluster.start(third)
    cluster.wait_ready([third])
    wait_until(lambda: is_refused_for(third))
    replace(third, cluster.brokers[0])
    wait_until(lambda: is_refused_for(cluster.brokers[0]))
    replace(cluster.brokers[0])
    assert refusal(cluster, 60_000) == ("", "")

    # There is no way back: the earlier build would take the voters from its configuration.
    cluster.stop([first])
    builds.present ^= {first.name}
    cluster.start(first)
    wait_until(lambda: cluster.pid(first) is None)
    assert says(cluster, first, "quorum-state has version 1, this software reads 0")
    look.create_topic("by-the-others", 1, 3, 2)
    builds.present ^= {first.name}
    cluster.start(first)
    cluster.wait_ready([first])
    assert {"by-the-earlier-build", "by-the-others"} <= set(look.ask(lambda admin: admin.list_topics()))
