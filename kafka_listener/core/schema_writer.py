"""Writes Kafka's messages by the schemas of the library kio; kio's own writer is the oracle of the tests.

A response is a mapping of the field names of the newest version, rows as mappings too, with plain values
(durations in ms, error codes as int, ids as 16 bytes). A version takes the fields that it has; what is not
given has the schema's default, and a list, a duration or an id without one is empty. kio's writer takes
objects of its own, made and checked field by field: some twenty times the cost.
"""

import datetime
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

from kio.serial import entity_writer as kio_writer
from kio.static.protocol import Entity

from holdfast.kafka_listener.core.schema import REQUIRED, FieldShape, shapes
from holdfast.protocol.schema.fields import Buffer

Fields: TypeAlias = Mapping[str, Any]
#: Appends the bytes of a value to buffers.
Write: TypeAlias = Callable[[list[Buffer], Any], None]

#: Longer values leave as buffers of their own, uncopied.
COPIED_MAX_BYTES = 2048

_NO_UUID = bytes(16)
#: Kinds that have one size and are never null: codes of `struct`.
_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
}
_EMPTY: dict[str, Any] = {"error_code": 0, "timedelta_i32": 0, "timedelta_i64": 0, "uuid": None}

_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack
_pack_int64 = struct.Struct(">q").pack


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return _SMALL_VARINTS[value]
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


_SMALL_VARINTS = [bytes((number,)) for number in range(0x80)]


def _compact_length(size: int) -> bytes:
    return varint(size + 1)


def _fixed(code: str) -> Write:
    pack = struct.Struct(">" + code).pack
    return lambda out, value: out.append(pack(value))


def _sized(pack_length: Callable[[int], bytes], *, nullable: bool, is_text: bool) -> Write:
    def write(out: list[Buffer], value: Any) -> None:
        if value is None:
            if not nullable:
                raise TypeError("null where the schema allows none")
            out.append(pack_length(-1))
            return
        data = value.encode() if is_text else value
        out.append(pack_length(len(data)))
        out.append(data)

    return write


def _write_uuid(out: list[Buffer], value: bytes | None) -> None:
    out.append(value or _NO_UUID)


def _write_moment(out: list[Buffer], value: int | None) -> None:
    out.append(_pack_int64(-1 if value is None else value))


def _primitive(kind: str, *, flexible: bool, nullable: bool) -> Write:
    if kind == "uuid":
        return _write_uuid
    if kind == "datetime_i64":
        return _write_moment
    if kind == "string":
        return _sized(_compact_length if flexible else _pack_int16, nullable=nullable, is_text=True)
    if kind in ("bytes", "records"):
        return _sized(_compact_length if flexible else _pack_int32, nullable=nullable, is_text=False)
    return _fixed(_FIXED[kind])


def _array(write_item: Write, *, flexible: bool) -> Write:
    pack_length = _compact_length if flexible else _pack_int32

    def write(out: list[Buffer], items: Any) -> None:
        if items is None:
            out.append(pack_length(-1))
            return
        out.append(pack_length(len(items)))
        for item in items:
            write_item(out, item)

    return write


def _nullable_entity(write_entity: Write) -> Write:
    def write(out: list[Buffer], value: Any) -> None:
        if value is None:
            out.append(b"\xff")
        else:
            out.append(b"\x01")
            write_entity(out, value)

    return write


def _field_writer(shape: FieldShape, *, flexible: bool) -> Write:
    nullable = shape.is_nullable and shape.tag is None
    if shape.struct is not None:
        write_item = entity_writer(shape.struct)
        if not shape.is_array:
            return _nullable_entity(write_item) if nullable else write_item
    else:
        write_item = _primitive(shape.kind, flexible=flexible, nullable=nullable and not shape.is_array)
    return _array(write_item, flexible=flexible) if shape.is_array else write_item


def _when_not_given(shape: FieldShape) -> Any:
    """The plain value of a field that is not given."""
    if shape.default is not REQUIRED:
        return _plain(shape.default)
    return None if shape.is_nullable else _EMPTY.get(shape.kind, REQUIRED)


