"""HTTP of live nodes: the metrics that docs/metrics.md promises, health through a failure, and strangers.

One cluster for all: a broker is killed that alone has a partition, so its return needs a recovery.
"""

import asyncio
import http.client
import json
import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from click.testing import CliRunner
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Admin
from holdfast.cli.__main__ import main
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK
from tests.e2e.load import crowd_of, produce, read_all, wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("http"), pytest.mark.timeout(120)]

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
#: which nodes print the tables of the page
SECTIONS = {
    "The active controller": ("controller",),
    "Every controller": ("controller",),
    "Brokers": ("broker",),
    "Every node": ("controller", "broker"),
}
OFFSETS_PARTITIONS = 4
PROPERTIES = {
    **QUICK,
    "log.flush.interval.ms": "100",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
}


class Row(NamedTuple):
    """A metric as the page has it, or a node."""

    type: str
    labels: tuple[str, ...]


class Played(NamedTuple):
    """What nodes said before and after a broker was killed and came back, and in between."""

    cluster: LocalCluster
    victim: Node
    before: dict[str, dict[str, Metric]]
    after: dict[str, dict[str, Metric]]
    #: /v1/health of a broker that lived on, while the other was down, and what commands made of it
    health: dict[str, Any]
    told: list[str]


def get(node: Node, path: str, timeout_s: float = 60.0) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask(node: Node, path: str) -> dict[str, Any]:
    status, body = get(node, path)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def scrape(node: Node) -> dict[str, Metric]:
    """By name as the page spells it."""
    text = get(node, "/metrics")[1].decode()
    metrics = list(text_string_to_metric_families(text))
    found = {metric.name + ("_total" if metric.type == "counter" else ""): metric for metric in metrics}
    assert len(found) == len(metrics), "a name stands in it twice"
    return found


