"""The job of `holdfast validate`: ledgers against what the cluster serves and replicas keep.

Owns the order of things, which makes a verdict right while the cluster is in use: end offsets, then the
ledger to its end, then end offsets again. What lies below the first must be in the ledger (a send is written
down before it is sent), and what the ledger has acknowledged must lie below the second. Rules are SQL in
`durability.rules`; words are `durability.verdict`'s.
"""

import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from holdfast.client.core.errors import ClientError
from holdfast.durability.cluster_look import TopicLook, look, why_not_judged
from holdfast.durability.foreign_lines import VALUE_SQL
from holdfast.durability.java import NoJava
from holdfast.durability.ledger import (
    Totals,
    check_partitions,
    forget_sends,
    read_sends,
    topics_named,
)
from holdfast.durability.ledger_files import (
    UnreadableLedger,
    check_topic_ids,
    doubts_of_files,
    ledger_files,
)
from holdfast.durability.loss_story import Election, LostRecord, RunHistory, story_of
from holdfast.durability.phases import Seconds
from holdfast.durability.read_options import BadOption, Mode, OffsetRange, parse_options
from holdfast.durability.rules import (
    COMPARED_SQL,
    NEAR_SQL,
    ORDER_SQL,
    PAIRS_SQL,
    RULES,
    SEEN_UNPLACED_SQL,
    SHORT_SQL,
    findings_sql,
    violations_sql,
)
from holdfast.durability.rules.rule import Looks, Rule
from holdfast.durability.segment_source import BATCH_SCHEMA
from holdfast.durability.segments import (
    HIGH_WATERMARKS,
    has_replicas,
    high_watermarks,
    leader_epochs,
    recovery_points,
    replica_folders,
)
from holdfast.durability.session import local_path, start_session, stop_session
from holdfast.durability.settled import SettledLedger, settled_ledger
from holdfast.durability.source import plan_ranges
from holdfast.durability.tables import write_tables
from holdfast.durability.verdict import SAMPLES_MAX, Verdict, inconclusive

#: Columns of view `marks`.
MARKS_SCHEMA = "broker int, topic string, partition int, high_watermark long"
#: Columns of view `epochs`.
EPOCHS_SCHEMA = (
    "broker int, topic string, partition int, epoch int, start_offset long, end_offset long, "
    "flushed_offset long"
)
_LOG_COLUMNS = (
    "topic string, partition int, offset long, state string, producer string, pseq long, value_crc32c long"
)
_FIELD_COLUMNS = "timestampMs long, timestampType int, key_crc32c long, headers_crc32c long"
#: Columns of view `ends`.
ENDS_SCHEMA = "topic string, partition int, settled_end long, served_end long"
#: Where logs begin that retention has cut.
STARTS_SCHEMA = "topic string, partition int, log_start long"
#: Columns of view `members`.
MEMBERS_SCHEMA = "broker int, topic string, partition int, is_in_sync boolean"
#: What rules look at that is only there where more is given than ledgers and a cluster.
_NEEDS_TABLES = (Looks.TIMES, Looks.REPLICAS, Looks.EPOCHS, Looks.MEMBERS)
_REASON_CHARS = 400
#: Replicas that a doubt names.
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
    #: folder that gets the tables that were judged, as Parquet (durability.tables)
    tables: str | None = None
    #: longest time without progress of a read
    timeout_ms: int = 60_000
    #: fewer acknowledged sends (acks=all) prove nothing
    acked_min: int = 1
    #: the ledger is another client's (docs/validate-your-own-client.md)
    is_foreign: bool = False
    #: all ledgers are of producers on one machine that was not started again: their times may be compared
    one_clock: bool = False
    #: what was done to the cluster while the ledger was written
    history: RunHistory | None = None

    @property
    def may_be_summed(self) -> bool:
        """Nothing is asked for that needs each send."""
        return not (self.is_foreign or self.log_dirs or self.tables or self.one_clock)


#: All leader epochs of (topic, partition), in their order; () when they are not known.
Elections = Callable[[str, int], Sequence[Election]]


