"""Any bytes to a live broker or controller: an error or a close, and no other client notices."""

import socket
import struct

import psutil
import pytest

from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import assert_nothing_lost, crowd_of, produce, wait_until, watch
from tests.fuzz.frames import attack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def rss(cluster: LocalCluster, node: Node) -> int:
    pid = cluster.pid(node)
    assert pid is not None, f"{node.name} has ended: {cluster.last_words(node)}"
    return int(psutil.Process(pid).memory_info().rss)


@pytest.fixture
def targets(cluster: LocalCluster) -> list[Node]:
    """One broker and the active controller."""
    active = watch(cluster.bootstrap_servers).active_controller()
    return [cluster.brokers[0], next(n for n in cluster.controllers if n.node_id == active)]


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_frames_disturb_no_client_and_leave_no_memory_behind(
    cluster: LocalCluster, targets: list[Node], seed: int
) -> None:
    watch(cluster.bootstrap_servers).create_topic("t", 1, 3, 2)

    for node in targets:

        async def work(runtime: Runtime, port: int = node.port) -> int:
            await attack(runtime, "127.0.0.1", port, seed)
            return 0

        run(work)
        before = rss(cluster, node)
        for _ in range(3):
            run(work)
        assert rss(cluster, node) - before < 8 << 20
    answers = produce(cluster.bootstrap_servers, "t", 100)
    assert not answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, "t", 1, answers)


def test_an_oversized_frame_is_refused_before_it_is_read(cluster: LocalCluster, targets: list[Node]) -> None:
    for node in targets:
        before = rss(cluster, node)
        with socket.create_connection(("127.0.0.1", node.port), timeout=10) as connection:
            connection.sendall(struct.pack(">II", 2_000_000_000, 100) + b"x" * 100)
            while connection.recv(4096):
                pass  # an error if there is a request to answer, then the close
        assert rss(cluster, node) - before < 4 << 20


def test_a_crowd_of_idle_connections_cost_little_and_others_are_served(
    cluster: LocalCluster, targets: list[Node]
) -> None:
    watch(cluster.bootstrap_servers).create_topic("t", 1, 3, 2)
    for node in targets:
        before = rss(cluster, node)
        address = ("127.0.0.1", node.port)
        idle = [socket.create_connection(address, timeout=10) for _ in range(crowd_of(1000))]
        try:
            answers = produce(cluster.bootstrap_servers, "t", 100, name=f"beside-{node.name}")
            assert not answers.failed
            assert rss(cluster, node) - before < 64 << 20
        finally:
            for connection in idle:
                connection.close()
        wait_until(lambda node=node: cluster.is_ready(node))  # type: ignore[misc]
