"""Ledgers of JSON lines as Arrow IPC streams, written without the product's own writer."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

COLUMNS = {
    "kind": pa.int8(), "pseq": pa.int64(), "topic": pa.string(), "partition": pa.int32(),
    "value_crc32c": pa.int64(), "acks": pa.int8(), "outcome": pa.int8(), "offset": pa.int64(),
    "leader_epoch": pa.int32(), "error": pa.string(), "t0": pa.int64(), "t1": pa.int64(),
    "topic_id": pa.string(), "timestamp_ms": pa.int64(), "key_crc32c": pa.int64(),
    "headers_crc32c": pa.int64(),
}  # fmt: skip
CODES = {"invoke": 1, "complete": 2, "ok": 1, "ok1": 2, "info": 3, "fail": 4}
#: A code that stands for nothing.
UNKNOWN = 9


def arrow_batches(lines: Iterable[str], size: int = 3) -> list[bytes]:
    """The schema, then batches of at most `size` rows; together they are a file."""
    rows = [json.loads(line) for line in lines]
    names = {name: rows[0][name].encode() for name in ("run", "producer")} if rows else {}
    schema = pa.schema(list(COLUMNS.items()), metadata=names)
    parts = [schema.serialize().to_pybytes()]
    for start in range(0, len(rows), size):
        columns = [
            pa.array([_cell(row, name) for row in rows[start : start + size]], kind)
            for name, kind in COLUMNS.items()
        ]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes())
    return parts


def write_arrow(path: Path, lines: Iterable[str], size: int = 3) -> Path:
    """The lines of one producer as a file."""
    path.write_bytes(b"".join(arrow_batches(lines, size)))
    return path


def _cell(row: dict[str, Any], name: str) -> Any:
    value = row.get(name)
    return CODES.get(value, UNKNOWN) if name in ("kind", "outcome") and value is not None else value