def _no_elections(topic: str, partition: int) -> Sequence[Election]:
    return ()


def run(
    options: ValidateOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    elections: Elections = _no_elections,
) -> Verdict:
    """Start Spark, compare, stop Spark. `on_phase` hears what is done next, in words; `elections` is asked
    about partitions that lost something."""
    seconds = Seconds(on_phase)
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
        return validate(spark, options, seconds, elections)
    finally:
        stop_session(spark)


def validate(
    spark: Any,
    options: ValidateOptions,
    seconds: Seconds | None = None,
    elections: Elections = _no_elections,
) -> Verdict:
    """Compare in a session that stands already."""
    seconds = Seconds() if seconds is None else seconds
    verdict = replace(_compared(spark, options, seconds, elections), seconds=seconds.found)
    return _reported(spark, options, verdict)


def _compared(spark: Any, options: ValidateOptions, seconds: Seconds, elections: Elections) -> Verdict:
    try:
        with seconds.timed("ledger", "Spark reads the ledger"):
            settled, sends, totals, known = _read_ledger(spark, options)
        if totals.acked < max(1, options.acked_min):
            return inconclusive(_too_few(totals.acked, options.acked_min))
        if isinstance(settled, ClientError):
            raise settled
        with seconds.timed("offsets", "Brokers say where logs end"):
            ranges = _plan(options, totals.topics)
            why_not = why_not_judged(options.bootstrap_servers, totals.topics, options.timeout_ms)
            if why_not is not None:
                return inconclusive(why_not)
            topics = look(options.bootstrap_servers, totals.topics, options.timeout_ms)
        check_topic_ids(totals.topic_ids, {name: topic.topic_id for name, topic in topics.items()})
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        if known is not None:
            with seconds.timed("compare", "Spark reads the topics and compares"):
                verdict = _verdict_of_sums(spark, options, known, ranges)
            if verdict is not None:
                verdict = _with_later(_with_expired(verdict, totals, 0, ranges), settled, ranges)
                return replace(verdict, doubts=doubts_of_files(options.ledger))
            with seconds.timed("ledger", "Spark reads the ledger, to look at each send"):
                sends, totals = read_sends(spark, options.ledger, sizes=known.sizes)
        check_partitions(spark, options.ledger, totals, counts)
        log = served_log(spark, options, ranges, with_fields=totals.with_fields > 0)
        tables = replicas(spark, options.log_dirs, totals.topics, topics)
        with seconds.timed("compare", "Spark reads the topics and compares"):
            kept, expired = _without_expired(sends, ranges)
            verdict = judge(
                spark,
                kept,
                log,
                totals,
                partitions=len(ranges),
                ends=spark.createDataFrame(_ends(settled, ranges), ENDS_SCHEMA),
                one_clock=options.one_clock and not options.is_foreign,
                has_order=not options.is_foreign,
                **tables,
            )
            verdict = _with_later(_with_expired(verdict, totals, expired, ranges), settled, ranges)
            verdict = _with_places(verdict, options.log_dirs)
            verdict = _with_stories(spark, verdict, options, elections)
        if options.tables is not None:
            with seconds.timed("tables", "Spark writes the tables"):
                verdict = _with_tables(spark, Path(options.tables), verdict, ranges, elections)
        return replace(verdict, doubts=(*verdict.doubts, *doubts_of_files(options.ledger)))
    except UnreadableLedger as error:
        return inconclusive(f"ledger: {error}")
    except (ClientError, BadOption) as error:
        return inconclusive(f"cluster: {error}")
    except SPARK_ERRORS as error:
        return inconclusive(f"reading failed: {reason_of(error)}")


