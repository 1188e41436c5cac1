"""Writes go on, or are refused, when a link or a process hangs (docs/bounded-waits.md)."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from holdfast.localcluster.ports import ReservedPorts
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.rpc.channel import Channel
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch
from tests.e2e.stalled_link import StalledLink

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_another_broker_leads_instead_of_one_that_no_follower_can_reach(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    """Its link to clients and controllers is fine, so its session goes on."""
    ports = ReservedPorts(3, None)
    links: dict[int, StalledLink] = {}
    with ExitStack() as stack:

        def put_links_between(cluster: LocalCluster) -> None:
            for broker, port in zip(cluster.brokers, ports.numbers, strict=True):
                link = links[broker.node_id] = stack.enter_context(StalledLink(port))
                file = cluster.properties_file(broker)
                outer, inner = f"PLAINTEXT://127.0.0.1:{broker.port}", "INTERNAL://127.0.0.1:"
                lines = file.read_text().replace("inter.broker.listener.name=PLAINTEXT", "")
                lines = lines.replace(f"listeners={outer}", f"listeners={outer},{inner}{port}")
                lines += f"advertised.listeners={outer},{inner}{link.port}\n"
                file.write_text(lines + "inter.broker.listener.name=INTERNAL\n")

        cluster = make_cluster(
            before_up=put_links_between,
            replica_lag_time_max_ms="30000",
            holdfast_leader_silence_max_ms="500",
        )
        servers = cluster.bootstrap_servers
        look = watch(servers)
        look.create_topic("t", 1, 3, 2)
        look.wait_full_isr("t")
        with Load(servers, "t") as load:
            deaf = look.describe("t").partitions[0].leader_id
            links[deaf].stall()
            load.wait_acked(2000)
            row = look.describe("t").partitions[0]
            assert row.leader_id != deaf
            assert deaf in row.isr, "it hears and follows the new leader"
        assert not load.answers.failed
        assert_nothing_lost(servers, "t", 1, load.answers)


def test_leader_that_was_paused_for_a_session_acknowledges_nothing_alone(cluster: LocalCluster) -> None:
    """The write waits in its socket when it comes back, before it has heard of the next leader."""
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 1, 3, 2)
    look.wait_full_isr("t")
    leader_id = look.describe("t").partitions[0].leader_id
    leader = cluster.broker(leader_id)
    codes: list[str] = []
    is_connected, is_paused = threading.Event(), threading.Event()

    async def work(runtime: Runtime) -> int:
        channel = Channel(runtime, "127.0.0.1", leader.port, "test")
        await channel.connect(5_000)
        metadata = await channel.call(MetadataRequest(("t",)), 5_000)
        data = encode_batch([Record(0, 1, None, b"zombie")], base_offset=0, leader_epoch=-1)
        row = ProducePartition(metadata.topics[0].topic_id, 0, memoryview(data))
        is_connected.set()
        is_paused.wait()
        response: ProduceResponse = await channel.call(ProduceRequest(1, 30_000, (row,)), 120_000)
        codes.extend(ErrorCode(one.error_code).name for one in response.partitions)
        channel.close()
        return 0

    client = threading.Thread(target=lambda: run(work), daemon=True)
    client.start()
    assert is_connected.wait(30)
    cluster.pause(leader)
    is_paused.set()
    wait_until(lambda: look.describe("t").partitions[0].leader_id not in (leader_id, -1))
    cluster.resume(leader)
    client.join(60)
    assert codes == ["NOT_LEADER_OR_FOLLOWER"]
    look.wait_full_isr("t")


def test_writes_do_not_wait_for_the_session_of_a_follower_that_is_paused(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    """R115: neither its session nor the lag time ends while this test runs."""
    cluster = make_cluster(broker_session_timeout_ms="600000", replica_lag_time_max_ms="600000")
    servers = cluster.bootstrap_servers
    look = watch(servers)
    look.create_topic("t", 1, 3, 2)
    look.wait_full_isr("t")
    row = look.describe("t").partitions[0]
    follower_id = next(member for member in row.isr if member != row.leader_id)
    with Load(servers, "t") as load:
        cluster.pause(cluster.broker(follower_id))
        wait_until(lambda: follower_id not in look.describe("t").partitions[0].isr)
        load.wait_acked(1000)
        cluster.resume(cluster.broker(follower_id))
        look.wait_full_isr("t")
    assert not load.answers.failed
    assert_nothing_lost(servers, "t", 1, load.answers)
