"""Kafka messages made from kio's schemas, with a different, telling value in every field."""

import dataclasses
import datetime
import uuid
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode as KafkaErrorCode
from kio.static.protocol import Entity

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.schema import FieldShape, shapes
from tests.cases import slow


def _served() -> Iterator[Any]:
    """(API, version) of everything that the listener serves; those between first and last are slow cases."""
    for api in KafkaApi:
        between = range(api.min_version + 1, api.max_version)
        yield from dict.fromkeys([(api, api.min_version), (api, api.max_version)])
        yield from slow(*((api, version) for version in between))


SERVED = list(_served())


def served_id(case: Any) -> str:
    return case.title if isinstance(case, KafkaApi) else f"v{case}"


def kafka_sample(entity_type: type[Entity], salt: int = 1) -> Any:
    """A message of kio's class; of nullable fields every fifth is null."""
    make: Any = entity_type
    return make(
        **{
            shape.name: _value(shape, salt * 100 + number)
            for number, shape in enumerate(shapes(entity_type), start=1)
        }
    )


def _value(shape: FieldShape, number: int) -> Any:
    if shape.is_nullable and shape.tag is None and number % 5 == 0:
        return None
    if shape.is_array:
        return (_one(shape, number), _one(shape, number + 1))
    return _one(shape, number)


def _one(shape: FieldShape, number: int) -> Any:
    if shape.struct is not None:
        return kafka_sample(shape.struct, number % 97)
    milliseconds = datetime.timedelta(milliseconds=number)
    return {
        "bool": number % 2 == 0,
        "int8": number % 100,
        "int16": [number, -1, 32767, -32768][number % 4],
        "int32": [number, -1, 2**31 - 1][number % 3],
        "int64": [number, -1, 2**63 - 1][number % 3],
        "uint16": number,
        "float64": number / 2,
        "string": f"text {number} ü",
        "bytes": b"bytes %d" % number,
        "records": b"records %d" % number,
        "uuid": uuid.UUID(int=number),
        "error_code": list(KafkaErrorCode)[number % 100],
        "timedelta_i32": milliseconds,
        "timedelta_i64": milliseconds,
        "datetime_i64": datetime.datetime.fromtimestamp(number / 1000, datetime.UTC),
    }[shape.kind]


def plain(value: Any) -> Any:
    """kio's value as the listener's modules have it: entities as {field: value}, times in ms, ids as
    bytes."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, KafkaErrorCode):
        return value.value
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return bytes(value) if isinstance(value, memoryview) else value