def _read_ledger(
    spark: Any, options: ValidateOptions
) -> tuple[list[OffsetRange] | ClientError, Any, Totals, SettledLedger | None]:
    """(the logs' ends before the ledger was read, or why they are not known; the sends; their totals; instead
    of the sends the ledger, where it is settled).

    A topic that only later lines name makes it read again, now with that topic's ends known before.
    Raises: UnreadableLedger.
    """
    topics: set[str] = set()
    wanted = topics_named(ledger_files(options.ledger), is_foreign=options.is_foreign)
    while True:
        topics |= wanted
        settled: list[OffsetRange] | ClientError
        try:
            settled = _plan(options, tuple(sorted(topics))) if topics else []
        except ClientError as error:
            settled = error
        sends, known = None, settled_ledger(spark, options.ledger) if options.may_be_summed else None
        if known is None:
            sends, totals = read_sends(spark, options.ledger, is_foreign=options.is_foreign)
        else:
            totals = known.totals
        wanted = set(totals.topics)
        if wanted <= topics or isinstance(settled, ClientError):
            return settled, sends, totals, known
        if sends is not None:
            forget_sends(spark)


def _ends(settled: Sequence[OffsetRange], ranges: Sequence[OffsetRange]) -> list[tuple[str, int, int, int]]:
    """Rows of view `ends`; of a partition that was added meanwhile nothing is settled."""
    before = {(item.topic, item.partition): item.end for item in settled}
    return [
        (item.topic, item.partition, before.get((item.topic, item.partition), 0), item.end) for item in ranges
    ]


def _too_few(acked: int, acked_min: int) -> str:
    if acked == 0:
        return "the ledger has no acknowledged send (acks=all): nothing to check"
    return f"{acked} acknowledged sends (acks=all) are fewer than the {acked_min} asked for"


def _with_places(verdict: Verdict, log_dirs: Mapping[int, str]) -> Verdict:
    """The verdict whose samples say with which command to look at a replica."""
    for rows in verdict.samples.values():
        for row in rows:
            for folder in log_dirs.get(row.get("broker", -1), "").split(","):
                path = Path(folder) / f"{row['topic']}-{row['partition']}" / str(row.get("segment"))
                if folder and path.is_file() and isinstance(row, dict):
                    row["command"] = f"holdfast dump-log --files {path}"
    return verdict


def _with_tables(
    spark: Any, folder: Path, verdict: Verdict, ranges: Sequence[OffsetRange], elections: Elections
) -> Verdict:
    """The verdict, after its tables were written; with a note when that failed."""
    led = {(item.topic, item.partition): elections(item.topic, item.partition) for item in ranges}
    try:
        write_tables(spark, folder, verdict.facts["runs"], led)
    except (OSError, *SPARK_ERRORS) as error:
        note = f"the tables in {folder} are not whole: {reason_of(error)}"
        return replace(verdict, notes=(*verdict.notes, note))
    return verdict


def _with_stories(spark: Any, verdict: Verdict, options: ValidateOptions, elections: Elections) -> Verdict:
    """The verdict whose samples of lost records say what became of them."""
    rows = verdict.samples.get("lost", ())
    acks = _acks(spark, rows)
    for row in rows:
        name = (row["topic"], row["producer"], row["pseq"])
        lost = LostRecord(row["topic"], row["partition"], row["offset"], *name[1:], *acks.get(name, ()))
        with suppress(OSError, ValueError):  # files of a running broker change and go
            led = elections(lost.topic, lost.partition)
            story = story_of(options.log_dirs, lost, led, options.history)
            if story and isinstance(row, dict):
                row["story"] = story
    return verdict


def _acks(
    spark: Any, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str, int], tuple[int, int | None]]:
    """(topic, producer, number) -> leader epoch and monotonic time of the acknowledgement, where the ledger
    says the epoch."""
    names = [(row["topic"], row["producer"], row["pseq"]) for row in rows]
    if not names:
        return {}
    wanted = spark.createDataFrame(names, "topic string, producer string, pseq long")
    found = spark.table("sends").join(F.broadcast(wanted), ["topic", "producer", "pseq"])
    return {
        (row.topic, row.producer, row.pseq): (row.leader_epoch, row.t1)
        for row in found.select("topic", "producer", "pseq", "leader_epoch", "t1").collect()
        if row.leader_epoch is not None
    }


# --- reading -------------------------------------------------------------------------------------------


