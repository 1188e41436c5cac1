"""Reads one offset range as Arrow batches, on an executor or in any other process.

Owns the consumer of the range and what becomes of batches that the driver has not planned.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import NoSuchOffset, TimedOut
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.durability.arrow import Columns, to_arrow
from holdfast.durability.cluster_offsets import ClusterOffsets, OwnLoop
from holdfast.durability.core.epochs import epoch_at
from holdfast.durability.core.positions import DataLost, Place
from holdfast.durability.read_options import (
    LATEST,
    OffsetRange,
    ReadOptions,
    grouped_ranges,
    split_ranges,
)
from holdfast.durability.replica_reader import is_another_topic, replica_batches
from holdfast.runtime.api import Runtime

_log = logging.getLogger("holdfast.spark")

#: Bytes that are decoded at a time: enough for a cheap round trip, little enough to stay in the cache.
POLL_BYTES = 2 << 20
#: Ranges with fewer offsets together are asked for at once.
_AT_ONCE_OFFSETS = 10_000
#: Between two looks at what became of ranges of which nothing comes.
_LOOK_MS = 1_000


@dataclass
class RangePartition(InputPartition):
    """One Spark partition: offset ranges."""

    ranges: tuple[OffsetRange, ...]


def spark_partitions(options: ReadOptions, ranges: list[OffsetRange]) -> list[RangePartition]:
    """The ranges, cut and put together as the options say."""
    least, most = options.min_partitions, options.max_records_per_partition
    return [RangePartition(group) for group in grouped_ranges(split_ranges(ranges, least, most), least, most)]


def read_partition(
    options: ReadOptions, partition: RangePartition, columns: Columns | None = None
) -> Iterator[pa.RecordBatch]:
    """All records of one Spark partition.

    Raises: ClientError (DataLost with failOnDataLoss, TimedOut without progress), CorruptBatch.
    """
    columns = columns_of(options) if columns is None else columns
    ranges = [wanted for wanted in partition.ranges if wanted.start < wanted.end]
    if options.replica_id is not None:
        for wanted in ranges:
            yield from _read_replica(options, wanted, columns)
    elif ranges:
        yield from _read_leaders(options, ranges, columns)


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


def read_range(
    options: ReadOptions, wanted: OffsetRange, columns: Columns | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of one range. Raises: as `read_partition`."""
    return read_partition(options, RangePartition((wanted,)), columns)


def _read_replica(options: ReadOptions, wanted: OffsetRange, columns: Columns) -> Iterator[pa.RecordBatch]:
    for batches in replica_batches(options, wanted, POLL_BYTES):
        yield from to_arrow(
            batches,
            *(wanted.topic, wanted.partition, wanted.start, wanted.end),
            columns,
            keeps_damaged=options.keeps_damaged,
        )


def _read_leaders(
    options: ReadOptions, ranges: Sequence[OffsetRange], columns: Columns
) -> Iterator[pa.RecordBatch]:
    """Ranges through the same connections, small ones at once: of many of these, questions and answers would
    be most of the work."""
    loop = OwnLoop()
    consumer = _consumer(loop.runtime, options)
    try:
        for few in together(ranges):
            yield from _read_at_once(loop, consumer, options, few, columns)
    finally:
        loop.run(_close(loop.runtime, consumer))
        loop.close()


