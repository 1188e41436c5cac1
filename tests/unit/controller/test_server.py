"""The shell: real rpc, raft and logs on the in-memory runtime. Nothing here waits for real time."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.controller.__main__ import raft_config
from holdfast.controller.core.brokers.can_stop import Severity, can_stop
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.server import ControllerServer
from holdfast.metadata.broker import SUPPORTED_FEATURES
from holdfast.metadata.image import CLUSTER_RESOURCE
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ListenerEndpoint,
)
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from holdfast.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DescribeTopicPartitionsRequest,
)
from holdfast.raft.core.effects import Truncated
from holdfast.rpc.channel import CallRefused, Channel
from holdfast.runtime.api import Connection, NetworkError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import ManualClock, memory_runtime, settle
from holdfast.runtime.memory.network import MemoryNetwork
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log

VOTERS = (101, 102, 103)
FOLDER = "/metadata"


class Node:
    """One controller on a disk of its own."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self._cluster = cluster
        self.node_id = node_id
        self.disk = MemoryDisk()

    async def boot(self) -> None:
        cluster = self._cluster
        self.runtime, _ = memory_runtime(
            self.node_id, clock=cluster.clock, network=cluster.network, disk=self.disk
        )
        voters = ",".join(f"{voter}@c{voter}:9093" for voter in VOTERS)
        properties = {
            "node.id": str(self.node_id),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://c{self.node_id}:9093",
            "controller.quorum.voters": voters,
            "metadata.log.dir": FOLDER,
            "holdfast.cluster.id": "x",
        }
        config, _ = ControllerConfig.from_properties(properties, {})
        self.log = await Log.open(self.runtime, FOLDER, LogConfig(segment_ms=None), clean=False)
        self.server = ControllerServer(self.runtime, config, raft_config(config, FOLDER), self.log)
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()
        await self.runtime.tasks.cancel_all()
        await self.log.close(flush=True)


class Cluster:
    """Three controllers, and brokers played by channels and bare listeners."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        self.nodes = {node_id: Node(self, node_id) for node_id in VOTERS}
        self.runtime, _ = memory_runtime(1, clock=self.clock, network=self.network)
        self.channels: list[Channel] = []
        self.epochs: dict[int, int] = {}

    async def active(self, *candidates: int) -> Node:
        """The active controller, once there is one."""
        for _ in range(100):
            for node_id in candidates or VOTERS:
                if self.nodes[node_id].server.core.is_active:
                    return self.nodes[node_id]
            await self.clock.advance(100)
        raise AssertionError("no controller became active")

    async def channel(self, node: Node) -> Channel:
        channel = Channel(self.runtime, f"c{node.node_id}", 9093, "test")
        await channel.connect(1000)
        self.channels.append(channel)
        return channel

    async def start_broker(
        self, channel: Channel, broker_id: int, listens: bool = True, *, starts: int = 1
    ) -> None:
        """Listen at its port, register, unfence; `starts` counts its processes."""
        if listens:
            await self.network.listen(f"b{broker_id}", 9092, _Silent)
        request = BrokerRegistrationRequest(
            broker_id,
            "x",
            (starts << 8 | broker_id).to_bytes(16, "big"),
            (ListenerEndpoint("PLAINTEXT", f"b{broker_id}", 9092),),
            None,
            SUPPORTED_FEATURES,
            ((1 << 70 | broker_id).to_bytes(16, "big"),),
            -1,
        )
        answer = await channel.call(request, 1000)
        assert answer.error_code == ErrorCode.NONE
        self.epochs[broker_id] = answer.broker_epoch
        assert not (await self.heartbeat(channel, broker_id)).is_fenced

    async def expire(self) -> None:
        """Let every session end."""
        await self.clock.advance(10_000)

    async def heartbeat(self, channel: Channel, broker_id: int) -> Any:
        epoch = self.epochs[broker_id]
        return await channel.call(BrokerHeartbeatRequest(broker_id, epoch, 1 << 40, False, False), 1000)


class _Silent:
    """A listener's handler that says nothing."""

    def connection_made(self, connection: Connection) -> None: ...

    def bytes_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None: ...


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    for node in made.nodes.values():
        await node.boot()
    yield made
    for channel in made.channels:
        channel.close()
    for node in made.nodes.values():
        await node.stop()


def fenced(node: Node) -> list[int]:
    return [broker.broker_id for broker in node.server.core.committed.sorted_brokers() if broker.is_fenced]


