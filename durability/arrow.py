"""Record batches of the wire as Arrow, with as little work for each record as Python allows.

Owns the columns of `format("holdfast")` (docs/spark.md). Decoding is aiokafka's C codec; what a ledger's
value says of itself is `client.core.history`'s business. Never fetches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.client.core.decoding import UNDECODABLE
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.history import headers_crc32c, key_crc32c, parse_value, value_crc32c
from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.record_batch import LOG_APPEND_TIME, BatchHeader, CorruptBatch, check_batch

#: States of a log row (durability.rules).
GOOD, DAMAGED, FOREIGN = "good", "damaged", "foreign"

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_CRC_DIGITS = 8
#: Of a value's form, before its padding.
_COLONS = 3
_crc32c = google_crc32c.value
#: What Spark and Python can express; producers may have written any 64 bits before brokers refused that.
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
#: Kafka's NoTimestampType, here of records that cannot be read
_NO_TIMESTAMP_TYPE = -1
#: {name: (type as Spark writes it, the same of Arrow)}
_TYPES = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("long", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": ("int", pa.int32()),
    "headers": ("array<struct<key: string, value: binary>>", _HEADERS),
    "leaderEpoch": ("int", pa.int32()),
    "state": ("string", pa.string()),
    "producer": ("string", pa.string()),
    "pseq": ("long", pa.int64()),
    "value_crc32c": ("long", pa.int64()),
    "timestampMs": ("long", pa.int64()),
    "problem": ("string", pa.string()),
    # only where a schema names them
    "key_crc32c": ("long", pa.int64()),
    "headers_crc32c": ("long", pa.int64()),
    "batch_crc32c": ("long", pa.int64()),
}
_PARSED = ("state", "producer", "pseq", "value_crc32c")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns a reader makes."""

    payload: bool = True
    headers: bool = False
    leader_epoch: bool = True
    #: state, producer, pseq, value_crc32c
    parsed: bool = False
    timestamp_ms: bool = False
    problem: bool = False
    #: a value that looks like a ledger's counts as one, whether or not its own checksum holds: for those who
    #: compare `value_crc32c` with what was sent
    trusts_values: bool = False
    #: exactly these, in this order; the others are not looked at
    only: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in their order."""
        if self.only is not None:
            return self.only
        return (
            *(("key", "value") if self.payload else ()),
            *("topic", "partition", "offset", "timestamp", "timestampType"),
            *(("headers",) if self.headers else ()),
            *(("leaderEpoch",) if self.leader_epoch else ()),
            *(_PARSED if self.parsed else ()),
            *(("timestampMs",) if self.timestamp_ms else ()),
            *(("problem",) if self.problem else ()),
        )

    def spark_schema(self) -> str:
        """The same as Spark writes it."""
        return ", ".join(f"{name} {_TYPES[name][0]}" for name in self.names)

    def arrow_schema(self) -> pa.Schema:
        """The same for Arrow."""
        return pa.schema([(name, _TYPES[name][1]) for name in self.names])


def has_column(name: str, simple_type: str) -> bool:
    """True for a column that can be made; types as Spark's `simpleString` has them."""
    if name not in _TYPES:
        return False
    return _TYPES[name][0].replace(" ", "").replace("long", "bigint") == simple_type


@dataclass(slots=True)
class _Rows:
    """Columns under construction; of those that are the same for a whole batch, one array for each batch."""

    records: list[Any] = field(default_factory=list)
    offsets: list[Any] = field(default_factory=list)
    epochs: list[Any] = field(default_factory=list)
    types: list[Any] = field(default_factory=list)
    crcs: list[Any] = field(default_factory=list)
    #: offset, leader epoch and reason of each record whose batch does not hold
    damaged: list[tuple[int, int, str]] = field(default_factory=list)


def to_arrow(
    batches: Sequence[FetchedBatch],
    topic: str,
    partition: int,
    start: int,
    end: int,
    columns: Columns,
    *,
    keeps_damaged: bool = False,
) -> list[pa.RecordBatch]:
    """The records of [start, end) among these batches of one partition.

    With `columns.parsed` or `keeps_damaged`, a damaged batch gives one row for each of its offsets, of state
    `damaged` and timestamp type -1, with nulls for what is not known. Raises: CorruptBatch otherwise. A
    timestamp that Spark cannot express is null; `timestampMs` has it.
    """
    rows = _Rows()
    for batch in batches:
        header = batch.header
        if header.base_offset >= end or header.next_offset <= start:
            continue
        try:
            _decode(header, batch.data, start, end, rows)
        except CorruptBatch as error:
            if not (columns.parsed or keeps_damaged):
                raise CorruptBatch(f"{topic}-{partition} at offset {header.base_offset}: {error}") from error
            low, high = max(start, header.base_offset), min(end, header.next_offset)
            rows.damaged += [(offset, header.leader_epoch, str(error)) for offset in range(low, high)]
    made = []
    if rows.records:
        made.append(_good_batch(rows, topic, partition, columns))
    if rows.damaged:
        made.append(_damaged_batch(rows.damaged, topic, partition, columns))
    return made


def _decode(header: BatchHeader, data: memoryview, start: int, end: int, rows: _Rows) -> None:
    check_batch(data)
    try:
        found = list(DefaultRecordBatch(unpack_batch(data)))
    except UNDECODABLE as error:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {error}") from error
    if header.base_offset < start or header.next_offset > end:
        found = [record for record in found if start <= record.offset < end]
    if not found:
        return
    count, first = len(found), found[0].offset
    if found[-1].offset - first == count - 1:
        rows.offsets.append(np.arange(first, first + count))
    else:
        rows.offsets.append(np.array([record.offset for record in found]))
    rows.records += found
    rows.epochs.append(np.full(count, header.leader_epoch, np.int32))
    rows.types.append(np.full(count, bool(header.attributes & LOG_APPEND_TIME), np.int32))
    rows.crcs.append(np.full(count, header.crc, np.int64))