def _plain(value: Any) -> Any:
    """A default of kio's as a plain value; those of structs stay."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    return value.value if isinstance(value, Enum) else value


def _value_of(given: Fields, entity_type: type[Entity], name: str, default: Any) -> Any:
    if name in given:
        return given[name]
    if default is REQUIRED:
        raise KeyError(f"{entity_type.__name__} needs {name}")
    return default


def _run_writer(entity_type: type[Entity], run: list[FieldShape]) -> Write:
    """Fields of one size each, one behind the other."""
    pack = struct.Struct(">" + "".join(_FIXED[shape.kind] for shape in run)).pack
    entries = [(shape.name, _when_not_given(shape)) for shape in run]
    pick: Callable[[Fields], Any] = itemgetter(*(shape.name for shape in run))
    is_single = len(run) == 1

    def write(out: list[Buffer], given: Fields) -> None:
        try:
            values = pick(given)
        except KeyError:
            out.append(pack(*[_value_of(given, entity_type, *entry) for entry in entries]))
        else:
            out.append(pack(values) if is_single else pack(*values))

    return write


def _one_writer(entity_type: type[Entity], shape: FieldShape) -> Write:
    name, default = shape.name, _when_not_given(shape)
    write_value = _field_writer(shape, flexible=entity_type.__flexible__)
    return lambda out, given: write_value(out, _value_of(given, entity_type, name, default))


def _bytes_of(write: Write, value: Any) -> bytes:
    out: list[Buffer] = []
    write(out, value)
    return b"".join(out)


def _default_bytes(shape: FieldShape, write_value: Write) -> bytes | None:
    """What a tagged field has when it is not sent; None for null."""
    if shape.default is None:
        return None
    if shape.struct is not None and not shape.is_array:
        written = BytesIO()
        kio_writer(shape.struct)(written, shape.default)
        return written.getvalue()
    return _bytes_of(write_value, _when_not_given(shape))


def _tagged_writer(tagged: list[FieldShape]) -> Write:
    """Tagged fields in the order of their tags, without those that have their default."""
    entries: list[tuple[str, bytes, Write, bytes | None]] = []
    for shape in sorted(tagged, key=lambda shape: shape.tag or 0):
        assert shape.tag is not None
        write_value = _field_writer(shape, flexible=True)
        entries.append((shape.name, varint(shape.tag), write_value, _default_bytes(shape, write_value)))

    def write(out: list[Buffer], given: Fields) -> None:
        sent: list[bytes] = []
        for name, tag, write_value, default in entries:
            if name not in given:
                continue
            value = given[name]
            if value is None and default is None:
                continue
            data = _bytes_of(write_value, value)
            if data != default:
                sent.append(tag + varint(len(data)) + data)
        out.append(varint(len(sent)))
        out.extend(sent)

    return write


@cache
def entity_writer(entity_type: type[Entity]) -> Write:
    """Writes one message, or one struct of it, of these fields. Raises: KeyError for a field that has no
    default and is not given."""
    all_shapes = shapes(entity_type)
    writers: list[Write] = []
    plain = [shape for shape in all_shapes if shape.tag is None]
    for is_fixed, run in groupby(plain, lambda shape: shape.kind in _FIXED and not shape.is_array):
        if is_fixed:
            writers.append(_run_writer(entity_type, list(run)))
        else:
            writers += [_one_writer(entity_type, shape) for shape in run]
    if entity_type.__flexible__:
        writers.append(_tagged_writer([shape for shape in all_shapes if shape.tag is not None]))

    def write(out: list[Buffer], given: Fields) -> None:
        for write_part in writers:
            write_part(out, given)

    return write


def write_message(entity_type: type[Entity], given: Fields) -> list[Buffer]:
    """The buffers of a message without its header; short ones are put together."""
    parts: list[Buffer] = []
    entity_writer(entity_type)(parts, given)
    done: list[Buffer] = []
    begin = 0
    for index, part in enumerate(parts):
        if len(part) > COPIED_MAX_BYTES:
            if begin < index:
                done.append(b"".join(parts[begin:index]))
            done.append(part)
            begin = index + 1
    if begin < len(parts):
        done.append(b"".join(parts[begin:]))
    return done