async def test_a_topic_is_made_by_the_quorum_and_known_to_every_controller(cluster: Cluster) -> None:
    active = await cluster.active()
    channel = await cluster.channel(active)
    for broker_id in (1, 2, 3):
        await cluster.start_broker(channel, broker_id)
    request = CreateTopicsRequest(0, False, (CreatableTopic("t", 4, 3, (), ()),))
    answer = await channel.call(request, 1000)
    assert answer.topics[0].error_code == ErrorCode.NONE
    await cluster.clock.advance(600)
    images = [node.server.core.committed for node in cluster.nodes.values()]
    assert len(images[0].topics) == 1
    assert images[0].topics == images[1].topics == images[2].topics
    assert active.server.core.latest.topics == images[0].topics
    assert active.server.is_ready() == (True, "active")


async def test_a_standby_names_the_active_controller(cluster: Cluster) -> None:
    active = await cluster.active()
    await cluster.clock.advance(600)
    standby = next(node for node in cluster.nodes.values() if node is not active)
    channel = await cluster.channel(standby)
    answer = await channel.call(CreateTopicsRequest(0, False, ()), 1000)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert f"controller {active.node_id} is active" in answer.error_message
    assert (await channel.call(DescribeClusterRequest(), 1000)).controller_id == active.node_id
    assert standby.server.is_ready()[0]


async def test_a_broker_process_that_is_gone_is_fenced_without_waiting(cluster: Cluster) -> None:
    """D9: the connection closed, and no process listens."""
    active = await cluster.active()
    await cluster.start_broker(await cluster.channel(active), 1)
    channel = await cluster.channel(active)
    await cluster.start_broker(channel, 2, listens=False)
    at_ms = cluster.clock.now_ms()
    channel.close()
    await settle()
    assert fenced(active) == [2]
    assert cluster.clock.now_ms() == at_ms


async def test_a_broker_that_still_listens_keeps_its_session(cluster: Cluster) -> None:
    active = await cluster.active()
    channel = await cluster.channel(active)
    await cluster.start_broker(channel, 1)
    channel.close()
    await cluster.clock.advance(8000)
    assert fenced(active) == []
    await cluster.clock.advance(1500)
    assert fenced(active) == [1]


async def test_another_controller_goes_on_when_the_active_one_stops(cluster: Cluster) -> None:
    """K22, R26: brokers stay what they are; a stopped controller catches up from its own disk."""
    active = await cluster.active()
    await cluster.start_broker(await cluster.channel(active), 1)
    await active.stop()
    successor = await cluster.active(*(node_id for node_id in VOTERS if node_id != active.node_id))
    channel = await cluster.channel(successor)
    assert not (await cluster.heartbeat(channel, 1)).is_fenced
    await active.boot()
    await cluster.clock.advance(3000)
    assert active.server.core.committed.brokers == successor.server.core.committed.brokers
    names = {family.name for family in active.server.metrics()}
    assert {"kafka_controller_active_controller", "kafka_raft_current_epoch"} <= names


async def test_a_broker_that_says_nothing_of_its_logs_is_asked_again_and_others_are_asked_meanwhile(
    cluster: Cluster,
) -> None:
    """R61: it accepts connections, and that is all."""
    active = await cluster.active()
    channel = await cluster.channel(active)
    for broker_id in (1, 2):
        await cluster.start_broker(channel, broker_id)
    key = AlterableConfig("unclean.recovery.manager.enabled", ConfigOperation.SET, "true")
    resource = AlterConfigsResource(*CLUSTER_RESOURCE, (key,))
    await channel.call(IncrementalAlterConfigsRequest(False, (resource,)), 1000)
    await channel.call(CreateTopicsRequest(0, False, (CreatableTopic("t", 4, 2, (), ()),)), 1000)
    await cluster.expire()
    assert fenced(active) == [1, 2]
    for broker_id in (1, 2):
        await cluster.start_broker(channel, broker_id, listens=False, starts=2)
    core = active.server.core
    assert core.recovery.count == 4
    for _ in range(30):
        for broker_id in (1, 2):
            await cluster.heartbeat(channel, broker_id)
        await cluster.clock.advance(200)
    assert core.log_replies[1, "timeout"] == core.log_replies[2, "timeout"] >= 2
    assert {result for _, result in core.log_replies} == {"timeout"}


# --- what a controller does not know yet -----------------------------------------------------------------


async def with_topics(cluster: Cluster) -> Node:
    """The active controller of three brokers and three topics."""
    active = await cluster.active()
    channel = await cluster.channel(active)
    for broker_id in (1, 2, 3):
        await cluster.start_broker(channel, broker_id)
    for name in ("t", "u", "v"):
        request = CreateTopicsRequest(0, False, (CreatableTopic(name, 4, 1, (), ()),))
        assert (await channel.call(request, 1000)).topics[0].error_code == ErrorCode.NONE
    await cluster.clock.advance(600)
    return active


