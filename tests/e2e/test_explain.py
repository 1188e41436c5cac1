"""`holdfast explain` on a live cluster: brokers pass the read on to the quorum, controllers answer it."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def holdfast(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_killed_leader_is_told_by_brokers_controllers_and_folders(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(brokers=2, controllers=3)
    brokers, controllers = cluster.bootstrap_servers, cluster.bootstrap_controllers
    holdfast(
        "topics", "--bootstrap-server", brokers, "--create", "--topic", "t", "--replica-assignment", "1:2"
    )
    cluster.kill([cluster.node("broker-1")])

    def story(*source: str) -> list[dict[str, Any]]:
        answer = json.loads(holdfast("explain", "t", "0", *source, "--output", "json"))
        rows: list[dict[str, Any]] = answer["data"]
        return rows

    def has_moved() -> bool:
        return bool(story("--bootstrap-server", brokers)[-1]["change"] == "broker 1 was fenced")

    wait_until(has_moved)
    told = story("--bootstrap-server", brokers)
    assert [row["change"] for row in told[1:]] == [
        "leader 1@0 -> 2@1, isr (1,2) -> (2)",
        "broker 1 was fenced",
    ]
    assert told[1]["decision"]["rejected"] == [{"replica": 1, "because": "fenced"}]
    # every controller is asked until the leader answers
    assert story("--bootstrap-controller", controllers) == told
    cluster.down()
    folder = cluster.home(cluster.node("controller-101")) / "metadata"
    assert story("--metadata-dir", str(folder))[: len(told)] == told
