"""Field declarations: the single truth for every RPC and every metadata record.

A message is a frozen dataclass whose fields are declared with `field(TYPE, ...)`. On the wire it is a msgpack
array of its fields in the order of declaration (design D3). Evolution only appends: a field with `since=n`
is present from version n on and takes its default when an older peer leaves it out; extra trailing elements
are passed over. Decoding checks types, ranges and lengths and raises `SchemaError` with the path.
Fields of type `records` carry bytes outside msgpack: the array holds `[offset, length]` into the attachment.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, dataclass_transform

Buffer: TypeAlias = bytes | bytearray | memoryview
M = TypeVar("M")

#: Limits of one message; a peer that exceeds them gets a SchemaError, never our memory.
STRING_MAX = 32_767
BYTES_MAX = 1 << 20
ARRAY_MAX = 100_000


class SchemaError(ValueError):
    """The bytes do not fit the declared schema. The text names the field and what was expected."""


class Attachment:
    """Collects the buffers that travel behind the msgpack body, without copying them."""

    __slots__ = ("buffers", "size")

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.size = 0

    def add(self, buffers: Sequence[Buffer]) -> list[int]:
        """Append the buffers; returns `[offset, length]`."""
        start = self.size
        for buffer in buffers:
            self.buffers.append(buffer)
            self.size += len(buffer)
        return [start, self.size - start]


@dataclass(frozen=True, slots=True)
class FieldType:
    """How one value looks on the wire."""

    name: str
    encode: Callable[[Any, int, Attachment], Any]
    decode: Callable[[Any, int, memoryview, str], Any]
    #: message classes inside this type, for the generated documentation
    inner: tuple[type, ...] = ()


def _same(value: Any, version: int, attachment: Attachment) -> Any:
    return value


def _integer(name: str, bits: int, *, signed: bool = True) -> FieldType:
    low = -(1 << (bits - 1)) if signed else 0
    high = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1

    def decode(raw: Any, version: int, attachment: memoryview, path: str) -> int:
        if type(raw) is not int:
            raise SchemaError(f"{path}: expected {name}, got {type(raw).__name__}")
        if not low <= raw <= high:
            raise SchemaError(f"{path}: {raw} is outside {name} [{low}, {high}]")
        return raw

    return FieldType(name, _same, decode)


def _decode_boolean(raw: Any, version: int, attachment: memoryview, path: str) -> bool:
    if type(raw) is not bool:
        raise SchemaError(f"{path}: expected boolean, got {type(raw).__name__}")
    return raw


def _decode_uuid(raw: Any, version: int, attachment: memoryview, path: str) -> bytes:
    if type(raw) is not bytes or len(raw) != 16:
        raise SchemaError(f"{path}: expected a uuid of 16 bytes")
    return raw


def _decode_string(raw: Any, version: int, attachment: memoryview, path: str) -> str:
    if type(raw) is not str:
        raise SchemaError(f"{path}: expected string, got {type(raw).__name__}")
    if len(raw) > STRING_MAX:
        raise SchemaError(f"{path}: string of {len(raw)} characters is longer than {STRING_MAX}")
    return raw


def _decode_bytes(raw: Any, version: int, attachment: memoryview, path: str) -> bytes:
    if type(raw) is not bytes:
        raise SchemaError(f"{path}: expected bytes, got {type(raw).__name__}")
    if len(raw) > BYTES_MAX:
        raise SchemaError(f"{path}: {len(raw)} bytes are more than {BYTES_MAX}")
    return raw


def _encode_records(value: Any, version: int, attachment: Attachment) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return attachment.add((value,))
    return attachment.add(value)


def _decode_records(raw: Any, version: int, attachment: memoryview, path: str) -> memoryview:
    if type(raw) is not list or len(raw) != 2 or type(raw[0]) is not int or type(raw[1]) is not int:
        raise SchemaError(f"{path}: expected [offset, length] into the attachment")
    offset, length = raw
    if offset < 0 or length < 0 or offset + length > len(attachment):
        raise SchemaError(
            f"{path}: [{offset}, {length}] lies outside the attachment of {len(attachment)} bytes"
        )
    return attachment[offset : offset + length]


int8 = _integer("int8", 8)
int16 = _integer("int16", 16)
int32 = _integer("int32", 32)
int64 = _integer("int64", 64)
boolean = FieldType("boolean", _same, _decode_boolean)
uuid = FieldType("uuid", _same, _decode_uuid)
string = FieldType("string", _same, _decode_string)
binary = FieldType("bytes", _same, _decode_bytes)
#: encode takes one buffer or a sequence of buffers; decode gives a memoryview of the received frame
records = FieldType("records", _encode_records, _decode_records)


def nullable(inner: FieldType) -> FieldType:
    """`None` or a value of `inner`."""

    def encode(value: Any, version: int, attachment: Attachment) -> Any:
        return None if value is None else inner.encode(value, version, attachment)

    def decode(raw: Any, version: int, attachment: memoryview, path: str) -> Any:
        return None if raw is None else inner.decode(raw, version, attachment, path)

    return FieldType(f"nullable {inner.name}", encode, decode, inner.inner)


def array(inner: FieldType, limit: int = ARRAY_MAX) -> FieldType:
    """A tuple of values of `inner`, at most `limit` of them."""
    inner_encode, inner_decode = inner.encode, inner.decode

    def encode(value: Any, version: int, attachment: Attachment) -> Any:
        if inner_encode is _same:
            return list(value)
        return [inner_encode(item, version, attachment) for item in value]

    def decode(raw: Any, version: int, attachment: memoryview, path: str) -> Any:
        if type(raw) is not list:
            raise SchemaError(f"{path}: expected array of {inner.name}, got {type(raw).__name__}")
        if len(raw) > limit:
            raise SchemaError(f"{path}: array of {len(raw)} is longer than {limit}")
        return tuple([inner_decode(item, version, attachment, path) for item in raw])

    return FieldType(f"array of {inner.name}", encode, decode, inner.inner)


def struct(cls: type) -> FieldType:
    """A nested message declared with `@message`."""

    def encode(value: Any, version: int, attachment: Attachment) -> Any:
        return encode_message(value, version, attachment)

    def decode(raw: Any, version: int, attachment: memoryview, path: str) -> Any:
        return decode_message(cls, raw, version, attachment, path)

    return FieldType(cls.__name__, encode, decode, (cls,))


def array_of(cls: type, limit: int = ARRAY_MAX) -> FieldType:
    """A tuple of nested messages."""
    return array(struct(cls), limit)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One declared field of a message."""

    name: str
    type: FieldType
    since: int
    default: Any
    about: str


