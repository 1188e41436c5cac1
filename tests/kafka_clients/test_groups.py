"""Unmodified Kafka clients in groups: members and coordinators are killed, no committed offset is lost."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.core.groups.config import partition_of
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.pytest_cluster import QUICK_PROPERTIES
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.clients import CLIENTS, KafkaClient

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore")]

PARTITIONS = 3
RECORDS = 600
#: As clusters of tests have it.
OFFSETS_PARTITIONS = int(QUICK_PROPERTIES["offsets.topic.num.partitions"])
PATIENCE_S = 120
#: The others are long.
FIRST = "confluent-kafka"
#: Our own client.
OWN = "holdfast"


class Member:
    """A member of a group in a process of its own, and what it has printed."""

    def __init__(self, client: str, cluster: HoldfastCluster, topic: str, group: str) -> None:
        script = str(Path(__file__).with_name("member.py"))
        servers = cluster.bootstrap_servers if client == OWN else cluster.kafka_bootstrap
        words = [sys.executable, "-W", "ignore", script, client, servers, topic, group]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assigned: list[int] = []
        self.read: list[tuple[int, int]] = []
        #: {partition: next offset}, as acknowledged
        self.committed: dict[int, int] = {}
        self.commits = 0
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                (kind, value), *_ = json.loads(line).items()
            except ValueError:
                break  # it was killed in the middle of a line
            if kind == "assigned":
                self.assigned = value
            elif kind == "read":
                self.read += [(partition, offset) for partition, offset in value]
            else:
                self.committed |= {int(partition): end for partition, end in value.items()}
                self.commits += 1

    def kill(self) -> None:
        """Kill -9: it cannot leave its group."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def members(client: str, cluster: HoldfastCluster, topic: str) -> Iterator[Callable[..., Member]]:
    """Starts members of the group that is called as the topic, of this client unless another one is named."""
    started: list[Member] = []

    def start(another: str | None = None) -> Member:
        started.append(Member(another or client, cluster, topic, topic))
        return started[-1]

    try:
        yield start
    finally:
        for member in started:
            if member.process.poll() is None:
                member.kill()


