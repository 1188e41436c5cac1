"""`format("holdfast.ledger")`: ledger files as a table of their lines, each read once (docs/validate.md).

Owns how files are cut into Spark partitions; what a line is, is `durability.ledger_lines`' business.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.durability.arrow_ledger import cuts, run_of
from holdfast.durability.files_on_workers import read_on_worker
from holdfast.durability.growing_files import GrowingFilesReader, news
from holdfast.durability.ledger_files import (
    NoLedger,
    first_run,
    is_arrow,
    is_packed,
    ledger_files,
    text_bytes,
    weight_of,
)
from holdfast.durability.ledger_lines import ROWS, LedgerRange, read_rows

T = TypeVar("T")

#: A Spark partition has at least so much, as JSON lines: starting a Python worker's read is not free.
RANGE_BYTES_MIN = 16 << 20
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string"}
SCHEMA = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in ROWS)


@dataclass
class LedgerPartition(InputPartition):
    """One Spark partition: some ranges of files."""

    ranges: list[LedgerRange]


class LedgerSource(DataSource):
    """Option `path`: a JSON list of files; `minPartitions`: as many Spark partitions where data suffices;
    `foreign`: lines of another client; `sizes`: JSON {file: bytes to read}."""

    @classmethod
    def name(cls) -> str:
        return "holdfast.ledger"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> "LedgerReader":
        files = json.loads(self.options["path"])
        is_foreign = self.options.get("foreign", "false") == "true"
        sizes = json.loads(self.options.get("sizes", "null"))
        least = int(self.options.get("minPartitions", "1"))
        return LedgerReader(files, least, is_foreign=is_foreign, sizes=sizes)


class LedgerStreamReader(GrowingFilesReader):
    """Follows ledgers as producers write them."""

    def __init__(self, path: str) -> None:
        self.path = path

    def files(self) -> Iterator[list[str]]:
        try:
            yield ledger_files(self.path)
        except NoLedger:
            yield []  # not yet

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[LedgerPartition]:
        ranges = [LedgerRange(*wanted, _run(wanted[0])) for wanted in news(start, end)]
        return [LedgerPartition(ranges)] if ranges else []

    def read(self, partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
        with read_on_worker():
            yield from read_rows(partition.ranges)


class LedgerReader(DataSourceReader):
    """Plans when Spark does: files are read up to where they end then, unless their sizes are given."""

    def __init__(
        self,
        files: list[str],
        partitions_min: int,
        *,
        is_foreign: bool = False,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self._files = files
        self._partitions_min = partitions_min
        self._is_foreign = is_foreign
        self._sizes = sizes

    def partitions(self) -> list[LedgerPartition]:
        sizes = sizes_of(self._files) if self._sizes is None else self._sizes
        planned = plan(sizes, self._partitions_min, is_foreign=self._is_foreign)
        return [LedgerPartition(ranges) for ranges in planned or [[]]]

    def read(self, partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
        with read_on_worker():
            yield from read_rows(partition.ranges)


def _run(path: str) -> str | None:
    return run_of(path) if is_arrow(path) else first_run(path)


def sizes_of(files: Iterable[str]) -> dict[str, int]:
    """{file: bytes}. Raises: OSError."""
    return {path: Path(path).stat().st_size for path in files}


def plan(
    sizes: Mapping[str, int], partitions_min: int, *, is_foreign: bool = False
) -> list[list[LedgerRange]]:
    """The ranges of each Spark partition, of {file: bytes}: large files are cut, small ones gathered.

    Raises: OSError.
    """
    step = max(RANGE_BYTES_MIN, -(-text_bytes(sizes) // max(1, partitions_min)))
    return gathered(_ranges(sizes, step, is_foreign=is_foreign), step)


def gathered(pieces: Iterable[tuple[T, int]], room: int) -> list[list[T]]:
    """Of (piece, its weight) the pieces in their order, those together that have room."""
    planned: list[list[T]] = []
    left = 0
    for piece, weight in pieces:
        if weight > left or not planned:
            planned.append([])
            left = room
        planned[-1].append(piece)
        left -= weight
    return planned


def _ranges(sizes: Mapping[str, int], step: int, *, is_foreign: bool) -> Iterator[tuple[LedgerRange, int]]:
    """With how many bytes of JSON lines each stands for."""
    for path, size in sizes.items():
        run = _run(path) if size and not is_foreign else None
        weight = weight_of(path)
        for start, end in pairwise([*_starts(path, size, step // weight), size]):
            yield LedgerRange(path, start, end, run, is_foreign), (end - start) * weight


def _starts(path: str, size: int, width: int) -> list[int]:
    """Where the ranges of a file begin. A packed file is one: it can only be unpacked from its beginning."""
    if is_packed(path) or size <= width:
        return [0] if size else []
    return cuts(path, size, width) if is_arrow(path) else list(range(0, size, width))
