"""Record batches of the wire as Arrow, with as little work for each record as Python allows.

Owns the columns of `format("holdfast")` (docs/validate.md). Decoding is aiokafka's C codec; what a ledger's
value says of itself is `client.core.history`'s business. Never fetches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.client.core.decoding import UNDECODABLE
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.history import parse_value, value_crc32c
from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.record_batch import LOG_APPEND_TIME, BatchHeader, CorruptBatch, check_batch

#: States of a log row (durability.rules).
GOOD, DAMAGED, FOREIGN = "good", "damaged", "foreign"

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_CRC_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns a reader makes."""

    payload: bool = True
    headers: bool = False
    leader_epoch: bool = True
    #: state, producer, pseq, value_crc32c
    parsed: bool = False

    def spark_schema(self) -> str:
        """The same as Spark writes it."""
        parts = ["key binary, value binary"] if self.payload else []
        parts.append("topic string, partition int, offset long, timestamp timestamp, timestampType int")
        if self.headers:
            parts.append("headers array<struct<key: string, value: binary>>")
        if self.leader_epoch:
            parts.append("leaderEpoch int")
        if self.parsed:
            parts.append("state string, producer string, pseq long, value_crc32c long")
        return ", ".join(parts)


class _Rows:
    """Columns under construction."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        #: offset of each record
        self.offsets: list[int] = []
        self.epochs: list[int] = []
        self.types: list[int] = []
        #: offsets and leader epochs of records whose batch does not hold
        self.damaged: list[tuple[int, int]] = []


def to_arrow(
    batches: Sequence[FetchedBatch], topic: str, partition: int, start: int, end: int, columns: Columns
) -> list[pa.RecordBatch]:
    """The records of [start, end) among these batches of one partition.

    With `columns.parsed` a damaged batch gives one row of state `damaged` for each of its offsets.
    Raises: CorruptBatch otherwise.
    """
    rows = _Rows()
    for batch in batches:
        header = batch.header
        if header.base_offset >= end or header.next_offset <= start:
            continue
        try:
            _decode(header, batch.data, start, end, rows)
        except CorruptBatch:
            if not columns.parsed:
                raise
            low, high = max(start, header.base_offset), min(end, header.next_offset)
            rows.damaged += [(offset, header.leader_epoch) for offset in range(low, high)]
    return list(_batches(rows, topic, partition, columns))


def _decode(header: BatchHeader, data: memoryview, start: int, end: int, rows: _Rows) -> None:
    check_batch(data)
    try:
        found = list(DefaultRecordBatch(unpack_batch(data)))
    except UNDECODABLE as error:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {error}") from error
    if header.base_offset < start or header.next_offset > end:
        found = [record for record in found if start <= record.offset < end]
    rows.records += found
    rows.offsets += [record.offset for record in found]
    rows.epochs += [header.leader_epoch] * len(found)
    rows.types += [int(bool(header.attributes & LOG_APPEND_TIME))] * len(found)


def _batches(rows: _Rows, topic: str, partition: int, columns: Columns) -> Iterator[pa.RecordBatch]:
    if rows.records:
        values = [record.value for record in rows.records]
        keys = [record.key for record in rows.records] if columns.payload else []
        timestamps = [record.timestamp * 1000 for record in rows.records]
        headers = [record.headers for record in rows.records] if columns.headers else []
        parsed = _parse(values) if columns.parsed else []
        yield _batch(
            topic,
            partition,
            columns,
            rows.offsets,
            rows.epochs,
            rows.types,
            timestamps,
            keys,
            values,
            headers,
            parsed,
        )
    if rows.damaged:
        offsets, epochs = map(list, zip(*rows.damaged, strict=True))
        count = len(offsets)
        nothing = [None] * count
        parsed = [[DAMAGED] * count, nothing, nothing, nothing]
        yield _batch(
            topic, partition, columns, offsets, epochs, nothing, nothing, nothing, nothing, nothing, parsed
        )


def _batch(
    topic: str,
    partition: int,
    columns: Columns,
    offsets: list[int],
    epochs: list[int],
    types: list[Any],
    timestamps: list[Any],
    keys: list[Any],
    values: list[Any],
    headers: list[Any],
    parsed: list[list[Any]],
) -> pa.RecordBatch:
    count = len(offsets)
    arrays: dict[str, pa.Array] = {}
    if columns.payload:
        arrays["key"] = pa.array(keys, pa.binary())
        arrays["value"] = pa.array(values, pa.binary())
    arrays["topic"] = pa.repeat(pa.scalar(topic), count)
    arrays["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), count)
    arrays["offset"] = pa.array(offsets, pa.int64())
    arrays["timestamp"] = pa.array(timestamps, pa.timestamp("us", tz="UTC"))
    arrays["timestampType"] = pa.array(types, pa.int32())
    if columns.headers:
        arrays["headers"] = pa.array(headers, _HEADERS)
    if columns.leader_epoch:
        arrays["leaderEpoch"] = pa.array(epochs, pa.int32())
    if columns.parsed:
        state, producer, pseq, crc = parsed
        arrays["state"] = pa.array(state, pa.string())
        arrays["producer"] = pa.array(producer, pa.string())
        arrays["pseq"] = pa.array(pseq, pa.int64())
        arrays["value_crc32c"] = pa.array(crc, pa.int64())
    return pa.RecordBatch.from_pydict(arrays)


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
        [_state_without_name(v) if name is None else GOOD for name, v in zip(names, values, strict=True)],
        [None if name is None else name.producer for name in names],
        [None if name is None else name.pseq for name in names],
        [None if v is None else value_crc32c(v) for v in values],
    ]


def _state_without_name(value: bytes | None) -> str:
    """A value of the ledger's form whose checksum does not hold is damaged; anything else is foreign."""
    if value is None or value[_CRC_DIGITS : _CRC_DIGITS + 1] != b":":
        return FOREIGN
    try:
        int(value[:_CRC_DIGITS], 16)
    except ValueError:
        return FOREIGN
    return DAMAGED
