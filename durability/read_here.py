"""Tables of little data, read by this process with the readers that Spark's workers have."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from holdfast.durability.range_reader import RangePartition, columns_of, read_partition
from holdfast.durability.read_options import OffsetRange, ReadOptions
from holdfast.durability.segment_source import BATCH_SCHEMA, SegmentsReader, arrow_schema


class ReadFailed(Exception):
    """What a task of Spark would have failed with."""


def served_here(options: ReadOptions, ranges: Sequence[OffsetRange], names: tuple[str, ...]) -> pa.Table:
    """The records of these ranges in these columns of `format("holdfast")`. Raises: ReadFailed."""
    columns = replace(columns_of(options), only=names)
    with _failing_as_a_task():
        batches = list(read_partition(options, RangePartition(tuple(ranges)), columns))
    return pa.Table.from_batches(batches, schema=columns.arrow_schema())


def replicas_here(path: str, topics: Iterable[str], folders: Iterable[str]) -> pa.Table:
    """The batches of replicas, as `format("holdfast.segments")` has them. Raises: ReadFailed."""
    with _failing_as_a_task():
        reader = SegmentsReader(path, True, frozenset(topics), frozenset(folders), 1)
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema=arrow_schema(BATCH_SCHEMA))


@contextmanager
def _failing_as_a_task() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # as a worker would: the verdict says of any kind that it could not read
        kind = type(error)
        raise ReadFailed(f"{kind.__module__}.{kind.__qualname__}: {error}") from error
