"""The job of `holdfast validate`: ledgers against what the cluster serves and replicas keep.

Owns the order of things: the ledger is read to its end before end offsets are asked for, so that everything
acknowledged in it must lie below them. Rules are SQL in `durability.rules`; words are `durability.verdict`'s.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from holdfast.client.core.errors import ClientError
from holdfast.durability.java import NoJava
from holdfast.durability.ledger import Totals, UnreadableLedger, ledger_files, read_sends
from holdfast.durability.read_options import BadOption, OffsetRange, parse_options
from holdfast.durability.rules import (
    COMPARED_SQL,
    NEAR_SQL,
    PAIRS_SQL,
    RULES,
    SHORT_SQL,
    findings_sql,
    violations_sql,
)
from holdfast.durability.segment_source import BATCH_SCHEMA
from holdfast.durability.segments import HIGH_WATERMARKS, high_watermarks
from holdfast.durability.session import local_path, start_session, stop_session
from holdfast.durability.source import plan_ranges
from holdfast.durability.verdict import EXIT_GOOD, SAMPLES_MAX, Verdict, inconclusive

#: Columns of view `marks`.
MARKS_SCHEMA = "broker int, topic string, partition int, high_watermark long"
#: Rules that look at sends and log rows which are no perfect pairs; without such rows they find nothing.
_PAIR_RULES = ("lost", "moved", "duplicated", "unexpected", "lost_weakly_acked", "recovered")
_REASON_CHARS = 400
#: Replicas below their own high watermarks that are named.
_SHORT_MAX = 5
#: What a call of Spark may raise; the last one when its Java has died.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
#: Ledgers below this (some 400 000 records) are a short job, see durability.session.
SHORT_JOB_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class ValidateOptions:
    """What to compare, and where to do it."""

    #: file, or folder with ledger files
    ledger: str
    #: host:port[,host:port]
    bootstrap_servers: str
    #: {broker id: log dir, or several separated by commas}; replicas are compared when given
    log_dirs: Mapping[int, str] = field(default_factory=dict)
    master: str = "local[*]"
    #: folder that gets verdict.json, verdict.txt and all violations as Parquet
    report: str | None = None
    #: longest time without progress of a read
    timeout_ms: int = 60_000


def run(options: ValidateOptions, on_phase: Callable[[str], None] = lambda _: None) -> Verdict:
    """Start Spark, compare, stop Spark. `on_phase` hears what is done next, in words."""
    seconds = _Seconds(on_phase)
    try:
        is_short = sum(Path(file).stat().st_size for file in ledger_files(options.ledger)) < SHORT_JOB_BYTES
        with seconds.timed("spark start", "Spark starts"):
            spark = start_session(options.master, "holdfast validate", is_short=is_short)
    except UnreadableLedger as error:
        return _reported(None, options, inconclusive(f"ledger: {error}"))
    except NoJava as error:
        return _reported(None, options, inconclusive(str(error)))
    except SPARK_ERRORS as error:
        reason = f"Spark does not start on {options.master}: {reason_of(error)}"
        return _reported(None, options, inconclusive(reason))
    try:
        return validate(spark, options, seconds)
    finally:
        stop_session(spark)


def validate(spark: Any, options: ValidateOptions, seconds: "_Seconds | None" = None) -> Verdict:
    """Compare in a session that stands already."""
    seconds = _Seconds() if seconds is None else seconds
    verdict = replace(_compared(spark, options, seconds), seconds=seconds.found)
    return _reported(spark, options, verdict)


def _compared(spark: Any, options: ValidateOptions, seconds: "_Seconds") -> Verdict:
    try:
        with seconds.timed("ledger", "Spark reads the ledger"):
            sends, totals = read_sends(spark, options.ledger)
        if totals.acked == 0:
            return inconclusive("the ledger has no acknowledged send (acks=all): nothing to check")
        with seconds.timed("offsets", "Brokers say where logs end"):
            ranges = _plan(options, totals)
        log = served_log(spark, options, ranges)
        tables = replicas(spark, options.log_dirs, totals.topics)
        with seconds.timed("compare", "Spark reads the topics and compares"):
            kept, expired = _without_expired(sends, ranges)
            verdict = judge(spark, kept, log, totals, partitions=len(ranges), **tables)
            return _told_of_expired(verdict, expired)
    except UnreadableLedger as error:
        return inconclusive(f"ledger: {error}")
    except (ClientError, BadOption) as error:
        return inconclusive(f"cluster: {error}")
    except SPARK_ERRORS as error:
        return inconclusive(f"reading failed: {reason_of(error)}")


# --- reading -------------------------------------------------------------------------------------------


def _plan(options: ValidateOptions, totals: Totals) -> list[OffsetRange]:
    """The whole of every topic in the ledger. Raises: ClientError."""
    return plan_ranges(
        parse_options(
            {
                "kafka.bootstrap.servers": options.bootstrap_servers,
                "subscribe": ",".join(totals.topics),
                "kafkaConsumer.pollTimeoutMs": str(options.timeout_ms),
            }
        )
    )


def served_log(spark: Any, options: ValidateOptions, ranges: list[OffsetRange]) -> Any:
    """View `log` of durability.rules over exactly these ranges; read when it is first used."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for item in ranges:
        assign.setdefault(item.topic, []).append(item.partition)
        starts.setdefault(item.topic, {})[str(item.partition)] = item.start
        ends.setdefault(item.topic, {})[str(item.partition)] = item.end
    return (
        spark.read.format("holdfast")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("assign", json.dumps(assign))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("minPartitions", str(spark.sparkContext.defaultParallelism))
        .option("kafkaConsumer.pollTimeoutMs", str(options.timeout_ms))
        .option("parseValues", "true")
        .option("includePayload", "false")
        .option("includeLeaderEpoch", "false")
        .load()
        .select("topic", "partition", "offset", "state", "producer", "pseq", "value_crc32c")
    )


