"""Writes Kafka's responses with the library kio.

A response is a mapping of the field names of the newest version, rows as mappings too, with plain values
(durations in ms, error codes as int, ids as 16 bytes). A version takes the fields that it has; what is not
given has the schema's default, and a list, a duration or an id without one is empty.
"""

import datetime
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode as KafkaErrorCode
from kio.serial import entity_writer
from kio.static.constants import uuid_zero
from kio.static.protocol import Entity

from holdfast.kafka_listener.core.schema import REQUIRED, FieldShape, shapes
from holdfast.protocol.schema.fields import Buffer

Fields: TypeAlias = Mapping[str, Any]
Convert: TypeAlias = Callable[[Any], Any]

#: Longer values leave as buffers of their own, uncopied.
COPIED_MAX_BYTES = 2048

_Uuid = type(uuid_zero)
_NO_DURATION = datetime.timedelta(0)


def _duration(milliseconds: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds) if milliseconds else _NO_DURATION


def _moment(milliseconds: int) -> datetime.datetime | None:
    return None if milliseconds < 0 else datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)


def _uuid(value: bytes | None) -> Any:
    return None if value is None else _Uuid(bytes=value)


_CONVERT: dict[str, Convert] = {
    "error_code": KafkaErrorCode,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _moment,
    "uuid": _uuid,
}
_EMPTY: dict[str, Any] = {
    "error_code": KafkaErrorCode(0),
    "timedelta_i32": _NO_DURATION,
    "timedelta_i64": _NO_DURATION,
    "uuid": None,
}


def _converter(shape: FieldShape) -> Convert | None:
    """How a plain value becomes kio's, None when it is the same."""
    if shape.struct is not None:
        build_one = builder(shape.struct)
        if shape.is_array:
            return lambda rows: None if rows is None else tuple([build_one(row) for row in rows])
        return lambda row: None if row is None else build_one(row)
    return None if shape.is_array else _CONVERT.get(shape.kind)


def _when_not_given(shape: FieldShape) -> Any:
    if shape.default is not REQUIRED:
        return shape.default
    if shape.is_nullable:
        return None
    return _EMPTY.get(shape.kind, REQUIRED)


@cache
def builder(entity_type: type[Entity]) -> Callable[[Fields], Any]:
    """Builds one message, or one struct of it, of these fields. Raises: KeyError for a field that has no
    default and is not given."""
    entries = [(shape.name, _converter(shape), _when_not_given(shape)) for shape in shapes(entity_type)]
    make: Any = entity_type

    def build(given: Fields) -> Any:
        values: dict[str, Any] = {}
        for name, convert, default in entries:
            if name in given:
                value = given[name]
                values[name] = value if convert is None else convert(value)
            elif default is REQUIRED:
                raise KeyError(f"{entity_type.__name__} needs {name}")
            else:
                values[name] = default
        return make(**values)

    return build


class _Buffers:
    """What kio writes to. Long values stay as they are."""

    def __init__(self) -> None:
        self.done: list[Buffer] = []
        self.short: list[bytes] = []

    def write(self, value: Any) -> None:
        if len(value) <= COPIED_MAX_BYTES:
            self.short.append(value)
        else:
            self.cut()
            self.done.append(value)

    def cut(self) -> None:
        if self.short:
            self.done.append(b"".join(self.short))
            self.short = []


def write_message(entity_type: type[Entity], given: Fields) -> list[Buffer]:
    """The buffers of a message without its header."""
    out = _Buffers()
    target: Any = out
    entity_writer(entity_type)(target, builder(entity_type)(given))
    out.cut()
    return out.done