def until(holds: Callable[[], object], what: Callable[[], Any]) -> None:
    """Wait for it; says `what` there was instead."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.05)


class Log:
    """A topic of a test, and how much was written to it."""

    def __init__(self, client_name: str, client: KafkaClient, topic: str) -> None:
        self.client_name = client_name
        self.topic = topic
        self.records = 0
        self._client = client
        client.create_topic(topic, PARTITIONS, {})

    def write(self) -> None:
        values = [b"%d" % number for number in range(RECORDS)]
        assert len(self._client.produce(self.topic, values, lambda number: None, idempotent=True)) == RECORDS
        self.records += RECORDS

    def is_committed_by(self, *members: Member) -> bool:
        """Together they have committed everything."""
        return sum(all_committed(*members).values()) == self.records


def all_committed(*members: Member) -> dict[int, int]:
    """{partition: next offset}, the latest of them all."""
    return {
        partition: max(member.committed.get(partition, 0) for member in members)
        for partition in range(PARTITIONS)
    }


@pytest.fixture(
    params=[name if name == FIRST else pytest.param(name, marks=pytest.mark.long) for name in CLIENTS]
)
def log(request: pytest.FixtureRequest, cluster: HoldfastCluster) -> Iterator[Log]:
    """A topic with records, for each foreign client."""
    name: str = request.param
    module, make = CLIENTS[name]
    pytest.importorskip(module, reason=f"{name} is not installed: pip install '.[dev]'")
    cluster.restart()
    client = make(cluster.kafka_bootstrap)
    topic = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    made = Log(name, client, topic)
    made.write()
    yield made
    client.close()


def test_members_share_the_partitions_and_one_goes_on_where_another_has_died(
    log: Log, cluster: HoldfastCluster
) -> None:
    with members(log.client_name, cluster, log.topic) as start:
        first, second = start(), start()
        until(
            lambda: (
                first.assigned
                and second.assigned
                and sorted(first.assigned + second.assigned) == list(range(PARTITIONS))
            ),
            lambda: (first.assigned, second.assigned),
        )
        until(lambda: log.is_committed_by(first, second), lambda: (first.committed, second.committed))
        committed = all_committed(first, second)
        second.kill()
        until(lambda: sorted(first.assigned) == list(range(PARTITIONS)), lambda: first.assigned)
        had_read = len(first.read)
        log.write()
        until(lambda: log.is_committed_by(first, second), lambda: (first.committed, second.committed))
    assert len(set(first.read + second.read)) == log.records, "every record was read"
    again = [(one, offset) for one, offset in first.read[had_read:] if offset < committed[one]]
    assert not again, "what was committed is read again"


def test_no_committed_offset_is_lost_when_the_coordinator_is_killed(
    log: Log, cluster: HoldfastCluster
) -> None:
    with members(log.client_name, cluster, log.topic) as start:
        first = start()
        until(lambda: first.commits >= 3, lambda: first.committed)
        former = kill_the_coordinator(log.topic, cluster)
        log.write()
        until(lambda: log.is_committed_by(first), lambda: first.committed)
        cluster.restart(former)

        former = kill_the_coordinator(log.topic, cluster)
        first.kill()
        committed = all_committed(first)
        log.write()
        second = start()
        until(lambda: log.is_committed_by(first, second), lambda: (first.committed, second.committed))
        cluster.restart(former)
    again = [(one, offset) for one, offset in second.read if offset < committed[one]]
    assert not again, "a committed offset was lost"
    assert len(set(first.read + second.read)) == log.records, "every record was read"


@pytest.mark.parametrize("log", ["aiokafka"], indirect=True)
def test_our_own_members_share_with_a_foreign_one_while_members_and_coordinators_are_killed(
    log: Log, cluster: HoldfastCluster
) -> None:
    with members(OWN, cluster, log.topic) as start:
        first, second, foreign = start(), start(), start("aiokafka")
        everyone = [first, second, foreign]
        until(
            lambda: sorted(one.assigned for one in everyone) == [[index] for index in range(PARTITIONS)],
            lambda: [one.assigned for one in everyone],
        )
        until(lambda: log.is_committed_by(*everyone), lambda: [one.committed for one in everyone])

        former = kill_the_coordinator(log.topic, cluster)
        log.write()
        until(lambda: log.is_committed_by(*everyone), lambda: [one.committed for one in everyone])
        cluster.restart(former)

        first.kill()
        committed = all_committed(*everyone)
        had_read = {one: len(one.read) for one in (second, foreign)}
        former = kill_the_coordinator(log.topic, cluster)
        log.write()
        third = start()
        everyone.append(third)
        until(lambda: log.is_committed_by(*everyone), lambda: [one.committed for one in everyone])
        until(
            lambda: sorted(chain(*(one.assigned for one in everyone[1:]))) == list(range(PARTITIONS)),
            lambda: [one.assigned for one in everyone[1:]],
        )
        cluster.restart(former)
    later = [*third.read, *second.read[had_read[second] :], *foreign.read[had_read[foreign] :]]
    again = [(one, offset) for one, offset in later if offset < committed[one]]
    assert not again, "a committed offset was lost"
    assert len(set(chain(*(one.read for one in everyone)))) == log.records, "every record was read"


def kill_the_coordinator(group: str, cluster: HoldfastCluster) -> Node:
    """Kill -9 the broker that coordinates the group, once every replica of its offsets is in sync."""
    partition = partition_of(group, OFFSETS_PARTITIONS)
    cluster.wait_until(lambda: len(cluster.isr("__consumer_offsets", partition)) == 3, PATIENCE_S)
    coordinator = cluster.wait_until(lambda: cluster.leader("__consumer_offsets", partition), PATIENCE_S)
    assert coordinator is not None
    cluster.kill(coordinator)
    return coordinator
