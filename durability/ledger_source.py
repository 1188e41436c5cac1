"""`format("holdfast.ledger")`: ledger files as a table of their lines, each read once (docs/validate.md).

Owns how files are cut into Spark partitions; what a line is, is `durability.ledger_lines`' business.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from holdfast.durability.arrow_ledger import cuts, may_go_on_at, run_of, whole_end
from holdfast.durability.files_on_workers import read_on_worker
from holdfast.durability.ledger_files import (
    NoLedger,
    UnreadableLedger,
    first_run,
    is_arrow,
    is_packed,
    ledger_files,
    text_bytes,
    weight_of,
)
from holdfast.durability.ledger_lines import ROWS, LedgerRange, read_rows

#: A Spark partition has at least so much, as JSON lines: starting a Python worker's read is not free.
RANGE_BYTES_MIN = 16 << 20
#: Enough for some lines.
_TAIL_BYTES = 64 << 10
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string"}
SCHEMA = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in ROWS)


@dataclass
class LedgerPartition(InputPartition):
    """One Spark partition: some ranges of files."""

    ranges: list[LedgerRange]


class LedgerSource(DataSource):
    """Option `path`: a JSON list of files; `minPartitions`: as many Spark partitions where data suffices;
    `foreign`: lines of another client; `sizes`: JSON {file: bytes to read}. Of a stream `path` is a file
    or a folder, as `--ledger` has it."""

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

    def streamReader(self, schema: Any) -> "LedgerStreamReader":
        return LedgerStreamReader(self.options["path"])


class LedgerStreamReader(DataSourceStreamReader):
    """Follows ledgers as producers write them, and files that appear; a line, or batch, is read when it is
    whole.

    An offset is {file: bytes}. Packed files are whole ledgers already: they are read once, when they appear.
    A file that was read and is gone, is shorter, or has no line's end (an Arrow one: no batch) where reading
    stopped, and a packed one of another size, is none that can be followed. A longer file with a line's end
    (a batch) at that very byte is not told from one that has grown.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Raises: UnreadableLedger, OSError."""
        try:
            files = ledger_files(self._path)
        except NoLedger:
            files = []  # not yet
        for path in sorted(start.keys() - set(files)):
            raise UnreadableLedger(f"{path}: it was read, and is not there any more")
        for path in files:
            _check_read(path, start.get(path, 0))
        ends = {path: size for path in files if (size := whole_lines_end(path, start.get(path, 0))) > 0}
        return {**start, **ends}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[LedgerPartition]:
        ranges = [
            LedgerRange(path, start.get(path, 0), size, _run(path))
            for path, size in sorted(end.items())
            if size > start.get(path, 0)
        ]
        return [LedgerPartition(ranges)] if ranges else []

    def read(self, partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
        with read_on_worker():
            yield from read_rows(partition.ranges)


def _check_read(path: str, was_read: int) -> None:
    """Raises: UnreadableLedger when the file is not the one of which so many bytes were read; OSError."""
    if not was_read:
        return
    size = Path(path).stat().st_size
    if size != was_read if is_packed(path) else size < was_read:
        raise UnreadableLedger(f"{path}: {was_read} bytes of it were read, and it has {size} now")
    if is_packed(path):
        return
    if not (may_go_on_at(path, was_read) if is_arrow(path) else _is_line_end(path, was_read - 1)):
        raise UnreadableLedger(f"{path}: it is not the file of which {was_read} bytes were read")


def _is_line_end(path: str, position: int) -> bool:
    with Path(path).open("rb") as file:
        file.seek(position)
        return file.read(1) == b"\n"


def whole_lines_end(path: str, start: int) -> int:
    """The byte behind the last whole line, or Arrow batch, of a file, `start` when none was added. Raises:
    OSError."""
    if is_arrow(path):
        return whole_end(path, start)
    size = Path(path).stat().st_size
    if is_packed(path):
        return size
    with Path(path).open("rb") as file:
        at = size
        while at > start:
            begin = max(start, at - _TAIL_BYTES)
            file.seek(begin)
            found = file.read(at - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            at = begin
    return start


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
    planned: list[list[LedgerRange]] = []
    room = 0
    for path, size in sizes.items():
        run = _run(path) if size and not is_foreign else None
        weight = weight_of(path)
        for start, end in pairwise([*_starts(path, size, step // weight), size]):
            if (end - start) * weight > room:
                planned.append([])
                room = step
            planned[-1].append(LedgerRange(path, start, end, run, is_foreign))
            room -= (end - start) * weight
    return planned


def _starts(path: str, size: int, width: int) -> list[int]:
    """Where the ranges of a file begin. A packed file is one: it can only be unpacked from its beginning."""
    if is_packed(path) or size <= width:
        return [0] if size else []
    return cuts(path, size, width) if is_arrow(path) else list(range(0, size, width))
