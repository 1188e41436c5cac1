"""Requests good and bad, in an order in which each finds what it needs, and what is answered.

`says` are the error codes of an answer by their names, each once, in order of appearance: of Holdfast and of
Kafka, or of Holdfast alone where Kafka says something else (`kafka`), for a reason (`why`).
"""

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.kafka_listener.core.api_table import KafkaApi as K
from holdfast.protocol.record_batch import Record, encode_batch
from tests.kafka_clients.raw_client import CLOSED, TIMEOUT_S, RawClient, error_codes, frame

NO_ID = bytes(16)
STRANGE_ID = b"no such topic id"
NONE = "none"


@dataclass
class State:
    """What earlier answers have told."""

    #: of the topic `t`
    topic_id: bytes = NO_ID
    producer_id: int = -1
    member_id: str = ""
    generation: int = -1


Fields: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One request. `fields` are those of the API's newest schema, or made from what is known by then."""

    name: str
    api: K
    version: int
    fields: Fields | Callable[[State], Fields]
    says: str
    kafka: str | None = None
    why: str = ""

    @property
    def kafka_says(self) -> str:
        return self.says if self.kafka is None else self.kafka


@dataclass(frozen=True)
class Bytes:
    """A request that is no message of Kafka's, or of no served version."""

    name: str
    data: bytes
    says: str = CLOSED
    kafka: str | None = None
    why: str = ""

    @property
    def kafka_says(self) -> str:
        return self.says if self.kafka is None else self.kafka


# --- pieces of requests ----------------------------------------------------------------------------------


def batch(count: int = 1, **ids: Any) -> bytes:
    records = [Record(number, 1_700_000_000_000, b"k", b"v") for number in range(count)]
    return encode_batch(records, base_offset=0, leader_epoch=-1, **ids)


def with_crc(data: bytearray) -> bytes:
    """The batch with the crc of what it holds now."""
    import google_crc32c

    data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))
    return bytes(data)


def broken_crc() -> bytes:
    return batch()[:-1] + b"?"


def old_magic() -> bytes:
    data = bytearray(batch())
    data[16] = 1
    return bytes(data)


def strange_codec() -> bytes:
    data = bytearray(batch())
    data[22] = 7
    return with_crc(data)


def wrong_count() -> bytes:
    data = bytearray(batch())
    data[57:61] = struct.pack(">i", 5)
    return with_crc(data)


