"""What the records of the metadata log mean: a second opinion, told by their fields alone.

All nodes replay by `metadata.delta`, and so does the observer: a record that it understands wrongly is wrong
everywhere at once, and no comparison shows it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicasOfflineRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property

#: of an image: what every record moves
_NOT_COMPARED = frozenset({"offset", "raft_epoch"})
#: of records: what they are about, and what says why (R2 has the epochs of partitions)
_ADDRESSES = frozenset({"topic_id", "partition_index", "partitions", "broker_id", "broker_epoch", "decision"})
_LEADERS = ("leader", "last_known_leader")


class RecordsAreReplayed(Property):
    """D7, R2: a committed record makes of the image what it says, and leaves alone what it does not name. The
    indexes say the same as the rows of the partitions."""

    name = "D7 RecordsAreReplayed"

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        after = seen.image
        wanted = _wanted(record, before)
        if after.topics is not before.topics:
            wanted |= _indexes(after)
        for field in fields(MetadataImage):
            name = field.name
            if name in _NOT_COMPARED:
                continue
            is_, was = getattr(after, name), getattr(before, name)
            should = wanted.get(name, was)
            if is_ is not should and is_ != should:
                seen.broken(self, None, f"{record} at {offset} has made of {name} {was} this: {is_}")


def _wanted(record: MetadataRecord, before: MetadataImage) -> dict[str, Any]:
    """{part of the image: what it must be afterwards}; the other parts stay."""
    match record:
        case RegisterBrokerRecord() | BrokerRegistrationChangeRecord() | FenceBrokerRecord():
            return {"brokers": _with_broker(record, before)}
        case UnfenceBrokerRecord() | ReplicasOfflineRecord():
            return {"brokers": _with_broker(record, before)}
        case UnregisterBrokerRecord(broker_id):
            return {"brokers": before.brokers.delete(broker_id)}
        case TopicRecord() | RemoveTopicRecord() | PartitionRecord() | PartitionChangeRecord():
            return _with_topic(record, before)
        case ConfigRecord(kind, resource, key, value):
            of_resource = {**before.configs.get((kind, resource), {}), key: value}
            return {"configs": _set(before.configs, (kind, resource), _without_none(of_resource))}
        case FeatureLevelRecord(name, level):
            return {"features": before.features.set(name, level)}
        case ProducerIdsRecord():
            return {"next_producer_id": record.next_producer_id}
        case NoOpRecord():
            return {}


def _indexes(image: MetadataImage) -> dict[str, Any]:
    assigned: dict[int, dict[Any, None]] = {}
    leaderless: dict[Any, None] = {}
    for topic_id, topic in image.topics.items():
        for index, row in topic.partitions.items():
            for replica in row.replicas:
                assigned.setdefault(replica, {})[topic_id, index] = None
            if row.leader is None:
                leaderless[topic_id, index] = None
    return {"assigned": _Like(assigned), "leaderless": _Like(leaderless)}


def _with_broker(record: Any, before: MetadataImage) -> Any:
    brokers = before.brokers
    known = brokers.get(record.broker_id)
    was = {} if known is None else {field.name: getattr(known, field.name) for field in fields(known)}
    said: dict[str, Any] = {
        field.name: getattr(record, field.name) for field in fields(record) if field.name not in _ADDRESSES
    }
    match record:
        case RegisterBrokerRecord():
            was = {"is_fenced": True, "in_controlled_shutdown": False, "offline_replicas": {}}
            was |= {"broker_id": record.broker_id, "broker_epoch": record.broker_epoch}
        case FenceBrokerRecord() | UnfenceBrokerRecord():
            said = {"is_fenced": isinstance(record, FenceBrokerRecord)}
        case ReplicasOfflineRecord():
            keys = ((record.topic_id, index) for index in record.partitions)
            said = {"offline_replicas": {**was.get("offline_replicas", {}), **dict.fromkeys(keys)}}
    return _Like({**brokers, record.broker_id: {**was, **said}})


def _with_topic(record: Any, before: MetadataImage) -> dict[str, Any]:
    topics, topic_id = before.topics, record.topic_id
    known = topics.get(topic_id)
    match record:
        case TopicRecord():
            made = {"name": record.name, "topic_id": topic_id, "partitions": {}}
            return {
                "topics": _Like({**topics, topic_id: made}),
                "topic_ids": before.topic_ids.set(record.name, topic_id),
            }
        case RemoveTopicRecord():
            assert known is not None
            return {
                "topics": topics.delete(topic_id),
                "topic_ids": before.topic_ids.delete(known.name),
                "configs": _set(before.configs, (RESOURCE_TOPIC, known.name), None),
            }
    assert known is not None
    index = record.partition_index
    row = _row_after(record, known.partitions.get(index))
    changed = {"name": known.name, "topic_id": topic_id, "partitions": {**known.partitions, index: row}}
    return {"topics": _Like({**topics, topic_id: changed})}


def _row_after(record: Any, before: Any) -> dict[str, Any]:
    said = {field.name: getattr(record, field.name) for field in fields(record)}
    said = {name: value for name, value in said.items() if name not in _ADDRESSES}
    is_change = before is not None and isinstance(record, PartitionChangeRecord)
    if is_change:
        said = _without_none(said) or {}
        if said.get("original_replicas") == ():
            said["original_replicas"] = None
    decides = is_change and "leader" in said
    said |= {name: None for name in _LEADERS if said.get(name) == NO_LEADER}
    if not is_change:
        return said
    was = {field.name: getattr(before, field.name) for field in fields(before)}
    epochs = {
        "partition_epoch": before.partition_epoch + 1,
        "leader_epoch": before.leader_epoch + decides,
    }
    return {**was, **said, **epochs}


def _without_none(given: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in given.items() if value is not None} or None


def _set(given: Any, key: Any, value: Any) -> Any:
    """The map with that value, without the key for None."""
    others = {name: other for name, other in given.items() if name != key}
    return _Like(others if value is None else {**others, key: value})


class _Like:
    """Equal to what has these values by key, or by name, all the way down."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __eq__(self, other: object) -> bool:
        return _is_like(other, self._values)

    __hash__ = None  # type: ignore[assignment]


def _is_like(one: Any, values: Any) -> bool:
    if one is values:
        return True
    if not isinstance(values, dict):
        return bool(one == values)
    if isinstance(one, Mapping):
        return len(one) == len(values) and all(k in one and _is_like(one[k], v) for k, v in values.items())
    return all(_is_like(getattr(one, name), value) for name, value in values.items())
