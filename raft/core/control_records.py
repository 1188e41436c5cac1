"""Control records of the metadata log: LeaderChange, the first batch of every raft epoch (K12).

The key is Kafka's (version, type); the value is msgpack in schema order, like metadata records.
"""

import struct

import msgpack

from holdfast.protocol.record_batch import Record
from holdfast.protocol.schema.fields import (
    Attachment,
    array,
    decode_message,
    encode_message,
    field,
    int32,
    message,
)

_KEY = struct.Struct(">hh")
_VERSION = 0
LEADER_CHANGE = 2


@message
class LeaderChangeRecord:
    """A voter became the leader of the batch's epoch."""

    leader_id: int = field(int32, "The leader.")
    voters: tuple[int, ...] = field(array(int32), "All voters, ascending.")
    granting_voters: tuple[int, ...] = field(array(int32), "Voters that voted for it, ascending.")


#: key of every LeaderChange record
LEADER_CHANGE_KEY = _KEY.pack(_VERSION, LEADER_CHANGE)


def encode_leader_change(record: LeaderChangeRecord) -> bytes:
    """The value of a LeaderChange record."""
    packed: bytes = msgpack.packb(encode_message(record, _VERSION, Attachment()))
    return packed


def decode_leader_change(record: Record) -> LeaderChangeRecord | None:
    """The LeaderChange in a control record, None for another type. Raises: SchemaError, ValueError."""
    if record.key != LEADER_CHANGE_KEY or record.value is None:
        return None
    return decode_message(LeaderChangeRecord, msgpack.unpackb(record.value), _VERSION, memoryview(b""))
