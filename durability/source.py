"""`format("holdfast")`: topics of a cluster as a table, as a stream and as a sink (D11, docs/spark.md).

Options and schema are those of Spark's Kafka source, plus `leaderEpoch` and what is asked for. The driver
turns options into offset ranges once; executors open their own sockets inside `read` and hand over Arrow
batches.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from holdfast.durability.arrow import Columns, has_column
from holdfast.durability.cluster_offsets import ClusterOffsets
from holdfast.durability.core.positions import DataLost, Place
from holdfast.durability.core.pushdown import Bounds
from holdfast.durability.range_reader import (
    RangePartition,
    columns_of,
    read_partition,
    read_range,
    spark_partitions,
)
from holdfast.durability.read_options import (
    BadOption,
    Mode,
    OffsetRange,
    ReadOptions,
    parse_options,
)
from holdfast.durability.sink import HoldfastStreamWriter, HoldfastWriter
from holdfast.durability.stream_source import HoldfastStreamReader
from holdfast.durability.write_options import WriteOptions, parse_write_options

_log = logging.getLogger("holdfast.spark")

__all__ = ["HoldfastReader", "HoldfastSource", "plan_ranges", "read_range"]


class HoldfastSource(DataSource):
    """Reads and writes of topics."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        return columns_of(parse_options(self.options)).spark_schema()

    def reader(self, schema: Any) -> "HoldfastReader":
        options = parse_options(self.options, Mode.BATCH)
        return HoldfastReader(options, columns_in(schema, options))

    def streamReader(self, schema: Any) -> HoldfastStreamReader:
        options = parse_options(self.options, Mode.STREAM)
        return HoldfastStreamReader(options, columns_in(schema, options))

    def writer(self, schema: Any, overwrite: bool) -> HoldfastWriter:
        return HoldfastWriter(self._write_options(schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> HoldfastStreamWriter:
        return HoldfastStreamWriter(self._write_options(schema, overwrite))

    def _write_options(self, schema: Any, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise BadOption("mode overwrite: a log is appended to; use mode append")
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        return parse_write_options(self.options, columns)


class HoldfastReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._bounds = Bounds()

    def partitions(self) -> list[RangePartition]:
        planned = plan_ranges(self._options, self._bounds)
        # Spark needs one partition at least
        return spark_partitions(self._options, planned) or [RangePartition(())]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)


class FilteringSource(HoldfastSource):
    """The same for sessions with `spark.sql.python.filterPushdown.enabled`: others refuse it."""

    def reader(self, schema: Any) -> "FilteringReader":
        options = parse_options(self.options, Mode.BATCH)
        return FilteringReader(options, columns_in(schema, options))


class FilteringReader(HoldfastReader):
    """Leaves out what a query's filters on topic, partition, offset and timestamp cannot want."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for item in filters:
            comparison = _COMPARISONS.get(type(item))
            if comparison is not None and len(item.attribute) == 1 and item.value is not None:
                self._bounds = self._bounds.narrowed(item.attribute[0], comparison, item.value)
        return filters  # Spark filters the rows, too: a range is not always exact


_COMPARISONS = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


# --- columns -------------------------------------------------------------------------------------------


def columns_in(schema: Any, options: ReadOptions) -> Columns:
    """The columns of the schema, which the user may have given: some of those that there are.

    Raises: BadOption.
    """
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if not has_column(field.name, kind):
            there = Columns(headers=True, parsed=True, timestamp_ms=True, problem=True).spark_schema()
            raise BadOption(f"schema: there is no column {field.name} {kind}; there are {there}")
    return replace(columns_of(options), only=tuple(schema.fieldNames()))


# --- planning ------------------------------------------------------------------------------------------


def plan_ranges(options: ReadOptions, bounds: Bounds | None = None) -> list[OffsetRange]:
    """The offset range of every partition asked for, empty ones too, by topic and partition; `bounds` leave
    out partitions.

    Raises: BadOption, client.core.errors.ClientError (unknown topic, a partition without leader, no node
    answers), DataLost for offsets named in options that are not in the log, unless failOnDataLoss is false.
    """
    cluster = ClusterOffsets(options)
    try:
        wanted = cluster.partitions()
        if not wanted:
            raise BadOption(f"option subscribePattern: no topic matches {options.subscribe_pattern!r}")
        starts = cluster.resolve(wanted, options.starting, "startingOffsets")
        ends = cluster.resolve(wanted, options.ending, "endingOffsets")
        named = [
            (option, spec, offsets)
            for option, spec, offsets in (
                ("startingOffsets", options.starting, starts),
                ("endingOffsets", options.ending, ends),
            )
            if isinstance(spec, dict) and any(offset >= 0 for offset in spec.values())
        ]
        if named:
            logs = cluster.logs(wanted)
            for option, spec, offsets in named:
                for place in wanted:
                    if spec[place] >= 0:
                        log = logs[place]
                        offsets[place] = _inside(options, option, place, offsets[place], log.start, log.end)
        # a start behind the end (both were asked for while records came in) is an empty range, not an error
        ranges = [
            OffsetRange(*place, min(starts[place], ends[place]), ends[place], topic_id=found.topic_id)
            for place, found in wanted.items()
        ]
        return ranges if bounds is None else _cut(cluster, ranges, bounds, options)
    finally:
        cluster.close()


def _cut(
    cluster: ClusterOffsets, ranges: list[OffsetRange], bounds: Bounds, options: ReadOptions
) -> list[OffsetRange]:
    kept = bounds.cut(ranges)
    if bounds.timestamp_min_ms is None or options.replica_id is not None:
        return kept  # of a replica's records, which may be others, the leader does not know the times
    ends = {(item.topic, item.partition): item.end for item in kept}
    found = cluster.list_offsets(dict.fromkeys(ends, bounds.timestamp_min_ms))
    return bounds.cut(kept, {place: ends[place] if offset < 0 else offset for place, offset in found.items()})


def _inside(options: ReadOptions, option: str, place: Place, offset: int, start: int, end: int) -> int:
    """The offset that was named, or the nearest one that the log has. Raises: DataLost."""
    if start <= offset <= end:
        return offset
    sentence = (
        f"option {option}: {place[0]}-{place[1]} has no offset {offset}: "
        f"its log begins at {start} and ends at {end}"
    )
    if options.fail_on_data_loss:
        raise DataLost(f"{sentence} (failOnDataLoss=false goes on with what is there)")
    nearest = min(max(offset, start), end)
    _log.warning("%s; goes on at %d, %d offsets away", sentence, nearest, abs(offset - nearest))
    return nearest
