"""What members of a group say to each other: Kafka's ConsumerProtocolSubscription and -Assignment.

Members of other libraries may share the group, so the bytes are Kafka's. The schemas are written with
aiokafka's types; kio knows the messages whole, but its reader reserves memory for what a length says, and
these bytes come from other members. Written is the newest version, read is every one: a later one begins as
the newest one does.
"""

import struct
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.protocol.types import Array, Bytes, Int32, Schema, String

from holdfast.protocol.topic_names import TopicPartition

#: `generation_id` of a member that has had no partitions, or whose version does not say.
UNKNOWN_GENERATION = -1

_VERSION = struct.Struct(">h")
_NAME = String("utf-8")
_PARTITIONS = Array(("topic", _NAME), ("partitions", Array(Int32)))
_FIELDS = (
    (("topics", Array(_NAME)), ("user_data", Bytes)),
    (("owned", _PARTITIONS),),
    (("generation_id", Int32),),
    (("rack_id", _NAME),),
)
_NEWEST = len(_FIELDS) - 1
#: what the fields are that an older version does not have
_DEFAULTS: tuple[Any, ...] = (None, None, [], UNKNOWN_GENERATION, None)
#: by version
_SUBSCRIPTIONS = [Schema(*sum(_FIELDS[: version + 1], ())) for version in range(len(_FIELDS))]
#: The same in all versions. Some leave out what the member's own data would be.
_ASSIGNMENT = Schema(("partitions", _PARTITIONS), ("user_data", Bytes))
_ONLY_PARTITIONS = Schema(("partitions", _PARTITIONS))


class Subscription(NamedTuple):
    """What a member wants to read, and what it reads now.

    `generation_id` is that in which it got `owned`; UNKNOWN_GENERATION when it does not say.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = UNKNOWN_GENERATION


def encode_subscription(subscription: Subscription) -> bytes:
    """The bytes for JoinGroup."""
    item = (
        list(subscription.topics),
        None,
        _by_topic(subscription.owned),
        subscription.generation_id,
        None,
    )
    return _VERSION.pack(_NEWEST) + bytes(_SUBSCRIPTIONS[_NEWEST].encode(item))


def decode_subscription(metadata: bytes) -> Subscription | None:
    """What another member says; None when the bytes are no subscription."""
    found = _decoded(metadata, _SUBSCRIPTIONS)
    if found is None:
        return None
    topics, _, owned, generation_id, _ = found + _DEFAULTS[len(found) :]
    if topics is None or None in topics:
        return None
    return Subscription(tuple(topics), _flat(owned), generation_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """The bytes for SyncGroup."""
    return _VERSION.pack(_NEWEST) + bytes(_ASSIGNMENT.encode((_by_topic(partitions), None)))


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions, in order; none when the bytes are no assignment of a consumer."""
    found = _decoded(assignment, [_ONLY_PARTITIONS])
    return () if found is None else tuple(sorted(_flat(found[0])))


def _decoded(packed: bytes, schemas: list[Schema]) -> tuple[Any, ...] | None:
    if len(packed) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(packed)
    if version < 0:
        return None
    try:
        return tuple(schemas[min(version, len(schemas) - 1)].decode(BytesIO(packed[_VERSION.size :])))
    except (ValueError, struct.error):  # a decoding error of a name is a ValueError
        return None


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return list(found.items())


def _flat(rows: Iterable[tuple[str | None, list[int] | None]] | None) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, index) for topic, indexes in rows or () if topic for index in indexes or ()
    )


def topics_of(subscriptions: Mapping[str, Subscription]) -> tuple[str, ...]:
    """All topics that members want, by name."""
    return tuple(sorted({topic for one in subscriptions.values() for topic in one.topics}))
