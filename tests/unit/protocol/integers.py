"""All requests that differ from a given one in a single integer, which has an extreme value."""

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from typing import Any

from holdfast.protocol.schema.fields import FieldType, Kind, schema_of


def extremes(request: Any) -> Iterator[tuple[str, Any]]:
    """(`field[0].field=value`, the changed request) for every integer of the request, at any depth; of arrays
    the first item is changed."""
    for spec in schema_of(type(request)):
        for path, value in _of(spec.type, getattr(request, spec.name)):
            yield f"{spec.name}{path}", replace(request, **{spec.name: value})


def _of(type_: FieldType, value: Any) -> Iterator[tuple[str, Any]]:
    if type_.kind is Kind.NULLABLE:
        assert type_.of is not None
        if value is not None:
            yield from _of(type_.of, value)
    elif type_.kind is Kind.ARRAY:
        assert type_.of is not None
        for path, item in _of(type_.of, value[0]) if value else ():
            yield f"[0]{path}", (item, *value[1:])
    elif type_.kind is Kind.STRUCT:
        assert is_dataclass(value)
        yield from ((f".{path}", changed) for path, changed in extremes(value))
    elif type_.name.startswith("int"):
        for extreme in sorted({type_.low, -1, 0, type_.high - 1, type_.high} - {value}):
            yield f"={extreme}", extreme
