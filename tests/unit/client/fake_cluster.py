"""Brokers in this process that keep their promises: one shared log a partition, leaders, producer state.

Replication is assumed perfect: every broker sees the same log, so a test decides only who leads, what gets
refused and which answers are lost. Rules of the producer state are R90-R93; there is no disk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import metadata as m
from holdfast.protocol.messages.features import DescribedFeature
from holdfast.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
)
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartitionResponse,
    OffsetForLeaderEpochResponse,
)
from holdfast.protocol.messages.produce import ProducePartition, ProducePartitionResponse, ProduceResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdResponse
from holdfast.protocol.messages.quorum import DescribeQuorumResponse
from holdfast.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsResponse,
    TopicPartitionCursor,
)
from holdfast.protocol.record_batch import BatchHeader, check_batch, iter_batches, stamp
from holdfast.rpc.server import Exchange, Server
from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.machine import MemoryWorld
from tests.unit.client.fake_groups import FakeGroups

SEQUENCES = 1 << 31
GROUP_APIS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.GROUP_HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)

#: What is answered by the book of the test: the controller's own tests say what it answers.
SCRIPTED_APIS = (
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.GET_REPLICA_LOG_INFO,
)


@dataclass
class ProducerEntry:
    """R90: epoch and the last five batches as (first sequence, last sequence, base offset)."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class FakePartition:
    leader_id: int
    leader_epoch: int = 1
    log_start: int = 0
    log: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    #: producers may have expired: one that is not known goes on with any sequence (R93)
    forgets: bool = False
    #: end of the committed part when it lags behind the log
    high_watermark: int | None = None
    high_watermark_known: bool = True

    @property
    def end(self) -> int:
        return self.log[-1][0].next_offset if self.log else self.log_start

    @property
    def committed(self) -> int:
        return self.end if self.high_watermark is None else min(self.high_watermark, self.end)

    def check(self, header: BatchHeader) -> tuple[ErrorCode, int]:
        """NONE and -1 to append, NONE and an offset for a duplicate (R91), else a refusal (R92, R93)."""
        if header.producer_id < 0:
            return ErrorCode.NONE, -1
        entry = self.producers.get(header.producer_id)
        if entry is None:
            is_gap = header.base_sequence and not self.forgets
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_gap else ErrorCode.NONE), -1
        if header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > entry.epoch:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if header.base_sequence else ErrorCode.NONE), -1
        for first, last, offset in entry.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        if header.base_sequence != (entry.batches[-1][1] + 1) % SEQUENCES:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        header = check_batch(records)
        code, offset = self.check(header)
        if code is not ErrorCode.NONE or offset >= 0:
            return code, offset
        offset = self.end
        stamped = b"".join(stamp(records, offset, self.leader_epoch))
        self.log.append((check_batch(stamped), stamped))
        if header.producer_id >= 0:
            entry = self.producers.setdefault(header.producer_id, ProducerEntry(header.producer_epoch))
            if entry.epoch != header.producer_epoch:
                self.producers[header.producer_id] = entry = ProducerEntry(header.producer_epoch)
            entry.batches.append((header.base_sequence, header.last_sequence, offset))
            del entry.batches[:-5]
        return ErrorCode.NONE, offset


#: what a test may do to a produce row: return a code to refuse it before the append
Judge = Callable[["FakeBroker", ProducePartition], ErrorCode | None]


