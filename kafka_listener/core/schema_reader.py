"""Reads Kafka's messages by the schemas of the library kio, safe against hostile lengths.

kio's own reader reserves memory for an array before it looks whether so many elements can be there: five
bytes end the process. So its schemas are read here instead, with limits, and its reader is the oracle of the
tests. Values are plain: durations and timestamps in ms, error codes and enums as int, uuids as 16 bytes,
records as a view of the received bytes, entities as kio's classes.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from kio.static.protocol import Entity

from holdfast.kafka_listener.core.schema import REQUIRED, FieldShape, shapes
from holdfast.protocol.schema.fields import STRING_MAX

#: Most elements of all arrays of one request, if its API has no other limit: 10 000 partitions, each of a
#: topic of its own.
ITEMS_MAX = 20_000
#: Most bytes of a string. Kafka ends the connection for a longer one, too, and no message between brokers can
#: carry it.
STRING_BYTES_MAX = STRING_MAX


class MalformedRequest(ValueError):
    """The bytes are no message of this schema, or exceed a limit."""


class TooManyElements(MalformedRequest):
    """Its arrays have more elements than the cursor had left."""


class Cursor:
    """A place in a frame. `items_left`: elements of arrays that may still come."""

    __slots__ = ("items_left", "position", "view")

    def __init__(self, view: memoryview, position: int = 0, items_left: int = ITEMS_MAX) -> None:
        self.view = view
        self.position = position
        self.items_left = items_left

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return len(self.view) - self.position


Read: TypeAlias = Callable[[Cursor], Any]


def _fixed(code: str) -> Read:
    packed = struct.Struct(">" + code)
    size, unpack_from = packed.size, packed.unpack_from

    def read(cursor: Cursor) -> Any:
        position = cursor.position
        cursor.position = position + size
        return unpack_from(cursor.view, position)[0]

    return read


def read_varint(cursor: Cursor) -> int:
    """An unsigned varint of at most five bytes."""
    value = shift = 0
    view, position = cursor.view, cursor.position
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            cursor.position = position
            return value
        shift += 7
        if shift > 28:
            raise MalformedRequest("a length of more than five bytes")


_read_int16, _read_int32 = _fixed("h"), _fixed("i")


def _read_compact_length(cursor: Cursor) -> int:
    return read_varint(cursor) - 1


def _take(cursor: Cursor, size: int) -> memoryview:
    begin = cursor.position
    end = begin + size
    if size < 0 or end > len(cursor.view):
        raise MalformedRequest(f"{size} bytes at byte {begin} of {len(cursor.view)}")
    cursor.position = end
    return cursor.view[begin:end]


def _sized(read_length: Read, convert: Callable[[memoryview], Any], *, nullable: bool) -> Read:
    def read(cursor: Cursor) -> Any:
        size = read_length(cursor)
        if size == -1 and nullable:
            return None
        return convert(_take(cursor, size))

    return read


def _text(view: memoryview) -> str:
    if len(view) > STRING_BYTES_MAX:
        raise MalformedRequest(f"a string of {len(view)} bytes; it may have {STRING_BYTES_MAX}")
    return str(view, "utf-8")


def _view(view: memoryview) -> memoryview:
    return view


def _read_uuid(cursor: Cursor) -> bytes:
    return bytes(_take(cursor, 16))


_FIXED = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _read_int16,
    "int32": _read_int32,
    "int64": _fixed("q"),
    "uint16": _fixed("H"),
    "float64": _fixed("d"),
    "error_code": _read_int16,
    "timedelta_i32": _read_int32,
    "timedelta_i64": _fixed("q"),
    "datetime_i64": _fixed("q"),
    "uuid": _read_uuid,
}


def _primitive(kind: str, *, flexible: bool, nullable: bool) -> Read:
    if kind == "string":
        return _sized(_read_compact_length if flexible else _read_int16, _text, nullable=nullable)
    if kind == "bytes":
        return _sized(_read_compact_length if flexible else _read_int32, bytes, nullable=nullable)
    if kind == "records":
        return _sized(_read_compact_length if flexible else _read_int32, _view, nullable=nullable)
    return _FIXED[kind]


def _array(read_item: Read, *, flexible: bool, nullable: bool) -> Read:
    read_length = _read_compact_length if flexible else _read_int32

    def read(cursor: Cursor) -> tuple[Any, ...] | None:
        count = read_length(cursor)
        if count == -1 and nullable:
            return None
        # Every element has a byte at least.
        if not 0 <= count <= cursor.left:
            raise MalformedRequest(f"an array of {count} elements with {cursor.left} bytes left")
        if count > cursor.items_left:
            raise TooManyElements(
                f"an array of {count} elements; this request may have {cursor.items_left} more: ask for less "
                "at once"
            )
        cursor.items_left -= count
        return tuple([read_item(cursor) for _ in range(count)])

    return read


def _nullable_entity(read_entity: Read) -> Read:
    read_marker = _FIXED["int8"]

    def read(cursor: Cursor) -> Any:
        return None if read_marker(cursor) < 0 else read_entity(cursor)

    return read


def _field_reader(shape: FieldShape, *, flexible: bool, is_header: bool) -> Read:
    nullable = shape.is_nullable and shape.tag is None
    if is_header and shape.name == "client_id":  # in every version as in the first
        return _primitive("string", flexible=False, nullable=True)
    if shape.struct is not None:
        read_item = entity_reader(shape.struct)
        if not shape.is_array:
            return _nullable_entity(read_item) if nullable else read_item
    else:
        read_item = _primitive(shape.kind, flexible=flexible, nullable=nullable and not shape.is_array)
    return _array(read_item, flexible=flexible, nullable=nullable) if shape.is_array else read_item


@cache
def entity_reader(entity_type: type[Entity]) -> Read:
    """Reads one message, or one struct of it. What it raises on bad bytes, `read_message` makes one error."""
    flexible, is_header = entity_type.__flexible__, entity_type.__name__ == "RequestHeader"
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    not_sent: dict[str, Any] = {}
    for shape in shapes(entity_type):
        entry = (shape.name, _field_reader(shape, flexible=flexible, is_header=is_header))
        if shape.tag is None:
            plain.append(entry)
        else:
            tagged[shape.tag] = entry
            not_sent[shape.name] = None if shape.default is REQUIRED else shape.default
    make: Any = entity_type

    def read(cursor: Cursor) -> Any:
        values = {name: read_field(cursor) for name, read_field in plain}
        if flexible:
            values.update(not_sent)
            _read_tagged(cursor, tagged, values)
        return make(**values)

    return read


def _read_tagged(cursor: Cursor, known: dict[int, tuple[str, Read]], values: dict[str, Any]) -> None:
    count = read_varint(cursor)
    if count > cursor.left:
        raise MalformedRequest(f"{count} tagged fields with {cursor.left} bytes left")
    for _ in range(count):
        tag, size = read_varint(cursor), read_varint(cursor)
        end = cursor.position + size
        if size > cursor.left:
            raise MalformedRequest(f"a tagged field of {size} bytes with {cursor.left} bytes left")
        if tag in known:
            name, read_field = known[tag]
            values[name] = read_field(cursor)
            if cursor.position != end:
                raise MalformedRequest(f"tagged field {tag} has {size} bytes, which is not what it needs")
        cursor.position = end


def read_message(entity_type: type[Entity], cursor: Cursor) -> Any:
    """The message at the cursor. Raises: MalformedRequest."""
    try:
        return entity_reader(entity_type)(cursor)
    except (struct.error, IndexError) as error:
        raise MalformedRequest(f"the request ends too early ({error})") from error
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"a string is not UTF-8 ({error})") from error
