"""A whole cluster in one process on the in-memory runtime: one controller, three brokers, one clock, a disk
each.

Everything but the runtime is production code. Nothing waits for real time.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.broker.__main__ import BrokerNode
from holdfast.broker.core.config import BrokerConfig
from holdfast.broker.core.replicas.partition import Partition
from holdfast.controller.__main__ import raft_config
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.server import ControllerServer
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchPartition, FetchPartitionResponse, FetchRequest
from holdfast.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from holdfast.protocol.messages.metadata import MetadataPartition, MetadataRequest
from holdfast.protocol.messages.produce import ProducePartition, ProducePartitionResponse, ProduceRequest
from holdfast.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, TopicConfig
from holdfast.protocol.record_batch import Record, decode_records, encode_batch, iter_batches
from holdfast.rpc.channel import Channel
from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import ManualClock, SeededRandom, memory_runtime, settle
from holdfast.runtime.memory.network import MemoryNetwork
from holdfast.runtime.tasks import HeldTasks
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.raft.cluster import MortalClock, MortalNetwork

CONTROLLER_ID = 101
CONTROLLER_PORT = 9100
COMMON = {
    "controller.quorum.voters": f"{CONTROLLER_ID}@localhost:{CONTROLLER_PORT}",
    "holdfast.cluster.id": "cluster",
}


def batch(*values: str, producer: tuple[int, int, int] = (-1, -1, -1)) -> memoryview:
    """A client's batch of these values; `producer` is (id, epoch, first sequence)."""
    records = [Record(offset, 1, None, value.encode()) for offset, value in enumerate(values)]
    producer_id, producer_epoch, sequence = producer
    return memoryview(
        encode_batch(
            records,
            base_offset=0,
            leader_epoch=-1,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
    )


class BrokerMachine:
    """One broker: its disk outlives its processes."""

    def __init__(self, cluster: "Cluster", broker_id: int, properties: dict[str, str]) -> None:
        self.id = broker_id
        self.port = 9000 + broker_id
        self.disk = MemoryDisk()
        self.is_running = False
        self._cluster = cluster
        self._properties = properties
        self._boots = 0
        self._clock = MortalClock(cluster.clock)
        self._network = MortalNetwork(cluster.network)
        self.tasks = HeldTasks()
        self.node: BrokerNode = None  # type: ignore[assignment]  # boot makes it

    async def boot(self, log_dirs: str | None = None) -> None:
        """A new process on this machine's disk, from now on with these log dirs if they are given."""
        if log_dirs is not None:
            self._properties = {**self._properties, "log.dirs": log_dirs}
        self._boots += 1
        self._clock = MortalClock(self._cluster.clock)
        self._network = MortalNetwork(self._cluster.network)
        self.tasks = HeldTasks()
        random = SeededRandom(1000 * self.id + self._boots)
        runtime = Runtime(self._clock, random, self._network, self.disk, self.tasks)
        config, _ = BrokerConfig.from_properties(
            {
                **COMMON,
                "node.id": str(self.id),
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://localhost:{self.port}",
                "log.dirs": "/data",
                "metadata.log.dir": "/metadata",
                **self._properties,
            }
        )
        self.node = BrokerNode(config, runtime)
        await self.node.start()
        self.is_running = True

    async def stop(self) -> None:
        """SIGTERM, as the entry point does it."""
        self.node.want_shutdown()
        await self._cluster.eventually(self.node.stopped.done)
        stopping = self.tasks.start("stop", self._stop())
        await self._cluster.eventually(lambda: stopping.is_done)
        self._clock.is_dead = True
        self._network.die()
        self.disk.process_kill()
        self.is_running = False

    async def _stop(self) -> None:
        await self.node.stop()

    async def kill(self) -> None:
        """kill -9: the page cache lives, connections are reset, the port refuses."""
        self.is_running = False
        self._clock.is_dead = True
        await self.tasks.cancel_all()
        self._network.die()
        self._cluster.network.kill(self.port)
        self.disk.process_kill()
        await settle()

    async def fail(self) -> BaseException:
        """Its core meets a bug, an event that it does not know; what the entry point hears of."""
        event: Any = object()
        self.node.server.pump.post(event)
        return await self.tasks.failure()

    async def lose_power(self) -> None:
        """As `kill`, and what was not flushed is gone."""
        await self.kill()
        self.disk.power_loss()

    def partition(self, index: int = 0) -> Partition:
        """The live partition of the test's topic."""
        return self.node.core.partitions[PartitionId(self._cluster.topic_id, index)]

    def bytes(self, index: int = 0) -> bytes:
        """The whole log of a partition."""
        log = self.node.log_manager.logs[PartitionId(self._cluster.topic_id, index)]
        return log.read(log.log_start_offset, 1 << 30, log.log_end_offset)

    def values(self, index: int = 0) -> list[str]:
        """The record values of a partition, uncommitted ones too."""
        return values(self.bytes(index))


def values(records: bytes | memoryview) -> list[str]:
    """The values in whole batches."""
    return [
        (record.value or b"").decode() for _, view in iter_batches(records) for record in decode_records(view)
    ]


class Cluster:
    """Controller 101 and brokers 1 to 3, or more. `topic` makes the one topic of a test."""

    def __init__(self, broker_count: int = 3, **properties: str) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        keys = {name.replace("_", "."): value for name, value in properties.items()}
        self.machines = {number: BrokerMachine(self, number, keys) for number in range(1, broker_count + 1)}
        #: keys that all nodes have
        self._shared = {name: value for name, value in keys.items() if name.startswith("metadata.log.max.")}
        self._controller_disk = MemoryDisk()
        self._controller: ControllerServer | None = None
        self._controller_tasks = HeldTasks()
        self._client, _ = memory_runtime(clock=self.clock, network=self.network)
        self._channels: dict[int, Channel] = {}
        self.topic_id = b""
        #: looks at everything whenever time has passed
        self.check: Callable[[], None] = lambda: None

    def __getitem__(self, broker_id: int) -> BrokerMachine:
        return self.machines[broker_id]

    async def boot(self) -> "Cluster":
        """Start all and wait until every broker runs."""
        await self.start_controller(self._controller_disk)
        for machine in self.machines.values():
            await machine.boot()
        await self.all_run()
        return self

    async def stop_controller(self) -> MemoryDisk:
        """In order; its disk."""
        assert self._controller is not None
        stopping = self._controller_tasks.start("stop", self._controller.stop())
        await self.eventually(lambda: stopping.is_done)
        await self._controller_tasks.cancel_all()
        self._controller_disk.process_kill()
        self._controller_tasks = HeldTasks()
        return self._controller_disk

    async def start_controller(self, disk: MemoryDisk) -> None:
        """On this disk."""
        self._controller_disk = disk
        config, _ = ControllerConfig.from_properties(
            {
                **COMMON,
                "node.id": "101",
                "process.roles": "controller",
                "listeners": f"CONTROLLER://localhost:{CONTROLLER_PORT}",
                "log.dirs": "/data",
                **self._shared,
            },
            {},
        )
        runtime = Runtime(
            self.clock, SeededRandom(101), self.network, self._controller_disk, self._controller_tasks
        )
        log = await Log.open(runtime, "/data/log", LogConfig(segment_ms=None, retention_ms=None), clean=False)
        self._controller = ControllerServer(runtime, config, raft_config(config, "/data/log"), log)
        await self._controller.start()

    async def all_run(self) -> None:
        """Wait until every running process is unfenced."""
        await self.eventually(
            lambda: all(m.node.is_ready()[0] for m in self.machines.values() if m.is_running)
        )

    async def advance(self, duration_ms: int) -> None:
        """Let time pass, and look at everything every few milliseconds."""
        for start_ms in range(0, duration_ms, 5):
            await self.clock.advance(min(5, duration_ms - start_ms))
            self.check()

    @property
    def image(self) -> MetadataImage:
        """What the controller has committed."""
        assert self._controller is not None
        return self._controller.core.committed

    async def eventually(self, condition: Callable[[], bool], within_ms: int = 30_000) -> None:
        """Let time pass until the condition holds."""
        for _ in range(0, within_ms, 5):
            await settle()
            if condition():
                return
            await self.advance(5)
        raise AssertionError(f"it did not come to pass within {within_ms} ms")

    # --- a client ------------------------------------------------------------------------------------------

    async def call(self, broker_id: int, request: Any, timeout_ms: int = 10_000) -> Any:
        """The answer of a broker."""
        channel = await self._channel(broker_id)
        return await self._wait(channel.call(request, timeout_ms))

    async def send(
        self, broker_id: int, data: memoryview, *, acks: int = -1, timeout_ms: int = 5000
    ) -> "asyncio.Future[Any]":
        """Produce without waiting for the answer."""
        channel = await self._channel(broker_id)
        request = ProduceRequest(acks, timeout_ms, (ProducePartition(self.topic_id, 0, data),))
        return channel.call_soon(request, 10_000)

    async def ask_controller(self, request: Any) -> Any:
        """The controller's answer."""
        channel = await self._channel(CONTROLLER_ID)
        return await self._wait(channel.call(request, 10_000))

    async def _channel(self, node_id: int) -> Channel:
        channel = self._channels.get(node_id)
        if channel is None or not channel.is_connected:
            port = CONTROLLER_PORT if node_id == CONTROLLER_ID else self.machines[node_id].port
            channel = Channel(self._client, "localhost", port, "test")
            await self._wait(channel.connect(1000))
            self._channels[node_id] = channel
        return channel

    async def _wait(self, work: Any) -> Any:
        result: list[Any] = []

        async def run() -> None:
            result.append(await work)

        task = self._client.tasks.start("client", run())
        await self.eventually(lambda: task.is_done)
        assert result, "the call failed"
        return result[0]

    async def topic(self, partitions: int = 1, **configs: str) -> None:
        """Make the topic `t` with three replicas, and wait until all of them have their roles."""
        self.topic_id = await self.make_topic("t", partitions, **configs)
        await self.eventually(lambda: sum(self.has_role(m) for m in self.machines.values()) == 3)

    async def make_topic(self, name: str, partitions: int, **configs: str) -> bytes:
        """Make a topic with three replicas; its id."""
        overrides = tuple(TopicConfig(name.replace("_", "."), value) for name, value in configs.items())
        response = await self.call(
            1, CreateTopicsRequest(5000, False, (CreatableTopic(name, partitions, 3, (), overrides),))
        )
        assert response.topics[0].error_code == ErrorCode.NONE, response
        topic_id: bytes = response.topics[0].topic_id
        return topic_id

    def has_role(self, machine: BrokerMachine) -> bool:
        """It leads or follows partition 0 of the topic that was made last with `topic`."""
        return PartitionId(self.topic_id, 0) in machine.node.core.partitions

    async def describe(self, index: int = 0) -> MetadataPartition:
        """The partition as a running broker knows it."""
        for machine in self.machines.values():
            if machine.is_running:
                response = await self.call(machine.id, MetadataRequest(("t",)))
                described: MetadataPartition = response.topics[0].partitions[index]
                return described
        raise AssertionError("no broker runs")

    async def leader(self, index: int = 0, *, not_one_of: tuple[int, ...] = ()) -> BrokerMachine:
        """The leader, once there is one that serves."""
        for _ in range(4000):
            await settle()
            for machine in self.machines.values():
                if machine.is_running and machine.id not in not_one_of and self.has_role(machine):
                    if machine.partition(index).is_serving:
                        return machine
            await self.clock.advance(5)
        raise AssertionError("no broker leads")

    async def in_sync(self, *isr: int) -> None:
        """Wait until the ISR is this."""
        for _ in range(4000):
            if (await self.describe()).isr == isr:
                return
            await self.clock.advance(5)
        raise AssertionError(f"the ISR is {(await self.describe()).isr}")

    async def produce(
        self, broker_id: int, data: memoryview, *, acks: int = -1, timeout_ms: int = 5000, index: int = 0
    ) -> ProducePartitionResponse:
        """The answer's one row."""
        rows = (ProducePartition(self.topic_id, index, data),)
        response = await self.call(broker_id, ProduceRequest(acks, timeout_ms, rows))
        row: ProducePartitionResponse = response.partitions[0]
        return row

    async def fetch(self, broker_id: int, offset: int = 0, *, index: int = 0) -> FetchPartitionResponse:
        """A consumer's answer, its one row."""
        rows = (FetchPartition(self.topic_id, index, -1, offset, -1, -1, 1 << 20),)
        response = await self.call(broker_id, FetchRequest(None, -1, -1, 100, 1, 1 << 20, rows))
        row: FetchPartitionResponse = response.partitions[0]
        return row

    async def latest(self, broker_id: int) -> tuple[str, int]:
        """(error, offset) of ListOffsets(latest)."""
        question = ListOffsetsRequest((ListOffsetsPartition(self.topic_id, 0, -1, -1),))
        row = (await self.call(broker_id, question)).partitions[0]
        return ErrorCode(row.error_code).name, row.offset

    async def end(self) -> None:
        """Stop everything at once."""
        for channel in self._channels.values():
            channel.abort()
        for machine in self.machines.values():
            if machine.is_running:
                await machine.kill()
        if self._controller is not None:
            stopping = self._controller_tasks.start("stop", self._controller.stop())
            await self.eventually(lambda: stopping.is_done)
            await self._controller_tasks.cancel_all()
