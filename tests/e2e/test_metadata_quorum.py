"""The quorum by its tool: a controller that lost its disk is taken in, and one resigns when asked to."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def says(cluster: LocalCluster, node: Node, text: str) -> bool:
    return text in cluster.log_file(node).read_text(encoding="utf-8")


def metadata_quorum(cluster: LocalCluster, action: str, *words: str) -> dict[str, Any]:
    where = ["--bootstrap-controller", cluster.bootstrap_controllers, "--output", "json"]
    result = CliRunner().invoke(main, ["metadata-quorum", action, *where, *words])
    body: dict[str, Any] = json.loads(result.stdout)
    return body


def test_acknowledged_metadata_outlives_a_wiped_controller_and_one_that_lags(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(brokers=1, controllers=3)
    look = watch(cluster.bootstrap_servers)
    first, wiped, lagging = cluster.controllers
    cluster.kill([lagging])
    names = {f"t{number}" for number in range(10)}
    for name in sorted(names):
        look.create_topic(name, 1, 1, 1)
    cluster.kill([first, wiped])
    shutil.rmtree(cluster.home(wiped) / "metadata")
    cluster.start(wiped)
    cluster.start(lagging)
    wait_until(lambda: says(cluster, wiped, "this voter's directory is new, so it waits"))
    wait_until(lambda: says(cluster, lagging, "names directory") or says(cluster, wiped, "names directory"))
    assert not cluster.is_ready(wiped)
    assert not cluster.is_ready(lagging)

    cluster.start(first)
    cluster.wait_ready([first, lagging, *cluster.brokers])
    assert names <= set(look.ask(lambda admin: admin.list_topics()))
    assert not cluster.is_ready(wiped)
    wait_until(lambda: metadata_quorum(cluster, "readmit", "--voter", str(wiped.node_id))["ok"])
    cluster.wait_ready([wiped])
    cluster.kill([first])
    look.create_topic("after", 1, 1, 1)
    assert names | {"after"} <= set(look.ask(lambda admin: admin.list_topics()))


def test_the_next_controller_leads_at_once_when_an_operator_lets_the_active_one_resign(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(brokers=1, controllers=3)
    look = watch(cluster.bootstrap_servers)
    former = metadata_quorum(cluster, "describe")["data"]
    resigned = metadata_quorum(cluster, "resign")["data"]
    assert (resigned["former_leader_id"], resigned["former_epoch"]) == (
        former["leader_id"],
        former["leader_epoch"],
    )
    assert resigned["leader_epoch"] > former["leader_epoch"]
    look.create_topic("after", 1, 1, 1)
    assert "after" in look.ask(lambda admin: admin.list_topics())
