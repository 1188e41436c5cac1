"""A compacted topic on real processes: brokers are killed meanwhile, and each key's last record is there."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.producer import Producer
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import read_all, wait_until
from tests.e2e.test_tools import Tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC = "t"
KEYS = 40
ROUNDS = 30
#: rounds after which a broker is killed, the leader first
KILLS = (5, 15)
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}


def send_rounds(servers: str, rounds: range) -> dict[bytes, bytes]:
    """{key: the value that was acknowledged last}. Each round has every key, and is acknowledged whole."""
    last: dict[bytes, bytes] = {}

    async def work(runtime: Runtime) -> int:
        producer = Producer(servers, acks="all", retry_max_ms=100, runtime=runtime)
        await producer.start()
        for number in rounds:
            sent = {
                b"key-%d" % key: await producer.submit(TOPIC, b"%d " % number + b"x" * 200, b"key-%d" % key)
                for key in range(KEYS)
            }
            await producer.flush()
            for key, delivery in sent.items():
                delivery.result()
                last[key] = b"%d " % number + b"x" * 200
        await producer.close()
        return 0

    run(work)
    return last


def seen(servers: str) -> tuple[int, dict[bytes | None, bytes | None]]:
    """How many records a consumer gets from the beginning, and the last value of each key."""
    found = read_all(servers, TOPIC, 1)
    return len(found), {one.key: one.value for _, one in sorted(found.items())}


async def seen_by_aiokafka(servers: str, end_offset: int) -> dict[bytes, bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await consumer.start()
    try:
        partition, found = TopicPartition(TOPIC, 0), dict[bytes, bytes]()
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        while await consumer.position(partition) < end_offset:
            for rows in (await consumer.getmany(timeout_ms=500)).values():
                found.update({row.key: row.value for row in rows})
        return found
    finally:
        await consumer.stop()


def end_offset(servers: str) -> int:
    ends: list[int] = []

    async def work(runtime: Runtime) -> int:
        consumer = Consumer(servers, runtime=runtime)
        ends.extend((await consumer.end_offsets([(TOPIC, 0)])).values())
        await consumer.close()
        return 0

    run(work)
    return ends[0]


def create_topic(servers: str) -> None:
    async def work(runtime: Runtime) -> int:
        admin = Admin(servers, runtime=runtime)
        await admin.create_topic(TOPIC, assignments={0: (1, 2, 3)}, configs=CONFIGS)
        await admin.close()
        return 0

    run(work)


def log_bytes(cluster: LocalCluster, node: Node) -> int:
    return sum(path.stat().st_size for path in (cluster.data_folder(node) / f"{TOPIC}-0").glob("*.log"))


def test_each_keys_last_record_is_there_though_brokers_are_killed_while_they_compact(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(controllers=1, log_cleaner_backoff_ms="100")
    servers = cluster.bootstrap_servers
    create_topic(servers)
    wanted: dict[bytes, bytes] = {}
    first = 0
    for victim, after in zip(cluster.brokers, KILLS, strict=False):
        wanted |= send_rounds(servers, range(first, after))
        first = after
        cluster.kill([victim])
        wanted |= send_rounds(servers, range(first, first + 3))
        first += 3
        cluster.start(victim)
        cluster.wait_ready([victim])
    wanted |= send_rounds(servers, range(first, ROUNDS))
    assert len(wanted) == KEYS
    written = KEYS * ROUNDS * 200
    wait_until(lambda: all(log_bytes(cluster, node) < written // 2 for node in cluster.brokers), 60)
    count, last = seen(servers)
    assert last == wanted
    # each key once in what was compacted, and some rounds in the segment that is written to
    assert count < KEYS * ROUNDS // 2
    assert asyncio.run(seen_by_aiokafka(cluster.kafka_bootstrap, end_offset(servers))) == wanted
    tools = Tools(cluster)
    assert "cleanup.policy=compact" in tools.run("topics", "--describe", "--topic", TOPIC).out
    assert "yes" in tools.run("replica-verification", "--topic", TOPIC).out
    segments = sorted((cluster.data_folder(cluster.brokers[0]) / f"{TOPIC}-0").glob("*.log"))
    dump_log = [sys.executable, "-m", "holdfast.cli", "dump-log", "--deep-iteration", "--files"]
    files = ",".join(map(str, segments[:-1]))
    subprocess.run([*dump_log, files], check=True, capture_output=True, timeout=60)
    for node in cluster.brokers:
        cluster.kill([node])
        cluster.start(node)
        cluster.wait_ready([node])
        assert seen(servers)[1] == wanted
