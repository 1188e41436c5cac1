"""What `holdfast validate --follow` reads: lines of ledgers, polls and records of logs, as one stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from holdfast.durability.follow_source import RECORD
from holdfast.durability.micro_batches import LOG_COLUMNS
from holdfast.durability.session import local_path

#: A micro-batch begins so often, if there is something new.
TRIGGER = "1 second"

_READ_SCHEMA = (
    "topic string, partition int, offset long, state string, producer string, pseq long, "
    "value_crc32c long, timestampMs long, timestampType int, key_crc32c long, headers_crc32c long"
)


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """What to follow, and for how long."""

    #: file, or folder that gets ledger files
    ledger: str
    #: host:port[,host:port]
    bootstrap_servers: str
    #: folder for Spark's checkpoint and what is open; a later run with the same folder goes on there
    state: str
    master: str = "local[*]"
    #: Spark's heap (durability.session.start_session)
    memory: str | None = None
    #: end after so many seconds; None: when `until` says so
    seconds: float | None = None
    #: fewer acknowledged sends (acks=all) prove nothing
    acked_min: int = 1
    #: longest time without progress of a read
    timeout_ms: int = 60_000


def begin_query(
    spark: Any,
    options: FollowOptions,
    topics: Sequence[str],
    checkpoint: Path,
    step: Callable[[Any, int], None],
) -> Any:
    """A running query that gives `step` each micro-batch and its number, and goes on where the checkpoint
    stands."""
    # of lines and polls one source, in this order: earlier builds left checkpoints of two
    read = spark.readStream.format("holdfast.followed").load(options.ledger)
    read = read.unionByName(_records(spark, options, topics), allowMissingColumns=True)
    return (
        read.writeStream.foreachBatch(step)
        .option("checkpointLocation", local_path(checkpoint))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def _records(spark: Any, options: FollowOptions, topics: Sequence[str]) -> Any:
    read = (
        spark.readStream.format("holdfast")
        .schema(_READ_SCHEMA)
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .option("parseValues", "true")
        .option("includeTimestampMs", "true")
        .option("kafkaConsumer.pollTimeoutMs", str(options.timeout_ms))
        .load()
    )
    of_producer = F.when(F.col("timestampType") == 0, F.col("timestampMs")).alias("timestamp_ms")
    names = [name for name in LOG_COLUMNS if name != "timestamp_ms"]
    return read.select(F.lit(RECORD).alias("origin"), of_producer, *names)
