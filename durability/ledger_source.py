"""`format("holdfast.ledger")`: ledger files as a table of their lines, each read once (docs/validate.md).

Owns how files are cut into Spark partitions; what a line is, is `durability.ledger_lines`' business.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.durability.ledger_files import first_run, is_packed
from holdfast.durability.ledger_lines import ROWS, LedgerRange, read_rows

#: A Spark partition has at least so much: starting a Python worker's read is not free.
RANGE_BYTES_MIN = 16 << 20
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string"}
SCHEMA = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in ROWS)


@dataclass
class LedgerPartition(InputPartition):
    """One Spark partition: some ranges of files."""

    ranges: list[LedgerRange]


class LedgerSource(DataSource):
    """Option `path`: a JSON list of files; `minPartitions`: as many Spark partitions where data suffices;
    `foreign`: lines of another client."""

    @classmethod
    def name(cls) -> str:
        return "holdfast.ledger"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> "LedgerReader":
        files = json.loads(self.options["path"])
        is_foreign = self.options.get("foreign", "false") == "true"
        return LedgerReader(files, int(self.options.get("minPartitions", "1")), is_foreign=is_foreign)


class LedgerReader(DataSourceReader):
    """Plans when Spark does: files are read up to where they end then."""

    def __init__(self, files: list[str], partitions_min: int, *, is_foreign: bool = False) -> None:
        self._files = files
        self._partitions_min = partitions_min
        self._is_foreign = is_foreign

    def partitions(self) -> list[LedgerPartition]:
        planned = plan(self._files, self._partitions_min, is_foreign=self._is_foreign)
        return [LedgerPartition(ranges) for ranges in planned or [[]]]

    def read(self, partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
        for wanted in partition.ranges:
            yield from read_rows(wanted)


def plan(files: list[str], partitions_min: int, *, is_foreign: bool = False) -> list[list[LedgerRange]]:
    """The ranges of each Spark partition: large files are cut, small ones gathered. Raises: OSError."""
    sizes = {path: Path(path).stat().st_size for path in files}
    step = max(RANGE_BYTES_MIN, -(-sum(sizes.values()) // max(1, partitions_min)))
    planned: list[list[LedgerRange]] = []
    room = 0
    for path, size in sizes.items():
        run = first_run(path) if size and not is_foreign else None
        width = size if is_packed(path) else step
        for start in range(0, size, max(1, width)):
            wanted = LedgerRange(path, start, min(size, start + width), run, is_foreign)
            if wanted.end - wanted.start > room:
                planned.append([])
                room = step
            planned[-1].append(wanted)
            room -= wanted.end - wanted.start
    return planned
