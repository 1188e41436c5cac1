"""A stream through a real unclean election: records that it has read are replaced by others."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.client.producer import Producer
from holdfast.durability.core.positions import DataLost
from holdfast.localcluster.launch import shared_launcher
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.spark.stream_driver import Stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("stream election"),
]

T = TypeVar("T")
PATIENCE_S = 120
PROPERTIES = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
}
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One controller and two brokers."""
    folder = tmp_path_factory.mktemp("election") / "c"
    cluster = LocalCluster.create(folder, 2, 1, properties=PROPERTIES, launcher=shared_launcher())
    cluster.up()
    yield cluster
    cluster.kill(cluster.nodes)


def ask(servers: str, question: Callable[[Admin], Awaitable[T]]) -> T:
    answers: list[T] = []

    async def work(runtime: Runtime) -> int:
        async with Admin(servers, runtime=runtime) as admin:
            answers.append(await question(admin))
        return 0

    run(work)
    return answers[0]


def produce(cluster: LocalCluster, word: str, count: int) -> None:
    async def work(runtime: Runtime) -> int:
        async with Producer(cluster.bootstrap_servers, runtime=runtime) as producer:
            for number in range(count):
                await producer.send("t", b"%s %d" % (word.encode(), number))
        return 0

    run(work)


def wait_for_leader(cluster: LocalCluster, broker_id: int, kind: ElectionKind | None = None) -> None:
    """Until that broker leads; with `kind` it is asked for, as often as that takes."""
    deadline = time.monotonic() + PATIENCE_S
    servers = cluster.bootstrap_controllers
    while True:
        (topic,) = ask(servers, lambda admin: admin.describe_topics(["t"]))
        if topic.partitions and topic.partitions[0].leader_id == broker_id:
            return
        assert time.monotonic() < deadline, topic
        if kind is not None:
            try:
                ask(servers, lambda admin: admin.elect_leaders(kind, [PARTITION]))
            except ClientError:
                continue  # the broker is not there yet


def test_a_stream_resumed_after_an_unclean_election_names_the_offset_and_both_epochs(
    cluster: LocalCluster,
) -> None:
    first, second = cluster.node("broker-1"), cluster.node("broker-2")
    ask(
        cluster.bootstrap_servers,
        lambda admin: admin.create_topic("t", assignments={0: (1, 2)}, configs={"min.insync.replicas": "1"}),
    )
    produce(cluster, "both", 50)
    cluster.kill([second])
    produce(cluster, "first alone", 50)  # acknowledged once the ISR is the leader
    stream = Stream(cluster.bootstrap_servers)
    assert stream.next() == 100
    cluster.kill([first])
    cluster.start(second)
    wait_for_leader(cluster, 2, ElectionKind.UNCLEAN)
    produce(cluster, "second", 80)

    stream.end()
    stream.restart()
    with pytest.raises(
        DataLost, match=r"t-0: .* offset 50 was read in leader epoch \d+, .* leader epoch \d+"
    ):
        stream.plan()
    stream.end()
    stream.restart(failOnDataLoss="false")
    start, end = stream.plan()
    assert end["t"]["partitions"]["0"]["lost"] == 50
    assert stream.read(start, end) == 80
    assert [value for _, _, value in stream.rows[100:]] == [f"second {number}" for number in range(80)]
    assert stream.next() == 0
    stream.end()
