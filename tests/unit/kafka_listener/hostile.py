"""Well-formed requests with any values: the ends of every number, strange names, missing and empty lists."""

from typing import Any

from hypothesis import strategies as st

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type
from holdfast.kafka_listener.core.schema import FieldShape, shapes

NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "error_code": 16}
NUMBERS |= {"timedelta_i32": 32, "timedelta_i64": 64, "datetime_i64": 64}


def number(bits: int) -> st.SearchStrategy[int]:
    most = (1 << (bits - 1)) - 1
    return st.one_of(
        st.sampled_from([-most - 1, -5, -2, -1, 0, 1, 2, 3, 100, most]), st.integers(-most - 1, most)
    )


TEXTS = st.one_of(
    st.sampled_from(["", "t", "u", "g", "1", "a b", ".", "..", "/", "\0", "ü" * 40, "x" * 249, "y" * 32_767]),
    st.sampled_from(["retention.ms", "min.insync.replicas", "__consumer_offsets", "__cluster_metadata"]),
    st.text(max_size=20),
)
BYTES = st.one_of(st.sampled_from([b"", b"\0" * 61, b"\xff" * 100]), st.binary(max_size=200))
IDS = st.sampled_from([bytes(16), b"\0" * 15 + b"\1", b"?" * 16])


def value(shape: FieldShape) -> st.SearchStrategy[Any]:
    """Of one element of a field."""
    if shape.struct is not None:
        return fields_of(shape.struct)
    if shape.kind in NUMBERS:
        return number(NUMBERS[shape.kind])
    return {
        "bool": st.booleans(),
        "uint16": st.integers(0, 65_535),
        "float64": st.floats(),
        "string": TEXTS,
        "bytes": BYTES,
        "records": BYTES,
        "uuid": IDS,
    }[shape.kind]


def fields_of(schema: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Of a message, every field with a value that its type allows."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for shape in shapes(schema):
        one = value(shape)
        some = st.lists(one, max_size=3) if shape.is_array else one
        fields[shape.name] = st.one_of(st.none(), some) if shape.is_nullable else some
    return st.fixed_dictionaries(fields)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[KafkaApi, int, dict[str, Any]]:
    api = draw(st.sampled_from(KafkaApi))
    version = draw(st.integers(api.min_version, api.max_version))
    return api, version, draw(fields_of(request_type(api, version)))


#: (API, version, fields)
requests = _requests()
