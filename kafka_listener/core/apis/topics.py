"""CreateTopics, DeleteTopics and CreatePartitions: the broker forwards them to the active controller."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import admin_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import NO_TOPIC_ID, Ask, ClusterView, Outcome
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ReplicaAssignment,
    TopicConfig,
)

#: Kafka's code for topic configs that are not shown.
_NO_CONFIGS = 0


def create_topics(request: Request, cluster: ClusterView) -> Outcome:
    """Topics with counts or with an assignment by hand."""
    message = request.message
    topics = tuple(
        CreatableTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            tuple(ReplicaAssignment(one.partition_index, one.broker_ids) for one in topic.assignments),
            tuple(TopicConfig(config.name, config.value) for config in topic.configs),
        )
        for topic in message.topics
    )

    def answer(response: CreateTopicsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        return {"topics": [_created(row) for row in response.topics]}

    def refused(code: int, text: str) -> Outcome:
        rows = [CreatableTopicResult(topic.name, NO_TOPIC_ID, code, text, -1, -1, -1) for topic in topics]
        return {"topics": [{**_created(row), "error_code": admin_code(code)} for row in rows]}

    return Ask(CreateTopicsRequest(message.timeout, message.validate_only, topics), answer, refused)


def _created(row: CreatableTopicResult) -> dict[str, Any]:
    return {
        "name": row.name,
        "topic_id": row.topic_id,
        "error_code": kafka_code(row.error_code),
        "error_message": row.error_message,
        "topic_config_error_code": _NO_CONFIGS,
        "num_partitions": row.num_partitions,
        "replication_factor": row.replication_factor,
        "configs": (),
    }


# --- DeleteTopics --------------------------------------------------------------------------------------


def delete_topics(request: Request, cluster: ClusterView) -> Outcome:
    """By name, or from version 6 on by id."""
    message = request.message
    asked = _asked(message, cluster)
    names = tuple(name for name, _, _ in asked if name is not None)

    def finish(code_of: Callable[[str], tuple[int, str | None, bytes | None]]) -> Fields:
        rows: list[Fields] = []
        for name, topic_id, given in asked:
            if name is not None:
                code, text, found_id = code_of(name)
            elif given is not None:
                code, text, found_id = int(ErrorCode.INVALID_REQUEST), "give its name or its id", topic_id
            else:
                code, text, found_id = _unknown_id(topic_id)
            row = {"name": name or given, "topic_id": found_id, "error_code": code, "error_message": text}
            rows.append(row)
        return {"responses": rows}

    if not names:
        return finish(_never_asked)

    def answer(response: DeleteTopicsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        found = {row.name: row for row in response.topics}

        def code_of(name: str) -> tuple[int, str | None, bytes | None]:
            row = found[name]
            return kafka_code(row.error_code), row.error_message, row.topic_id

        return finish(code_of)

    def refused(code: int, text: str) -> Outcome:
        return finish(lambda name: (admin_code(code), text, cluster.topic_id(name)))

    return Ask(DeleteTopicsRequest(message.timeout, names), answer, refused)


def _asked(message: Any, cluster: ClusterView) -> list[tuple[str | None, bytes | None, str | None]]:
    """(name, id, name as given) of each topic; the name is None for an id that no topic has, and for a topic
    with both, which may be two."""
    if hasattr(message, "topic_names"):
        return [(name, None, name) for name in message.topic_names]
    asked: list[tuple[str | None, bytes | None, str | None]] = []
    for topic in message.topics:
        name = topic.name
        if name is not None and (topic.topic_id or NO_TOPIC_ID) != NO_TOPIC_ID:
            name = None
        elif name is None and (known := cluster.image.topics.get(topic.topic_id)) is not None:
            name = known.name
        asked.append((name, topic.topic_id, topic.name))
    return asked


def _unknown_id(topic_id: bytes | None) -> tuple[int, str | None, bytes | None]:
    return kafka_code(ErrorCode.UNKNOWN_TOPIC_ID), "no topic has this id", topic_id


def _never_asked(name: str) -> tuple[int, str | None, bytes | None]:
    raise AssertionError(f"{name} was not asked about")


# --- CreatePartitions ----------------------------------------------------------------------------------


def create_partitions(request: Request, cluster: ClusterView) -> Outcome:
    """More partitions, placed by the controller or by hand."""
    message = request.message
    topics = tuple(
        CreatePartitionsTopic(topic.name, topic.count, _assignments(topic.assignments))
        for topic in message.topics
    )

    def answer(response: CreatePartitionsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        return _results(
            [(row.name, kafka_code(row.error_code), row.error_message) for row in response.results]
        )

    def refused(code: int, text: str) -> Outcome:
        return _results([(topic.name, admin_code(code), text) for topic in topics])

    return Ask(CreatePartitionsRequest(message.timeout, message.validate_only, topics), answer, refused)


def _assignments(rows: Sequence[Any] | None) -> tuple[CreatePartitionsAssignment, ...] | None:
    return None if rows is None else tuple(CreatePartitionsAssignment(row.broker_ids) for row in rows)


def _results(rows: Sequence[tuple[str, int, str | None]]) -> Fields:
    return {
        "results": [{"name": name, "error_code": code, "error_message": text} for name, code, text in rows]
    }
