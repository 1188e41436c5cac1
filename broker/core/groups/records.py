"""Records of the topic of the offsets: what a coordinator must know of its groups, in order of the log.

The key names what the record is about, and a later record with it replaces an earlier one; without a value it
says that there is no such thing any more. Keys and values are msgpack `[kind, version, fields]`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgpack

from holdfast.protocol.record_batch import Record, decode_records, encode_batch, iter_batches
from holdfast.protocol.schema.fields import (
    Attachment,
    SchemaError,
    array_of,
    binary,
    decode_message,
    encode_message,
    field,
    int32,
    int64,
    message,
    nullable,
    string,
    uuid,
)

#: Version of all keys and values that this software writes.
RECORD_VERSION = 1


@message
class OffsetKey:
    """The offset of a group in one partition."""

    group_id: str = field(string, "Group.")
    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")


@message
class OffsetValue:
    """How far the group has read."""

    offset: int = field(int64, "Next offset to read.")
    leader_epoch: int = field(int32, "Epoch of the last record that was read, -1 when not known.")
    metadata: str | None = field(nullable(string), "Text of the member's own.")
    commit_timestamp_ms: int = field(int64, "When it was committed, ms since 1970.")


@message
class GroupKey:
    """A group."""

    group_id: str = field(string, "Group.")


@message
class MemberValue:
    """A member."""

    member_id: str = field(string, "Member.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")
    client_id: str = field(string, "What its client calls itself.")
    client_host: str = field(string, "Where it came from.")
    rebalance_timeout_ms: int = field(int32, "How long a rebalance waits for it.")
    session_timeout_ms: int = field(int32, "Without a heartbeat for so long it is removed.")
    subscription: bytes = field(binary, "Its metadata for the chosen protocol.")
    assignment: bytes = field(binary, "Its partitions.")


@message
class GroupValue:
    """A generation whose assignments were given, or that has no members."""

    protocol_type: str = field(string, "Kind of the group.")
    generation_id: int = field(int32, "Generation.")
    protocol_name: str | None = field(nullable(string), "The chosen protocol; null without members.")
    leader: str | None = field(nullable(string), "Member that shared the partitions.")
    state_timestamp_ms: int = field(int64, "When the state was entered, ms since 1970.")
    members: tuple[MemberValue, ...] = field(array_of(MemberValue), "Members.")


_KEY_KINDS: dict[int, type] = {1: OffsetKey, 2: GroupKey}
_VALUE_KINDS: dict[int, type] = {1: OffsetValue, 2: GroupValue}
_KIND_OF = {cls: kind for kinds in (_KEY_KINDS, _VALUE_KINDS) for kind, cls in kinds.items()}

GroupRecordKey: TypeAlias = OffsetKey | GroupKey
GroupRecordValue: TypeAlias = OffsetValue | GroupValue | None


class GroupRecord(NamedTuple):
    """One record; without a value what the key names is deleted."""

    key: GroupRecordKey
    value: GroupRecordValue


def encode_group_batch(records: Sequence[GroupRecord], wall_ms: int) -> bytes:
    """A batch of these records, ready to be appended."""
    rows = [
        Record(offset, wall_ms, _encode(record.key), None if record.value is None else _encode(record.value))
        for offset, record in enumerate(records)
    ]
    return encode_batch(rows, base_offset=0, leader_epoch=-1)


def decode_group_batches(batches: bytes) -> Iterator[tuple[int, list[GroupRecord]]]:
    """(offset behind the batch, its records) of whole batches. Raises: SchemaError, CorruptBatch."""
    for header, batch in iter_batches(batches):
        yield header.next_offset, [_decode(record) for record in decode_records(batch)]


def _encode(part: GroupRecordKey | OffsetValue | GroupValue) -> bytes:
    fields = encode_message(part, RECORD_VERSION, Attachment())
    packed: bytes = msgpack.packb([_KIND_OF[type(part)], RECORD_VERSION, fields], use_bin_type=True)
    return packed


def _decode(record: Record) -> GroupRecord:
    if record.key is None:
        raise SchemaError(f"the record at offset {record.offset} has no key")
    kind, key = _decode_part(record.key, _KEY_KINDS, record.offset)
    if record.value is None:
        return GroupRecord(key, None)
    value_kind, value = _decode_part(record.value, _VALUE_KINDS, record.offset)
    if value_kind != kind:
        raise SchemaError(f"the record at offset {record.offset} has key {kind} and value {value_kind}")
    return GroupRecord(key, value)


def _decode_part(packed: bytes, kinds: dict[int, type], offset: int) -> tuple[int, Any]:
    try:
        raw: Any = msgpack.unpackb(packed, raw=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise SchemaError(f"the record at offset {offset} is not msgpack: {error}") from error
    is_known = type(raw) is list and len(raw) == 3 and type(raw[0]) is int and raw[0] in kinds
    if not is_known or type(raw[1]) is not int or raw[1] < 0:
        raise SchemaError(f"the record at offset {offset} is not [known kind, version, fields]")
    return raw[0], decode_message(kinds[raw[0]], raw[2], raw[1], memoryview(b""))