def produce(records: bytes, *, name: str = "t", index: int = 0, acks: int = -1, **more: Any) -> Fields:
    rows = [{"name": name, "partition_data": [{"index": index, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout": 30_000, "topic_data": rows, **more}


def produce_by_id(topic_id: bytes) -> Fields:
    rows = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch()}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": rows}


def sequenced(state: State, first: int, epoch: int = 0) -> Fields:
    return produce(batch(producer_id=state.producer_id, producer_epoch=epoch, base_sequence=first))


def fetch(offset: int, *, name: str = "t", index: int = 0, epoch: int = -1) -> Fields:
    part = {
        "partition": index,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    rows = [{"topic": name, "partitions": [part]}]
    return {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": rows}


def fetch_by_id(topic_id: bytes) -> Fields:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    rows = [{"topic_id": topic_id, "partitions": [part]}]
    return {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": rows}


def offsets(timestamp: int, *, name: str = "t", index: int = 0, epoch: int = -1) -> Fields:
    part = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
    rows = [{"name": name, "partitions": [part]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": rows, "timeout": 1_000}


def epoch_end(leader_epoch: int, *, index: int = 0, current: int = -1) -> Fields:
    part = {"partition": index, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    return {"replica_id": -1, "topics": [{"topic": "t", "partitions": [part]}]}


_METADATA = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def topics(*names: str) -> Fields:
    rows = [{"topic_id": NO_ID, "name": name} for name in names]
    return {**_METADATA, "topics": rows}


def cluster_of(endpoint_type: int) -> Fields:
    return {"endpoint_type": endpoint_type, "include_cluster_authorized_operations": False}


def create(name: str, count: int = 1, factor: int = 1, **more: Any) -> Fields:
    row = {"name": name, "num_partitions": count, "replication_factor": factor, **more}
    return {"topics": [row], "timeout": 30_000, "validate_only": False}


def assigned(*replicas: list[int], count: int = -1) -> Fields:
    rows = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas)]
    return create("by-hand", count, -1, assignments=rows)


def grow(name: str, count: int) -> Fields:
    row = {"name": name, "count": count, "assignments": None}
    return {"topics": [row], "timeout": 30_000, "validate_only": False}


def alter(key: str, value: str | None, *, name: str = "t", kind: int = 2, operation: int = 0) -> Fields:
    configs = [{"name": key, "config_operation": operation, "value": value}]
    row = {"resource_type": kind, "resource_name": name, "configs": configs}
    return {"resources": [row], "validate_only": False}


def replace_configs(*pairs: tuple[str, str | None], name: str = "t", kind: int = 2) -> Fields:
    configs = [{"name": key, "value": value} for key, value in pairs]
    row = {"resource_type": kind, "resource_name": name, "configs": configs}
    return {"resources": [row], "validate_only": False}


def quotas_of(kind: str, match_type: int, match: str | None = None, *, strict: bool = False) -> Fields:
    component = {"entity_type": kind, "match_type": match_type, "match": match}
    return {"components": [component], "strict": strict}


def set_quota(
    kind: str, name: str | None, key: str = "producer_byte_rate", value: float = 1e6, *, remove: bool = False
) -> Fields:
    entity = [{"entity_type": kind, "entity_name": name}]
    ops = [{"key": key, "value": value, "remove": remove}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


def describe_config(kind: int, name: str) -> Fields:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]}


def join(group: str = "g", *, member_id: str = "", session: int = 10_000, protocols: int = 1) -> Fields:
    subscribes_to_t = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
    rows = [{"name": f"p{number}", "metadata": subscribes_to_t} for number in range(protocols)]
    return {
        "group_id": group,
        "session_timeout": session,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": rows,
    }


def in_group(state: State, group: str = "g", **more: Any) -> dict[str, Any]:
    """The fields of a member."""
    return {"group_id": group, "generation_id": state.generation, "member_id": state.member_id, **more}


def sync(state: State) -> Fields:
    rows = [{"member_id": state.member_id, "assignment": b"a"}]
    return in_group(state, protocol_type="consumer", protocol_name="p0", assignments=rows)


def commit(
    group: str, *, name: str = "t", index: int = 0, generation: int = -1, member_id: str = "", size: int = 0
) -> Fields:
    part = {"partition_index": index, "committed_offset": 1, "committed_metadata": "m" * size}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": name, "partitions": [part]}],
    }


def committed(group: str, names: list[str] | None = None) -> Fields:
    rows = None if names is None else [{"name": name, "partition_indexes": [0]} for name in names]
    return {"groups": [{"group_id": group, "topics": rows}], "require_stable": False}


def of_partition(name: str, index: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [{"partition_index": index, **more}]}]


def quorum_of(name: str) -> Fields:
    return {"topics": [{"topic_name": name, "partitions": [{"partition_index": 0}]}]}


def elect(name: str, index: int, kind: int = 0) -> Fields:
    rows = [{"topic": name, "partitions": [index]}]
    return {"election_type": kind, "topic_partitions": rows, "timeout": 30_000}


# --- the transcript --------------------------------------------------------------------------------------

TRANSACTIONS = "Holdfast has no transactions, and says so with a code that no client tries again."

ROWS: tuple[Row | Bytes, ...] = (
    # who is there
    Row(
        "api versions", K.API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"}, NONE
    ),
    Row(
        "api versions, no name",
        K.API_VERSIONS,
        3,
        {"client_software_name": "", "client_software_version": ""},
        NONE,
        "invalid_request",
        "Holdfast does nothing with these names.",
    ),
    Bytes(
        "api versions of the future", frame(18, 77, b"\x02a\x021\0", is_flexible=True), "unsupported_version"
    ),
    Row("describe cluster", K.DESCRIBE_CLUSTER, 1, cluster_of(1), NONE),
    Row("describe cluster, controllers", K.DESCRIBE_CLUSTER, 1, cluster_of(2), "mismatched_endpoint_type"),
    Row("describe cluster, unknown type", K.DESCRIBE_CLUSTER, 1, cluster_of(9), "unsupported_endpoint_type"),
    # topics
    Row("create", K.CREATE_TOPICS, 7, create("t", 2), NONE),
    Row("create what exists", K.CREATE_TOPICS, 7, create("t"), "topic_already_exists"),
    Row("create a bad name", K.CREATE_TOPICS, 7, create("a b"), "invalid_topic_exception"),
    Row("create an empty name", K.CREATE_TOPICS, 7, create(""), "invalid_topic_exception"),
    Row("create too many replicas", K.CREATE_TOPICS, 7, create("r", 1, 9), "invalid_replication_factor"),
    Row("create no partitions", K.CREATE_TOPICS, 7, create("r", 0), "invalid_partitions"),
    Row(
        "create a bad config",
        K.CREATE_TOPICS,
        7,
        create("r", configs=[{"name": "retention.ms", "value": "x"}]),
        "invalid_config",
    ),
    Row(
        "create an unknown config",
        K.CREATE_TOPICS,
        7,
        create("r", configs=[{"name": "nothing", "value": "x"}]),
        "invalid_config",
    ),
    Row("create on an unknown broker", K.CREATE_TOPICS, 7, assigned([9]), "invalid_replica_assignment"),
    Row("create counts and assignment", K.CREATE_TOPICS, 7, assigned([1], count=3), "invalid_request"),
    Row(
        "create a name twice",
        K.CREATE_TOPICS,
        7,
        {"topics": [create("twice")["topics"][0]] * 2},
        "invalid_request",
    ),
    Row("create nothing", K.CREATE_TOPICS, 7, {"topics": []}, ""),
    Row("only validate", K.CREATE_TOPICS, 7, {**create("v"), "validate_only": True}, NONE),
    Row("metadata", K.METADATA, 12, topics("t"), NONE),
    Row("metadata of a missing topic", K.METADATA, 12, topics("missing"), "unknown_topic_or_partition"),
    Row("metadata of a bad name", K.METADATA, 12, topics("a b"), "invalid_topic_exception"),
    Row(
        "metadata of an unknown id",
        K.METADATA,
        12,
        {**_METADATA, "topics": [{"topic_id": STRANGE_ID, "name": None}]},
        "unknown_topic_id",
    ),
    Row(
        "describe partitions",
        K.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": "t"}, {"name": "missing"}]},
        "unknown_topic_or_partition, none",
    ),
    Row("more partitions", K.CREATE_PARTITIONS, 3, grow("t", 3), NONE),
    Row("fewer partitions", K.CREATE_PARTITIONS, 3, grow("t", 1), "invalid_partitions"),
    Row("as many partitions", K.CREATE_PARTITIONS, 3, grow("t", 3), "invalid_partitions"),
    Row(
        "partitions of a missing topic",
        K.CREATE_PARTITIONS,
        3,
        grow("missing", 3),
        "unknown_topic_or_partition",
    ),
    # configurations
    Row("set a value", K.INCREMENTAL_ALTER_CONFIGS, 1, alter("retention.ms", "100000000000000"), NONE),
    Row("set a bad value", K.INCREMENTAL_ALTER_CONFIGS, 1, alter("retention.ms", "x"), "invalid_config"),
    Row("set an unknown key", K.INCREMENTAL_ALTER_CONFIGS, 1, alter("nothing", "x"), "invalid_config"),
    Row("set null", K.INCREMENTAL_ALTER_CONFIGS, 1, alter("retention.ms", None), "invalid_request"),
    Row(
        "append to what is no list",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter("retention.ms", "1", operation=2),
        "invalid_request",
        "invalid_config",
        "Holdfast has no lists: the operation is wrong, not the value.",
    ),
    Row(
        "unknown operation",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter("retention.ms", "1", operation=9),
        "invalid_request",
        "unknown_server_error",
        "Kafka has no code for it; Holdfast takes one that no client tries again.",
    ),
    Row(
        "set of a missing topic",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter("retention.ms", "1", name="missing"),
        "unknown_topic_or_partition",
    ),
    Row(
        "set of an unknown kind",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter("retention.ms", "1", kind=99),
        "invalid_request",
    ),
    Row(
        "remove a throttle",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter("leader.replication.throttled.rate", None, name="1", kind=4, operation=1),
        NONE,
    ),
    Row(
        "remove an unknown key",
        K.INCREMENTAL_ALTER_CONFIGS,
        1,
        alter("nothing", None, operation=1),
        "invalid_config",
        NONE,
        "Holdfast tells of a misspelt key also when it is removed.",
    ),
    Row("set an endless value", K.INCREMENTAL_ALTER_CONFIGS, 1, alter("retention.ms", "1" * 32_768), CLOSED),
    Row("replace values", K.ALTER_CONFIGS, 2, replace_configs(("retention.ms", "100000000000000")), NONE),
    Row(
        "replace by a bad value", K.ALTER_CONFIGS, 2, replace_configs(("retention.ms", "x")), "invalid_config"
    ),
    Row("replace by an unknown key", K.ALTER_CONFIGS, 2, replace_configs(("nothing", "x")), "invalid_config"),
    Row("replace by null", K.ALTER_CONFIGS, 2, replace_configs(("retention.ms", None)), "invalid_request"),
    Row(
        "replace a key twice",
        K.ALTER_CONFIGS,
        2,
        replace_configs(("retention.ms", "1"), ("retention.ms", "2")),
        "invalid_request",
    ),
    Row("replace by nothing", K.ALTER_CONFIGS, 0, replace_configs(), NONE),
    Row(
        "replace values of a missing topic",
        K.ALTER_CONFIGS,
        2,
        replace_configs(("retention.ms", "1"), name="missing"),
        "unknown_topic_or_partition",
    ),
    Row(
        "replace values of an unknown kind",
        K.ALTER_CONFIGS,
        2,
        replace_configs(("retention.ms", "1"), kind=99),
        "invalid_request",
    ),
    # quotas
    Row("set a client's quota", K.ALTER_CLIENT_QUOTAS, 1, set_quota("client-id", "c"), NONE),
    Row("set all clients' quota", K.ALTER_CLIENT_QUOTAS, 1, set_quota("client-id", None), NONE),
    Row(
        "set an unknown quota", K.ALTER_CLIENT_QUOTAS, 1, set_quota("client-id", "c", "x"), "invalid_request"
    ),
    Row(
        "set a quota of 0", K.ALTER_CLIENT_QUOTAS, 1, set_quota("client-id", "c", value=0), "invalid_request"
    ),
    Row(
        "set half a byte", K.ALTER_CLIENT_QUOTAS, 1, set_quota("client-id", "c", value=0.5), "invalid_request"
    ),
    Row(
        "set a quota of an unknown kind", K.ALTER_CLIENT_QUOTAS, 1, set_quota("host", "c"), "invalid_request"
    ),
    Row(
        "set a user's quota",
        K.ALTER_CLIENT_QUOTAS,
        1,
        set_quota("user", "u"),
        "invalid_request",
        NONE,
        "Holdfast has no users.",
    ),
    Row("describe a client's quota", K.DESCRIBE_CLIENT_QUOTAS, 1, quotas_of("client-id", 0, "c"), NONE),
    Row("describe quotas of none", K.DESCRIBE_CLIENT_QUOTAS, 1, quotas_of("client-id", 0, "none"), NONE),
    Row("describe every quota", K.DESCRIBE_CLIENT_QUOTAS, 0, {"components": [], "strict": False}, NONE),
    Row("describe quotas of users", K.DESCRIBE_CLIENT_QUOTAS, 1, quotas_of("user", 2), NONE),
    Row(
        "describe quotas of an unknown kind",
        K.DESCRIBE_CLIENT_QUOTAS,
        1,
        quotas_of("host", 2),
        "invalid_request",
        "unsupported_version",
        "Holdfast serves this version: the kind is wrong.",
    ),
    Row(
        "describe quotas by an unknown match",
        K.DESCRIBE_CLIENT_QUOTAS,
        1,
        quotas_of("client-id", 3),
        "invalid_request",
    ),
    Row(
        "describe a quota without its name",
        K.DESCRIBE_CLIENT_QUOTAS,
        1,
        quotas_of("client-id", 0),
        "invalid_request",
    ),
    Row(
        "remove a client's quota",
        K.ALTER_CLIENT_QUOTAS,
        1,
        set_quota("client-id", "c", remove=True),
        NONE,
    ),
    Row(
        "remove all clients' quota",
        K.ALTER_CLIENT_QUOTAS,
        1,
        set_quota("client-id", None, remove=True),
        NONE,
    ),
    Row("describe a topic's configs", K.DESCRIBE_CONFIGS, 4, describe_config(2, "t"), NONE),
    Row(
        "describe a missing topic's configs",
        K.DESCRIBE_CONFIGS,
        4,
        describe_config(2, "missing"),
        "unknown_topic_or_partition",
    ),
    Row("describe a broker's configs", K.DESCRIBE_CONFIGS, 4, describe_config(4, "1"), NONE),
    Row(
        "describe an unknown broker's configs",
        K.DESCRIBE_CONFIGS,
        4,
        describe_config(4, "9"),
        "invalid_request",
    ),
    Row(
        "describe configs of an unknown kind",
        K.DESCRIBE_CONFIGS,
        4,
        describe_config(99, "t"),
        "invalid_request",
    ),
    # records in
    Row("write", K.PRODUCE, 9, produce(batch(3)), NONE),
    Row(
        "write to a missing topic",
        K.PRODUCE,
        9,
        produce(batch(), name="missing"),
        "unknown_topic_or_partition",
    ),
    Row(
        "write to a missing partition", K.PRODUCE, 9, produce(batch(), index=99), "unknown_topic_or_partition"
    ),
    Row("write with acks 5", K.PRODUCE, 9, produce(batch(), acks=5), "invalid_required_acks"),
    Row("write a broken crc", K.PRODUCE, 9, produce(broken_crc()), "corrupt_message"),
    Row(
        "write an old format",
        K.PRODUCE,
        9,
        produce(old_magic()),
        "unsupported_for_message_format",
        "invalid_record",
        "Holdfast names the format; both codes are final.",
    ),
    Row(
        "write an unknown codec",
        K.PRODUCE,
        9,
        produce(strange_codec()),
        "unsupported_compression_type",
        "unknown_server_error",
        "Kafka has no code for it; Holdfast names the compression.",
    ),
    Row("write a wrong count", K.PRODUCE, 9, produce(wrong_count()), "invalid_record"),
    Row("write half a batch", K.PRODUCE, 9, produce(batch()[:40]), "invalid_record"),
    Row("write nothing", K.PRODUCE, 9, produce(b""), "invalid_record"),
    Row("write two batches", K.PRODUCE, 9, produce(batch() + batch()), "invalid_record"),
    Row("write too much", K.PRODUCE, 9, produce(batch(120_000)), "message_too_large"),
    Row("write by id", K.PRODUCE, 13, lambda state: produce_by_id(state.topic_id), NONE),
    Row("write by an unknown id", K.PRODUCE, 13, produce_by_id(STRANGE_ID), "unknown_topic_id"),
    Row(
        "a producer id",
        K.INIT_PRODUCER_ID,
        4,
        {"transactional_id": None, "transaction_timeout": 60_000},
        NONE,
    ),
    Row("a sequence", K.PRODUCE, 9, lambda state: sequenced(state, 0), NONE),
    Row("the same again", K.PRODUCE, 9, lambda state: sequenced(state, 0), NONE),
    Row("a gap", K.PRODUCE, 9, lambda state: sequenced(state, 5), "out_of_order_sequence_number"),
    Row("a new epoch", K.PRODUCE, 9, lambda state: sequenced(state, 0, epoch=1), NONE),
    Row("an old epoch", K.PRODUCE, 9, lambda state: sequenced(state, 1), "invalid_producer_epoch"),
    Row(
        "a transactional write",
        K.PRODUCE,
        9,
        produce(batch(), transactional_id="x"),
        "transactional_id_authorization_failed",
        NONE,
        TRANSACTIONS,
    ),
    Row(
        "a transactional producer",
        K.INIT_PRODUCER_ID,
        4,
        {"transactional_id": "x", "transaction_timeout": 60_000},
        "transactional_id_authorization_failed",
        "not_coordinator",
        TRANSACTIONS,
    ),
    # records out
    Row("read", K.FETCH, 12, fetch(0), NONE),
    Row("read at the end", K.FETCH, 12, fetch(6), NONE),
    Row("read behind the end", K.FETCH, 12, fetch(999), "none, offset_out_of_range"),
    Row("read a missing topic", K.FETCH, 12, fetch(0, name="missing"), "none, unknown_topic_or_partition"),
    Row("read a missing partition", K.FETCH, 12, fetch(0, index=99), "none, unknown_topic_or_partition"),
    Row("read with a future epoch", K.FETCH, 12, fetch(0, epoch=9), "none, unknown_leader_epoch"),
    Row("read by id", K.FETCH, 16, lambda state: fetch_by_id(state.topic_id), NONE),
    Row("read by an unknown id", K.FETCH, 16, fetch_by_id(STRANGE_ID), "none, unknown_topic_id"),
    Row(
        "read in an unknown session",
        K.FETCH,
        12,
        {**fetch(0), "session_id": 7, "session_epoch": 3},
        "fetch_session_id_not_found",
    ),
    Row("the latest offset", K.LIST_OFFSETS, 7, offsets(-1), NONE),
    Row("the earliest offset", K.LIST_OFFSETS, 7, offsets(-2), NONE),
    Row("the offset of the largest time", K.LIST_OFFSETS, 7, offsets(-3), NONE),
    Row("an offset by time", K.LIST_OFFSETS, 7, offsets(1), NONE),
    Row(
        "the offset of a missing partition",
        K.LIST_OFFSETS,
        7,
        offsets(-1, index=99),
        "unknown_topic_or_partition",
    ),
    Row("an offset with a future epoch", K.LIST_OFFSETS, 7, offsets(-1, epoch=9), "unknown_leader_epoch"),
    Row("the end of an epoch", K.OFFSET_FOR_LEADER_EPOCH, 4, epoch_end(0), NONE),
    Row(
        "the end in a missing partition",
        K.OFFSET_FOR_LEADER_EPOCH,
        4,
        epoch_end(0, index=99),
        "unknown_topic_or_partition",
    ),
    Row(
        "the end with a future epoch",
        K.OFFSET_FOR_LEADER_EPOCH,
        4,
        epoch_end(0, current=9),
        "unknown_leader_epoch",
    ),
    # groups
    Row("find a coordinator", K.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}, NONE),
    Row(
        "find a coordinator of a strange kind",
        K.FIND_COORDINATOR,
        4,
        {"key_type": 9, "coordinator_keys": ["g"]},
        "invalid_request",
    ),
    Row("join without a group", K.JOIN_GROUP, 9, join(""), "invalid_group_id"),
    Row("join as an unknown member", K.JOIN_GROUP, 9, join(member_id="who"), "unknown_member_id"),
    Row("join with a short session", K.JOIN_GROUP, 9, join(session=1), "invalid_session_timeout"),
    Row("join without protocols", K.JOIN_GROUP, 9, join(protocols=0), "inconsistent_group_protocol"),
    Row("join at first", K.JOIN_GROUP, 9, join(), "member_id_required"),
    Row("join", K.JOIN_GROUP, 9, lambda state: join(member_id=state.member_id), NONE),
    Row(
        "sync in another generation",
        K.SYNC_GROUP,
        5,
        lambda state: {**sync(state), "generation_id": 99},
        "illegal_generation",
    ),
    Row(
        "sync with another protocol",
        K.SYNC_GROUP,
        5,
        lambda state: {**sync(state), "protocol_name": "p9"},
        "inconsistent_group_protocol",
    ),
    Row("sync", K.SYNC_GROUP, 5, sync, NONE),
    Row("heartbeat", K.HEARTBEAT, 4, in_group, NONE),
    Row(
        "heartbeat of another generation",
        K.HEARTBEAT,
        4,
        lambda state: {**in_group(state), "generation_id": 99},
        "illegal_generation",
    ),
    Row(
        "heartbeat of an unknown member",
        K.HEARTBEAT,
        4,
        lambda state: {**in_group(state), "member_id": "who"},
        "unknown_member_id",
    ),
    Row(
        "heartbeat in an unknown group",
        K.HEARTBEAT,
        4,
        lambda state: in_group(state, "unknown"),
        "unknown_member_id",
    ),
    Row(
        "commit as a member",
        K.OFFSET_COMMIT,
        9,
        lambda state: commit("g", generation=state.generation, member_id=state.member_id),
        NONE,
    ),
    Row(
        "commit in another generation",
        K.OFFSET_COMMIT,
        9,
        lambda state: commit("g", generation=99, member_id=state.member_id),
        "illegal_generation",
    ),
    Row("commit past the members", K.OFFSET_COMMIT, 9, commit("g"), "unknown_member_id"),
    Row("commit without a group", K.OFFSET_COMMIT, 9, commit(""), NONE),
    Row("commit in a simple group", K.OFFSET_COMMIT, 9, commit("simple"), NONE),
    Row(
        "commit of a missing topic",
        K.OFFSET_COMMIT,
        9,
        commit("simple", name="missing"),
        "unknown_topic_or_partition",
    ),
    Row(
        "commit of a missing partition",
        K.OFFSET_COMMIT,
        9,
        commit("simple", index=99),
        "unknown_topic_or_partition",
    ),
    Row(
        "commit with much metadata",
        K.OFFSET_COMMIT,
        9,
        commit("simple", size=5_000),
        "offset_metadata_too_large",
    ),
    Row(
        "commit of a member of no group",
        K.OFFSET_COMMIT,
        9,
        commit("none", generation=3, member_id="who"),
        "illegal_generation",
        "group_id_not_found",
        "Holdfast's code is the one on which every client joins again.",
    ),
    Row("committed", K.OFFSET_FETCH, 9, committed("g"), NONE),
    Row("committed of a partition", K.OFFSET_FETCH, 9, committed("g", ["t"]), NONE),
    Row("committed of an unknown group", K.OFFSET_FETCH, 9, committed("unknown"), NONE),
    Row(
        "committed as an unknown member",
        K.OFFSET_FETCH,
        9,
        {"groups": [{"group_id": "g", "member_id": "who", "member_epoch": 3, "topics": None}]},
        NONE,
    ),
    Row("list groups", K.LIST_GROUPS, 5, {}, NONE),
    Row(
        "describe groups",
        K.DESCRIBE_GROUPS,
        5,
        {"groups": ["g", "unknown"], "include_authorized_operations": False},
        NONE,
    ),
    Row(
        "describe groups, newest",
        K.DESCRIBE_GROUPS,
        6,
        {"groups": ["g", "unknown"], "include_authorized_operations": False},
        "none, group_id_not_found",
    ),
    Row(
        "delete offsets of a subscribed topic",
        K.OFFSET_DELETE,
        0,
        {"group_id": "g", "topics": of_partition("t", 0)},
        "none, group_subscribed_to_topic",
    ),
    Row(
        "delete offsets of an unknown group",
        K.OFFSET_DELETE,
        0,
        {"group_id": "unknown", "topics": of_partition("t", 0)},
        "group_id_not_found",
    ),
    Row("delete offsets", K.OFFSET_DELETE, 0, {"group_id": "simple", "topics": of_partition("t", 0)}, NONE),
    Row("delete a group with members", K.DELETE_GROUPS, 2, {"groups_names": ["g"]}, "non_empty_group"),
    Row(
        "leave as an unknown member",
        K.LEAVE_GROUP,
        5,
        {"group_id": "g", "members": [{"member_id": "who"}]},
        "none, unknown_member_id",
    ),
    Row(
        "leave",
        K.LEAVE_GROUP,
        5,
        lambda state: {"group_id": "g", "members": [{"member_id": state.member_id}]},
        NONE,
    ),
    Row("delete groups", K.DELETE_GROUPS, 2, {"groups_names": ["g", "unknown"]}, "none, group_id_not_found"),
    # operators
    Row("elect whom it has", K.ELECT_LEADERS, 2, elect("t", 0), "none, election_not_needed"),
    Row(
        "elect in a missing partition", K.ELECT_LEADERS, 2, elect("t", 99), "none, unknown_topic_or_partition"
    ),
    Row("an unknown election", K.ELECT_LEADERS, 2, elect("t", 0, 9), "invalid_request"),
    Row(
        "move to an unknown broker",
        K.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": of_partition("t", 0, replicas=[9])},
        "none, invalid_replica_assignment",
    ),
    Row(
        "move a missing partition",
        K.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": of_partition("t", 99, replicas=[1])},
        "none, unknown_topic_or_partition",
    ),
    Row(
        "end no move",
        K.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {"topics": of_partition("t", 0, replicas=None)},
        "none, no_reassignment_in_progress",
    ),
    Row("moves", K.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}, NONE),
    Row("log dirs", K.DESCRIBE_LOG_DIRS, 4, {"topics": None}, NONE),
    Row("the quorum", K.DESCRIBE_QUORUM, 2, quorum_of("__cluster_metadata"), NONE),
    Row(
        "the quorum of another topic",
        K.DESCRIBE_QUORUM,
        2,
        quorum_of("t"),
        "invalid_request",
        "none, unknown_topic_or_partition",
        "Holdfast refuses the request as a whole.",
    ),
    Row(
        "an unknown feature",
        K.UPDATE_FEATURES,
        2,
        {"feature_updates": [{"feature": "nothing", "max_version_level": 1, "upgrade_type": 1}]},
        "invalid_update_version",
    ),
    # the end
    Row(
        "delete", K.DELETE_TOPICS, 6, {"topics": [{"name": "t", "topic_id": NO_ID}], "timeout": 30_000}, NONE
    ),
    Row(
        "delete a missing topic",
        K.DELETE_TOPICS,
        6,
        {"topics": [{"name": "missing", "topic_id": NO_ID}], "timeout": 30_000},
        "unknown_topic_or_partition",
    ),
    Row(
        "delete an unknown id",
        K.DELETE_TOPICS,
        6,
        {"topics": [{"name": None, "topic_id": STRANGE_ID}], "timeout": 30_000},
        "unknown_topic_id",
    ),
    Row(
        "delete name and id",
        K.DELETE_TOPICS,
        6,
        lambda state: {"topics": [{"name": "t", "topic_id": state.topic_id}], "timeout": 30_000},
        "invalid_request",
    ),
    # no requests at all
    Bytes("an api of the future", frame(999, 0, b"", is_flexible=False)),
    Bytes("metadata of the future", frame(3, 99, b"", is_flexible=True)),
    Bytes("metadata cut short", frame(3, 9, b"\x05", is_flexible=True)),
    Bytes("an array of two thousand millions", frame(3, 1, b"\x7f\xff\xff\xff", is_flexible=False)),
    Bytes("a negative size", b"\xff\xff\xff\xff"),
    Bytes("a size of two GiB", b"\x7f\xff\xff\xff" + b"\0" * 100),
    Bytes("a head of four bytes", b"\0\0\0\x04\0\x12\0\0"),
)


# --- playing it ------------------------------------------------------------------------------------------

#: A client asks again: a coordinator is about to be there.
NOT_YET = ("coordinator_not_available", "coordinator_load_in_progress", "not_coordinator")


def said(codes: list[int]) -> str:
    """The names of error codes, each once."""
    from kio.schema.errors import ErrorCode

    return ", ".join(dict.fromkeys(ErrorCode(code).name for code in codes))


def play(client: RawClient) -> dict[str, str]:
    """{name of the request: what was said}, on an empty cluster of one broker."""
    state = State()
    found: dict[str, str] = {}
    for row in ROWS:
        deadline_s = time.monotonic() + TIMEOUT_S
        expected = (row.says, row.kafka_says)
        while row.name not in found or (
            found[row.name] in NOT_YET and found[row.name] not in expected and time.monotonic() < deadline_s
        ):
            try:
                found[row.name] = _ask(client, row, state)
            except ConnectionError:
                found[row.name] = CLOSED
    return found


def _ask(client: RawClient, row: Row | Bytes, state: State) -> str:
    if isinstance(row, Bytes):
        answer = client.send(row.data)
        return said([int.from_bytes(answer[4:6], "big")])
    fields = row.fields(state) if callable(row.fields) else row.fields
    entity = client.ask(row.api, row.version, fields)
    if row.name == "metadata":
        state.topic_id = entity.topics[0].topic_id.bytes
    elif row.name == "a producer id":
        state.producer_id = int(entity.producer_id)
    elif row.name == "join at first":
        state.member_id = entity.member_id
    elif row.name == "join":
        state.generation = int(entity.generation_id)
    return said(error_codes(entity))
