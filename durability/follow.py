"""`holdfast validate --follow`: the rules that can be sure early, while producers and faults go on.

A Structured Streaming query reads the ledgers as they grow together with the served logs; what is made of a
micro-batch is `durability.micro_batches`' business. What only a look at everything can tell is
`durability.validate`'s.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from holdfast.client.core.errors import ClientError
from holdfast.durability.cluster_look import why_not_judged
from holdfast.durability.java import NoJava
from holdfast.durability.ledger import topics_named
from holdfast.durability.ledger_files import UnreadableLedger, ledger_files
from holdfast.durability.micro_batches import EARLY_RULES, LINE_COLUMNS, LOG_COLUMNS, FollowState, Step
from holdfast.durability.session import local_path, start_session, stop_session
from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of
from holdfast.durability.verdict import SAMPLES_MAX, Verdict, inconclusive

#: A micro-batch begins so often, if there is something new.
TRIGGER = "1 second"
_POLL_S = 0.2
#: So long the micro-batch under way may take once the end has come.
_LAST_STEP_S = 60.0

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
    #: end after so many seconds; None: when `until` says so
    seconds: float | None = None
    #: fewer acknowledged sends (acks=all) prove nothing
    acked_min: int = 1
    #: longest time without progress of a read
    timeout_ms: int = 60_000


def run(
    options: FollowOptions,
    on_step: Callable[[Step, Verdict], None] = lambda step, verdict: None,
    is_over: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Start Spark, follow until the time or `is_over` says so, stop Spark. `on_step` hears of each
    micro-batch with the verdict so far."""
    on_phase("Spark starts")
    try:
        spark = start_session(options.master, "holdfast validate --follow", is_short=True)
    except NoJava as error:
        return inconclusive(str(error))
    except SPARK_ERRORS as error:
        return inconclusive(f"Spark does not start on {options.master}: {reason_of(error)}")
    try:
        on_phase("Following: waiting for the first line of a ledger")
        return follow(spark, options, on_step, is_over)
    finally:
        stop_session(spark)


def follow(
    spark: Any,
    options: FollowOptions,
    on_step: Callable[[Step, Verdict], None] = lambda step, verdict: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Verdict:
    """Follow in a session that stands already."""
    deadline = None if options.seconds is None else time.monotonic() + options.seconds

    def is_time() -> bool:
        return is_over() or (deadline is not None and time.monotonic() >= deadline)

    topics = _wait_for_topics(options.ledger, is_time)
    if not topics:
        return inconclusive(f"ledger: {options.ledger} names no topic")
    with suppress(ClientError):  # the stream waits for the cluster, and says what it meets
        why_not = why_not_judged(options.bootstrap_servers, topics, options.timeout_ms)
        if why_not is not None:
            return inconclusive(why_not)
    state = FollowState(Path(options.state))

    def step(frame: Any, batch: int) -> None:
        found = state.take(frame, batch)
        on_step(found, verdict_of(state.steps(), topics, options.acked_min))

    read = _lines(spark, options).unionByName(_records(spark, options, topics), allowMissingColumns=True)
    query = (
        read.writeStream.foreachBatch(step)
        .option("checkpointLocation", local_path(Path(options.state) / "checkpoint"))
        .trigger(processingTime=TRIGGER)
        .start()
    )
    problem = None
    try:
        while query.isActive and not is_time():
            query.awaitTermination(_POLL_S)
        if query.isActive:
            _finish_step(query, state)
            query.stop()
        elif query.exception() is not None:
            problem = reason_of(query.exception())
    except SPARK_ERRORS as error:
        problem = reason_of(error)
    verdict = verdict_of(state.steps(), topics, options.acked_min)
    if problem is None:
        return verdict
    reason = f"reading failed: {problem}"
    if verdict.inconclusive:
        return inconclusive(reason)
    return Verdict(verdict.counts, verdict.samples, verdict.facts, doubts=(*verdict.doubts, reason))


def _finish_step(query: Any, state: "FollowState") -> None:
    """What the micro-batch under way has read counts: the first of a cold Spark takes longest, and without it
    nothing would be proved."""
    finished, until = state.finished, time.monotonic() + _LAST_STEP_S
    while query.isActive and query.status["isTriggerActive"] and state.finished == finished:
        if time.monotonic() >= until:
            return
        query.awaitTermination(_POLL_S)


def verdict_of(steps: Sequence[Step], topics: Sequence[str], acked_min: int) -> Verdict:
    """All micro-batches together. Good says that none of the early rules was broken so far."""
    counts: Counter[str] = Counter(dict.fromkeys(EARLY_RULES, 0))
    facts: Counter[str] = Counter(dict.fromkeys(("sent", "acked", "ok", "served"), 0))
    samples: dict[str, list[Mapping[str, Any]]] = {}
    doubts: list[str] = []
    for step in steps:
        counts.update(step.counts)
        facts.update(step.facts)
        doubts += step.doubts
        for name, rows in step.samples.items():
            kept = samples.setdefault(name, [])
            kept += rows[: SAMPLES_MAX - len(kept)]
    if facts["acked"] < max(1, acked_min):
        doubts.append(f"{facts['acked']} acknowledged sends (acks=all) are too few to prove anything")
    return Verdict(
        counts=dict(counts),
        samples=samples,
        facts={**facts, "topics": list(topics)},
        doubts=tuple(doubts),
        notes=("followed: only rules that can be sure early were asked; judge the whole afterwards",),
    )


def _wait_for_topics(ledger: str, is_time: Callable[[], bool]) -> tuple[str, ...]:
    """The topics that the ledgers name, as soon as there are any."""
    while True:
        try:
            topics = topics_named(ledger_files(ledger))
        except (UnreadableLedger, OSError):
            topics = set()
        if topics or is_time():
            return tuple(sorted(topics))
        time.sleep(_POLL_S)


def _lines(spark: Any, options: FollowOptions) -> Any:
    read = spark.readStream.format("holdfast.ledger").load(options.ledger)
    return read.select(F.lit(0).alias("origin"), *LINE_COLUMNS)


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
    return read.select(F.lit(1).alias("origin"), of_producer, *names)
