"""Requests of Kafka clients that are well-formed and absurd: each has its error, and the broker lives on."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.serial import entity_reader

from holdfast.kafka_listener.core.api_table import KafkaApi, response_type
from holdfast.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.runtime.memory.machine import settle
from tests.kafka_clients.raw_client import CLOSED, error_codes, request
from tests.unit.broker.cluster import Cluster
from tests.unit.kafka_listener.test_server import KafkaPeer

PORT = 9101
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
LONG = "x" * 32_767
#: for what waits for time or for others
WAITS = "waits"
BATCH = encode_batch([Record(0, 1, b"k", b"v")], base_offset=0, leader_epoch=0)

Asked = tuple[KafkaApi, int, dict[str, Any]]


class Broker:
    """One broker with the topic `t` of ten partitions, and its listener for Kafka clients."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def ask(self, api: KafkaApi, version: int, fields: dict[str, Any]) -> list[int] | str:
        """Error codes of the answer, each once; CLOSED, or WAITS."""
        peer = KafkaPeer()
        await self.cluster.network.connect("localhost", PORT, peer, 1_000)
        await peer.send(request(api, version, fields))
        for _ in range(200):
            if peer.is_lost or peer.data:
                break
            await self.cluster.advance(5)
        if not peer.is_lost and peer.connection is not None:
            peer.connection.close()
            await settle()
        if not peer.data:
            return CLOSED if peer.is_lost else WAITS
        schema: Any = response_type(api, version)
        entity, _ = entity_reader(schema)(peer.answers[0], 5 if schema.__header_schema__.__flexible__ else 4)
        return sorted(set(error_codes(entity)))

    @property
    def held_bytes(self) -> int:
        """Room that requests take."""
        return sum(self.cluster[1].node._shares.memory.used_bytes.values())


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    listeners = f"PLAINTEXT://localhost:9001,KAFKA://localhost:{PORT}"
    cluster = Cluster(1, listeners=listeners, group_initial_rebalance_delay_ms="0", group_max_size="20")
    await cluster.boot()
    await cluster.call(1, CreateTopicsRequest(5_000, False, (CreatableTopic("t", 10, 1, (), ()),)))
    await cluster.eventually(lambda: len(cluster[1].node.core.partitions) == 10)
    found = Broker(cluster)
    await found.ask(KafkaApi.FIND_COORDINATOR, 2, {"key": "g", "key_type": 0})
    await cluster.eventually(lambda: len(cluster[1].node.core.partitions) == 60)
    yield found
    await cluster.end()


def topic(**fields: Any) -> Asked:
    row = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    message = {"topics": [row | fields], "timeout": INT_MAX, "validate_only": False}
    return KafkaApi.CREATE_TOPICS, 7, message


def assigned(index: int, *broker_ids: int) -> Asked:
    row = {"partition_index": index, "broker_ids": broker_ids}
    return topic(num_partitions=-1, replication_factor=-1, assignments=[row])


def join(**fields: Any) -> Asked:
    times = {"session_timeout": 10_000, "rebalance_timeout": 10_000}
    who = {"group_id": "g", "member_id": "", "group_instance_id": "i", "reason": None}
    how = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    return KafkaApi.JOIN_GROUP, 9, {**times, **who, **how, **fields}


def commit(offset: int, metadata: str | None = "", group_id: str = "c") -> Asked:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -INT_MAX}
    topics = [{"name": "t", "partitions": [row | {"committed_metadata": metadata}]}]
    who = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return KafkaApi.OFFSET_COMMIT, 9, {"group_id": group_id, **who, "topics": topics}


def listed(timestamp: int, index: int = 0, epoch: int = -1) -> Asked:
    row = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
    message = {"replica_id": -INT_MAX, "isolation_level": 127, "timeout": -1}
    return KafkaApi.LIST_OFFSETS, 10, {**message, "topics": [{"name": "t", "partitions": [row]}]}


def delete(offset: int, index: int = 0) -> Asked:
    row = {"name": "t", "partitions": [{"partition_index": index, "offset": offset}]}
    return KafkaApi.DELETE_RECORDS, 2, {"topics": [row], "timeout": INT_MAX}


def write(records: bytes | None, acks: int = -1, name: str = "t", index: int = 0) -> Asked:
    rows = [{"name": name, "partition_data": [{"index": index, "records": records}]}]
    message = {"transactional_id": None, "acks": acks, "timeout": INT_MAX, "topic_data": rows}
    return KafkaApi.PRODUCE, 9, message


def move(*replicas: int) -> Asked:
    rows = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    message = {"timeout": -1, "allow_replication_factor_change": True, "topics": rows}
    return KafkaApi.ALTER_PARTITION_REASSIGNMENTS, 1, message


def quota(rate: float) -> Asked:
    ops = [{"key": "producer_byte_rate", "value": rate, "remove": False}]
    entry = {"entity": [{"entity_type": "client-id", "entity_name": "z"}], "ops": ops}
    return KafkaApi.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}