def together(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """The ranges in their order, those together that are read at once: small ones of different partitions."""
    found: list[list[OffsetRange]] = []
    places: set[tuple[str, int]] = set()
    room = 0
    for wanted in ranges:
        place, size = (wanted.topic, wanted.partition), wanted.end - wanted.start
        if size > room or place in places:
            found.append([])
            places, room = set(), _AT_ONCE_OFFSETS
        found[-1].append(wanted)
        places.add(place)
        room -= size
    return found


def _read_at_once(
    loop: OwnLoop, consumer: Consumer, options: ReadOptions, ranges: Sequence[OffsetRange], columns: Columns
) -> Iterator[pa.RecordBatch]:
    """Ranges of different partitions."""
    pending = {(wanted.topic, wanted.partition): wanted for wanted in ranges}
    offsets = {place: wanted.start for place, wanted in pending.items()}
    loop.run(_begin(consumer, offsets))
    assigned, clock = len(pending), loop.runtime.clock
    since_ms = clock.now_ms()
    while pending:
        if len(pending) < assigned:
            # what becomes of a log whose range is read is no matter of this task any more
            loop.run(_go_on(consumer, pending))
            assigned = len(pending)
        left_ms = max(0, min(_LOOK_MS, since_ms + options.poll_timeout_ms - clock.now_ms()))
        try:
            batches = loop.run(consumer.poll_batches(POLL_BYTES, left_ms))
        except NoSuchOffset as error:
            raise DataLost(f"{error}: it was deleted or truncated before it was read") from error
        _pass_over_other_topics(consumer, options, pending)
        # what lies behind a range that has been read is none of ours, and no progress
        found: dict[tuple[str, int], list[FetchedBatch]] = {}
        for batch in batches:
            place = (batch.topic, batch.partition)
            # who is sent back to the beginning of a log that was truncated meets what is read already
            if place in pending and batch.header.next_offset > offsets[place]:
                found.setdefault(place, []).append(batch)
        for place in [place for place in pending if place not in found]:
            position = consumer.position(place)
            if position is not None and position >= pending[place].end:
                _log.warning("%s", _gone(pending.pop(place), offsets[place]))
        if pending and not found and clock.now_ms() - since_ms >= options.poll_timeout_ms:
            place, wanted = next(iter(pending.items()))
            if _log_end(options, place) < wanted.end:
                if options.fail_on_data_loss:
                    raise DataLost(_gone(wanted, offsets[place]))
                _log.warning("%s", _gone(pending.pop(place), offsets[place]))
                continue
            raise TimedOut(
                f"{wanted.topic}-{wanted.partition}: nothing came from offset {offsets[place]} on within "
                f"{options.poll_timeout_ms} ms, up to {wanted.end} was expected"
            )
        for place, kept in found.items():
            wanted = pending[place]
            if kept[0].start_offset > offsets[place]:
                _log.warning("%s; goes on at %d", _gone(wanted, offsets[place]), kept[0].start_offset)
            yield from to_arrow(
                _as_planned(options, wanted, kept) if wanted.epochs else kept,
                *(*place, offsets[place], wanted.end),
                columns,
                keeps_damaged=options.keeps_damaged,
            )
            end = kept[-1].header.next_offset
            offsets[place] = end
            if end >= wanted.end:
                del pending[place]
        if found:  # fetches stand still while Spark works on what it was given
            since_ms = clock.now_ms()


def _gone(wanted: OffsetRange, offset: int) -> str:
    return (
        f"{wanted.topic}-{wanted.partition}: offsets {offset} to {wanted.end - 1} were to be read, and "
        f"offset {offset} is not in the log any more: it was deleted or truncated"
    )


def _log_end(options: ReadOptions, place: Place) -> int:
    cluster = ClusterOffsets(options)
    try:
        return cluster.list_offsets({place: LATEST})[place]
    finally:
        cluster.close()


def _pass_over_other_topics(
    consumer: Consumer, options: ReadOptions, pending: dict[tuple[str, int], OffsetRange]
) -> None:
    """Forget the ranges of topics that were created again since they were planned. Raises: DataLost."""
    for place, wanted in list(pending.items()):
        topic_id = consumer.topic_id(place)
        if topic_id is not None and is_another_topic(wanted, topic_id.hex(), options.fail_on_data_loss):
            del pending[place]


def _as_planned(options: ReadOptions, wanted: OffsetRange, batches: list[FetchedBatch]) -> list[FetchedBatch]:
    """Those of the leader epochs that the driver has seen there: others have taken the place of records that
    were truncated since. Raises: DataLost."""
    kept = []
    for batch in batches:
        offset, epoch = max(batch.start_offset, wanted.start), batch.header.leader_epoch
        planned = epoch_at(wanted.epochs, offset)
        if offset >= wanted.end or planned in (-1, epoch):
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


def _consumer(runtime: Runtime, options: ReadOptions) -> Consumer:
    return Consumer(
        options.bootstrap_servers,
        auto_offset_reset="none" if options.fail_on_data_loss else "earliest",
        partition_bytes_max=POLL_BYTES,
        buffer_bytes_max=2 * POLL_BYTES,  # durability.arrow checks them, and in its own way
        check_crcs=False,
        client_id=options.client_id,
        runtime=runtime,
    )


async def _begin(consumer: Consumer, offsets: Mapping[tuple[str, int], int]) -> None:
    consumer.assign(list(offsets))
    for place, offset in offsets.items():
        consumer.seek(place, offset)


async def _go_on(consumer: Consumer, pending: Iterable[Place]) -> None:
    """With these partitions alone, where they are."""
    consumer.assign(list(pending))


async def _close(runtime: Runtime, consumer: Consumer) -> None:
    await consumer.close()
    await runtime.clock.sleep(0)  # fetches under way are cancelled