def _plan(options: ValidateOptions, topics: Sequence[str]) -> list[OffsetRange]:
    """The whole of every one of these topics. Raises: ClientError."""
    return plan_ranges(
        parse_options(
            {
                "kafka.bootstrap.servers": options.bootstrap_servers,
                "subscribe": ",".join(topics),
                "kafkaConsumer.pollTimeoutMs": str(options.timeout_ms),
            }
        )
    )


def served_log(
    spark: Any, options: ValidateOptions, ranges: list[OffsetRange], *, with_fields: bool = False
) -> Any:
    """View `log` of durability.rules over exactly these ranges; read when it is first used. `with_fields`:
    keys, headers and timestamps are looked at."""
    read = spark.read.format("holdfast").options(**_log_options(spark, options, ranges))
    if options.is_foreign:
        read.load().createOrReplaceTempView("records")
        return spark.sql(VALUE_SQL)
    if not with_fields:
        return read.schema(_LOG_COLUMNS).load()
    # a timestamp that the broker has set says nothing of the producer's
    of_producer = F.when(F.col("timestampType") == 0, F.col("timestampMs")).alias("timestamp_ms")
    names = ("topic", "partition", "offset", "state", "producer", "pseq", "value_crc32c")
    fields = read.schema(f"{_LOG_COLUMNS}, {_FIELD_COLUMNS}").load()
    return fields.select(*names, of_producer, "key_crc32c", "headers_crc32c")


