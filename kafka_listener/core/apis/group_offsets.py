"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import group_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    NO_OFFSET,
    CommittedOffset,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetPartition,
)

_FIRST_FETCH_WITH_CODE = 2
_FIRST_FETCH_OF_GROUPS = 8
#: Offsets of one answer after which all those of a further group are refused: a few bytes ask for them.
_OFFSETS_MAX = 200_000


class _Row(NamedTuple):
    """One partition of a request."""

    topic: int
    partition: int
    #: None when the topic is not known
    key: PartitionId | None
    wanted: Any


def _rows(topics: Sequence[Any], field: str, cluster: ClusterView) -> list[_Row]:
    rows: list[_Row] = []
    for number, topic in enumerate(topics):
        topic_id = cluster.topic_id(getattr(topic, "name", None), getattr(topic, "topic_id", None))
        for wanted in getattr(topic, field):
            index = wanted if isinstance(wanted, int) else wanted.partition_index
            key = None if topic_id is None else PartitionId(topic_id, index)
            rows.append(_Row(number, index, key, wanted))
    return rows


def _by_topic(topics: Sequence[Any], rows: Sequence[_Row], fields: Sequence[Fields]) -> list[Fields]:
    partitions: list[list[Fields]] = [[] for _ in topics]
    for row, one in zip(rows, fields, strict=True):
        partitions[row.topic].append(one)
    return [
        {
            "name": getattr(topic, "name", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": found,
        }
        for topic, found in zip(topics, partitions, strict=True)
    ]


def _unknown(topic: Any) -> int:
    is_by_id = not hasattr(topic, "name")
    return kafka_code(ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# --- commit and delete ---------------------------------------------------------------------------------


def offset_commit(request: Request, cluster: ClusterView) -> Outcome:
    """From members of a group, or for a group that has none; answered when it is committed."""
    message = request.message
    topics = message.topics
    rows = _rows(topics, "partitions", cluster)
    partitions = tuple(
        OffsetCommitPartition(
            row.key.topic_id,
            row.key.partition_index,
            row.wanted.committed_offset,
            getattr(row.wanted, "committed_leader_epoch", -1),
            row.wanted.committed_metadata,
        )
        for row in rows
        if row.key is not None
    )
    ours = OffsetCommitRequest(
        message.group_id,
        message.generation_id_or_member_epoch,
        message.member_id,
        getattr(message, "group_instance_id", None),
        partitions,
    )

    def answer(response: OffsetCommitResponse) -> Outcome:
        left = iter(response.partitions)
        codes = [
            _unknown(topics[row.topic]) if row.key is None else group_code(next(left).error_code)
            for row in rows
        ]
        return {"topics": _by_topic(topics, rows, _code_rows(rows, codes))}

    def refused(code: int, text: str) -> Outcome:
        return {"topics": _by_topic(topics, rows, _code_rows(rows, [group_code(code)] * len(rows)))}

    return Ask(ours, answer, refused)


def _code_rows(rows: Sequence[_Row], codes: Sequence[int]) -> list[Fields]:
    return [
        {"partition_index": row.partition, "error_code": code} for row, code in zip(rows, codes, strict=True)
    ]


def offset_delete(request: Request, cluster: ClusterView) -> Outcome:
    """Of topics to which no member of the group subscribes."""
    message = request.message
    topics = message.topics
    rows = _rows(topics, "partitions", cluster)

    def answer(response: OffsetDeleteResponse) -> Outcome:
        if not response.partitions and response.error_code:
            return refused(response.error_code, "")
        left = iter(response.partitions)
        codes = [
            _unknown(topics[row.topic]) if row.key is None else group_code(next(left).error_code)
            for row in rows
        ]
        return {"error_code": 0, "topics": _by_topic(topics, rows, _code_rows(rows, codes))}

    def refused(code: int, text: str) -> Outcome:
        return {"error_code": group_code(code), "topics": ()}

    asked = tuple(OffsetPartition(*row.key) for row in rows if row.key is not None)
    return Ask(OffsetDeleteRequest(message.group_id, asked), answer, refused)


# --- fetch ---------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    """One group of the request; `topics` None for all."""

    group_id: str
    topics: Sequence[Any] | None


@dataclass(slots=True)
class _Fetched:
    """What is found so far, and how many offsets that is."""

    groups: list[Fields] = field(default_factory=list)
    offsets: int = 0

    def add(self, fields: Fields) -> "_Fetched":
        """One group more."""
        self.groups.append(fields)
        self.offsets += sum(len(topic["partitions"]) for topic in fields["topics"])
        return self


def offset_fetch(request: Request, cluster: ClusterView) -> Outcome:
    """What groups have committed, of these partitions or of all; one group after the other."""
    message = request.message
    if request.version >= _FIRST_FETCH_OF_GROUPS:
        asked = [_Asked(one.group_id, one.topics) for one in message.groups]
        return _fetch_next(asked, _Fetched(), cluster)

    def finish(fields: Fields) -> Outcome:
        code = fields["error_code"]
        if request.version < _FIRST_FETCH_WITH_CODE and code:
            return _with_code_in_rows(fields, code)
        return fields

    return _fetch_one(_Asked(message.group_id, message.topics), finish, cluster)


def _fetch_next(asked: Sequence[_Asked], done: _Fetched, cluster: ClusterView) -> Outcome:
    while len(done.groups) < len(asked):
        group = asked[len(done.groups)]
        if group.topics is not None or done.offsets < _OFFSETS_MAX:
            return _fetch_one(group, lambda fields: _fetch_next(asked, done.add(fields), cluster), cluster)
        code = kafka_code(ErrorCode.INVALID_REQUEST)  # it asks for fewer groups at once
        done.add({"group_id": group.group_id, "error_code": code, "topics": ()})
    return {"groups": done.groups}


def _fetch_one(asked: _Asked, finish: Any, cluster: ClusterView) -> Ask:
    topics = asked.topics
    rows = None if topics is None else _rows(topics, "partition_indexes", cluster)
    wanted = None if rows is None else tuple(OffsetPartition(*row.key) for row in rows if row.key is not None)

    def answer(response: OffsetFetchResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, "")
        if rows is None or topics is None:
            found = _all_topics(response.partitions, cluster)
        else:
            found = _by_topic(topics, rows, _asked_rows(rows, topics, response.partitions))
        outcome: Outcome = finish({"group_id": asked.group_id, "error_code": 0, "topics": found})
        return outcome

    def refused(code: int, text: str) -> Outcome:
        found: list[Fields] = []
        if rows is not None and topics is not None:
            found = _by_topic(topics, rows, [_offset_fields(row.partition, None) for row in rows])
        fields = {"group_id": asked.group_id, "error_code": group_code(code), "topics": found}
        outcome: Outcome = finish(fields)
        return outcome

    return Ask(OffsetFetchRequest(asked.group_id, wanted), answer, refused)


def _asked_rows(
    rows: Sequence[_Row], topics: Sequence[Any], committed: Sequence[CommittedOffset]
) -> list[Fields]:
    left = iter(committed)
    fields: list[Fields] = []
    for row in rows:
        if row.key is not None:
            fields.append(_offset_fields(row.partition, next(left)))
        else:  # nothing is committed there; only who asks by id has been wrong
            code = 0 if hasattr(topics[row.topic], "name") else kafka_code(ErrorCode.UNKNOWN_TOPIC_ID)
            fields.append({**_offset_fields(row.partition, None), "error_code": code})
    return fields


def _all_topics(committed: Sequence[CommittedOffset], cluster: ClusterView) -> list[Fields]:
    by_topic: dict[bytes, list[Fields]] = {}
    for row in committed:
        by_topic.setdefault(row.topic_id, []).append(_offset_fields(row.partition_index, row))
    topics = cluster.image.topics
    return [
        {"name": topics[topic_id].name, "topic_id": topic_id, "partitions": rows}
        for topic_id, rows in by_topic.items()
        if topic_id in topics
    ]


def _offset_fields(index: int, found: CommittedOffset | None) -> Mapping[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if found is None else found.offset,
        "committed_leader_epoch": -1 if found is None else found.leader_epoch,
        "metadata": "" if found is None else found.metadata,
        "error_code": 0,
    }


def _with_code_in_rows(fields: Fields, code: int) -> Fields:
    topics = [
        {**topic, "partitions": [{**row, "error_code": code} for row in topic["partitions"]]}
        for topic in fields["topics"]
    ]
    return {**fields, "topics": topics}
