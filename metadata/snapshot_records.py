"""Records that only a snapshot of the metadata has, beside those of the metadata log (K15).

They are encoded like those, msgpack `[record_key, version, fields]`, and their numbers are none of the log's.
"""

from typing import Any, TypeAlias

import msgpack

from holdfast.metadata.records import (
    RECORD_VERSION,
    LaterRecord,
    MetadataRecord,
    PartitionRecord,
    decode_versioned,
    encode_record,
)
from holdfast.protocol.schema.fields import (
    Attachment,
    SchemaError,
    array,
    boolean,
    decode_message,
    encode_message,
    field,
    has_later_fields,
    int32,
    int64,
    message,
    nullable,
    struct,
    uuid,
)


@message
class SnapshotStateRecord:
    """The first record: what else an image knows."""

    raft_epoch: int = field(int32, "Epoch of the last metadata record below the snapshot's offset.")
    has_dropped_assignments: bool = field(boolean, "Older PastAssignmentRecords were dropped.")


@message
class PastRegistrationRecord:
    """A registration of a broker; in order of epochs."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Offset of its record.")
    incarnation_id: bytes = field(uuid, "Process that registered.")
    is_first: bool = field(boolean, "The broker had none before; else older ones were dropped.")


@message
class PastAssignmentRecord:
    """A partition that was moved away from these brokers, or was deleted."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Index.")
    replicas: tuple[int, ...] = field(array(int32), "Brokers that had it once, ascending.")


@message
class PastChangeRecord:
    """One of the last changes of a partition, with its record before it."""

    offset: int = field(int64, "Offset of the change in the metadata log.")
    timestamp_ms: int = field(int64, "Wall time of the controller that wrote it.")
    before: PartitionRecord | None = field(nullable(struct(PartitionRecord)), "Null: it was created.")


SnapshotRecord: TypeAlias = (
    MetadataRecord | SnapshotStateRecord | PastRegistrationRecord | PastAssignmentRecord | PastChangeRecord
)

#: Numbers of their own, beside `records.RECORD_CLASSES`; never reused.
SNAPSHOT_RECORD_CLASSES: dict[int, type] = {
    200: SnapshotStateRecord,
    201: PastRegistrationRecord,
    202: PastAssignmentRecord,
    203: PastChangeRecord,
}
_KEYS: dict[type, int] = {cls: key for key, cls in SNAPSHOT_RECORD_CLASSES.items()}
#: the log's: `PastChangeRecord.before` is written as its records are
SNAPSHOT_RECORD_VERSION = RECORD_VERSION
#: The version of the first build with snapshots: each build that reads one reads this. It implies level 0 of
#: metadata.version.
SNAPSHOT_RECORD_VERSION_MIN = 4


def encode_snapshot_record(record: SnapshotRecord, version: int = SNAPSHOT_RECORD_VERSION) -> bytes:
    """The bytes of a record's value. A field that is later than `version` is left out."""
    key = _KEYS.get(type(record))
    if key is None:
        return encode_record(record, version)  # type: ignore[arg-type]  # it is none of those above
    attachment = Attachment()
    fields = encode_message(record, version, attachment)
    packed: bytes = msgpack.packb([key, version, fields], use_bin_type=True)
    return packed


def decode_snapshot_record(value: bytes) -> SnapshotRecord:
    """The record in a value. Raises: LaterRecord; SchemaError for a wrong field."""
    return decode_versioned_snapshot_record(value)[0]


def decode_versioned_snapshot_record(value: bytes) -> tuple[SnapshotRecord, int]:
    """The record in a value, and its version. Raises: LaterRecord; SchemaError for a wrong field."""
    try:
        raw: Any = msgpack.unpackb(value, raw=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise SchemaError(f"snapshot record is not msgpack: {error}") from error
    is_own = type(raw) is list and len(raw) == 3 and type(raw[0]) is int and raw[0] in SNAPSHOT_RECORD_CLASSES
    if not is_own or type(raw[1]) is not int or raw[1] < 0:
        return decode_versioned(value)
    cls = SNAPSHOT_RECORD_CLASSES[raw[0]]
    if raw[1] > SNAPSHOT_RECORD_VERSION and has_later_fields(cls, raw[2]):
        raise LaterRecord(f"a later build wrote a {cls.__name__} with fields that this one does not know")
    decoded: SnapshotRecord = decode_message(cls, raw[2], raw[1], memoryview(b""))
    return decoded, raw[1]