def grow(count: int) -> Asked:
    row = {"name": "t", "count": count, "assignments": None}
    return KafkaApi.CREATE_PARTITIONS, 3, {"topics": [row], "timeout": 1_000, "validate_only": False}


#: {what: (request, error codes or what else becomes of it)}
TABLE: dict[str, tuple[Asked, list[int] | str]] = {
    "a million partitions": (topic(num_partitions=10**6), [44]),
    "no partitions": (topic(num_partitions=0), [37]),
    "fewer partitions than none": (topic(num_partitions=-INT_MAX - 1), [37]),
    "more replicas than brokers": (topic(replication_factor=32_767), [38]),
    "a topic without a name": (topic(name=""), [17]),
    "a topic of a parent folder": (topic(name=".."), [17]),
    "a topic with a long name": (topic(name=LONG), [17]),
    "a partition before the first": (assigned(-1, 1), [39]),
    "a partition behind a gap": (assigned(5, 1), [39]),
    "the same replica twice": (assigned(0, 1, 1), [39]),
    "thirty thousand replicas": (assigned(0, *range(30_000)), [39]),
    "a retention above all numbers": (
        topic(configs=[{"name": "retention.ms", "value": str(LONG_MAX + 1)}]),
        [40],
    ),
    "a number of many digits": (topic(configs=[{"name": "retention.ms", "value": "9" * 30_000}]), [40]),
    "to a million partitions": (grow(10**6), [44]),
    "to fewer than no partitions": (grow(-1), [37]),
    "move to no replica": (move(), [0, 39]),
    "move to a broker below zero": (move(-1), [0, 39]),
    "move to twenty thousand brokers": (move(*range(20_000)), [0, 39]),
    "the end of time": (listed(LONG_MAX), [0]),
    "before all time": (listed(-LONG_MAX - 1), [42]),
    "an offset of a partition below zero": (listed(-1, -1), [3]),
    "an offset by an epoch that is to come": (listed(-1, 0, INT_MAX), [75]),
    "delete up to the last number": (delete(LONG_MAX), [1]),
    "delete below zero": (delete(-2), [1]),
    "delete in the last partition of all": (delete(0, INT_MAX), [3]),
    "commit the last number": (commit(LONG_MAX), [0]),
    "commit more metadata than may be": (commit(1, "x" * 4_097), [12]),
    "commit a megabyte of metadata": (commit(1, "x" * (1 << 20)), CLOSED),
    "a group with a long name": (commit(1, "", LONG), [24]),
    "a group with a name of a megabyte": (commit(1, "", "x" * (1 << 20)), CLOSED),
    "a member with a session for ever": (join(session_timeout=INT_MAX), [26]),
    "a member with a session of no time": (join(session_timeout=-1), [26]),
    "a member that rebalances for ever": (join(rebalance_timeout=INT_MAX, group_id="r"), [0]),
    "a member without a protocol": (join(protocols=[]), [23]),
    "a member with a megabyte of metadata": (
        join(group_id="m", protocols=[{"name": "range", "metadata": b"x" * (1 << 20)}]),
        [42],
    ),
    "a member of another group": (join(member_id="m-1", group_instance_id=None), [25]),
    "a member with a long name": (join(group_instance_id=LONG, group_id="n"), [42]),
    "a write that waits for seven": (write(BATCH, acks=7), [21]),
    "a write of nothing": (write(None), [87]),
    "a write of two batches in one": (write(BATCH + BATCH), [87]),
    "a write to the offsets of groups": (write(BATCH, name="__consumer_offsets"), [17]),
    "a write to the last partition of all": (write(BATCH, index=INT_MAX), [3]),
    "a rate that is no number": (quota(float("nan")), [42]),
    "a rate without end": (quota(float("inf")), [42]),
    "the coordinator of six thousand groups": (
        (
            KafkaApi.OFFSET_FETCH,
            8,
            {
                "groups": [{"group_id": f"g{number}", "topics": None} for number in range(6_000)],
                "require_stable": True,
            },
        ),
        [0],
    ),
}


async def test_each_absurd_request_has_its_error_and_costs_the_broker_nothing(broker: Broker) -> None:
    found = {what: await broker.ask(*asked) for what, (asked, _) in TABLE.items()}
    unexpected = {what: codes for what, codes in found.items() if codes != TABLE[what][1]}
    assert unexpected == {}
    assert broker.held_bytes == 0
    assert broker.cluster[1].node.is_ready()[0]


async def test_a_crowd_is_refused_and_one_member_that_joins_again_and_again_stays_one(broker: Broker) -> None:
    crowd = [await broker.ask(*join(group_id="crowd", group_instance_id=None)) for _ in range(30)]
    assert crowd == [[79]] * 20 + [[81]] * 10
    again = [await broker.ask(*join(group_id="one")) for _ in range(100)]
    assert set(map(str, again)) == {"[0]"}
    assert broker.held_bytes == 0
