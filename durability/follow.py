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

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from holdfast.client.core.errors import ClientError
from holdfast.durability.followed_topics import FollowedTopics
from holdfast.durability.java import NoJava
from holdfast.durability.ledger import topics_named
from holdfast.durability.ledger_files import UnreadableLedger, ledger_files
from holdfast.durability.micro_batches import (
    EARLY_RULES,
    EXPIRED,
    LINE_COLUMNS,
    LOG_COLUMNS,
    FollowState,
    Step,
)
from holdfast.durability.session import local_path, start_session, stop_session
from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of
from holdfast.durability.verdict import SAMPLES_MAX, Verdict, inconclusive

#: A micro-batch begins so often, if there is something new.
TRIGGER = "1 second"
_POLL_S = 0.2
#: So long the micro-batch under way may take once the end has come.
_LAST_STEP_S = 60.0
#: The cluster is asked so often whether its topics are what they were.
_LOOK_S = 10.0
_LOOK_TIMEOUT_MS = 2_000
#: A stream that has failed so often, and for longer than a read may be without progress, is given up.
_ATTEMPTS = 3
_PAUSE_S = 1.0

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
        return follow(spark, options, on_step, is_over, on_phase)
    finally:
        stop_session(spark)


def follow(
    spark: Any,
    options: FollowOptions,
    on_step: Callable[[Step, Verdict], None] = lambda step, verdict: None,
    is_over: Callable[[], bool] = lambda: False,
    on_phase: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Follow in a session that stands already."""
    deadline = None if options.seconds is None else time.monotonic() + options.seconds

    def is_time() -> bool:
        return is_over() or (deadline is not None and time.monotonic() >= deadline)

    topics = FollowedTopics(Path(options.state), options.bootstrap_servers, options.timeout_ms)
    state = FollowState(Path(options.state), topics)

    def verdict(*doubts: str) -> Verdict:
        return verdict_of(state.steps(), topics.named, options.acked_min, (*topics.doubts, *doubts))

    stream = _Stream(spark, options, state, topics, lambda step: on_step(step, verdict()))
    problem = None
    patience = _Patience(options.timeout_ms)
    try:
        while not is_time():
            problem = _wait_for_topics(options, topics, is_time)
            if problem is not None or not topics.read or is_time():
                break
            problem = stream.run(is_time)
            if problem is None or state.finished > patience.finished:
                patience = _Patience(options.timeout_ms, state.finished)
            if problem is not None and patience.ends():
                break
            if problem is not None:
                on_phase(f"Following: {problem}; it is tried again")
                problem = None
                stream.wait(is_time)
        with suppress(ClientError):
            topics.look(_LOOK_TIMEOUT_MS)
    except SPARK_ERRORS as error:
        problem = f"reading failed: {reason_of(error)}"
    if problem is None:
        return verdict() if topics.named else inconclusive(f"ledger: {options.ledger} names no topic")
    return verdict(problem) if state.steps() else inconclusive(problem)


class _Patience:
    """How often and how long a stream is begun again that fails before it has finished a micro-batch."""

    def __init__(self, timeout_ms: int, finished: int = 0) -> None:
        self.finished = finished
        self._left = _ATTEMPTS
        self._until = time.monotonic() + timeout_ms / 1000

    def ends(self) -> bool:
        """After another failure."""
        self._left -= 1
        return self._left <= 0 and time.monotonic() >= self._until


@dataclass
class _Stream:
    """The query over ledgers and logs, begun again when there are more topics."""

    spark: Any
    options: FollowOptions
    state: FollowState
    topics: FollowedTopics
    on_step: Callable[[Step], None]

    def run(self, is_time: Callable[[], bool]) -> str | None:
        """Until it is time, or there are more topics to read; why it has failed, if it has."""
        read = self.topics.subscribed = self.topics.read
        query = self._begin(read)
        looked = time.monotonic()
        try:
            while query.isActive and not is_time() and set(self.topics.read) <= set(read):
                query.awaitTermination(_POLL_S)
                if time.monotonic() - looked >= (_POLL_S if self.topics.are_awaited else _LOOK_S):
                    with suppress(ClientError):
                        self.topics.look(_LOOK_TIMEOUT_MS)
                    looked = time.monotonic()
            _finish_step(query, self.state)
        except StreamingQueryException as error:
            return f"reading failed: {reason_of(error)}"
        query.stop()
        return None

    def wait(self, is_time: Callable[[], bool]) -> None:
        """Before it is begun again. What there is now may be less than there was."""
        until = time.monotonic() + _PAUSE_S
        while not is_time() and time.monotonic() < until:
            time.sleep(_POLL_S)
        with suppress(ClientError):
            self.topics.look(_LOOK_TIMEOUT_MS)

    def _begin(self, topics: Sequence[str]) -> Any:
        read = _lines(self.spark, self.options).unionByName(
            _records(self.spark, self.options, topics), allowMissingColumns=True
        )
        return (
            read.writeStream.foreachBatch(self._step)
            .option("checkpointLocation", local_path(Path(self.options.state) / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def _step(self, frame: Any, batch: int) -> None:
        self.on_step(self.state.take(frame, batch))


def _finish_step(query: Any, state: "FollowState") -> None:
    """What the micro-batch under way has read counts: the first of a cold Spark takes longest, and without it
    nothing would be proved."""
    finished, until = state.finished, time.monotonic() + _LAST_STEP_S
    while query.isActive and query.status["isTriggerActive"] and state.finished == finished:
        if time.monotonic() >= until:
            return
        query.awaitTermination(_POLL_S)


def verdict_of(
    steps: Sequence[Step], topics: Sequence[str], acked_min: int, others: Sequence[str] = ()
) -> Verdict:
    """All micro-batches together, and doubts from elsewhere. Good says that none of the early rules was
    broken so far."""
    counts: Counter[str] = Counter(dict.fromkeys(EARLY_RULES, 0))
    facts: Counter[str] = Counter(dict.fromkeys(("sent", "acked", "ok", "served"), 0))
    samples: dict[str, list[Mapping[str, Any]]] = {}
    doubts = list(others)
    for step in steps:
        counts.update(step.counts)
        facts.update(step.facts)
        doubts += step.doubts
        for name, rows in step.samples.items():
            kept = samples.setdefault(name, [])
            kept += rows[: SAMPLES_MAX - len(kept)]
    if facts[EXPIRED]:
        doubts.append(
            f"{facts[EXPIRED]} answered sends lie before the beginning of their logs (retention): not judged"
        )
    if facts["acked"] < max(1, acked_min):
        doubts.append(f"{facts['acked']} acknowledged sends (acks=all) are too few to prove anything")
    return Verdict(
        counts=dict(counts),
        samples=samples,
        facts={**facts, "topics": list(topics)},
        doubts=tuple(doubts),
        notes=("followed: only rules that can be sure early were asked; judge the whole afterwards",),
    )


def _wait_for_topics(
    options: FollowOptions, topics: FollowedTopics, is_time: Callable[[], bool]
) -> str | None:
    """Until there is a topic to read, or none to wait for; why it is not known whether there is one."""
    while True:
        with suppress(UnreadableLedger, OSError):
            topics.heard(dict.fromkeys(topics_named(ledger_files(options.ledger)), ()))
        if topics.named:
            try:
                topics.look()
            except ClientError as error:
                return f"cluster: {error}"
        if topics.read or (topics.there and not topics.are_awaited) or is_time():
            return None
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
