"""The unclean recovery manager on a live cluster: all brokers are killed at once, none is known complete.

The page cache lives, so the replica with the longest log has every acknowledged record. One cluster for all
stories, a topic each.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from holdfast.client.admin import Admin
from holdfast.client.admin_configs import Resource
from holdfast.client.core.errors import RowError
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from holdfast.storage.core.files import HIGH_WATERMARK_CHECKPOINT, LOG_SUFFIX
from tests.e2e.load import Load, assert_nothing_lost, produce, read_all, wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("unclean recovery"), pytest.mark.timeout(180)]

MANAGER = "unclean.recovery.manager.enabled"
STRATEGY = "unclean.recovery.strategy"
PROPERTIES = {
    # a broker that stands still for a moment stays unfenced: it is asked and says nothing
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    # what is known of a loss is what was stored last
    "replica.high.watermark.checkpoint.interval.ms": "200",
}

T = TypeVar("T")


class Drill:
    """A cluster with the manager switched on at run time, and what operators do with it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def ask(self, question: Callable[[Admin], Awaitable[T]], *, brokers: bool = False) -> T:
        """Ask the controllers, who answer also while no broker does."""
        cluster = self.cluster
        servers = cluster.bootstrap_servers if brokers else cluster.bootstrap_controllers
        answers: list[T] = []

        async def work(runtime: Runtime) -> int:
            admin = Admin(servers, runtime=runtime)
            try:
                answers.append(await question(admin))
            finally:
                await admin.close()
            return 0

        run(work)
        return answers[0]

    def set(self, key: str, value: str | None, topic: str | None = None) -> None:
        resource = Resource(*CLUSTER_RESOURCE) if topic is None else Resource(RESOURCE_TOPIC, topic)
        assert self.ask(lambda admin: admin.alter_configs({resource: {key: value}})) == {resource: None}

    def topic(self, name: str, strategy: str, partitions: int = 1) -> None:
        """The only topic from now on; replicas 1, 2, 3 in this order for each partition."""
        former = self.ask(lambda admin: admin.list_topics())
        if former:
            self.ask(lambda admin: admin.delete_topics(former))
        configs = {"min.insync.replicas": "2", STRATEGY: strategy}
        rows = dict.fromkeys(range(partitions), (1, 2, 3))
        self.ask(lambda admin: admin.create_topic(name, assignments=rows, configs=configs))
        watch(self.cluster.bootstrap_servers).wait_full_isr(name)

    def partition(self, topic: str, index: int = 0) -> DescribedPartition:
        """As some controller has it; one that has just started knows no topic yet."""
        while True:
            rows = self.ask(lambda admin: admin.describe_topics([topic]))[0].partitions
            if rows:
                return rows[index]

    def wait_leader(self, topic: str, index: int = 0) -> int:
        wait_until(lambda: self.partition(topic, index).leader_id >= 0)
        return self.partition(topic, index).leader_id

    def elect(
        self, kind: ElectionKind, partition: TopicPartition, leader: int | None = None
    ) -> RowError | None:
        desired = None if leader is None else {partition: leader}
        return self.ask(lambda admin: admin.elect_leaders(kind, [partition], desired))[partition]

    def kill(self, *broker_ids: int) -> None:
        self.cluster.kill([self.cluster.node(f"broker-{broker_id}") for broker_id in broker_ids])

    def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.cluster.start(self.cluster.node(f"broker-{broker_id}"))
        self.wait_unfenced(*broker_ids)

    def wait_unfenced(self, *broker_ids: int) -> None:
        nodes = [self.cluster.node(f"broker-{broker_id}") for broker_id in broker_ids]
        self.cluster.wait_ready(nodes)

    def active_controller(self) -> int:
        wait_until(lambda: self.ask(lambda admin: admin.describe_cluster()).controller_id >= 0)
        return self.ask(lambda admin: admin.describe_cluster()).controller_id

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all controllers; 0 when there is none. Gauges come from the active one alone, counts
        from the one that was active then."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        total = 0.0
        for line in "".join(map(self._scrape, self.cluster.controllers)).splitlines():
            found = re.fullmatch(r"kafka_controller_(\w+)(\{.*\})? (\S+)", line)
            if found and found[1] == name and all(label in (found[2] or "") for label in wanted):
                total += float(found[3])
        return total

    def _scrape(self, node: Node) -> str:
        """What a node that runs prints, however often it takes to ask."""
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics", timeout=5) as said:
                    return str(said.read().decode())
            except OSError:
                continue

    def told(self, topic: str) -> list[dict[str, Any]]:
        """The changes of partition 0 that elected a leader by a comparison of logs, as explain has them."""
        words = ("explain", topic, "0", "--bootstrap-controller", self.cluster.bootstrap_controllers)
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words, "--output", "json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        rows: list[dict[str, Any]] = json.loads(done.stdout)["data"]
        return [row for row in rows if (row["decision"] or {}).get("cause") == "logs_compared"]

    def cut_logs(self, topic: str, *, forgets_high_watermarks: bool = False) -> tuple[dict[str, Any], int]:
        """Kill all brokers, take a quarter of each log of partition 0, start them; the decision that elects
        the next leader, and how many records are gone."""
        before = len(read_all(self.cluster.bootstrap_servers, topic, 1))
        self.kill(1, 2, 3)
        for node in self.cluster.brokers:
            folder = self.cluster.data_folder(node)
            (log,) = (folder / f"{topic}-0").glob(f"*{LOG_SUFFIX}")
            os.truncate(log, log.stat().st_size * 3 // 4)
            if forgets_high_watermarks:
                (folder / HIGH_WATERMARK_CHECKPOINT).unlink(missing_ok=True)
        self.start(1, 2, 3)
        self.wait_leader(topic)
        (row,) = self.told(topic)
        return row["decision"], before - len(read_all(self.cluster.bootstrap_servers, topic, 1))


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    cluster = LocalCluster.create(tmp_path_factory.mktemp("recovery") / "c", 3, 3, properties=PROPERTIES)
    cluster.up()
    made = Drill(cluster)
    made.set(MANAGER, "true")
    yield made
    for node in cluster.nodes:
        cluster.resume(node)
    cluster.kill(cluster.nodes)


def test_when_all_brokers_are_killed_the_longest_log_leads_and_nothing_acknowledged_is_lost(
    drill: Drill,
) -> None:
    """R64, R66, R68: under load, so that the logs end differently."""
    drill.topic("outage", "Balanced", partitions=4)
    with Load(drill.cluster.bootstrap_servers, "outage", records_per_second=4000) as load:
        load.wait_acked(2000)
        drill.kill(1, 2, 3)
        drill.start(1, 2, 3)
        load.wait_acked(100, 60)
    assert_nothing_lost(drill.cluster.bootstrap_servers, "outage", 4, load.answers)
    (row,) = drill.told("outage")
    ends = {log["replica"]: (log["last_epoch"], log["end_offset"]) for log in row["decision"]["logs"]}
    assert ends[row["after"]["leader"]] == max(ends.values())
    assert row["decision"]["predicted_loss"] == 0
    assert drill.metric("unclean_recovery_finished_total") >= 4
    assert drill.metric("unclean_recovery_partitions_count") == 0


def test_what_every_replica_has_lost_is_told_by_the_high_watermarks_that_they_stored(drill: Drill) -> None:
    """R68, G-4: no replica has the tail any more, so no log shows it."""
    drill.topic("tailless", "Balanced")
    for first in range(0, 200, 20):
        assert len(produce(drill.cluster.bootstrap_servers, "tailless", 20, first=first).acked) == 20
    folders = [drill.cluster.data_folder(node) for node in drill.cluster.brokers]
    stored = [folder / HIGH_WATERMARK_CHECKPOINT for folder in folders]
    wait_until(lambda: all(path.exists() and "tailless 0 200\n" in path.read_text() for path in stored))
    decision, lost = drill.cut_logs("tailless")
    assert 200 > lost > 0
    assert decision["predicted_loss"] == lost <= decision["most_lost"]


def test_a_loss_that_no_replica_knows_is_bounded_by_the_ceilings_on_disk(drill: Drill) -> None:
    """R68, G-4: the high watermarks were not stored in time, the ceiling always is."""
    drill.topic("unstored", "Balanced")
    assert len(produce(drill.cluster.bootstrap_servers, "unstored", 1500).acked) == 1500
    decision, lost = drill.cut_logs("unstored", forgets_high_watermarks=True)
    assert 1500 > lost > 0
    assert (decision["predicted_loss"] or 0) < lost <= decision["most_lost"]
    assert decision["most_lost"] <= lost + 2 * 1500, "the bound follows the traffic"


def test_without_a_strategy_a_partition_waits_for_the_operator(drill: Drill) -> None:
    """R64 None, R18: compared on demand, or designated."""
    drill.topic("by-hand", "None", partitions=2)
    answers = produce(drill.cluster.bootstrap_servers, "by-hand", 200)
    drill.kill(1, 2, 3)
    drill.start(1, 2, 3)
    wait_until(lambda: drill.metric("manual_leader_election_required_partition_count") == 2)
    first, second = TopicPartition("by-hand", 0), TopicPartition("by-hand", 1)
    assert drill.elect(ElectionKind.LONGEST_LOG_BALANCED, first) is None
    drill.wait_leader("by-hand", 0)
    assert drill.partition("by-hand", 1).leader_id == -1
    assert drill.elect(ElectionKind.DESIGNATION, second, 3) is None
    assert drill.wait_leader("by-hand", 1) == 3
    assert drill.metric("manual_leader_election_required_partition_count") == 0
    watch(drill.cluster.bootstrap_servers).wait_full_isr("by-hand")
    assert_nothing_lost(drill.cluster.bootstrap_servers, "by-hand", 2, answers)


def test_a_recovery_that_waits_ends_by_kafkas_rule_when_the_manager_is_switched_off(drill: Drill) -> None:
    """D8.8: the last known leader is trusted then, even if its log lacks records."""
    drill.topic("switched", "None")
    drill.kill(1, 2, 3)
    drill.start(1, 2, 3)
    trusted = drill.partition("switched").last_known_leader
    known = drill.partition("switched").last_known_elr or ()
    missing = next(member for member in known if member != trusted)
    drill.kill(missing)
    wait_until(lambda: missing in drill.partition("switched").offline_replicas)
    drill.set(STRATEGY, "Balanced", "switched")
    wait_until(lambda: drill.metric("unclean_recovery_partitions_count") == 1)
    assert drill.partition("switched").leader_id == -1
    drill.set(MANAGER, "false")
    try:
        assert drill.wait_leader("switched") == trusted
    finally:
        drill.set(MANAGER, "true")
    drill.start(missing)
    watch(drill.cluster.bootstrap_servers).wait_full_isr("switched")


@pytest.mark.parametrize("fault", ["reboot", "failover"])
def test_answers_of_a_broker_that_rebooted_or_to_a_former_controller_do_not_count(
    drill: Drill, fault: str
) -> None:
    """R60, R63, N-3: two have answered, the third says nothing yet, so the recovery is not over."""
    topic = f"stale-{fault}"
    drill.topic(topic, "None")
    answers = produce(drill.cluster.bootstrap_servers, topic, 200)
    drill.kill(1, 2, 3)
    drill.start(1, 2, 3)
    wait_until(lambda: drill.metric("manual_leader_election_required_partition_count") == 1)
    # whose answers are needed depends on who was fenced first
    known = sorted(drill.partition(topic).last_known_elr or ())
    rebooted, silent = known[0], known[-1]
    assert rebooted != silent
    answering = [str(broker) for broker in (1, 2, 3) if broker != silent]
    drill.cluster.pause(drill.cluster.broker(silent))
    before = {id: drill.metric("unclean_recovery_replies_total", broker=id, result="ok") for id in answering}
    drill.set(STRATEGY, "Balanced", topic)

    def more_answers(broker: str) -> float:
        return drill.metric("unclean_recovery_replies_total", broker=broker, result="ok") - before[broker]

    # another active controller asks again
    wait_until(lambda: all(more_answers(broker) >= 1 for broker in answering))
    assert drill.partition(topic).leader_id == -1
    if fault == "reboot":
        drill.kill(rebooted)
        wait_until(lambda: rebooted in drill.partition(topic).offline_replicas)
        drill.cluster.resume(drill.cluster.broker(silent))
        drill.wait_unfenced(*(broker for broker in (1, 2, 3) if broker != rebooted))
        assert drill.partition(topic).leader_id == -1
        drill.start(rebooted)
    else:
        active = drill.cluster.node(f"controller-{drill.active_controller()}")
        drill.cluster.kill([active])
        drill.cluster.resume(drill.cluster.broker(silent))
        drill.wait_leader(topic)
        drill.cluster.start(active)
    # equal logs: the first in the order of assignment of those that were eligible once
    assert drill.wait_leader(topic) == rebooted
    if fault == "reboot":
        assert more_answers(str(rebooted)) >= 2
    watch(drill.cluster.bootstrap_servers).wait_full_isr(topic)
    assert_nothing_lost(drill.cluster.bootstrap_servers, topic, 1, answers)
