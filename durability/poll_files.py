"""Files of polls as Arrow rows, one a record that a consumer was given, and every line that is none of one.

What a line is, is `durability.poll_lines`' business. Knows nothing of Spark.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from holdfast.durability.poll_lines import rows_of_polls

#: Columns of a row: where it was written down, then the line's, then the record's. `remark` is NULL of a
#: record; else it is PROBLEM or CUT, `text` says which, and of the others only `file` and `line` are there.
POLL_SCHEMA = (
    "file string, line long, nth int, run string, consumer string, session string, poll long, topic string, "
    "topic_id string, partition int, high_watermark long, t1 long, offset long, leader_epoch int, "
    "value_crc32c long, producer string, pseq long, remark string, text string"
)
_ROWS_MAX = 50_000


def read_polls(path: str, size: int, schema: pa.Schema, start: int = 0) -> Iterator[pa.RecordBatch]:
    """The rows of a file, as POLL_SCHEMA, in its order; of one that is not packed those of its bytes
    [start, size). Raises: OSError."""
    rows: list[tuple[Any, ...]] = []
    for row in rows_of_polls(path, size, start):
        rows.append(row)
        if len(rows) >= _ROWS_MAX:
            yield _to_arrow(rows, schema)
            rows = []
    if rows:
        yield _to_arrow(rows, schema)


def _to_arrow(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
