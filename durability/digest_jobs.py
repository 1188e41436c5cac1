"""Adds up a ledger's lines and a log's records on Spark's workers (durability.digests).

What comes back is some numbers for each producer: nothing else goes through the JVM.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from holdfast.durability.arrow import Columns
from holdfast.durability.digests import FIELD_COLUMNS, LOG_COLUMNS, LedgerSums, LogSums
from holdfast.durability.even_lines import EvenLines
from holdfast.durability.files_on_workers import read_on_worker
from holdfast.durability.ledger_lines import PAIR, LedgerRange, read_lines
from holdfast.durability.ledger_source import plan
from holdfast.durability.range_reader import RangePartition, read_partition, spark_partitions
from holdfast.durability.read_options import OffsetRange, ReadOptions

#: Ledgers up to this are read by the driver: that is sooner done than Spark can plan.
SMALL_BYTES = 8 << 20
T = TypeVar("T")
R = TypeVar("R")


class Remark(NamedTuple):
    """What the reader of a ledger says of a file: the rows of `ledger_lines` that are no lines."""

    kind: int
    order: int
    text: str
    topic: str


def ledger_sums(spark: Any, sizes: Mapping[str, int]) -> tuple[LedgerSums, list[Remark]]:
    """Of the ledger files {file: bytes}, and what is to be said of them, in its order. Raises: OSError."""
    if sum(sizes.values()) <= SMALL_BYTES:
        answers = [_sums_of_lines(ranges) for ranges in plan(sizes, 1)]
    else:
        answers = _on_workers(spark, plan(sizes, spark.sparkContext.defaultParallelism), _sums_of_lines)
    found, remarks = LedgerSums(), set[Remark]()
    for sums, said in answers:
        found.take(sums)
        remarks |= said
    return found, sorted(remarks)


def _sums_of_lines(ranges: Sequence[LedgerRange]) -> tuple[LedgerSums, set[Remark]]:
    found, remarks = LedgerSums(), set[Remark]()
    for rows in read_lines(ranges):
        if isinstance(rows, EvenLines):
            found.add_even(rows)
            continue
        if rows["kind"][0].as_py() <= PAIR:
            found.add(rows)
            continue
        said = (rows[name].to_pylist() for name in ("kind", "t0", "run", "topic"))
        remarks.update(Remark(*row) for row in zip(*said, strict=True))
    return found, remarks


def log_sums(
    spark: Any, options: ReadOptions, ranges: Sequence[OffsetRange], *, with_fields: bool
) -> LogSums:
    """Of the records of these ranges. `with_fields`: the ledger tells of keys, headers and timestamps."""
    names = LOG_COLUMNS + FIELD_COLUMNS if with_fields else LOG_COLUMNS
    work = partial(_sums_of_records, options, Columns(parsed=True, trusts_values=True, only=names))
    found = LogSums()
    for sums in _on_workers(spark, spark_partitions(options, list(ranges)), work):
        found.take(sums)
    return found


def _sums_of_records(options: ReadOptions, columns: Columns, wanted: RangePartition) -> LogSums:
    found = LogSums()
    for rows in read_partition(options, wanted, columns):
        found.add(rows)
    return found


def _on_workers(spark: Any, parts: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """One task for each part."""
    if not parts:
        return []
    answers: list[R] = (
        spark.sparkContext.parallelize(parts, len(parts)).mapPartitions(partial(_each, work)).collect()
    )
    return answers


def _each(work: Callable[[T], R], parts: Iterator[T]) -> Iterator[R]:
    for part in parts:
        with read_on_worker():
            answer = work(part)
        yield answer