def replicas(spark: Any, log_dirs: Mapping[int, str], topics: tuple[str, ...]) -> dict[str, Any]:
    """Tables `replica` and `marks` of durability.rules, and notes on them; none without log dirs."""
    if not log_dirs:
        return {}
    paths = [(broker, path) for broker, text in sorted(log_dirs.items()) for path in text.split(",")]
    marks, notes = [], []
    for broker, path in paths:
        found = high_watermarks(path)
        if found is None:
            notes.append(
                f"{path} of broker {broker} has no whole {HIGH_WATERMARKS}: nothing of it was compared"
            )
            continue
        marks += [(broker, *place, mark) for place, mark in sorted(found.items()) if place[0] in topics]
    batches = (
        spark.read.format("holdfast.segments")
        .option("rows", "batches")
        .option("topics", ",".join(topics))
        .load(",".join(f"{broker}={path}" for broker, path in paths))
        .cache()  # several rules look at it, and files of a live broker change
    )
    return {"replica": batches, "marks": spark.createDataFrame(marks, MARKS_SCHEMA), "notes": tuple(notes)}


def _without_expired(sends: Any, ranges: list[OffsetRange]) -> tuple[Any, int]:
    """The sends without those whose answer names a place before their log begins now, and how many these
    are: retention took them, and nothing can be said of them any more."""
    is_expired = F.lit(False)
    for item in ranges:
        if item.start > 0:
            place = (F.col("topic") == item.topic) & (F.col("partition") == item.partition)
            is_expired |= place & (F.col("offset") < item.start)
    is_expired = F.coalesce(is_expired, F.lit(False))
    expired = sends.where(is_expired).count() if any(item.start > 0 for item in ranges) else 0
    return (sends.where(~is_expired), expired) if expired else (sends, 0)


def _told_of_expired(verdict: Verdict, expired: int) -> Verdict:
    if not expired:
        return verdict
    told = f"{expired} answered sends lie before the beginning of their logs (retention): not judged"
    if verdict.exit_code == EXIT_GOOD:
        return replace(verdict, inconclusive=(told,))
    return replace(verdict, notes=(*verdict.notes, told))


# --- judging -------------------------------------------------------------------------------------------


