"""Produce. A batch goes through as it came: a view of the received bytes."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, HangUp, Outcome
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
)
from holdfast.protocol.record_batch import HEADER_SIZE, MAGIC

#: Kafka's, for a batch in the formats before v2.
_UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
#: Kafka's, for transactions, which are not served: no client tries it again.
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_MAGIC_POSITION = 16
_TRANSACTIONS = "transactions are not served; leave transactional.id unset"


class _Row(NamedTuple):
    """One partition of the request, and why it is refused at once, if it is."""

    topic: int
    partition: int
    refusal: tuple[int, str] | None


def produce(request: Request, cluster: ClusterView) -> Outcome:
    """With acks 0, 1 or all, idempotent producers included; one batch a partition and request."""
    message = request.message
    rows, wanted = _rows(request, cluster)
    acks = message.acks
    topics = [(getattr(one, "name", ""), getattr(one, "topic_id", None)) for one in message.topic_data]
    if not wanted:
        return _finished(acks, topics, rows, [], cluster)

    def answer(response: ProduceResponse) -> Outcome:
        return _finished(acks, topics, rows, response.partitions, cluster)

    def refused(code: int, text: str) -> Outcome:
        refusal = (kafka_code(code), text)
        return _finished(acks, topics, [row._replace(refusal=refusal) for row in rows], [], cluster)

    # Kafka too ends the connection for what is refused in a part of the request.
    unanswered = _hang_up_for(rows) if acks == 0 else None
    return Ask(ProduceRequest(acks, message.timeout, tuple(wanted)), answer, refused, unanswered)


def _rows(request: Request, cluster: ClusterView) -> tuple[list[_Row], list[ProducePartition]]:
    """All rows, without the records: what is remembered while the answer is due must not hold them. And what
    the broker is to append."""
    rows: list[_Row] = []
    wanted: list[ProducePartition] = []
    by_id = request.version >= 13
    for number, topic in enumerate(request.message.topic_data):
        topic_id = cluster.topic_id(getattr(topic, "name", None), getattr(topic, "topic_id", None))
        for partition in topic.partition_data:
            refusal: tuple[int, str] | None = None
            records = partition.records
            if request.message.transactional_id is not None:
                refusal = (_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _TRANSACTIONS)
            elif topic_id is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refusal = (kafka_code(code), "there is no such topic; refresh the metadata")
            elif records is None or len(records) < HEADER_SIZE:
                refusal = (kafka_code(ErrorCode.INVALID_RECORD), "send one record batch for each partition")
            elif records[_MAGIC_POSITION] != MAGIC:
                refusal = (_UNSUPPORTED_FOR_MESSAGE_FORMAT, "only record batches of format v2 are taken")
            rows.append(_Row(number, partition.index, refusal))
            if refusal is None:
                assert topic_id is not None
                wanted.append(ProducePartition(topic_id, partition.index, records))
    return rows, wanted


def _hang_up_for(rows: Sequence[_Row]) -> HangUp | None:
    """Who waits for no answer hears by that of a refusal."""
    for row in rows:
        if row.refusal is not None:
            return HangUp(f"a write with acks 0 was refused: {row.refusal[1]}")
    return None


def _finished(
    acks: int,
    topics: Sequence[tuple[str, bytes | None]],
    rows: Sequence[_Row],
    answered: Sequence[ProducePartitionResponse],
    cluster: ClusterView,
) -> Fields | HangUp | None:
    """The response; ours has one row for each batch, in order."""
    if acks == 0:
        return _hang_up_for(rows)
    left = iter(answered)
    by_topic: list[list[Fields]] = [[] for _ in topics]
    for row in rows:
        if row.refusal is not None:
            fields = _row_fields(row.partition, *row.refusal)
        else:
            fields = _answered_fields(next(left), cluster)
        by_topic[row.topic].append(fields)
    return {
        "responses": [
            {"name": name, "topic_id": topic_id, "partition_responses": partitions}
            for (name, topic_id), partitions in zip(topics, by_topic, strict=True)
        ]
    }


def _row_fields(index: int, code: int, text: str | None, base_offset: int = -1, start: int = -1) -> Fields:
    return {
        "index": index,
        "error_code": code,
        "base_offset": base_offset,
        "log_append_time": -1,
        "log_start_offset": start,
        "record_errors": (),
        "error_message": text,
    }


def _answered_fields(row: ProducePartitionResponse, cluster: ClusterView) -> Fields:
    code = 0
    if row.error_code:
        code = cluster.row_code(row.error_code, PartitionId(row.topic_id, row.partition_index))
    fields = _row_fields(row.partition_index, code, row.error_message, row.base_offset, row.log_start_offset)
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = {"leader_id": row.leader_id, "leader_epoch": row.leader_epoch}
        return {**fields, "current_leader": leader}
    return fields
