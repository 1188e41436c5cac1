"""What a field of a kio schema is: its kind, and whether it is an array, a struct or nullable.

kio keeps Kafka's schemas as one dataclass a message and version; this is the only module that looks into
their annotations.
"""

from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.static.protocol import Entity


class FieldShape(NamedTuple):
    """One field. `kind` is Kafka's type, empty for a struct; `struct` its class."""

    name: str
    kind: str
    struct: type[Entity] | None
    is_array: bool
    is_nullable: bool
    #: of a tagged field, else None
    tag: int | None
    #: what a tagged field means when it is not sent; `REQUIRED` when the schema names nothing
    default: Any


#: No default: the field is always sent.
REQUIRED = MISSING


def shapes(entity_type: type[Entity]) -> list[FieldShape]:
    """The fields of a message or struct, in the order of the wire."""
    return [_shape(field) for field in fields(entity_type)]


def _shape(field: "Field[Any]") -> FieldShape:
    annotation: Any = field.type
    is_nullable = get_origin(annotation) is UnionType
    if is_nullable:
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation = get_args(annotation)[0]
        if get_origin(annotation) is UnionType:  # ids: kio reads zeros as None
            annotation = next(part for part in get_args(annotation) if part is not NoneType)
    kind = field.metadata.get("kafka_type", "")
    return FieldShape(
        field.name,
        kind,
        None if kind else annotation,
        is_array,
        is_nullable and kind != "uuid",
        field.metadata.get("tag"),
        () if is_array and field.default is MISSING else field.default,
    )