def _good_batch(rows: _Rows, topic: str, partition: int, columns: Columns) -> pa.RecordBatch:
    """Only what was asked for is made."""
    records, names = rows.records, columns.names
    count = len(records)
    found: dict[str, Any] = {}
    if "key" in names:
        found["key"] = [record.key for record in records]
    values = [record.value for record in records] if {"value", *_PARSED}.intersection(names) else []
    found["value"] = values
    if "headers" in names:
        found["headers"] = [record.headers for record in records]
    if "key_crc32c" in names:
        keys = [record.key for record in records]
        found["key_crc32c"] = [None if key is None else key_crc32c(key) for key in keys]
    if "headers_crc32c" in names:
        headers = [record.headers for record in records]
        found["headers_crc32c"] = [headers_crc32c(given) if given else None for given in headers]
    if "timestamp" in names or "timestampMs" in names:
        found["timestampMs"] = np.array([record.timestamp for record in records], np.int64)
        found["timestamp"] = _microseconds(found["timestampMs"])
    if set(_PARSED).intersection(names):
        parsed = _parse_at_once(values) if columns.trusts_values else None
        found.update(zip(_PARSED, parsed or _parse(values), strict=True))
    found["offset"] = np.concatenate(rows.offsets)
    found["leaderEpoch"] = np.concatenate(rows.epochs)
    found["timestampType"] = np.concatenate(rows.types)
    if "batch_crc32c" in names:
        found["batch_crc32c"] = np.concatenate(rows.crcs)
    found["problem"] = pa.nulls(count, pa.string())
    return _batch(found, count, topic, partition, columns)


def _damaged_batch(
    damaged: list[tuple[int, int, str]], topic: str, partition: int, columns: Columns
) -> pa.RecordBatch:
    offsets, epochs, problems = map(list, zip(*damaged, strict=True))
    count = len(offsets)
    found: dict[str, Any] = {
        name: pa.nulls(count, kind) for name, (_, kind) in _TYPES.items() if name in columns.names
    }
    found |= {
        "offset": offsets,
        "leaderEpoch": epochs,
        "timestampType": [_NO_TIMESTAMP_TYPE] * count,
        "state": [DAMAGED] * count,
        "problem": problems,
    }
    return _batch(found, count, topic, partition, columns)


def _batch(found: dict[str, Any], count: int, topic: str, partition: int, columns: Columns) -> pa.RecordBatch:
    found["topic"] = pa.repeat(pa.scalar(topic), count) if "topic" in columns.names else None
    found["partition"] = np.full(count, partition, np.int32)
    arrays = [
        found[name] if isinstance(found[name], pa.Array) else pa.array(found[name], _TYPES[name][1])
        for name in columns.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow_schema())


def _microseconds(ms: Any) -> pa.Array:
    """Milliseconds as timestamps, null where Spark has none."""
    is_odd = (ms < _YEAR_1_MS) | (ms >= _YEAR_10000_MS)
    if is_odd.any():
        return pa.array(np.where(is_odd, 0, ms) * 1000, _TYPES["timestamp"][1], mask=is_odd)
    return pa.array(ms * 1000, _TYPES["timestamp"][1])


def _parse(values: list[bytes | None]) -> list[list[Any]]:
    names = [None if value is None else parse_value(value) for value in values]
    if None not in names:
        # nearly always, and a third cheaper than looking at each one
        return [
            [GOOD] * len(values),
            [name.producer for name in names],  # type: ignore[union-attr]
            [name.pseq for name in names],  # type: ignore[union-attr]
            [value_crc32c(value) for value in values],  # type: ignore[arg-type]
        ]
    return [
        [state_without_name(v) if name is None else GOOD for name, v in zip(names, values, strict=True)],
        [None if name is None else name.producer for name in names],
        [None if name is None else name.pseq for name in names],
        [None if v is None else value_crc32c(v) for v in values],
    ]


def _parse_at_once(values: list[bytes | None]) -> list[Any] | None:
    """As `_parse`, but for the values' own checksums, where all look like those of a ledger."""
    array = pa.array(values, pa.binary())
    parts = pc.split_pattern(array, ":", max_splits=_COLONS)
    lengths = parts.value_lengths()
    if array.null_count or not pc.all(pc.equal(lengths, _COLONS + 1)).as_py():
        return None
    texts = parts.flatten()
    places = np.arange(0, len(texts), _COLONS + 1)
    try:
        names = texts.take(pa.array(places + 1)).cast(pa.string())
        numbers = texts.take(pa.array(places + 2)).cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if pc.any(pc.less(numbers, 0)).as_py() or pc.any(pc.equal(names, "")).as_py():
        return None
    good = pa.repeat(pa.scalar(GOOD), len(values))
    return [good, names, numbers, list(map(_crc32c, values))]


def state_without_name(value: bytes | None) -> str:
    """A value of the ledger's form whose checksum does not hold is damaged; anything else is foreign."""
    if value is None or value[_CRC_DIGITS : _CRC_DIGITS + 1] != b":":
        return FOREIGN
    try:
        is_whole = _crc32c(value[_CRC_DIGITS + 1 :]) == int(value[:_CRC_DIGITS], 16)
    except ValueError:
        return FOREIGN
    return FOREIGN if is_whole else DAMAGED
