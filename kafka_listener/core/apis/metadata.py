"""Metadata, DescribeCluster and DescribeTopicPartitions: who is there and who leads what.

Only brokers that have the listener are named, at its port. The controller of the answer is this broker: it
is alive, and brokers forward what only the active controller can do.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import admin_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import NO_TOPIC_ID, Ask, ClusterView, HangUp, Outcome
from holdfast.metadata.broker import BrokerRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicPartitionCursor,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC

#: Kafka's, for a leader that does not have the listener.
_LISTENER_NOT_FOUND = 72
_FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
#: In version 0 an empty list means all topics.
_FIRST_VERSION_WITH_NULL_FOR_ALL = 1
#: Kafka's, for an endpoint that is no broker, and for a kind that it does not know.
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115
_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS = 1, 2
#: How long a topic that is created on demand may take.
_AUTO_CREATE_TIMEOUT_MS = 5_000


def metadata(request: Request, cluster: ClusterView) -> Outcome:
    """The topics asked for, by name or id; missing ones are created first if the broker may do that."""
    message = request.message
    names, missing_ids = _asked_names(request, cluster)
    ask = Ask(
        MetadataRequest(names),
        lambda response: _metadata_fields(response, missing_ids, request.version, cluster),
        # A broker that has no role yet knows nothing of use: another one does.
        lambda _, text: HangUp(text),
    )
    if (
        names is None
        or not cluster.static["auto.create.topics.enable"]
        or not getattr(message, "allow_auto_topic_creation", True)
    ):
        return ask
    missing = sorted({name for name in names if name not in cluster.image.topic_ids})
    return _create_first(missing, ask) if missing else ask


def _asked_names(request: Request, cluster: ClusterView) -> tuple[tuple[str, ...] | None, list[bytes]]:
    """(names, ids that no topic has); None for all topics."""
    topics = request.message.topics
    if topics is None or (request.version < _FIRST_VERSION_WITH_NULL_FOR_ALL and not topics):
        return None, []
    names: list[str] = []
    missing: list[bytes] = []
    for topic in topics:
        topic_id = getattr(topic, "topic_id", NO_TOPIC_ID)
        if topic_id != NO_TOPIC_ID:
            known = cluster.image.topics.get(topic_id)
            if known is None:
                missing.append(topic_id)
            else:
                names.append(known.name)
        elif topic.name is not None:
            names.append(topic.name)
    return tuple(names), missing


def _create_first(names: Sequence[str], ask: Ask) -> Ask:
    create = CreateTopicsRequest(
        _AUTO_CREATE_TIMEOUT_MS, False, tuple(CreatableTopic(name, -1, -1, (), ()) for name in names)
    )

    def created(response: CreateTopicsResponse) -> Outcome:
        # Also when the controller refused: the answer then says that the topic is not there.
        return Ask(ask.message, lambda found: _being_created(ask.answer(found), response), ask.refused)

    return Ask(create, created, lambda code, text: ask)


def _being_created(outcome: Outcome, response: CreateTopicsResponse) -> Outcome:
    """A topic that was just created has no leader yet as far as this broker has replayed."""
    new = {row.name for row in response.topics if row.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)}
    assert isinstance(outcome, dict)
    topics = [
        {**topic, "error_code": int(ErrorCode.LEADER_NOT_AVAILABLE)}
        if topic["name"] in new and topic["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else topic
        for topic in outcome["topics"]
    ]
    return {**outcome, "topics": topics}


def _metadata_fields(
    response: MetadataResponse, missing_ids: Sequence[bytes], version: int, cluster: ClusterView
) -> Fields:
    brokers = _reachable(cluster)
    known = {row["node_id"] for row in brokers}
    topics = [_topic_fields(topic, known, version) for topic in response.topics]
    topics += [_missing_fields(topic_id, version) for topic_id in missing_ids]
    return {
        "brokers": brokers,
        "cluster_id": response.cluster_id,
        "controller_id": _controller_id(known, cluster),
        "topics": topics,
    }


def _reachable(cluster: ClusterView) -> list[Fields]:
    """Unfenced brokers that have the listener."""
    return [
        {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
        for broker in cluster.image.sorted_brokers()
        if not broker.is_fenced and (endpoint := broker.endpoint(cluster.listener_name)) is not None
    ]


def _controller_id(known: set[int], cluster: ClusterView) -> int:
    return cluster.broker_id if cluster.broker_id in known else min(known, default=-1)


def _missing_fields(topic_id: bytes, version: int) -> Fields:
    name = None if version >= 12 else ""
    code = kafka_code(ErrorCode.UNKNOWN_TOPIC_ID)
    return {"error_code": code, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": ()}


def _topic_fields(topic: MetadataTopic, known: set[int], version: int) -> Fields:
    return {
        "error_code": kafka_code(topic.error_code),
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name == OFFSETS_TOPIC,  # a consumer of all topics leaves it out
        "partitions": [_partition_fields(partition, known, version) for partition in topic.partitions],
    }


def _partition_fields(partition: MetadataPartition, known: set[int], version: int) -> Fields:
    code, leader = kafka_code(partition.error_code), partition.leader_id
    if leader >= 0 and leader not in known:
        has_code = version >= _FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        code = _LISTENER_NOT_FOUND if has_code else int(ErrorCode.LEADER_NOT_AVAILABLE)
        leader = -1
    return {
        "error_code": code,
        "partition_index": partition.partition_index,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": partition.offline_replicas,
    }


# --- DescribeCluster -----------------------------------------------------------------------------------


def describe_cluster(request: Request, cluster: ClusterView) -> Outcome:
    """Brokers that have the listener; fenced ones only when they are asked for."""
    endpoint_type = getattr(request.message, "endpoint_type", _BROKER_ENDPOINTS)
    if endpoint_type not in (_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS):
        return _cluster_refused(
            _UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {endpoint_type}", cluster
        )
    if endpoint_type != _BROKER_ENDPOINTS:
        return _cluster_refused(_MISMATCHED_ENDPOINT_TYPE, "this is a broker, ask it for brokers", cluster)
    with_fenced = getattr(request.message, "include_fenced_brokers", False)

    def answer(response: DescribeClusterResponse) -> Fields:
        rows = [
            _described_broker(broker, cluster)
            for broker in cluster.image.sorted_brokers()
            if broker.endpoint(cluster.listener_name) is not None and (with_fenced or not broker.is_fenced)
        ]
        live = {row["broker_id"] for row in rows if not row["is_fenced"]}
        return {
            "error_code": kafka_code(response.error_code),
            "error_message": response.error_message,
            "endpoint_type": _BROKER_ENDPOINTS,
            "cluster_id": response.cluster_id,
            "controller_id": _controller_id(live, cluster),
            "brokers": rows,
        }

    return Ask(
        DescribeClusterRequest(), answer, lambda code, text: _cluster_refused(admin_code(code), text, cluster)
    )


def _described_broker(broker: BrokerRegistration, cluster: ClusterView) -> Fields:
    endpoint = broker.endpoint(cluster.listener_name)
    assert endpoint is not None
    return {
        "broker_id": broker.broker_id,
        "host": endpoint.host,
        "port": endpoint.port,
        "rack": broker.rack,
        "is_fenced": broker.is_fenced,
    }


def _cluster_refused(code: int, text: str, cluster: ClusterView) -> Fields:
    return {
        "error_code": code,
        "error_message": text,
        "endpoint_type": _BROKER_ENDPOINTS,
        "cluster_id": cluster.cluster_id,
        "controller_id": -1,
        "brokers": (),
    }


# --- DescribeTopicPartitions ---------------------------------------------------------------------------


def describe_topic_partitions(request: Request, cluster: ClusterView) -> Outcome:
    """Partitions with their eligible leader replicas, a page at a time."""
    message = request.message
    cursor = message.cursor and TopicPartitionCursor(
        message.cursor.topic_name, message.cursor.partition_index
    )
    names = tuple(topic.name for topic in message.topics)
    ours = DescribeTopicPartitionsRequest(names, message.response_partition_limit, cursor)

    def answer(response: DescribeTopicPartitionsResponse) -> Outcome:
        if response.error_code:
            # As Kafka does: this response has no place for an error of the whole.
            code = kafka_code(response.error_code)
            return _topics_refused(names, code)
        cursor = response.next_cursor
        return {
            "topics": [_described_topic(topic) for topic in response.topics],
            "next_cursor": cursor
            and {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index},
        }

    return Ask(ours, answer, lambda code, _: _topics_refused(names, admin_code(code)))


def _topics_refused(names: Sequence[str], code: int) -> Outcome:
    if not names:
        return HangUp("no topics can be described now")
    rows = [
        {"error_code": code, "name": name, "topic_id": None, "is_internal": False, "partitions": ()}
        for name in names
    ]
    return {"topics": rows, "next_cursor": None}


def _described_topic(topic: DescribedTopic) -> Fields:
    return {
        "error_code": kafka_code(topic.error_code),
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_described_partition(partition) for partition in topic.partitions],
    }


def _described_partition(partition: DescribedPartition) -> dict[str, Any]:
    return {
        "error_code": kafka_code(partition.error_code),
        "partition_index": partition.partition_index,
        "leader_id": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": partition.eligible_leader_replicas,
        "last_known_elr": partition.last_known_elr,
        "offline_replicas": partition.offline_replicas,
    }
