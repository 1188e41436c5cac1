"""Types of declared fields, their limits, and what collects a message's bytes. See
`protocol.schema.fields`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Limits of one message; a peer that exceeds them gets a SchemaError, never our memory.
STRING_MAX = 32_767
BYTES_MAX = 1 << 20
ARRAY_MAX = 100_000
#: Longest text for people; what a peer sent must not come back at full length, in a text around it.
SENTENCE_MAX = 1_000
#: Deepest nesting of what a newer peer appends; declared fields nest as declared, nothing else is accepted.
NESTING_MAX = 16


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


class Kind(Enum):
    """The shape of a field type: what the reference codec, the compiler and the tests tell apart."""

    #: as msgpack gives it, after a check
    SCALAR = "scalar"
    RECORDS = "records"
    NULLABLE = "nullable"
    ARRAY = "array"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class FieldType:
    """How one value looks on the wire."""

    name: str
    kind: Kind
    #: SCALAR: expression that is true when the raw value `{v}` fits
    check: str = ""
    #: SCALAR: what is wrong with a raw value, None when it fits
    complain: Callable[[Any], str | None] | None = None
    #: NULLABLE, ARRAY: what is inside
    of: "FieldType | None" = None
    #: STRUCT: the message class
    cls: type | None = None
    #: smallest and largest integer, both inclusive, or longest string, bytes or array
    low: int = 0
    high: int = 0
    #: SCALAR: a longer text is cut to so many characters when it is sent; 0: as it is
    cut: int = 0

    @property
    def inner(self) -> tuple[type, ...]:
        """Message classes inside this type."""
        if self.cls is not None:
            return (self.cls,)
        return () if self.of is None else self.of.inner


def _integer(bits: int) -> FieldType:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    name = f"int{bits}"

    def complain(raw: Any) -> str | None:
        if type(raw) is not int:
            return f"expected {name}, got {type(raw).__name__}"
        return None if low <= raw <= high else f"{raw} is outside {name} [{low}, {high}]"

    check = f"type({{v}}) is int and {low} <= {{v}} <= {high}"
    return FieldType(name, Kind.SCALAR, check, complain, low=low, high=high)


def _complain_boolean(raw: Any) -> str | None:
    return None if type(raw) is bool else f"expected boolean, got {type(raw).__name__}"


def _complain_uuid(raw: Any) -> str | None:
    return None if type(raw) is bytes and len(raw) == 16 else "expected a uuid of 16 bytes"


def _complain_string(raw: Any) -> str | None:
    if type(raw) is not str:
        return f"expected string, got {type(raw).__name__}"
    if len(raw) > STRING_MAX:
        return f"string of {len(raw)} characters is longer than {STRING_MAX}"
    return None


def _complain_bytes(raw: Any) -> str | None:
    if type(raw) is not bytes:
        return f"expected bytes, got {type(raw).__name__}"
    return f"{len(raw)} bytes are more than {BYTES_MAX}" if len(raw) > BYTES_MAX else None


int8 = _integer(8)
int16 = _integer(16)
int32 = _integer(32)
int64 = _integer(64)
boolean = FieldType("boolean", Kind.SCALAR, "type({v}) is bool", _complain_boolean)
uuid = FieldType(
    "uuid", Kind.SCALAR, "type({v}) is bytes and len({v}) == 16", _complain_uuid, low=16, high=16
)
string = FieldType(
    "string",
    Kind.SCALAR,
    f"type({{v}}) is str and len({{v}}) <= {STRING_MAX}",
    _complain_string,
    high=STRING_MAX,
)
#: what is wrong and what to do: it may name what a peer sent
sentence = replace(string, cut=SENTENCE_MAX)
binary = FieldType(
    "bytes",
    Kind.SCALAR,
    f"type({{v}}) is bytes and len({{v}}) <= {BYTES_MAX}",
    _complain_bytes,
    high=BYTES_MAX,
)
#: encoding takes one buffer or a sequence of buffers; decoding gives a memoryview of the received frame
records = FieldType("records", Kind.RECORDS)


def nullable(inner: FieldType) -> FieldType:
    """`None` or a value of `inner`."""
    return FieldType(f"nullable {inner.name}", Kind.NULLABLE, of=inner)


def array(inner: FieldType, limit: int = ARRAY_MAX) -> FieldType:
    """A tuple of values of `inner`, at most `limit` of them."""
    return FieldType(f"array of {inner.name}", Kind.ARRAY, of=inner, high=limit)


def struct(cls: type) -> FieldType:
    """A nested message declared with `@message`."""
    return FieldType(cls.__name__, Kind.STRUCT, cls=cls)


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
