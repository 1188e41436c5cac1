"""Field declarations: the single truth for every RPC and every metadata record.

A message is a frozen dataclass whose fields are declared with `field(TYPE, ...)`. On the wire it is a msgpack
array of its fields in the order of declaration (D3). Evolution only appends: a field with `since=n`
is present from version n on and takes its default when an older peer leaves it out; extra trailing elements
are passed over. Decoding checks types, ranges and lengths and raises `SchemaError` with the path.
Fields of type `records` carry bytes outside msgpack: the array holds `[offset, length]` into the attachment.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from holdfast.protocol.schema.compiler import Codec, Misfit, compile_codec, compile_init
from holdfast.protocol.schema.types import (
    ARRAY_MAX,
    BYTES_MAX,
    NESTING_MAX,
    SENTENCE_MAX,
    STRING_MAX,
    Attachment,
    Buffer,
    FieldSpec,
    FieldType,
    Kind,
    SchemaError,
    array,
    array_of,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable,
    records,
    sentence,
    string,
    struct,
    uuid,
)

__all__ = [
    "ARRAY_MAX",
    "Attachment",
    "BYTES_MAX",
    "Buffer",
    "FieldSpec",
    "FieldType",
    "Kind",
    "NESTING_MAX",
    "SENTENCE_MAX",
    "STRING_MAX",
    "SchemaError",
    "WrittenLater",
    "array",
    "array_of",
    "binary",
    "boolean",
    "decode_by_schema",
    "decode_message",
    "encode_message",
    "field",
    "has_later_fields",
    "int16",
    "int32",
    "int64",
    "int8",
    "message",
    "nullable",
    "records",
    "schema_of",
    "sentence",
    "string",
    "struct",
    "uuid",
]

M = TypeVar("M")


def field(type: FieldType, about: str, *, since: int = 0, default: Any = dataclasses.MISSING) -> Any:
    """Declare a field. `about` is one sentence for docs/protocol.md; units go last in the name."""
    assert since == 0 or default is not dataclasses.MISSING, "an appended field needs a default"
    meta = {"type": type, "since": since, "about": about}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(cls: type[M]) -> type[M]:
    """Make a frozen dataclass with slots out of declared fields and keep its schema."""
    made = dataclass(frozen=True, slots=True)(cls)
    specs = tuple(
        FieldSpec(f.name, f.metadata["type"], f.metadata["since"], f.default, f.metadata["about"])
        for f in dataclasses.fields(made)  # type: ignore[arg-type]
    )
    assert list(specs) == sorted(specs, key=lambda s: s.since), (
        f"{cls.__name__}: evolution only appends fields"
    )
    _SCHEMAS[made] = specs
    setattr(made, "__init__", compile_init(made, specs))  # noqa: B010  mypy forbids the plain way
    return made


_SCHEMAS: dict[type, tuple[FieldSpec, ...]] = {}
#: (class, version) -> its compiled functions, made at first use
_CODECS: dict[tuple[type, int], Codec] = {}


def schema_of(cls: type) -> tuple[FieldSpec, ...]:
    """The declared fields of a message class, in wire order."""
    return _SCHEMAS[cls]


def encode_message(value: Any, version: int, attachment: Attachment) -> list[Any]:
    """The msgpack array of a message at `version`; `records` fields go to the attachment."""
    cls = type(value)
    codec = _CODECS.get((cls, version)) or _compile(cls, version)
    fields: list[Any] = codec.encode(value, attachment)
    return fields


def decode_message(cls: type[M], raw: Any, version: int, attachment: memoryview, path: str = "") -> M:
    """The message in a msgpack array. Raises: SchemaError naming the field that does not fit."""
    codec = _CODECS.get((cls, version)) or _compile(cls, version)
    try:
        decoded: M = codec.decode(raw, attachment)
        return decoded
    except Misfit:
        # Wrong, or from a peer with more or fewer fields: the reference codec tells which, field by field.
        return decode_by_schema(cls, raw, version, attachment, path)


def _compile(cls: type, version: int) -> Codec:
    codec = _CODECS[cls, version] = compile_codec(cls, version, _SCHEMAS)
    return codec


def decode_by_schema(cls: type[M], raw: Any, version: int, attachment: memoryview, path: str = "") -> M:
    """What `decode_message` does, interpreted from the declarations. Slow, and the truth."""
    path = path or cls.__name__
    if type(raw) is not list:
        raise SchemaError(f"{path}: expected an array of fields, got {type(raw).__name__}")
    specs = _SCHEMAS[cls]
    values: list[Any] = []
    given = len(raw)
    for index, spec in enumerate(specs):
        if spec.since > version or (index >= given and spec.since > 0):
            values.append(spec.default)
        elif index >= given:
            raise SchemaError(f"{path}: field {spec.name} is missing")
        else:
            values.append(_decode_value(spec.type, raw[index], version, attachment, f"{path}.{spec.name}"))
    for extra in raw[len(specs) :]:
        if _nests_deeper(extra, NESTING_MAX):
            raise SchemaError(f"{path}: nests deeper than {NESTING_MAX} levels")
    return cls(*values)


def _decode_value(type_: FieldType, raw: Any, version: int, attachment: memoryview, path: str) -> Any:
    if type_.kind is Kind.SCALAR:
        assert type_.complain is not None
        complaint = type_.complain(raw)
        if complaint is not None:
            raise SchemaError(f"{path}: {complaint}")
        return raw
    if type_.kind is Kind.RECORDS:
        return _decode_records(raw, attachment, path)
    if type_.kind is Kind.STRUCT:
        assert type_.cls is not None
        return decode_by_schema(type_.cls, raw, version, attachment, path)
    assert type_.of is not None
    if type_.kind is Kind.NULLABLE:
        return None if raw is None else _decode_value(type_.of, raw, version, attachment, path)
    if type(raw) is not list:
        raise SchemaError(f"{path}: expected {type_.name}, got {type(raw).__name__}")
    if len(raw) > type_.high:
        raise SchemaError(f"{path}: array of {len(raw)} is longer than {type_.high}")
    return tuple([_decode_value(type_.of, item, version, attachment, path) for item in raw])


def _decode_records(raw: Any, attachment: memoryview, path: str) -> memoryview:
    if type(raw) is not list or len(raw) != 2 or type(raw[0]) is not int or type(raw[1]) is not int:
        raise SchemaError(f"{path}: expected [offset, length] into the attachment")
    offset, length = raw
    if offset < 0 or length < 0 or offset + length > len(attachment):
        raise SchemaError(
            f"{path}: [{offset}, {length}] lies outside the attachment of {len(attachment)} bytes"
        )
    return attachment[offset : offset + length]


class WrittenLater(SchemaError):
    """A later build wrote it, and this one does not know all of what it means (K29)."""


def has_later_fields(cls: type, raw: Any) -> bool:
    """True when the msgpack array of a message has fields, at any depth, that are not declared here: a later
    build wrote it. False for what is no such array."""
    specs = _SCHEMAS[cls]
    if type(raw) is not list:
        return False
    return len(raw) > len(specs) or any(
        _has_later(spec.type, item) for spec, item in zip(specs, raw, strict=False)
    )


def _has_later(type_: FieldType, raw: Any) -> bool:
    if type_.kind is Kind.STRUCT:
        assert type_.cls is not None
        return has_later_fields(type_.cls, raw)
    if type_.of is None or raw is None:
        return False
    if type_.kind is Kind.ARRAY:
        return type(raw) is list and any(_has_later(type_.of, item) for item in raw)
    return _has_later(type_.of, raw)


def _nests_deeper(raw: Any, levels: int) -> bool:
    return type(raw) is list and (levels == 0 or any(_nests_deeper(item, levels - 1) for item in raw))
