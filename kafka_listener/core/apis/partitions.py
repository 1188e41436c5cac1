"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from collections.abc import Sequence
from typing import Any

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import admin_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListedTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignableTopic,
    ReassignableTopicResult,
)


def elect_leaders(request: Request, cluster: ClusterView) -> Outcome:
    """Preferred or unclean elections, of these partitions or of all that need one."""
    message = request.message
    topics = message.topic_partitions
    ours = ElectLeadersRequest(
        getattr(message, "election_type", ElectionKind.PREFERRED),
        None
        if topics is None
        else tuple(ElectionTopicPartitions(topic.topic, topic.partitions, None) for topic in topics),
        message.timeout,
    )

    def answer(response: ElectLeadersResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        return _elected(0, [_elected_topic(row) for row in response.replica_election_results])

    def refused(code: int, text: str) -> Outcome:
        kafka = admin_code(code)
        rows = [
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": index, "error_code": kafka, "error_message": text}
                    for index in topic.partitions
                ],
            }
            for topic in topics or ()
        ]
        return _elected(kafka, rows)

    return Ask(ours, answer, refused)


def _elected(code: int, rows: Sequence[Fields]) -> Fields:
    return {"error_code": code, "replica_election_results": rows}


def _said(row: Any) -> Fields:
    """What became of one partition."""
    return {"error_code": kafka_code(row.error_code), "error_message": row.error_message}


def _elected_topic(row: ReplicaElectionResult) -> Fields:
    return {
        "topic": row.topic,
        "partition_result": [
            {"partition_id": partition.partition_id, **_said(partition)}
            for partition in row.partition_results
        ],
    }


def alter_partition_reassignments(request: Request, cluster: ClusterView) -> Outcome:
    """Begin moves, or with null replicas end them."""
    message = request.message
    ours = AlterPartitionReassignmentsRequest(
        message.timeout,
        getattr(message, "allow_replication_factor_change", True),
        tuple(
            ReassignableTopic(
                topic.name,
                tuple(ReassignablePartition(one.partition_index, one.replicas) for one in topic.partitions),
            )
            for topic in message.topics
        ),
    )

    def answer(response: AlterPartitionReassignmentsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        rows = [_moved_topic(row) for row in response.responses]
        return {"error_code": 0, "error_message": None, "responses": rows}

    def refused(code: int, text: str) -> Outcome:
        return {"error_code": admin_code(code), "error_message": text, "responses": ()}

    return Ask(ours, answer, refused)


def _moved_topic(row: ReassignableTopicResult) -> Fields:
    return {
        "name": row.name,
        "partitions": [
            {"partition_index": partition.partition_index, **_said(partition)} for partition in row.partitions
        ],
    }


def list_partition_reassignments(request: Request, cluster: ClusterView) -> Outcome:
    """Which of these partitions, or of all, are on the move."""
    message = request.message
    topics = message.topics
    ours = ListPartitionReassignmentsRequest(
        message.timeout,
        None if topics is None else tuple(ListedTopic(one.name, one.partition_indexes) for one in topics),
    )

    def answer(response: ListPartitionReassignmentsResponse) -> Outcome:
        return {
            "error_code": kafka_code(response.error_code),
            "error_message": response.error_message,
            "topics": [_moving_topic(row) for row in response.topics],
        }

    def refused(code: int, text: str) -> Outcome:
        return {"error_code": admin_code(code), "error_message": text, "topics": ()}

    return Ask(ours, answer, refused)


def _moving_topic(row: OngoingTopicReassignment) -> Fields:
    return {
        "name": row.name,
        "partitions": [
            {
                "partition_index": partition.partition_index,
                "replicas": partition.replicas,
                "adding_replicas": partition.adding_replicas,
                "removing_replicas": partition.removing_replicas,
            }
            for partition in row.partitions
        ],
    }