def _log_options(spark: Any, options: ValidateOptions, ranges: list[OffsetRange]) -> dict[str, str]:
    """Of `format("holdfast")`, for exactly these ranges."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for item in ranges:
        assign.setdefault(item.topic, []).append(item.partition)
        starts.setdefault(item.topic, {})[str(item.partition)] = item.start
        ends.setdefault(item.topic, {})[str(item.partition)] = item.end
    return {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        "kafkaConsumer.pollTimeoutMs": str(options.timeout_ms),
        "parseValues": "true",
        "includePayload": str(options.is_foreign).lower(),
        "includeLeaderEpoch": "false",
    }


def replicas(
    spark: Any, log_dirs: Mapping[int, str], topics: tuple[str, ...], looks: Mapping[str, TopicLook]
) -> dict[str, Any]:
    """Tables `replica`, `marks` and `members` of durability.rules.rule, and doubts; none without log dirs."""
    if not log_dirs:
        return {}
    paths = [(broker, path) for broker, text in sorted(log_dirs.items()) for path in text.split(",")]
    marks, doubts = [], []
    for broker, path in paths:
        found = high_watermarks(path)
        if found is None and has_replicas(path, topics):
            doubts.append(
                f"{path} of broker {broker} has no whole {HIGH_WATERMARKS}: nothing of it was compared"
            )
        if found is None:
            continue
        marks += [(broker, *place, mark) for place, mark in sorted(found.items()) if place[0] in topics]
    batches = (
        spark.read.format("holdfast.segments")
        .option("rows", "batches")
        .option("topics", ",".join(topics))
        .load(",".join(f"{broker}={path}" for broker, path in paths))
        .cache()  # several rules look at it, and files of a live broker change
    )
    epochs, without_epochs = _epochs(paths, topics)
    if without_epochs:
        doubts.append(
            f"{len(without_epochs)} replicas without a whole leader epoch checkpoint, of which nothing was "
            f"compared: {', '.join(without_epochs[:_SHORT_MAX])}"
        )
    members = [
        (broker, topic, index, broker in partition.isr)
        for topic, seen in sorted(looks.items())
        for index, partition in sorted(seen.partitions.items())
        for broker in partition.replicas
        if broker in log_dirs
    ]
    return {
        "replica": batches,
        "marks": spark.createDataFrame(marks, MARKS_SCHEMA),
        "epochs": spark.createDataFrame(epochs, EPOCHS_SCHEMA),
        "members": spark.createDataFrame(members, MEMBERS_SCHEMA),
        "replicas_assigned": sum(
            len(partition.replicas) for seen in looks.values() for partition in seen.partitions.values()
        ),
        "doubts": tuple(doubts),
    }


def _epochs(
    paths: Sequence[tuple[int, str]], topics: Sequence[str]
) -> tuple[list[tuple[int, str, int, int, int, int | None, int]], list[str]]:
    """(rows of view `epochs`, folders of flushed replicas that have no checkpoint to compare)."""
    rows: list[tuple[int, str, int, int, int, int | None, int]] = []
    missing = []
    for broker, path in paths:
        flushed = recovery_points(path)  # first: what it says is flushed has its epochs stored
        if not Path(path).is_dir():
            continue
        for folder in replica_folders({path: broker}, frozenset(topics)):
            until = flushed.get((folder.topic, folder.partition), 0)
            found = leader_epochs(folder.path) if until else []
            if found is None:
                missing.append(folder.path)
                continue
            ends = [*(start for _, start in found[1:]), None]
            place = (broker, folder.topic, folder.partition)
            rows += [
                (*place, epoch, start, end, until)
                for (epoch, start), end in zip(found, ends, strict=False)
                if start < until
            ]
    return rows, missing


def _without_expired(sends: Any, ranges: list[OffsetRange]) -> tuple[Any, int]:
    """The sends without those whose answer names a place before their log begins now, and how many these
    are: retention took them, and nothing can be said of them any more."""
    begun = [(item.topic, item.partition, item.start) for item in ranges if item.start > 0]
    if not begun:
        return sends, 0
    starts = sends.sparkSession.createDataFrame(begun, STARTS_SCHEMA)
    placed = sends.join(F.broadcast(starts), ["topic", "partition"], "left")
    is_expired = F.coalesce(F.col("offset") < F.col("log_start"), F.lit(False))
    expired = placed.where(is_expired).count()
    return (placed.where(~is_expired).select(*sends.columns), expired) if expired else (sends, 0)


def _with_expired(verdict: Verdict, totals: Totals, expired: int, ranges: Sequence[OffsetRange]) -> Verdict:
    facts = dict(verdict.facts)
    facts["sent_judged"] = totals.sent - expired
    facts["partitions_judged"] = sum(item.start == 0 for item in ranges)
    verdict = replace(verdict, facts=facts)
    if not expired:
        return verdict
    said = f"{expired} answered sends lie before the beginning of their logs (retention): not judged"
    return replace(verdict, doubts=(*verdict.doubts, said))


def _with_later(verdict: Verdict, settled: Sequence[OffsetRange], ranges: Sequence[OffsetRange]) -> Verdict:
    """The verdict that says how many records came in while it was made."""
    later = sum(end - settled_end for _, _, settled_end, end in _ends(settled, ranges))
    if later <= 0:
        return verdict
    what = "1 record" if later == 1 else f"{later} records"
    note = f"{what} came in while the ledger was read: of those that it does not know nothing is said"
    return replace(verdict, facts={**verdict.facts, "served_later": later}, notes=(*verdict.notes, note))


# --- judging -------------------------------------------------------------------------------------------


def _verdict_of_sums(
    spark: Any, options: ValidateOptions, known: SettledLedger, ranges: list[OffsetRange]
) -> Verdict | None:
    """That all is well, of a log that adds up to the same as the ledger; None when it does not."""
    totals = known.totals
    if not known.is_served(spark, parse_options(_log_options(spark, options, ranges), Mode.BATCH), ranges):
        return None
    counts = {rule.name: 0 for rule in _rules(totals)}
    seen = {"ok": totals.acked, "served": totals.sent}
    facts = _facts(totals, seen, len(ranges))
    return Verdict(counts=counts, samples={}, facts=facts, notes=_notes(totals))


def _rules(totals: Totals, *, without: Collection[Looks] = _NEEDS_TABLES) -> list[Rule]:
    """The rules that have something to look at."""
    missing = {*without, *(() if totals.with_fields else (Looks.FIELDS,))}
    return [rule for rule in RULES.values() if rule.looks not in missing]


def judge(
    spark: Any,
    sends: Any,
    log: Any,
    totals: Totals,
    *,
    replica: Any | None = None,
    marks: Any | None = None,
    members: Any | None = None,
    ends: Any | None = None,
    epochs: Any | None = None,
    replicas_assigned: int = 0,
    partitions: int = 0,
    one_clock: bool = False,
    has_order: bool = True,
    doubts: tuple[str, ...] = (),
) -> Verdict:
    """Run the rules over these tables (durability.rules.rule); `doubts` say what of them is missing."""
    sends.createOrReplaceTempView("sends")
    for name in ("timestamp_ms", "key_crc32c", "headers_crc32c"):
        if name not in log.columns:
            log = log.withColumn(name, F.lit(None).cast("long"))
    log.cache().createOrReplaceTempView("log")
    for name, table, schema in (
        ("replica", replica, BATCH_SCHEMA),
        ("marks", marks, MARKS_SCHEMA),
        ("members", members, MEMBERS_SCHEMA),
        ("ends", ends, ENDS_SCHEMA),
        ("epochs", epochs, EPOCHS_SCHEMA),
    ):
        (spark.createDataFrame([], schema) if table is None else table).createOrReplaceTempView(name)
    seen, is_odd = _pair(spark)
    # of sends that are in order only those without an offset of their own can be out of it
    if totals.in_order and (not is_odd or spark.table("odd").where(SEEN_UNPLACED_SQL).isEmpty()):
        is_disordered = False
    else:
        is_disordered = has_order and spark.table("disordered").count() > 0
    given = {
        Looks.ORDER: has_order,
        Looks.TIMES: one_clock,
        Looks.REPLICAS: replica is not None,
        Looks.EPOCHS: replica is not None and epochs is not None,
        Looks.MEMBERS: replica is not None and members is not None,
    }
    wanted = _rules(totals, without=[looks for looks, is_there in given.items() if not is_there])
    asked = [
        rule
        for rule in wanted
        if (is_odd or rule.looks not in (Looks.PAIRS, Looks.FIELDS))
        and (is_disordered or rule.looks is not Looks.ORDER)
    ]
    counts = {rule.name: 0 for rule in wanted}
    samples: dict[str, list[dict[str, Any]]] = {}
    spark.sql(violations_sql(asked or wanted)).createOrReplaceTempView("violations")
    for row in spark.sql(findings_sql(SAMPLES_MAX)).collect() if asked else ():
        counts[row["class"]] = row.total
        shown = {name: value for name, value in row.asDict().items() if name not in ("class", "total", "nth")}
        samples.setdefault(row["class"], []).append(shown)
    facts = _facts(totals, seen, partitions)
    notes = _notes(totals)
    if replica is not None:
        compared = spark.sql(COMPARED_SQL).first()
        facts["replica_batches"], facts["replica_batches_seen"] = compared.compared, compared.batches
        if replicas_assigned:
            facts["replicas_seen"], facts["replicas"] = compared.replicas, replicas_assigned
        notes = _short_notes(spark.sql(SHORT_SQL).collect()) + notes
        if compared.compared == 0:
            doubts += (
                "no batch of a replica lies below a checkpointed high watermark: nothing was compared",
            )
    return Verdict(counts=counts, samples=samples, facts=facts, notes=notes, doubts=doubts)


def _pair(spark: Any) -> tuple[Mapping[str, int], bool]:
    """Make views `odd`, `near` and `disordered`; (counts of what was paired, whether anything is odd)."""
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
    spark.sql(ORDER_SQL).cache().createOrReplaceTempView("disordered")
    return seen.get, is_odd


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


def _notes(totals: Totals) -> tuple[str, ...]:
    notes = []
    if 0 < totals.with_fields < totals.sent:
        notes.append(
            f"{totals.sent - totals.with_fields} sends of an older ledger tell no key, headers and "
            "timestamp: of these only the value was judged"
        )
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


def reason_of(error: Exception) -> str:
    """The line of a Spark error that says what happened on the Python side, else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("holdfast.")]
    return (named[-1] if named else lines[0] if lines else type(error).__name__)[:_REASON_CHARS]
