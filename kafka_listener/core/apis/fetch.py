"""Fetch, by consumers only: on this listener no client is a follower. There are no fetch sessions.

A request without a session names all its partitions and gets all of them back: what our response leaves out
because there is no news gets a row with the offsets known here.
"""

from typing import Any, NamedTuple

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import fetch_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)

#: From here on topics have ids only.
_FIRST_VERSION_BY_ID = 13
_NO_BROKER_EPOCH = -1
_NOT_FLUSHED = -1


class _Row(NamedTuple):
    """One partition of the request."""

    topic: int
    partition: int
    #: None when the topic is not known
    key: PartitionId | None
    wanted: Any


def fetch(request: Request, cluster: ClusterView) -> Outcome:
    """By consumers, below the high watermark; sees by leader epoch that a log was truncated."""
    message = request.message
    if getattr(message, "session_id", 0) != 0:
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "session_id": 0, "responses": ()}
    rows = _rows(request, cluster)
    known = [row for row in rows if row.key is not None]
    if not known:
        return _answer(request, rows, {}, cluster)
    ours = FetchRequest(
        None,
        CONSUMER_REPLICA_ID,
        _NO_BROKER_EPOCH,
        message.max_wait if len(known) == len(rows) else 0,
        message.min_bytes,
        message.max_bytes,
        tuple(_asked(row) for row in known),
    )

    def answer(response: FetchResponse) -> Outcome:
        if response.error_code:
            return _refused(response.error_code)
        found = {PartitionId(row.topic_id, row.partition_index): row for row in response.partitions}
        return _answer(request, rows, found, cluster)

    return Ask(ours, answer, lambda code, _: _all_refused(request, rows, fetch_code(code)))


def _rows(request: Request, cluster: ClusterView) -> list[_Row]:
    rows: list[_Row] = []
    for number, topic in enumerate(request.message.topics):
        topic_id = cluster.topic_id(getattr(topic, "topic", None), getattr(topic, "topic_id", None))
        for wanted in topic.partitions:
            key = None if topic_id is None else PartitionId(topic_id, wanted.partition)
            rows.append(_Row(number, wanted.partition, key, wanted))
    return rows


def _asked(row: _Row) -> FetchPartition:
    assert row.key is not None
    wanted = row.wanted
    return FetchPartition(
        row.key.topic_id,
        row.key.partition_index,
        getattr(wanted, "current_leader_epoch", -1),
        wanted.fetch_offset,
        getattr(wanted, "last_fetched_epoch", -1),
        _NOT_FLUSHED,
        wanted.partition_max_bytes,
    )


def _refused(code: int) -> Fields:
    return {"error_code": kafka_code(code), "session_id": 0, "responses": ()}


def _all_refused(request: Request, rows: list[_Row], code: int) -> Fields:
    return _response(request, rows, [_row_fields(row.partition, code, -1, -1, b"") for row in rows])


def _answer(
    request: Request, rows: list[_Row], found: dict[PartitionId, FetchPartitionResponse], cluster: ClusterView
) -> Fields:
    by_id = request.version >= _FIRST_VERSION_BY_ID
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fields: list[Fields] = []
    for row in rows:
        if row.key is None:
            fields.append(_row_fields(row.partition, kafka_code(unknown), -1, -1, b""))
        elif (answered := found.get(row.key)) is not None:
            fields.append(_answered_fields(answered, row.key, cluster, by_id=by_id))
        else:
            high_watermark, start = cluster.offsets_of(row.key) or (-1, -1)
            fields.append(_row_fields(row.partition, 0, high_watermark, start, b""))
    return _response(request, rows, fields)


def _answered_fields(
    row: FetchPartitionResponse, key: PartitionId, cluster: ClusterView, *, by_id: bool
) -> Fields:
    code = cluster.row_code(row.error_code, key, by_id=by_id) if row.error_code else 0
    fields = _row_fields(row.partition_index, code, row.high_watermark, row.log_start_offset, row.records)
    if row.diverging_epoch is not None:
        fields["diverging_epoch"] = {
            "epoch": row.diverging_epoch.epoch,
            "end_offset": row.diverging_epoch.end_offset,
        }
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        fields["current_leader"] = {"leader_id": row.leader_id, "leader_epoch": row.leader_epoch}
    return fields


def _row_fields(index: int, code: int, high_watermark: int, start: int, records: Any) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": high_watermark,
        "last_stable_offset": high_watermark,  # there are no transactions
        "log_start_offset": start,
        "aborted_transactions": None,
        "records": records,
    }


def _response(request: Request, rows: list[_Row], fields: list[Fields]) -> Fields:
    by_topic: list[list[Fields]] = [[] for _ in request.message.topics]
    for row, partition in zip(rows, fields, strict=True):
        by_topic[row.topic].append(partition)
    return {
        "error_code": 0,
        "session_id": 0,
        "responses": [
            {
                "topic": getattr(topic, "topic", ""),
                "topic_id": getattr(topic, "topic_id", None),
                "partitions": partitions,
            }
            for topic, partitions in zip(request.message.topics, by_topic, strict=True)
        ],
    }
