"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: questions about offsets, a row for each partition."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResponse,
    DeleteRecordsRequest,
)
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
)
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartition,
    EpochPartitionResponse,
    OffsetForLeaderEpochRequest,
)

#: Kafka's further questions. Nothing is ever moved to another store: the local log is all of it.
_EARLIEST_LOCAL_TIMESTAMP = -4
_LATEST_TIERED_TIMESTAMP = -5
_EARLIEST_PENDING_UPLOAD_OFFSET = -6
_LOWEST_TIMESTAMP = _EARLIEST_PENDING_UPLOAD_OFFSET

_FIRST_VERSION_WITH_MAX_TIMESTAMP = 7

RowFields = Callable[[Any, int, Any, ClusterView], Fields]


class _Row(NamedTuple):
    topic: int
    #: None when the topic is not known
    key: PartitionId | None
    wanted: Any
    #: what is known without asking
    answer: Fields | None


def list_offsets(request: Request, cluster: ClusterView) -> Outcome:
    """First, last, by time, and of the largest timestamp (-3, from version 7 on); nothing is in another store
    (-5, -6)."""
    rows = [
        _Row(
            number,
            _key(topic.name, wanted.partition_index, cluster),
            wanted,
            _known_offset(wanted, request.version),
        )
        for number, topic in enumerate(request.message.topics)
        for wanted in topic.partitions
    ]
    asked = tuple(
        ListOffsetsPartition(
            row.key.topic_id,
            row.key.partition_index,
            getattr(row.wanted, "current_leader_epoch", -1),
            _our_timestamp(row.wanted.timestamp),
        )
        for row in rows
        if row.key is not None and row.answer is None
    )
    return _ask(ListOffsetsRequest(asked), bool(asked), request.message.topics, rows, _offset_fields, cluster)


def _our_timestamp(timestamp: int) -> int:
    return EARLIEST_TIMESTAMP if timestamp == _EARLIEST_LOCAL_TIMESTAMP else timestamp


def _known_offset(wanted: Any, version: int) -> Fields | None:
    if wanted.timestamp in (_LATEST_TIERED_TIMESTAMP, _EARLIEST_PENDING_UPLOAD_OFFSET):
        return _offset(wanted.partition_index, 0, -1, -1, -1)
    if wanted.timestamp == MAX_TIMESTAMP and version < _FIRST_VERSION_WITH_MAX_TIMESTAMP:
        return _offset(wanted.partition_index, kafka_code(ErrorCode.UNSUPPORTED_VERSION), -1, -1, -1)
    if wanted.timestamp < _LOWEST_TIMESTAMP:
        return _offset(wanted.partition_index, kafka_code(ErrorCode.INVALID_REQUEST), -1, -1, -1)
    return None


def _offset(index: int, code: int, timestamp: int, offset: int, epoch: int) -> Fields:
    return {
        "partition_index": index,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _offset_fields(
    row: ListOffsetsPartitionResponse | None, code: int, wanted: Any, cluster: ClusterView
) -> Fields:
    if row is None or code:
        return _offset(wanted.partition_index, code, -1, -1, -1)
    epoch = row.leader_epoch if row.offset >= 0 else -1
    return _offset(wanted.partition_index, code, row.timestamp, row.offset, epoch)


def offset_for_leader_epoch(request: Request, cluster: ClusterView) -> Outcome:
    """Where the leader's log ends in an epoch."""
    rows = [
        _Row(number, _key(topic.topic, wanted.partition, cluster), wanted, None)
        for number, topic in enumerate(request.message.topics)
        for wanted in topic.partitions
    ]
    asked = tuple(
        EpochPartition(
            row.key.topic_id,
            row.key.partition_index,
            row.wanted.current_leader_epoch,
            row.wanted.leader_epoch,
        )
        for row in rows
        if row.key is not None
    )
    ours = OffsetForLeaderEpochRequest(-1, asked)
    return _ask(ours, bool(asked), request.message.topics, rows, _epoch_fields, cluster)


def _epoch_fields(row: EpochPartitionResponse | None, code: int, wanted: Any, cluster: ClusterView) -> Fields:
    epoch, end_offset = (-1, -1) if row is None or code else (row.leader_epoch, row.end_offset)
    return {
        "partition": wanted.partition,
        "error_code": code,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }


def delete_records(request: Request, cluster: ClusterView) -> Outcome:
    """Let partitions begin later."""
    topics = request.message.topics
    rows = [
        _Row(number, _key(topic.name, wanted.partition_index, cluster), wanted, None)
        for number, topic in enumerate(topics)
        for wanted in topic.partitions
    ]
    asked = tuple(
        DeleteRecordsPartition(row.key.topic_id, row.key.partition_index, row.wanted.offset)
        for row in rows
        if row.key is not None
    )
    ours = DeleteRecordsRequest(max(0, request.message.timeout), asked)
    return _ask(ours, bool(asked), topics, rows, _deleted_fields, cluster)


def _deleted_fields(
    row: DeleteRecordsPartitionResponse | None, code: int, wanted: Any, cluster: ClusterView
) -> Fields:
    low_watermark = -1 if row is None or code else row.low_watermark
    return {"partition_index": wanted.partition_index, "error_code": code, "low_watermark": low_watermark}


# --- all -----------------------------------------------------------------------------------------------


def _key(name: str, index: int, cluster: ClusterView) -> PartitionId | None:
    topic_id = cluster.topic_id(name)
    return None if topic_id is None else PartitionId(topic_id, index)


def _ask(
    ours: Any,
    is_needed: bool,
    topics: Sequence[Any],
    rows: Sequence[_Row],
    fields_of: RowFields,
    cluster: ClusterView,
) -> Outcome:
    """Ask the broker about the rows without an answer; its response has them in the same order."""

    def finish(answered: Sequence[Any], refusal: int) -> Fields:
        left = iter(answered)
        by_topic: list[list[Fields]] = [[] for _ in topics]
        for row in rows:
            fields = row.answer
            if row.key is None:
                code = refusal or kafka_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                fields = fields_of(None, code, row.wanted, cluster)
            elif refusal:
                fields = fields_of(None, refusal, row.wanted, cluster)
            elif fields is None:
                found = next(left)
                code = cluster.row_code(found.error_code, row.key)
                fields = fields_of(found, code, row.wanted, cluster)
            by_topic[row.topic].append(fields)
        return {
            "topics": [
                {
                    "name": getattr(topic, "name", ""),
                    "topic": getattr(topic, "topic", ""),
                    "partitions": partitions,
                }
                for topic, partitions in zip(topics, by_topic, strict=True)
            ]
        }

    if not is_needed:
        return finish((), 0)
    return Ask(
        ours,
        lambda response: finish(response.partitions, kafka_code(response.error_code)),
        lambda code, _: finish((), kafka_code(code)),
    )
