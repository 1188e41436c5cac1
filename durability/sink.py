"""`write.format("holdfast")` and `writeStream.format("holdfast")`: rows as records (docs/spark.md).

Each task has a producer of its own, idempotent and with acks=all, and ends when all its records are
acknowledged. A task that Spark repeats writes its records again, as with Spark's Kafka sink.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import BufferFull, ClientError, ProduceFailed
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Producer
from holdfast.durability.cluster_offsets import OwnLoop
from holdfast.durability.write_options import WriteOptions
from holdfast.runtime.api import Runtime

#: Rows between two turns of the event loop, in which answers are read.
_ROWS_PER_TURN = 500


@dataclass
class Written(WriterCommitMessage):
    """What one task has written."""

    records: int
    #: {"topic-partition": offset behind its last record}
    ends: dict[str, int]


class HoldfastWriter(DataSourceArrowWriter):
    """A batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


class HoldfastStreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch; one that is repeated after a failure is written again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: every record is acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing can be done: what was written is in the log, and is written again with the next attempt."""


def write_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write rows until all are acknowledged. Raises: ProduceFailed, ClientError."""
    loop = OwnLoop()
    try:
        return loop.run(_write(loop.runtime, options, batches))
    finally:
        loop.close()


@dataclass
class Outcomes:
    """What became of the batches."""

    records: int = 0
    #: {(topic, partition): offset behind the last acknowledged record}
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    failed: Batch | None = None

    def heard(self, batch: Batch) -> None:
        """The producer's `on_batch`."""
        if batch.outcome is DeliveryOutcome.OK:
            self.records += batch.count
            place = (batch.topic, batch.partition)
            self.ends[place] = max(self.ends.get(place, 0), batch.base_offset + batch.count)
        elif self.failed is None:
            self.failed = batch

    def check(self) -> None:
        """Raises: ProduceFailed for the first batch that failed."""
        batch = self.failed
        if batch is None:
            return
        end = self.ends.get((batch.topic, batch.partition))
        last = "none of this task is" if end is None else f"the last one of this task is at offset {end - 1}"
        is_unsure = batch.outcome is DeliveryOutcome.INFO
        raise ProduceFailed(
            f"{batch.topic}-{batch.partition}: {batch.count} records were not acknowledged "
            f"and {'may be' if is_unsure else 'are not'} in the log ({batch.error_text}); "
            f"of those that are acknowledged there {last}",
            batch.error,
            may_be_appended=is_unsure,
        )


async def _write(runtime: Runtime, options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    outcomes = Outcomes()
    producer = Producer(
        options.bootstrap_servers,
        compression=options.compression,  # type: ignore[arg-type]  # checked with the options
        delivery_timeout_ms=options.delivery_timeout_ms,
        max_block_ms=options.delivery_timeout_ms,
        client_id=options.client_id,
        on_batch=outcomes.heard,
        runtime=runtime,
    )
    async with producer:
        known: set[str] = set()
        for batch in batches:
            for number, (topic, key, value, headers, partition) in enumerate(_rows(options, batch)):
                if topic not in known:
                    if topic is None:
                        raise ClientError("column topic is null in a row, and there is no option topic")
                    await producer.partition_count(topic)
                    known.add(topic)
                if number % _ROWS_PER_TURN == 0:
                    await NEXT_TURN
                    outcomes.check()
                while True:
                    try:
                        producer.send_nowait(topic, value, key, partition, headers=headers)
                        break
                    except BufferFull:
                        await producer.room()
            # Spark may take its time for the next rows, and nothing is heard meanwhile
            await producer.flush()
            outcomes.check()
    ends = {f"{topic}-{partition}": end for (topic, partition), end in sorted(outcomes.ends.items())}
    return Written(outcomes.records, ends)


def _rows(options: WriteOptions, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """(topic, key, value, headers, partition) of each row."""
    count = batch.num_rows
    topics = [options.topic] * count if options.topic is not None else _column(batch, "topic")
    headers = [_headers(row) for row in _column(batch, "headers")]
    return zip(
        topics,
        _bytes_column(batch, "key"),
        _bytes_column(batch, "value"),
        headers,
        _column(batch, "partition"),
        strict=True,
    )


def _headers(row: list[Any] | None) -> list[tuple[str, bytes | None]]:
    """Raises: ClientError."""
    found = row or ()
    if any(header is None or header["key"] is None for header in found):
        raise ClientError("column headers has a null, or a header without a key, in a row")
    return [(header["key"], header["value"]) for header in found]


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * int(batch.num_rows)
    return list(batch.column(name).to_pylist())


def _bytes_column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * int(batch.num_rows)
    return list(batch.column(name).cast(pa.binary()).to_pylist())
