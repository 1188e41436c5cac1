"""A node that serves planted logs over the real wire, such as no honest broker would ever hold.

One thread with an event loop of its own, so that Spark's worker processes can read while the test waits.
"""

import asyncio
import struct
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    ConfigSource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from holdfast.protocol.messages.fetch import FetchPartition, FetchPartitionResponse, FetchResponse
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from holdfast.protocol.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartitionResponse,
    OffsetForLeaderEpochResponse,
)
from holdfast.protocol.messages.topics import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsResponse,
)
from holdfast.protocol.record_batch import BatchHeader, iter_batches, parse_header
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.rpc.server import Exchange, Server
from holdfast.runtime.real.machine import new_event_loop, real_runtime

NODE_ID = 1
LEADER_EPOCH = 3

#: the batches of one partition, ready to serve
Log = Sequence[bytes]


class PlantedLogs:
    """`with PlantedLogs({("t", 0): [batch, ...]}) as node: node.address`."""

    def __init__(
        self,
        logs: Mapping[tuple[str, int], Log],
        silent_from: Mapping[tuple[str, int], int] | None = None,
        *,
        replicas: tuple[int, ...] = (NODE_ID,),
        first_ends: Mapping[tuple[str, int], int] | None = None,
        compacted: Sequence[str] = (),
        leaving: Sequence[int] = (),
    ) -> None:
        """`replicas`: as the metadata has them, all in sync, but for those `leaving` only until they were
        described once. `first_ends`: what the first question about a
        partition's end is answered, as if records came in afterwards. `compacted`: topics."""
        self._compacted = set(compacted)
        #: topics, and partitions, that metadata does not have
        self._hidden: set[str | tuple[str, int]] = set()
        #: topic -> why its configs are not told
        self._refused_configs: dict[str, ErrorCode] = {}
        self._replicas = replicas
        self._isr = replicas
        self._leaving = set(leaving)
        self._first_ends = dict(first_ends or {})
        #: partitions that have nothing to say from this offset on, although they claim a later end
        self._silent_from = dict(silent_from or {})
        self._logs = {place: _parsed(log) for place, log in logs.items()}
        self._topics = sorted({topic for topic, _ in logs})
        self._ids = {topic: index.to_bytes(16, "big") for index, topic in enumerate(self._topics, 7)}
        self._names = {topic_id: topic for topic, topic_id in self._ids.items()}
        self._begins: dict[tuple[str, int], int] = {}
        self._described_epochs: dict[tuple[str, int], int] = {}
        self._port = 0
        self._started = threading.Event()
        self._loop = new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> "PlantedLogs":
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        handlers = {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._epoch_ends,
            ApiKey.FETCH: self._fetch,
        }
        runtime = real_runtime()
        server = Server(runtime, NODE_ID, "PLAINTEXT", handlers)
        self._port = await server.start("127.0.0.1", 0)
        self._started.set()
        await self._stop.wait()
        await server.close()
        await runtime.tasks.cancel_all()

    def plant(self, topic: str, partition: int, log: Log, *, begins: int = 0) -> None:
        """Another log for this partition, which may be a new one, also of a new topic; `begins`: where an
        empty one begins."""
        if topic not in self._ids:
            self._ids[topic] = (7 + len(self._ids)).to_bytes(16, "big")
            self._names[self._ids[topic]] = topic
            self._topics.append(topic)
        self._logs[topic, partition] = _parsed(log)
        self._begins[topic, partition] = begins

    def elect_unseen(self, topic: str, partition: int, log: Log) -> None:
        """A leader whose metadata is still that of the epoch before it, with this log."""
        self._described_epochs[topic, partition] = self._leader_epoch(topic, partition)
        self.plant(topic, partition, log)

    def compact(self, topic: str) -> None:
        """Its `cleanup.policy` has `compact` from now on."""
        self._compacted.add(topic)

    def hide(self, *what: str | tuple[str, int]) -> None:
        """Metadata no longer has these topics and partitions, as that of a broker that lags."""
        self._hidden.update(what)

    def show(self) -> None:
        """Metadata has everything again."""
        self._hidden.clear()

    def refuse_configs(self, topic: str, code: ErrorCode) -> None:
        """Its configs are not told."""
        self._refused_configs[topic] = code

    def topic_id(self, topic: str) -> bytes:
        """Its id now."""
        return self._ids[topic]

    def make_again(self, topic: str) -> None:
        """The topic has another id from now on."""
        (number,) = struct.unpack(">q", self._ids[topic][8:])
        (times,) = struct.unpack(">q", self._ids[topic][:8])
        self._ids[topic] = struct.pack(">qq", times + 1, number)
        self._names[self._ids[topic]] = topic

    def _leader_epoch(self, topic: str, partition: int) -> int:
        log = self._logs[topic, partition]
        return max(LEADER_EPOCH, log[-1][0].leader_epoch) if log else LEADER_EPOCH

    def _described_epoch(self, topic: str, partition: int) -> int:
        return self._described_epochs.get((topic, partition), self._leader_epoch(topic, partition))

    def _partitions(self, topic: str) -> list[int]:
        return sorted(
            index for name, index in self._logs if name == topic and (name, index) not in self._hidden
        )

    def _end(self, topic: str, partition: int) -> tuple[int, int]:
        log = self._logs[topic, partition]
        begins = self._begins.get((topic, partition), 0)
        return (log[0][0].base_offset, log[-1][0].next_offset) if log else (begins, begins)

    def _metadata(self, exchange: Exchange) -> None:
        asked = self._topics if exchange.message.topics is None else exchange.message.topics
        none = (NODE_ID,)
        rows = []
        for name in sorted(asked):
            if name not in self._ids or name in self._hidden:
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                rows.append(MetadataTopic(code, name, bytes(16), ()))
                continue
            partitions = tuple(
                MetadataPartition(0, index, NODE_ID, self._described_epoch(name, index), none, none, ())
                for index in self._partitions(name)
            )
            rows.append(MetadataTopic(0, name, self._ids[name], partitions))
        brokers = (MetadataBroker(NODE_ID, "127.0.0.1", self._port, None),)
        exchange.respond(MetadataResponse("planted", NODE_ID, 1, brokers, tuple(rows)))

    def _describe_cluster(self, exchange: Exchange) -> None:
        address = ("127.0.0.1", self._port)
        row = DescribeClusterBroker(NODE_ID, 1, bytes(16), *address, None, False, False, True)
        exchange.respond(DescribeClusterResponse(0, None, "planted", NODE_ID, 1, 0, (row,), ()))

    def _describe_configs(self, exchange: Exchange) -> None:
        rows = []
        for asked in exchange.message.resources:
            code = self._refused_configs.get(asked.resource_name, ErrorCode.NONE)
            if code is not ErrorCode.NONE:
                refused = DescribeConfigsResult(
                    int(code), "not told", asked.resource_type, asked.resource_name, ()
                )
                rows.append(refused)
                continue
            policy = "compact" if asked.resource_name in self._compacted else "delete"
            row = DescribedConfig("cleanup.policy", policy, ConfigSource.DEFAULT, "delete", "enum", "")
            rows.append(DescribeConfigsResult(0, None, asked.resource_type, asked.resource_name, (row,)))
        exchange.respond(DescribeConfigsResponse(0, None, tuple(rows)))

    def _describe(self, exchange: Exchange) -> None:
        rows = []
        for name in sorted(exchange.message.topics or self._topics):
            if name not in self._ids or name in self._hidden:
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                rows.append(DescribedTopic(code, name, bytes(16), False, (), ()))
                continue
            partitions = tuple(
                DescribedPartition(
                    0, index, NODE_ID, epoch, 0, self._replicas, self._isr, (), (), NODE_ID, 1, 0, ()
                )
                for index in self._partitions(name)
                for epoch in [self._described_epoch(name, index)]
            )
            is_internal = name == OFFSETS_TOPIC
            rows.append(DescribedTopic(0, name, self._ids[name], is_internal, (), partitions))
        self._isr = tuple(broker for broker in self._isr if broker not in self._leaving)
        exchange.respond(DescribeTopicPartitionsResponse(0, None, tuple(rows), None))

    def _list_offsets(self, exchange: Exchange) -> None:
        rows = []
        for asked in exchange.message.partitions:
            start, end = self._end(self._names[asked.topic_id], asked.partition_index)
            epoch = self._leader_epoch(self._names[asked.topic_id], asked.partition_index)
            if asked.timestamp >= 0:
                offset = self._offset_by_time(self._names[asked.topic_id], asked)
            elif asked.timestamp == EARLIEST_TIMESTAMP:
                offset = start
            else:
                offset = self._first_ends.pop((self._names[asked.topic_id], asked.partition_index), end)
            rows.append(
                ListOffsetsPartitionResponse(asked.topic_id, asked.partition_index, 0, -1, offset, epoch)
            )
        exchange.respond(ListOffsetsResponse(0, None, tuple(rows)))

    def _offset_by_time(self, topic: str, asked: ListOffsetsPartition) -> int:
        """Batches are as young as their youngest record; -1 when none is as young."""
        log = self._logs[topic, asked.partition_index]
        return next((head.base_offset for head, _ in log if head.max_timestamp >= asked.timestamp), -1)

    def _epoch_ends(self, exchange: Exchange) -> None:
        rows = []
        for asked in exchange.message.partitions:
            log = self._logs[self._names[asked.topic_id], asked.partition_index]
            known = [head for head, _ in log if head.leader_epoch <= asked.leader_epoch]
            epoch, end = (known[-1].leader_epoch, known[-1].next_offset) if known else (-1, -1)
            rows.append(EpochPartitionResponse(asked.topic_id, asked.partition_index, 0, epoch, end))
        exchange.respond(OffsetForLeaderEpochResponse(0, None, tuple(rows)))

    def _fetch(self, exchange: Exchange) -> None:
        rows = tuple(self._row(asked) for asked in exchange.message.partitions)
        exchange.respond(FetchResponse(0, None, rows))

    def _row(self, asked: FetchPartition) -> FetchPartitionResponse:
        place = self._names[asked.topic_id], asked.partition_index
        start, end = self._end(*place)
        found: list[bytes] = []
        size = 0
        code = ErrorCode.NONE if start <= asked.fetch_offset <= end else ErrorCode.OFFSET_OUT_OF_RANGE
        if code is ErrorCode.NONE:
            for header, batch in self._logs[place]:
                if header.next_offset <= asked.fetch_offset:
                    continue
                is_full = bool(found) and size + len(batch) > asked.max_bytes
                if is_full or header.next_offset > self._silent_from.get(place, end):
                    break
                found.append(batch)
                size += len(batch)
        records: Any = found or b""
        return FetchPartitionResponse(
            asked.topic_id,
            asked.partition_index,
            int(code),
            end,
            start,
            -1,
            None,
            NODE_ID,
            LEADER_EPOCH,
            records,
        )


def _parsed(log: Log) -> list[tuple[BatchHeader, bytes]]:
    return [(parse_header(batch), batch) for batch in log]


def damaged(batch: bytes) -> bytes:
    """The batch with its last byte changed, so that its crc no longer holds."""
    assert len(list(iter_batches(batch))) == 1
    return batch[:-1] + bytes([batch[-1] ^ 0x55])
