"""`format("holdfast")`: topics of a cluster as a table, as a stream and as a sink (D11, docs/validate.md).

Options and schema are those of Spark's Kafka source, plus `leaderEpoch` and what is asked for. The driver
turns options into offset ranges once; executors open their own sockets inside `read` and hand over Arrow
batches.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import TimedOut
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.durability.arrow import Columns, has_column, to_arrow
from holdfast.durability.cluster_offsets import ClusterOffsets, OwnLoop
from holdfast.durability.core.epochs import epoch_at
from holdfast.durability.core.positions import DataLost, Place
from holdfast.durability.read_options import (
    BadOption,
    Mode,
    OffsetRange,
    ReadOptions,
    parse_options,
    split_ranges,
)
from holdfast.runtime.api import Runtime

_log = logging.getLogger("holdfast.spark")

#: Bytes that are decoded at a time: enough for a cheap round trip, little enough to stay in the cache.
POLL_BYTES = 2 << 20


@dataclass
class RangePartition(InputPartition):
    """One Spark partition: an offset range."""

    range: OffsetRange


class HoldfastSource(DataSource):
    """Reads of topics."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        return columns_of(parse_options(self.options)).spark_schema()

    def reader(self, schema: Any) -> "HoldfastReader":
        options = parse_options(self.options, Mode.BATCH)
        return HoldfastReader(options, columns_in(schema, options))


class HoldfastReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[RangePartition]:
        options = self._options
        ranges = split_ranges(plan_ranges(options), options.min_partitions, options.max_records_per_partition)
        # Spark needs one partition at least; an empty range has no rows
        return [RangePartition(item) for item in ranges or [OffsetRange("", 0, 0, 0)]]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.range, self._columns)


# --- columns -------------------------------------------------------------------------------------------


def columns_of(options: ReadOptions) -> Columns:
    """The columns that the options ask for."""
    return Columns(
        payload=options.include_payload,
        headers=options.include_headers,
        leader_epoch=options.include_leader_epoch,
        parsed=options.parse_values,
        timestamp_ms=options.include_timestamp_ms,
        problem=options.include_problem,
    )


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


def plan_ranges(options: ReadOptions) -> list[OffsetRange]:
    """The offset range of every partition asked for, empty ones too, by topic and partition.

    Raises: BadOption, client.core.errors.ClientError (unknown topic, a partition without leader, no node
    answers), DataLost for offsets named in options that are not in the log, unless failOnDataLoss is false.
    """
    cluster = ClusterOffsets(options)
    try:
        wanted = cluster.partitions()
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
    finally:
        cluster.close()
    # a start behind the end (both were asked for while records came in) is an empty range, not an error
    return [OffsetRange(*item, min(starts[item], ends[item]), ends[item]) for item in wanted]


def _inside(options: ReadOptions, option: str, place: Place, offset: int, start: int, end: int) -> int:
    """The offset that was named, or the nearest one that the log has. Raises: DataLost."""
    if start <= offset <= end or (option == "endingOffsets" and offset <= end):
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


# --- reading -------------------------------------------------------------------------------------------


def read_range(
    options: ReadOptions, wanted: OffsetRange, columns: Columns | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of one range.

    Raises: ClientError (NoSuchOffset and DataLost with failOnDataLoss, TimedOut without progress),
    CorruptBatch.
    """
    if wanted.start >= wanted.end:
        return
    columns = columns_of(options) if columns is None else columns
    loop = OwnLoop()
    try:
        consumer = loop.run(_open(loop.runtime, options, wanted))
        offset = wanted.start
        while offset < wanted.end:
            batches = loop.run(consumer.poll_batches(POLL_BYTES, options.poll_timeout_ms))
            if not batches:
                raise TimedOut(
                    f"{wanted.topic}-{wanted.partition}: nothing came from offset {offset} on within "
                    f"{options.poll_timeout_ms} ms, up to {wanted.end} was expected"
                )
            yield from to_arrow(
                _as_planned(options, wanted, batches) if wanted.epochs else batches,
                wanted.topic,
                wanted.partition,
                offset,
                wanted.end,
                columns,
                keeps_damaged=options.keeps_damaged,
            )
            assert batches[-1].header.next_offset > offset, "an answer without progress"
            offset = batches[-1].header.next_offset
        loop.run(_close(loop.runtime, consumer))
    finally:
        loop.close()


def _as_planned(options: ReadOptions, wanted: OffsetRange, batches: list[FetchedBatch]) -> list[FetchedBatch]:
    """Those of the leader epochs that the driver has seen there: others have taken the place of records that
    were truncated since. Raises: DataLost."""
    kept = []
    for batch in batches:
        offset, epoch = max(batch.start_offset, wanted.start), batch.header.leader_epoch
        planned = epoch_at(wanted.epochs, offset)
        if offset >= wanted.end or epoch == planned:
            kept.append(batch)
            continue
        sentence = (
            f"{wanted.topic}-{wanted.partition}: the log was truncated: offset {offset} was of leader epoch "
            f"{planned}, and the log holds another record there, of leader epoch {epoch}"
        )
        if options.fail_on_data_loss:
            raise DataLost(sentence)
        _log.warning("%s; it is read with the next micro-batch", sentence)
    return kept


async def _open(runtime: Runtime, options: ReadOptions, wanted: OffsetRange) -> Consumer:
    consumer = Consumer(
        options.bootstrap_servers,
        auto_offset_reset="none" if options.fail_on_data_loss else "earliest",
        partition_bytes_max=POLL_BYTES,
        buffer_bytes_max=2 * POLL_BYTES,  # durability.arrow checks them, and in its own way
        check_crcs=False,
        client_id=options.client_id,
        runtime=runtime,
    )
    consumer.assign([(wanted.topic, wanted.partition)])
    consumer.seek((wanted.topic, wanted.partition), wanted.start)
    return consumer


async def _close(runtime: Runtime, consumer: Consumer) -> None:
    await consumer.close()
    await runtime.clock.sleep(0)  # fetches under way are cancelled
