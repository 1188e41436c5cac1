"""`spark.read.format("holdfast")`: topics of a cluster as a table (D11, docs/validate.md).

Options and schema are those of Spark's Kafka source, plus `leaderEpoch`. The driver turns options into offset
ranges once; executors open their own sockets inside `read` and hand over Arrow batches. A stream reader can
plan with the same `plan_ranges` and read with the same `read_range`.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.durability.arrow import Columns, to_arrow
from holdfast.durability.read_options import (
    BadOption,
    OffsetRange,
    OffsetSpec,
    ReadOptions,
    offset_of,
    parse_options,
    split_ranges,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import new_event_loop, real_runtime

T = TypeVar("T")

CLIENT_ID = "holdfast-spark"
#: Bytes that are decoded at a time: enough for a cheap round trip, little enough to stay in the cache.
POLL_BYTES = 2 << 20


@dataclass
class RangePartition(InputPartition):
    """One Spark partition: an offset range."""

    range: OffsetRange


class HoldfastSource(DataSource):
    """Batch reads of topics."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        return columns_of(parse_options(self.options)).spark_schema()

    def reader(self, schema: Any) -> "HoldfastReader":
        return HoldfastReader(parse_options(self.options))


class HoldfastReader(DataSourceReader):
    """Plans on the driver, reads on the executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[RangePartition]:
        ranges = split_ranges(plan_ranges(self._options), self._options.min_partitions)
        # Spark needs one partition at least; an empty range has no rows
        return [RangePartition(item) for item in ranges or [OffsetRange("", 0, 0, 0)]]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.range)


def columns_of(options: ReadOptions) -> Columns:
    """The columns that the options ask for."""
    return Columns(
        payload=options.include_payload,
        headers=options.include_headers,
        leader_epoch=options.include_leader_epoch,
        parsed=options.parse_values,
    )


def plan_ranges(options: ReadOptions) -> list[OffsetRange]:
    """The offset range of every partition asked for, empty ones too, by topic and partition.

    Raises: BadOption, client.core.errors.ClientError (unknown topic, a partition without leader, no node
    answers).
    """
    loop = _Loop()
    try:
        return loop.run(_plan(loop.runtime, options))
    finally:
        loop.close()


async def _plan(runtime: Runtime, options: ReadOptions) -> list[OffsetRange]:
    admin = Admin(options.bootstrap_servers, client_id=CLIENT_ID, runtime=runtime)
    try:
        wanted = await _partitions(admin, options)
        starts = await _resolve(admin, options, wanted, options.starting, "startingOffsets")
        ends = await _resolve(admin, options, wanted, options.ending, "endingOffsets")
    finally:
        await admin.close()
    # a start behind the end (both were asked for while records came in) is an empty range, not an error
    return [OffsetRange(*item, min(starts[item], ends[item]), ends[item]) for item in wanted]


async def _partitions(admin: Admin, options: ReadOptions) -> list[tuple[str, int]]:
    """(topic, partition) of all partitions asked for, sorted."""
    if options.assign is not None:
        return sorted((topic, index) for topic, indexes in options.assign.items() for index in set(indexes))
    names = sorted(set(options.subscribe or ()))
    if options.subscribe_pattern is not None:
        pattern = re.compile(options.subscribe_pattern)
        listed = await admin.list_topics(timeout_ms=options.poll_timeout_ms)
        names = [name for name in listed if pattern.fullmatch(name)]
        if not names:
            raise BadOption(f"option subscribePattern: no topic matches {options.subscribe_pattern!r}")
    found = []
    for topic in await admin.describe_topics(names, timeout_ms=options.poll_timeout_ms):
        if topic.error_code != ErrorCode.NONE:
            code = ErrorCode(topic.error_code)
            raise ClientError(f"topic {topic.name}: {code.name}; `holdfast topics --list` shows them", code)
        found += [(topic.name, partition.partition_index) for partition in topic.partitions]
    return sorted(found)


async def _resolve(
    admin: Admin, options: ReadOptions, wanted: list[tuple[str, int]], spec: OffsetSpec, option: str
) -> dict[tuple[str, int], int]:
    """{(topic, partition): offset}; leaders are asked only where the option says earliest or latest."""
    offsets = {item: offset_of(spec, option, *item) for item in wanted}
    # EARLIEST and LATEST are the very timestamps that ListOffsets knows
    asked = {item: offset for item, offset in offsets.items() if offset < 0}
    if asked:
        for item, found in (await admin.list_offsets(asked, timeout_ms=options.poll_timeout_ms)).items():
            offsets[item] = found.offset
    return offsets


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of one range.

    Raises: ClientError (NoSuchOffset with failOnDataLoss, TimedOut without progress), CorruptBatch.
    """
    if wanted.start >= wanted.end:
        return
    columns = columns_of(options)
    loop = _Loop()
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
                batches,
                wanted.topic,
                wanted.partition,
                offset,
                wanted.end,
                columns,
                keeps_damaged=not options.fail_on_data_loss,
            )
            assert batches[-1].header.next_offset > offset, "an answer without progress"
            offset = batches[-1].header.next_offset
        loop.run(_close(loop.runtime, consumer))
    finally:
        loop.close()


async def _open(runtime: Runtime, options: ReadOptions, wanted: OffsetRange) -> Consumer:
    consumer = Consumer(
        options.bootstrap_servers,
        auto_offset_reset="none" if options.fail_on_data_loss else "earliest",
        partition_bytes_max=POLL_BYTES,
        buffer_bytes_max=2 * POLL_BYTES,  # durability.arrow checks them, and in its own way
        check_crcs=False,
        client_id=CLIENT_ID,
        runtime=runtime,
    )
    consumer.assign([(wanted.topic, wanted.partition)])
    consumer.seek((wanted.topic, wanted.partition), wanted.start)
    return consumer


async def _close(runtime: Runtime, consumer: Consumer) -> None:
    await consumer.close()
    await runtime.clock.sleep(0)  # fetches under way are cancelled


class _Loop:
    """An event loop that runs when it is asked to: Spark's readers are plain generators."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self.runtime = real_runtime()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; tasks that it started wait for the next call."""
        return self._runner.run(work)

    def close(self) -> None:
        """Cancel what is left and end the loop."""
        self._runner.run(self.runtime.tasks.cancel_all())
        self._runner.close()
