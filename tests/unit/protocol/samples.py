"""Messages made from their schemas: fixed ones for golden bytes, drawn ones for properties."""

from typing import Any

from hypothesis import strategies as st

from holdfast.metadata.records import RECORD_CLASSES
from holdfast.metadata.snapshot_records import SNAPSHOT_RECORD_CLASSES
from holdfast.protocol.messages import APIS
from holdfast.protocol.schema.fields import FieldType, Kind, schema_of

#: Every class that travels at the top of a frame or of the metadata log.
MESSAGE_CLASSES: tuple[type, ...] = tuple(
    dict.fromkeys(
        [cls for api in APIS.values() for cls in (api.request, api.response)]
        + [*RECORD_CLASSES.values(), *SNAPSHOT_RECORD_CLASSES.values()]
    )
)


def sample(cls: type, salt: int = 1) -> Any:
    """A message with a different, telling value in every field."""
    values = {
        spec.name: _sample_value(spec.type, salt * 100 + number)
        for number, spec in enumerate(schema_of(cls), start=1)
    }
    return cls(**values)


def _sample_value(type_: FieldType, number: int) -> Any:
    if type_.kind is Kind.STRUCT:
        assert type_.cls is not None
        return sample(type_.cls, number % 97)
    if type_.kind is Kind.ARRAY:
        assert type_.of is not None
        return (_sample_value(type_.of, number), _sample_value(type_.of, number + 1))
    if type_.kind is Kind.NULLABLE:
        assert type_.of is not None
        return None if number % 5 == 0 else _sample_value(type_.of, number)
    if type_.kind is Kind.RECORDS:
        return memoryview(f"records {number}".encode())
    if type_.name.startswith("int"):
        # the widest encodings too
        return [number % 100, type_.low, type_.high, -1][number % 4]
    return {
        "boolean": number % 2 == 0,
        "uuid": number.to_bytes(16, "big"),
        "string": f"text {number} ü",
        "bytes": b"bytes %d" % number,
    }[type_.name]


def values_of(type_: FieldType) -> st.SearchStrategy[Any]:
    """Values that a field of this type may have."""
    if type_.kind is Kind.STRUCT:
        assert type_.cls is not None
        return messages_of(type_.cls)
    if type_.kind is Kind.ARRAY:
        assert type_.of is not None
        return st.lists(values_of(type_.of), max_size=3).map(tuple)
    if type_.kind is Kind.NULLABLE:
        assert type_.of is not None
        return st.none() | values_of(type_.of)
    if type_.kind is Kind.RECORDS:
        return st.binary(max_size=50).map(memoryview)
    if type_.name.startswith("int"):
        return st.integers(type_.low, type_.high)
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=20),
        "bytes": st.binary(max_size=20),
    }
    return scalars[type_.name]


def messages_of(cls: type) -> st.SearchStrategy[Any]:
    """Messages of one class."""
    return st.builds(cls, **{spec.name: values_of(spec.type) for spec in schema_of(cls)})
