"""Batches with a true crc and garbage inside: refused at the door, and passed over where they are stored."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

from holdfast.client.consumer import Consumer
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest
from holdfast.protocol.record_batch import ZSTD
from holdfast.rpc.channel import Channel
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import produce, watch
from tests.unit.protocol.test_batch_validation import built, changed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NOW = (1_700_000_000_000,)
#: The topic is new, and its leader has not heard of it.
_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
GARBAGE = {
    "garbage": changed(built(NOW), b"\xff" * 40),
    "a codec that there is not": changed(built(NOW), attributes=5),
    "what is not zstd": changed(built(NOW), b"no frame", attributes=ZSTD),
    "a far future": built(((1 << 63) - 1,)),
}


def send(cluster: LocalCluster, batches: list[bytes]) -> list[str]:
    """Write each to partition 0 of `t`; the errors."""
    codes: list[str] = []

    async def work(runtime: Runtime) -> int:
        ports = {node.node_id: node.port for node in cluster.brokers}
        first = Channel(runtime, "127.0.0.1", cluster.brokers[0].port, "test")
        await first.connect(5_000)
        (topic,) = (await first.call(MetadataRequest(("t",)), 5_000)).topics
        leader = Channel(runtime, "127.0.0.1", ports[topic.partitions[0].leader_id], "test")
        await leader.connect(5_000)
        for batch in batches:
            row = ProducePartition(topic.topic_id, 0, memoryview(batch))
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            while code in _NOT_YET:
                answer = await leader.call(ProduceRequest(-1, 10_000, (row,)), 15_000)
                code = ErrorCode(answer.partitions[0].error_code)
            codes.append(code.name)
        first.abort()
        leader.abort()
        return 0

    run(work)
    return codes


def values(cluster: LocalCluster, count: int) -> list[bytes | None]:
    async def work() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with Consumer(cluster.bootstrap_servers, "t") as consumer:
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    return found
        return found

    return asyncio.run(asyncio.wait_for(work(), 60))


def test_batches_with_garbage_inside_are_refused_and_consumers_go_on(cluster: LocalCluster) -> None:
    watch(cluster.bootstrap_servers).create_topic("t", 1, 3, 2)
    assert not produce(cluster.bootstrap_servers, "t", 10).failed
    assert send(cluster, list(GARBAGE.values())) == [
        "INVALID_RECORD",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
    ]
    assert send(cluster, [built(NOW)]) == ["NONE"]
    assert values(cluster, 11)[-1] == b"v"


def test_the_console_consumer_stops_at_what_is_stored_all_the_same_or_passes_over_it(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    """As an earlier build has stored it."""
    cluster = make_cluster(holdfast_validate_records="header")
    watch(cluster.bootstrap_servers).create_topic("t", 1, 3, 2)
    assert send(cluster, [built(NOW), GARBAGE["garbage"], built(NOW)]) == ["NONE"] * 3

    def read(*more: str) -> "subprocess.CompletedProcess[str]":
        command = [
            sys.executable,
            "-m",
            "holdfast.cli",
            "console-consumer",
            "--topic",
            "t",
            "--from-beginning",
        ]
        command += ["--bootstrap-server", cluster.bootstrap_servers, "--timeout-ms", "3000", *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    stopped = read()
    assert (stopped.returncode, stopped.stdout) == (1, "v\n")
    assert "t-0 at offset 1" in stopped.stderr
    assert "seek to 2" in stopped.stderr
    passed = read("--skip-corrupt")
    assert (passed.returncode, passed.stdout) == (0, "v\nv\n")
    assert "warning: skipped up to offset 2" in passed.stderr