def total(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    """Sum over all samples with these labels; of a histogram, how often it was observed."""
    metric = metrics[name]
    wanted = f"{name}_count" if metric.type == "histogram" else name
    return sum(
        sample.value
        for sample in metric.samples
        if sample.name == wanted and labels.items() <= sample.labels.items()
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    cluster = LocalCluster.create(tmp_path_factory.mktemp("http") / "cluster", 3, 1, properties=PROPERTIES)
    try:
        cluster.up()
        yield played(cluster)
    finally:
        cluster.kill(cluster.nodes)


def played(cluster: LocalCluster) -> Played:
    servers = cluster.bootstrap_servers
    watch(servers).create_topic("t", 3, 3, 2)
    watch(servers).create_topic("alone", 1, 1, 1)
    (leader,) = (row.leader_id for row in watch(servers).describe("alone").partitions)
    (victim,) = (node for node in cluster.brokers if node.node_id == leader)
    (witness, *_) = (node for node in cluster.brokers if node is not victim)
    wait_until(lambda: ask(witness, "/v1/health")["is_healthy"])
    before = {node.name: scrape(node) for node in cluster.nodes}
    for topic in ("t", "alone"):
        assert not produce(servers, topic, 200).failed
    read_all(servers, "t", 3)
    cluster.kill([victim])
    wait_until(lambda: "alone-0" in ask(witness, "/v1/health")["leaderless_partitions"])
    health = ask(witness, "/v1/health")
    told = [node_health(witness, 1), cluster_status(cluster)]
    cluster.start(victim)
    cluster.wait_ready([victim])
    wait_until(lambda: ask(witness, "/v1/health")["is_healthy"])
    commit_for_a_group_of_each_coordinator(servers)
    compacted = {"cleanup.policy": "compact"}
    watch(servers).ask(lambda admin: admin.create_topic("compacted", 1, 3, configs=compacted))
    wait_until(lambda: all("kafka_log_cleaner_runs_total" in scrape(node) for node in cluster.brokers))
    after = {node.name: scrape(node) for node in cluster.nodes}
    return Played(cluster, victim, before, after, health, told)


def commit_for_a_group_of_each_coordinator(servers: str) -> None:
    """Each partition of the offsets has a group, so each broker that leads some has one."""

    async def commit() -> None:
        async with Admin(servers) as admin:
            for number in range(8 * OFFSETS_PARTITIONS):
                await admin.alter_group_offsets(f"group-{number}", {("t", 0): 1})

    asyncio.run(commit())


def node_health(node: Node, exit_code: int) -> str:
    """What `holdfast node-health --cluster` prints."""
    result = CliRunner().invoke(main, ["node-health", "--cluster", "--http", f"127.0.0.1:{node.http_port}"])
    assert result.exit_code == exit_code, result.output
    return result.output


def cluster_status(cluster: LocalCluster) -> str:
    """The last line of `holdfast cluster status`."""
    result = CliRunner().invoke(main, ["cluster", "status", "--dir", str(cluster.folder)])
    (line,) = (line for line in result.output.splitlines() if line.startswith("health: "))
    return line


def promised(role: str) -> dict[str, Row]:
    """What the page says that such a node prints."""
    found: dict[str, Row] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        if role in SECTIONS.get(section.splitlines()[0], ()):
            for name, kind, labels in re.findall(r"^\| (\w+) \| (\w+) \| ([^|]*)\|", section, re.MULTILINE):
                if name != "Name":
                    found[name] = Row(kind, tuple(sorted(re.findall(r"\w+", labels))))
    return found


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_a_node_prints_what_the_page_promises_and_nothing_else(run: Played, role: str) -> None:
    (node, *_) = (node for node in run.cluster.nodes if node.role == role and node is not run.victim)
    printed = {
        name: Row(
            metric.type,
            tuple(sorted({label for sample in metric.samples for label in sample.labels} - {"le"})),
        )
        for name, metric in run.after[node.name].items()
    }
    assert printed == promised(role)


def test_every_series_stands_once(run: Played) -> None:
    for metrics in run.after.values():
        series = [
            (sample.name, *sorted(sample.labels.items())) for m in metrics.values() for sample in m.samples
        ]
        assert len(set(series)) == len(series)


#: (name, labels) of what the story must have moved, over the nodes that were not killed
MOVED: list[tuple[str, dict[str, str]]] = [
    ("kafka_server_messages_in_total", {"topic": "t"}),
    ("kafka_server_bytes_in_total", {"topic": "t"}),
    ("kafka_server_bytes_out_total", {"topic": "t"}),
    ("kafka_server_replication_bytes_in_total", {"topic": "t"}),
    ("kafka_server_replication_bytes_out_total", {"topic": "t"}),
    ("kafka_server_isr_expands_total", {}),
    ("kafka_server_partition_high_watermark", {"topic": "t"}),
    ("kafka_server_partition_log_end_offset", {"topic": "t"}),
    ("kafka_server_partition_flushed_offset", {"topic": "t"}),
    ("kafka_server_metadata_offset", {}),
    ("kafka_server_requests_total", {"request": "produce", "error": "NONE"}),
    *[("kafka_server_request_seconds", {"request": "fetch", "phase": phase}) for phase in ("queue", "local")],
    *[("kafka_server_request_seconds", {"request": "produce", "phase": p}) for p in ("remote", "send")],
    ("kafka_server_request_seconds", {"request": "produce", "phase": "total"}),
    ("kafka_log_size_bytes", {"topic": "t"}),
    ("kafka_log_flush_seconds", {}),
    ("kafka_log_flushes_total", {"reason": "policy"}),
    ("kafka_controller_leader_elections_total", {"reason": "isr"}),
    ("kafka_controller_leader_elections_total", {"reason": "longest_log_balanced"}),
    ("kafka_controller_leader_election_seconds", {}),
    ("kafka_controller_partition_leaderless_seconds", {}),
    *[("kafka_controller_unclean_recovery_seconds", {"phase": p}) for p in ("waiting", "asking", "total")],
    ("kafka_controller_unclean_recovery_replies_total", {"result": "ok"}),
    ("kafka_controller_unclean_recovery_finished_total", {}),
    ("kafka_controller_unclean_recovery_finished_count", {}),
    ("kafka_controller_unclean_shutdown_registrations_total", {}),
    ("kafka_controller_partition_leader_epoch", {"topic": "alone"}),
    ("kafka_controller_partition_partition_epoch", {"topic": "alone"}),
    ("kafka_controller_event_queue_seconds", {}),
    ("kafka_controller_event_processing_seconds", {}),
    ("kafka_controller_events_total", {}),
    ("kafka_controller_records_appended_total", {}),
    ("kafka_controller_metadata_offset", {}),
    ("kafka_raft_append_records_total", {}),
    ("kafka_raft_commit_latency_seconds", {}),
    ("kafka_raft_high_watermark", {}),
    ("kafka_raft_log_end_offset", {}),
    ("kafka_runtime_loop_lag_seconds", {}),
    ("process_cpu_seconds_total", {}),
]


@pytest.mark.parametrize(("name", "labels"), MOVED)
def test_what_happened_was_counted(run: Played, name: str, labels: dict[str, str]) -> None:
    nodes = [n for n in run.before if n != run.victim.name and name in run.before[n]]
    before = sum(total(run.before[node], name, **labels) for node in nodes)
    after = sum(total(run.after[node], name, **labels) for node in nodes)
    assert after > before


def test_gauges_tell_how_it_stands_afterwards(run: Played) -> None:
    (controller,) = run.cluster.controllers
    metrics = run.after[controller.name]
    assert total(metrics, "kafka_controller_active_controller") == 1
    assert total(metrics, "kafka_controller_active_brokers") == 3
    assert total(metrics, "kafka_controller_global_partitions") == 5 + OFFSETS_PARTITIONS
    for name in ("offline_partitions", "fenced_brokers", "global_under_min_isr_partition_count"):
        assert total(metrics, f"kafka_controller_{name}") == 0
    roles = {
        sample.labels["broker"]: sample.value
        for sample in metrics["kafka_controller_partition_replica_role"].samples
        if sample.labels["topic"] == "alone"
    }
    assert roles == {str(run.victim.node_id): 6}
    assert total(metrics, "kafka_raft_current_state", state="leader") == 1
    victim = run.after[run.victim.name]
    assert total(victim, "kafka_server_last_shutdown_clean") == 0
    assert total(victim, "kafka_server_broker_state", state="RUNNING") == 1
    assert total(victim, "kafka_log_recovery_remaining_logs") == 0


def test_health_named_the_dead_broker_and_what_it_took_along(run: Played) -> None:
    health = run.health
    assert not health["is_healthy"]
    assert health["nodes_down"] == [run.victim.node_id]
    assert health["leaderless_partitions"] == ["alone-0"]
    assert "alone-0" in health["under_min_isr"]
    assert health["headroom"]["online"] == -1


def test_commands_tell_the_health_of_the_cluster(run: Played) -> None:
    by_node, by_cluster = run.told
    assert f"brokers down: {run.victim.node_id}\n" in by_node
    assert f"brokers down: {run.victim.node_id}; partitions without a leader: 1" in by_cluster
    assert node_health(run.victim, 0) == "healthy\n"
    assert cluster_status(run.cluster) == "health: all is well"


def test_every_node_answers_and_all_tell_the_same(run: Played) -> None:
    nodes = run.cluster.nodes
    clusters = [ask(node, "/v1/cluster") for node in nodes]
    assert len({json.dumps(found["brokers"]) for found in clusters}) == 1
    assert [found["node"]["id"] for found in clusters] == [node.node_id for node in nodes]
    pages = [ask(node, "/v1/partitions?limit=2") for node in nodes]
    assert {page["next"] for page in pages} == {"__consumer_offsets:2"}
    rows = [ask(node, "/v1/partitions/alone/0") for node in nodes]
    assert {row["leader"] for row in rows} == {run.victim.node_id}
    assert [row["replica"] is not None for row in rows] == [node is run.victim for node in nodes]


def test_strangers_cost_little_and_lock_no_client_out(run: Played) -> None:
    """Silent, slow, garbled, too long, never reading: records pass, scrapes too, and nothing stays behind."""
    rng, node = random.Random(5), run.victim
    process = psutil.Process(run.cluster.pid(node))
    rss, files = process.memory_info().rss, process.num_fds()
    silent = crowd_of(1000) // 2
    sayings = [
        *[b""] * silent,
        *[b"GET /metrics HTTP/1.1\r\nHost: x\r\n"] * silent,
        *[b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 10] * 30,
        *(rng.randbytes(rng.randrange(1, 3000)) for _ in range(100)),
        *[b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000] * 20,
    ]
    with ExitStack() as crowd:
        for says in sayings:
            crowd.enter_context(stranger(node, says))
        assert process.num_fds() < files + 250
        assert get(node, "/livez") == (200, b"ok\n")
        assert get(node, "/metrics")[0] == 200
        assert not produce(run.cluster.bootstrap_servers, "t", 50, name="beside").failed
        assert process.memory_info().rss < rss + (64 << 20)
    wait_until(lambda: process.num_fds() < files + 20)
    assert "Traceback" not in run.cluster.log_file(node).read_text()


def stranger(node: Node, says: bytes) -> socket.socket:
    """A connection that says this much and listens to nothing."""
    connection = socket.create_connection(("127.0.0.1", node.http_port), timeout=10)
    connection.settimeout(1.0)
    with suppress(OSError):
        connection.sendall(says)
    return connection