class FakeBroker:
    """One broker of the cluster; `port` is its address on 127.0.0.1."""

    def __init__(self, cluster: "FakeCluster", broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.port = 0
        self.server: Server | None = None
        self.requests: list[tuple[ApiKey, Any]] = []
        #: produce requests are appended, then their connections die instead of the answer
        self.answers_lost = 0
        #: as above, but this broker says that it never heard what became of them
        self.outcomes_unknown = 0
        #: requests that get no answer at all, and are not carried out
        self.is_deaf = False
        #: requests are refused as a whole: the logs are being recovered
        self.is_starting = False
        self.judge: Judge | None = None
        #: the metadata of more topics are too large for an answer
        self.metadata_topics_max = 1 << 30
        #: the metadata of this topic alone are, too
        self.too_large_topic = ""
        #: errors that the next answers carry, by API
        self.errors: dict[ApiKey, list[ErrorCode]] = {}

    async def start(self, runtime: Runtime, port: int = 0) -> None:
        apis = {
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._epoch_ends,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.DELETE_TOPICS: self._delete_topics,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe_topics,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_QUORUM: self._describe_quorum,
            **dict.fromkeys(SCRIPTED_APIS, self._scripted),
            **dict.fromkeys(GROUP_APIS, self._group),
        }
        handlers = {key: self._recorded(handler) for key, handler in apis.items()}
        self.server = Server(runtime, self.broker_id, "PLAINTEXT", handlers)
        self.port = await self.server.start("127.0.0.1", port)

    def asked(self, key: ApiKey) -> list[Any]:
        return [message for api, message in self.requests if api is key]

    def _recorded(self, handler: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        def handle(exchange: Exchange) -> None:
            self.requests.append((exchange.api_key, exchange.message))
            if self.is_starting:
                exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, "starting")
            elif not self.is_deaf:
                handler(exchange)

        return handle

    def _answer(self, exchange: Exchange, response: Any) -> None:
        """Answer, unless the test wants the answer lost."""
        if self.answers_lost > 0:
            self.answers_lost -= 1
            self.cluster.world.network.reset_connections(self.port)
        elif self.outcomes_unknown > 0:
            self.outcomes_unknown -= 1
            exchange.fail(ErrorCode.NETWORK_EXCEPTION, "the controller was asked and did not answer")
        else:
            exchange.respond(response)

    def _error(self, key: ApiKey) -> ErrorCode:
        waiting = self.errors.get(key)
        return waiting.pop(0) if waiting else ErrorCode.NONE

    def _group(self, exchange: Exchange) -> None:
        assert self.cluster.groups is not None
        self.cluster.groups.handle(self, exchange, self.cluster.world.clock.now_ms())

    # --- data ---------------------------------------------------------------------------------------------

    def _produce(self, exchange: Exchange) -> None:
        rows = []
        for row in exchange.message.partitions:
            partition = self.cluster.by_id(row.topic_id, row.partition_index)
            code, offset = self._append(partition, row)
            leader, epoch = (partition.leader_id, partition.leader_epoch) if partition else (-1, -1)
            rows.append(
                ProducePartitionResponse(
                    row.topic_id, row.partition_index, code, None, offset, 0, leader, epoch
                )
            )
        if exchange.message.required_acks == 0:
            refused = [row.error_code for row in rows if row.error_code is not ErrorCode.NONE]
            exchange.hang_up(ErrorCode(refused[0]).name) if refused else exchange.drop()
        else:
            self._answer(exchange, ProduceResponse(tuple(rows)))

    def _append(self, partition: FakePartition | None, row: ProducePartition) -> tuple[ErrorCode, int]:
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, -1
        if partition.leader_id != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        code = self._error(ApiKey.PRODUCE)
        if code is ErrorCode.NONE and self.judge is not None:
            code = self.judge(self, row) or ErrorCode.NONE
        if code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            partition.append(row.records)
        if code is not ErrorCode.NONE:
            return code, -1
        return partition.append(row.records)

    def _fetch(self, exchange: Exchange) -> None:
        rows = [self._read(row) for row in exchange.message.partitions]
        if any(row.records or row.error_code or row.diverging_epoch for row in rows):
            exchange.respond(FetchResponse(ErrorCode.NONE, None, tuple(rows)))
            return
        wait_ms = exchange.message.max_wait_ms

        def answer() -> None:
            if exchange.is_open:
                late = tuple(self._read(row) for row in exchange.message.partitions)
                exchange.respond(FetchResponse(ErrorCode.NONE, None, late))

        self.cluster.world.clock.call_later(wait_ms, answer)

    def _read(self, row: FetchPartition) -> FetchPartitionResponse:
        partition = self.cluster.by_id(row.topic_id, row.partition_index)
        code = self._error(ApiKey.FETCH)
        if partition is None:
            code, partition = ErrorCode.UNKNOWN_TOPIC_ID, FakePartition(-1, -1)
        elif code is ErrorCode.NONE:
            code = self._may_read(partition, row)
        diverging = None
        records: list[bytes] = []
        if code is ErrorCode.NONE and row.last_fetched_epoch >= 0:
            known = [h for h, _ in partition.log if h.leader_epoch <= row.last_fetched_epoch]
            epoch, end = (known[-1].leader_epoch, known[-1].next_offset) if known else (-1, 0)
            if (known and epoch < row.last_fetched_epoch) or end < row.fetch_offset:
                diverging = EpochEndOffset(epoch, end)
        if code is ErrorCode.NONE and diverging is None:
            if not partition.log_start <= row.fetch_offset <= partition.end:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            for header, data in partition.log:
                if header.next_offset > row.fetch_offset and header.next_offset <= partition.committed:
                    records.append(data)
                    if sum(map(len, records)) >= row.max_bytes:
                        break
        watermark = partition.committed if partition.high_watermark_known else -1
        return FetchPartitionResponse(
            row.topic_id,
            row.partition_index,
            code,
            watermark,
            partition.log_start,
            -1,
            diverging,
            partition.leader_id,
            partition.leader_epoch,
            records,  # type: ignore[arg-type]
        )

    def _may_read(self, partition: FakePartition, row: Any) -> ErrorCode:
        if partition.leader_id != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= row.current_leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if row.current_leader_epoch > partition.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    def _list_offsets(self, exchange: Exchange) -> None:
        rows = []
        for row in exchange.message.partitions:
            partition = self.cluster.by_id(row.topic_id, row.partition_index)
            assert partition is not None
            code = self._error(ApiKey.LIST_OFFSETS) or self._may_read(partition, row)
            offset, timestamp = -1, -1
            if code == ErrorCode.NONE:
                if row.timestamp == LATEST_TIMESTAMP:
                    offset = partition.committed
                elif row.timestamp == EARLIEST_TIMESTAMP:
                    offset = partition.log_start
                else:
                    for header, _ in partition.log:
                        if header.max_timestamp >= row.timestamp:
                            offset, timestamp = header.base_offset, header.max_timestamp
                            break
            rows.append(
                ListOffsetsPartitionResponse(
                    row.topic_id, row.partition_index, code, timestamp, offset, partition.leader_epoch
                )
            )
        exchange.respond(ListOffsetsResponse(ErrorCode.NONE, None, tuple(rows)))

    def _epoch_ends(self, exchange: Exchange) -> None:
        rows = []
        for row in exchange.message.partitions:
            partition = self.cluster.by_id(row.topic_id, row.partition_index)
            assert partition is not None
            code = self._error(ApiKey.OFFSET_FOR_LEADER_EPOCH) or self._may_read(partition, row)
            known = [head for head, _ in partition.log if head.leader_epoch <= row.leader_epoch]
            found = (known[-1].leader_epoch, known[-1].next_offset) if known and not code else (-1, -1)
            rows.append(EpochPartitionResponse(row.topic_id, row.partition_index, code, *found))
        exchange.respond(OffsetForLeaderEpochResponse(ErrorCode.NONE, None, tuple(rows)))

    # --- the rest -----------------------------------------------------------------------------------------

    def _metadata(self, exchange: Exchange) -> None:
        names = exchange.message.topics or ()
        if len(names) > self.metadata_topics_max or self.too_large_topic in names:
            exchange.fail(ErrorCode.MESSAGE_TOO_LARGE, "the answer would be too large")
        else:
            exchange.respond(self.cluster.metadata(exchange.message.topics))

    def _init_producer_id(self, exchange: Exchange) -> None:
        code = self._error(ApiKey.INIT_PRODUCER_ID)
        if code is not ErrorCode.NONE:
            exchange.respond(InitProducerIdResponse(code, "later", -1, -1))
        elif exchange.message.producer_id >= 0:
            epoch = exchange.message.producer_epoch + 1
            exchange.respond(InitProducerIdResponse(0, None, exchange.message.producer_id, epoch))
        else:
            self.cluster.next_producer_id += 1
            exchange.respond(InitProducerIdResponse(0, None, self.cluster.next_producer_id, 0))

    def _create_topics(self, exchange: Exchange) -> None:
        code = self._error(ApiKey.CREATE_TOPICS)
        rows = []
        for topic in exchange.message.topics if code is ErrorCode.NONE else ():
            exists = topic.name in self.cluster.topics
            if not exists:
                self.cluster.add_topic(topic.name, topic.num_partitions)
            row_code = ErrorCode.TOPIC_ALREADY_EXISTS if exists else ErrorCode.NONE
            topic_id = self.cluster.topic_ids[topic.name]
            counts = (topic.num_partitions, 3, 2)
            rows.append(CreatableTopicResult(topic.name, topic_id, row_code, None, *counts))
        self._answer(exchange, CreateTopicsResponse(code, None, tuple(rows)))

    def _delete_topics(self, exchange: Exchange) -> None:
        rows = []
        for name in exchange.message.names:
            known = self.cluster.topics.pop(name, None) is not None
            topic_id = self.cluster.topic_ids.pop(name, bytes(16))
            code = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(DeletableTopicResult(name, topic_id, code, None))
        self._answer(exchange, DeleteTopicsResponse(0, None, tuple(rows)))

    def _describe_topics(self, exchange: Exchange) -> None:
        """Two partitions an answer, so that cursors are needed."""
        request = exchange.message
        wanted = sorted(request.topics or self.cluster.topics)
        topics: list[DescribedTopic] = []
        room, cursor = 2, None
        for name in wanted:
            if name not in self.cluster.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(DescribedTopic(code, name, bytes(16), False, (), ()))
                continue
            start = 0
            if request.cursor is not None:
                if name < request.cursor.topic_name:
                    continue
                if name == request.cursor.topic_name:
                    start = request.cursor.partition_index
            partitions = self.cluster.topics[name]
            if room == 0:
                cursor = TopicPartitionCursor(name, start)
                break
            shown = range(start, min(len(partitions), start + room))
            room -= len(shown)
            described = tuple(self._described(index, partitions[index]) for index in shown)
            topics.append(DescribedTopic(0, name, self.cluster.topic_ids[name], False, (), described))
            if shown.stop < len(partitions):
                cursor = TopicPartitionCursor(name, shown.stop)
                break
        exchange.respond(DescribeTopicPartitionsResponse(0, None, tuple(topics), cursor))

    @staticmethod
    def _described(index: int, partition: FakePartition) -> DescribedPartition:
        leader, epoch = partition.leader_id, partition.leader_epoch
        return DescribedPartition(0, index, leader, epoch, 1, (1, 2, 3), (1, 2, 3), (), (), -1, 2, 0, ())

    def _describe_cluster(self, exchange: Exchange) -> None:
        brokers = tuple(
            m.DescribeClusterBroker(
                number,
                7,
                bytes(16),
                "127.0.0.1",
                broker.port,
                None,
                number in self.cluster.fenced,
                False,
                True,
            )
            for number, broker in sorted(self.cluster.brokers.items())
        )
        exchange.respond(
            m.DescribeClusterResponse(
                0, None, "fake", 101, 5, self.cluster.offset, brokers, self.cluster.features
            )
        )

    def _scripted(self, exchange: Exchange) -> None:
        self._answer(exchange, self.cluster.scripted.pop(0))

    def _describe_quorum(self, exchange: Exchange) -> None:
        code = self._error(ApiKey.DESCRIBE_QUORUM)
        exchange.respond(DescribeQuorumResponse(code, None, 101, 5, 10, (), ()))


class FakeCluster:
    """Brokers 1..n, their topics, and what a test does to them."""

    def __init__(self, runtime: Runtime, world: MemoryWorld) -> None:
        self.runtime = runtime
        self.world = world
        self.brokers: dict[int, FakeBroker] = {}
        self.topics: dict[str, list[FakePartition]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.offset = 100
        self.next_producer_id = 6
        self._topics_made = 0
        self.groups: FakeGroups | None = None
        #: a dead broker stays in the answers until a test says that the controller fenced it
        self.fenced: set[int] = set()
        self.features: tuple[DescribedFeature, ...] = ()
        #: answers to requests of SCRIPTED_APIS in order, whichever broker is asked
        self.scripted: list[Any] = []

    async def start(self, count: int = 3) -> None:
        for broker_id in range(1, count + 1):
            broker = self.brokers[broker_id] = FakeBroker(self, broker_id)
            await broker.start(self.runtime)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def add_topic(self, name: str, partitions: int, leader_id: int | None = None) -> list[FakePartition]:
        self._topics_made += 1
        self.offset += 1
        self.topic_ids[name] = self._topics_made.to_bytes(16, "big")
        made = [FakePartition(leader_id or 1 + index % len(self.brokers)) for index in range(partitions)]
        self.topics[name] = made
        return made

    def delete_topic(self, name: str) -> None:
        del self.topics[name], self.topic_ids[name]
        self.offset += 1

    def by_id(self, topic_id: bytes, index: int) -> FakePartition | None:
        for name, known in self.topic_ids.items():
            if known == topic_id and index < len(self.topics[name]):
                return self.topics[name][index]
        return None

    def move_leader(self, topic: str, index: int, leader_id: int) -> None:
        partition = self.topics[topic][index]
        partition.leader_id = leader_id
        partition.leader_epoch += 1
        self.offset += 1

    def kill(self, broker_id: int) -> None:
        """kill -9: connections are reset, new ones refused; leadership does not move by itself."""
        self.world.network.kill(self.brokers[broker_id].port)

    async def restart(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        await broker.start(self.runtime, broker.port)

    def metadata(self, names: tuple[str, ...] | None) -> m.MetadataResponse:
        brokers = tuple(
            m.MetadataBroker(broker.broker_id, "127.0.0.1", broker.port, None)
            for broker in self.brokers.values()
            if broker.broker_id not in self.fenced
        )
        topics = []
        for name in names if names is not None else sorted(self.topics):
            if name not in self.topics:
                topics.append(m.MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, bytes(16), ()))
                continue
            rows = tuple(
                m.MetadataPartition(0, index, p.leader_id, p.leader_epoch, (1, 2, 3), (1, 2, 3), ())
                for index, p in enumerate(self.topics[name])
            )
            topics.append(m.MetadataTopic(0, name, self.topic_ids[name], rows))
        return m.MetadataResponse("fake", 101, self.offset, brokers, tuple(topics))

    def values(self, topic: str, index: int) -> list[bytes]:
        """Values of all records in the log, decoded by the plain codec of `protocol`."""
        from holdfast.protocol.record_batch import decode_records

        found: list[bytes] = []
        for _, data in self.topics[topic][index].log:
            for _, batch in iter_batches(data):
                found += [record.value or b"" for record in decode_records(batch)]
        return found