def field(type: FieldType, about: str, *, since: int = 0, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field. `about` is one sentence for docs/protocol.md; units go last in the name."""
    assert since == 0 or default is not dataclasses.MISSING, "an appended field needs a default"
    meta = {"type": type, "since": since, "about": about}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(cls: type[M]) -> type[M]:
    """Make a frozen dataclass with slots out of declared fields and compile its schema."""
    made = dataclass(frozen=True, slots=True)(cls)
    specs = tuple(
        FieldSpec(f.name, f.metadata["type"], f.metadata["since"], f.default, f.metadata["about"])
        for f in dataclasses.fields(made)  # type: ignore[arg-type]
    )
    assert list(specs) == sorted(specs, key=lambda s: s.since), (
        f"{cls.__name__}: evolution only appends fields"
    )
    _SCHEMAS[made] = specs
    return made


_SCHEMAS: dict[type, tuple[FieldSpec, ...]] = {}


def schema_of(cls: type) -> tuple[FieldSpec, ...]:
    """The declared fields of a message class, in wire order."""
    return _SCHEMAS[cls]


def encode_message(value: Any, version: int, attachment: Attachment) -> list[Any]:
    """The msgpack array of a message at `version`; `records` fields go to the attachment."""
    out: list[Any] = []
    for spec in _SCHEMAS[type(value)]:
        if spec.since > version:
            break
        encode = spec.type.encode
        item = getattr(value, spec.name)
        out.append(item if encode is _same else encode(item, version, attachment))
    return out


def decode_message(cls: type[M], raw: Any, version: int, attachment: memoryview, path: str = "") -> M:
    """The message in a msgpack array. Raises: SchemaError naming the field that does not fit."""
    path = path or cls.__name__
    if type(raw) is not list:
        raise SchemaError(f"{path}: expected an array of fields, got {type(raw).__name__}")
    values: list[Any] = []
    given = len(raw)
    for index, spec in enumerate(_SCHEMAS[cls]):
        if spec.since > version or (index >= given and spec.since > 0):
            values.append(spec.default)
        elif index >= given:
            raise SchemaError(f"{path}: field {spec.name} is missing")
        else:
            values.append(spec.type.decode(raw[index], version, attachment, f"{path}.{spec.name}"))
    return cls(*values)