def judge(
    spark: Any,
    sends: Any,
    log: Any,
    totals: Totals,
    *,
    replica: Any | None = None,
    marks: Any | None = None,
    partitions: int = 0,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """Run the rules over these tables, which durability.rules describes; `notes` say how they were read."""
    sends.createOrReplaceTempView("sends")
    log.cache().createOrReplaceTempView("log")
    with_replicas = replica is not None
    for name, table, schema in (("replica", replica, BATCH_SCHEMA), ("marks", marks, MARKS_SCHEMA)):
        (spark.createDataFrame([], schema) if table is None else table).createOrReplaceTempView(name)
    seen = Observation("pairs")
    odd = (
        spark.sql(PAIRS_SQL)
        .observe(
            seen,
            F.count("log_topic").alias("served"),
            F.count_if(F.col("perfect") & F.col("acked")).alias("ok"),
        )
        .where("NOT perfect")
        .drop("perfect")
        .cache()
    )
    odd.createOrReplaceTempView("odd")
    is_odd = odd.count() > 0
    spark.sql(NEAR_SQL).cache().createOrReplaceTempView("near")
    names = tuple(
        name
        for name in RULES
        if (is_odd or name not in _PAIR_RULES) and (with_replicas or name != "diverged")
    )
    spark.sql(violations_sql(names)).createOrReplaceTempView("violations")
    counts = {name: 0 for name in RULES if with_replicas or name != "diverged"}
    samples: dict[str, list[dict[str, Any]]] = {}
    for row in spark.sql(findings_sql(SAMPLES_MAX)).collect():
        counts[row["class"]] = row.total
        shown = row.asDict()
        samples.setdefault(row["class"], []).append(
            {key: shown[key] for key in ("topic", "partition", "offset", "run", "producer", "pseq", "detail")}
        )
    facts = _facts(totals, seen.get, partitions)
    if replica is not None:
        facts["replica_batches"] = spark.sql(COMPARED_SQL).first()[0]
        notes += _short_notes(spark.sql(SHORT_SQL).collect())
    return Verdict(counts=counts, samples=samples, facts=facts, notes=(*notes, *_notes(totals, facts)))


def _facts(totals: Totals, seen: Mapping[str, int], partitions: int) -> dict[str, Any]:
    return {
        "runs": list(totals.runs),
        "topics": list(totals.topics),
        "partitions": partitions,
        "producers": totals.producers,
        "sent": totals.sent,
        "acked": totals.acked,
        "ok": seen["ok"],
        "weakly_acked": totals.weakly_acked,
        "refused": totals.refused,
        "unknown": totals.unknown,
        "unanswered": totals.unanswered,
        "served": seen["served"],
    }


def _notes(totals: Totals, facts: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if facts.get("replica_batches") == 0:
        notes.append("no batch of a replica lies below a checkpointed high watermark: nothing was compared")
    if totals.torn_lines:
        notes.append(f"{totals.torn_lines} ledger files end in a cut line: what it said counts as unanswered")
    if totals.unanswered or totals.unknown:
        notes.append(
            f"{totals.unknown + totals.unanswered} sends without a definite answer: allowed either way"
        )
    return tuple(notes)


def _short_notes(short: Sequence[Any]) -> tuple[str, ...]:
    if not short:
        return ()
    shown = [
        f"broker {row.broker} of {row.topic}-{row.partition} "
        + ("has no log" if row.log_end is None else f"ends at {row.log_end}")
        + f", its mark is {row.high_watermark}"
        for row in short[:_SHORT_MAX]
    ]
    more = f"; and {len(short) - _SHORT_MAX} more" if len(short) > _SHORT_MAX else ""
    return (f"replicas below their own high watermarks: {'; '.join(shown)}{more}",)


# --- the report ----------------------------------------------------------------------------------------


def _reported(spark: Any | None, options: ValidateOptions, verdict: Verdict) -> Verdict:
    """The verdict, after its report was written; with a note when that failed. `spark` may be missing where
    there are no violations."""
    if options.report is None:
        return verdict
    try:
        _write_report(spark, Path(options.report), verdict)
    except (OSError, *SPARK_ERRORS) as error:
        note = f"the report in {options.report} is not whole: {reason_of(error)}"
        return replace(verdict, notes=(*verdict.notes, note))
    return verdict


def _write_report(spark: Any | None, folder: Path, verdict: Verdict) -> None:
    """Nothing of an earlier run is left there, and a verdict is there only when all of it is."""
    as_json, as_text, violations = folder / "verdict.json", folder / "verdict.txt", folder / "violations"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (as_json, as_text):
        path.unlink(missing_ok=True)
    if violations.exists():
        shutil.rmtree(violations)
    if spark is not None and any(verdict.counts.values()):
        spark.table("violations").write.parquet(local_path(violations))
    as_json.write_text(json.dumps(verdict.as_json(), indent=2) + "\n", encoding="utf-8")
    as_text.write_text(verdict.as_text() + "\n", encoding="utf-8")


# --- small things --------------------------------------------------------------------------------------


class _Seconds:
    """How long each phase took; `on_phase` hears of each when it begins."""

    def __init__(self, on_phase: Callable[[str], None] = lambda _: None) -> None:
        self._on_phase = on_phase
        self.found: dict[str, float] = {}

    @contextmanager
    def timed(self, phase: str, text: str) -> Iterator[None]:
        """Raises: what the block raises; a phase that failed has no seconds."""
        self._on_phase(text)
        start = time.monotonic()
        yield
        self.found[phase] = round(time.monotonic() - start, 2)


def reason_of(error: Exception) -> str:
    """The line of a Spark error that says what happened on the Python side, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("holdfast.")]
    return (named[-1] if named else lines[0] if lines else type(error).__name__)[:_REASON_CHARS]
