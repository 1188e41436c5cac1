"""Reads usual Produce requests, and writes the answer when all went well, without the schemas.

A broker that takes small batches spends more on these two messages than on any other; by the schemas they
cost four times as much. What is not as usual gives None, and goes by the schemas: null or tagged fields, many
elements, errors, and all that is malformed. They are the oracle of the tests.
"""

import struct
from typing import NamedTuple

from holdfast.kafka_listener.core.schema_writer import Fields, varint

#: The versions whose lengths are varints; topics have ids from the second one on.
FIRST_VERSION, FIRST_VERSION_BY_ID = 9, 13
#: Greater bytes are varints of several, of a number that is not as usual.
_ONE_BYTE = 0x80
#: Bits in front of the last byte of the longest length.
_SHIFT_MAX = 28
#: More batches are not as usual.
_ROWS_MAX = 500

_read_int16 = struct.Struct(">h").unpack_from
_read_acks_and_timeout = struct.Struct(">hi").unpack_from
_read_int32 = struct.Struct(">i").unpack_from
#: Index, error code, base offset, log append time, log start offset; no record errors, no message, no tags.
_pack_row = struct.Struct(">ihqqqbbb").pack
_pack_end = struct.Struct(">ib").pack


class ProduceRow:
    """As kio's PartitionProduceData."""

    __slots__ = ("index", "records")

    def __init__(self, index: int, records: memoryview) -> None:
        self.index = index
        self.records = records


class ProduceTopic(NamedTuple):
    """As kio's TopicProduceData; the one that the version does not have is empty."""

    name: str
    topic_id: bytes | None
    partition_data: tuple[ProduceRow, ...]


class ProduceMessage(NamedTuple):
    """As kio's ProduceRequest."""

    transactional_id: None
    acks: int
    timeout: int
    topic_data: tuple[ProduceTopic, ...]


def read_produce(frame: memoryview, version: int) -> tuple[str, ProduceMessage] | None:
    """(client id, message) of a frame with its header; None when it is for the schemas."""
    if version < FIRST_VERSION:
        return None
    # What a slice takes beyond the end is noticed at the byte that follows it, which is always read.
    try:
        (size,) = _read_int16(frame, 8)
        position = 10 + size
        # no tagged fields of the header, no transactional id
        if size < 0 or frame[position] or frame[position + 1]:
            return None
        client_id = str(frame[10:position], "utf-8")
        acks, timeout = _read_acks_and_timeout(frame, position + 2)
        topic_count = frame[position + 8] - 1
        position += 9
        if not 0 <= topic_count < _ONE_BYTE - 1:
            return None
        topics: list[ProduceTopic] = []
        rows_left = _ROWS_MAX
        for _ in range(topic_count):
            name, topic_id = "", None
            if version >= FIRST_VERSION_BY_ID:
                topic_id = bytes(frame[position : position + 16])
                position += 16
            else:
                begin, position = position + 1, position + frame[position]
                if not 0 <= position - begin < _ONE_BYTE - 1:
                    return None
                name = str(frame[begin:position], "utf-8")
            row_count = frame[position] - 1
            position += 1
            rows_left -= row_count
            if not 0 <= row_count < _ONE_BYTE - 1 or rows_left < 0:
                return None
            rows: list[ProduceRow] = []
            for _ in range(row_count):
                (index,) = _read_int32(frame, position)
                position += 4
                length = shift = 0
                while (byte := frame[position]) >= _ONE_BYTE:
                    length |= (byte & 0x7F) << shift
                    shift += 7
                    position += 1
                    if shift > _SHIFT_MAX:
                        return None
                begin = position + 1
                position += length | byte << shift
                if position < begin or frame[position]:  # null, or tagged fields
                    return None
                rows.append(ProduceRow(index, frame[begin:position]))
                position += 1
            if frame[position]:
                return None
            position += 1
            topics.append(ProduceTopic(name, topic_id, tuple(rows)))
        if frame[position]:
            return None
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    return client_id, ProduceMessage(None, acks, timeout, tuple(topics))


def write_produced(version: int, fields: Fields) -> bytes | None:
    """The body of a response; None when it is for the schemas. Only rows with an error name another
    leader, and no row the addresses of leaders."""
    if version < FIRST_VERSION:
        return None
    by_id = version >= FIRST_VERSION_BY_ID
    topics = fields["responses"]
    parts = [varint(len(topics) + 1)]
    for topic in topics:
        if by_id:
            parts.append(topic["topic_id"])
        else:
            name = topic["name"].encode()
            parts += (varint(len(name) + 1), name)
        rows = topic["partition_responses"]
        parts.append(varint(len(rows) + 1))
        for row in rows:
            if row["error_code"] or row["error_message"] is not None or row["record_errors"]:
                return None
            parts.append(
                _pack_row(
                    row["index"],
                    0,
                    row["base_offset"],
                    row["log_append_time"],
                    row["log_start_offset"],
                    1,
                    0,
                    0,
                )
            )
        parts.append(b"\0")
    parts.append(_pack_end(fields.get("throttle_time", 0), 0))
    return b"".join(parts)