async def test_questions_about_many_partitions_are_answered_in_steps_beside_the_events(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = await with_topics(cluster)
    channel = await cluster.channel(active)
    small = await channel.call(MetadataRequest(None), 1000)
    assert [len(topic.partitions) for topic in small.topics] == [4, 4, 4]
    events = active.server.core.counts.events
    monkeypatch.setattr("holdfast.controller.server.LARGE_IMAGE_PARTITIONS", 4)
    monkeypatch.setattr("holdfast.metadata.answer_steps.ROWS_A_STEP", 2)
    assert await channel.call(MetadataRequest(None), 1000) == small
    assert active.server.core.counts.events == events


async def test_a_controller_that_has_no_quorum_since_its_start_does_not_say_that_there_is_no_topic(
    cluster: Cluster,
) -> None:
    """R113: it has all of it on its disk, and does not know what is committed."""
    await with_topics(cluster)
    for node in cluster.nodes.values():
        await node.stop()
    node = cluster.nodes[101]
    await node.boot()
    await cluster.clock.advance(100)
    assert node.log.log_end_offset > 10
    channel = await cluster.channel(node)
    with pytest.raises(CallRefused) as refused:
        await channel.call(DescribeTopicPartitionsRequest(("t",), 2000, None), 1000)
    assert refused.value.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    for other in (102, 103):
        await cluster.nodes[other].boot()
    await cluster.active()
    await cluster.clock.advance(1000)
    found = await channel.call(DescribeTopicPartitionsRequest(("t",), 2000, None), 1000)
    assert [row.error_code for row in found.topics] == [ErrorCode.NONE]


async def test_a_controller_that_still_reads_its_log_lets_no_broker_stop(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows brokers, and not yet what they host."""
    active = await with_topics(cluster)
    standby = next(node for node in cluster.nodes.values() if node is not active)
    await standby.stop()
    monkeypatch.setattr(
        "holdfast.raft.committed.CHUNK_BYTES", 1
    )  # a batch at a time stands for a log of many MiB
    found: list[Severity] = []
    refused: list[bool] = []

    async def ask() -> None:
        channel = await cluster.channel(standby)
        for _ in range(500):
            try:
                seen = await channel.call(DescribeClusterRequest(), 1000)
                topics = (await channel.call(DescribeTopicPartitionsRequest((), 2000, None), 1000)).topics
            except CallRefused:
                refused.append(standby.server.is_ready()[0])
                continue
            active_ids = {row.broker_id for row in seen.brokers if not row.is_fenced}
            found.append(can_stop(1, topics, active_ids.__contains__).severity)

    await standby.boot()
    asking = cluster.runtime.tasks.start("ask", ask())
    for _ in range(20):
        await cluster.clock.advance(50)
    await asking.wait()
    assert set(found) == {Severity.CRIT}
    assert refused
    assert not any(refused)
    assert standby.server.is_ready()[0]


async def test_after_its_core_raised_a_controller_ends_and_answers_nothing(
    cluster: Cluster, failures_logged: list[str]
) -> None:
    """A-20, and its voter with it: the others elect another one."""
    active = await cluster.active()
    channel = await cluster.channel(active)
    event: Any = object()
    active.server.pump.post(event)
    assert isinstance(await active.runtime.tasks.failure(), TypeError)
    questions = (
        DescribeClusterRequest(),
        CreateTopicsRequest(1000, False, (CreatableTopic("t", 1, 1, (), ()),)),
    )
    answers = [channel.call_soon(question, 60_000) for question in questions]
    await cluster.active(*(node_id for node_id in VOTERS if node_id != active.node_id))
    assert not any(answer.done() for answer in answers)
    assert not active.server.driver.is_leader
    assert len(failures_logged) == 1
    for answer in answers:
        answer.cancel()


async def test_after_its_voter_raised_a_controller_ends_and_answers_nothing(
    cluster: Cluster, failures_logged: list[str]
) -> None:
    active = await cluster.active()
    channel = await cluster.channel(active)
    assert active.server.driver.pump is not None
    active.server.driver.pump.post(Truncated(5))
    assert isinstance(await active.runtime.tasks.failure(), AssertionError)
    answer = channel.call_soon(DescribeClusterRequest(), 60_000)
    await cluster.active(*(node_id for node_id in VOTERS if node_id != active.node_id))
    assert not answer.done()
    assert len(failures_logged) == 1
    answer.cancel()
