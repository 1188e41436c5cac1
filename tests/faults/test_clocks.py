"""A node's wall clock jumps while it runs; where libfaketime is installed."""

import urllib.request
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from holdfast.localcluster import clocks
from holdfast.localcluster.faults.clocks import ClockJump
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import Load, watch

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("clocks")]

#: a machine has one or none
LIBRARIES = [found] if (found := clocks.library()) is not None else []


@pytest.mark.parametrize("library", LIBRARIES)
def test_writes_go_on_while_the_leaders_clock_is_two_hours_ahead(tmp_path: Path, library: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", 1, 1, has_clocks=True)
    try:
        cluster.up()
        (broker,), (controller,) = cluster.brokers, cluster.controllers
        watch(cluster.bootstrap_servers).create_topic("t", 1, 1, 1)
        fault = ClockJump(cluster, broker)
        with Load(cluster.bootstrap_servers, "t") as load:
            load.wait_acked(100)
            fault.apply()
            load.wait_acked(100)
            assert abs(hours_off(broker) - 2) < 0.5
            assert abs(hours_off(controller)) < 0.5
            fault.heal()
            load.wait_acked(100)
        assert abs(hours_off(broker)) < 0.5
        assert not load.answers.failed
    finally:
        cluster.destroy()


def hours_off(node: Node) -> float:
    """By how much the clock is off, as the node's answers are dated."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/readyz", timeout=10) as answer:
        dated = parsedate_to_datetime(answer.headers["Date"])
    return (dated - datetime.now(UTC)).total_seconds() / 3600
