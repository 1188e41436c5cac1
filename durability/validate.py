"""The job of `holdfast validate`: ledgers against what the cluster serves and replicas keep.

Owns the order of things, which makes a verdict right while the cluster is in use: end offsets, then the
ledger to its end, then end offsets again. What lies below the first must be in the ledger (a send is written
down before it is sent), and what the ledger has acknowledged must lie below the second. The rules are run by
`durability.judge`; words are `durability.verdict`'s.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import functions as F

from holdfast.client.core.errors import ClientError
from holdfast.durability.beside_verdict import (
    Elections,
    reported,
    with_places,
    with_stories,
    with_tables,
    with_times,
    with_unnamed_topics,
    with_values_named,
)
from holdfast.durability.cluster_look import TopicLook, check_same, id_of_cluster
from holdfast.durability.compacted_once import WasCompacted, with_compaction
from holdfast.durability.foreign_lines import VALUE_SQL
from holdfast.durability.java import NoJava
from holdfast.durability.judge import (
    ENDS_SCHEMA,
    facts_of,
    judge,
    notes_of,
    rules_of,
)
from holdfast.durability.judged_cluster import JudgedCluster, OwnCluster
from holdfast.durability.kafka_cluster import KafkaCluster
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
    poll_files,
    text_bytes,
)
from holdfast.durability.ledger_source import sizes_of
from holdfast.durability.loss_story import Election, RunHistory
from holdfast.durability.phases import Seconds
from holdfast.durability.polls import read_all_polls
from holdfast.durability.read_here import ReadFailed, served_here
from holdfast.durability.read_options import BadOption, Mode, OffsetRange, parse_options
from holdfast.durability.replica_tables import replica_tables
from holdfast.durability.rules.unexpected import NEVER_SENT
from holdfast.durability.scale import MUCH, Little, Scale, scale_of
from holdfast.durability.segment_source import arrow_schema
from holdfast.durability.session import start_session, stop_session
from holdfast.durability.settled import SettledLedger, settled_ledger
from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of
from holdfast.durability.verdict import Verdict, inconclusive, of_a_part_of_the_ledger

_LOG_COLUMNS = (
    "topic string, partition int, offset long, state string, producer string, pseq long, value_crc32c long"
)
_FIELD_COLUMNS = ", timestampMs long, timestampType int, key_crc32c long, headers_crc32c long"
_BATCH_COLUMNS = ", leaderEpoch int, batch_crc32c long"
_FOREIGN_COLUMNS = "topic string, partition int, offset long, state string, value binary" + _BATCH_COLUMNS
#: Where logs begin that retention has cut.
STARTS_SCHEMA = "topic string, partition int, log_start long"
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
    #: Spark's heap (durability.session.start_session)
    memory: str | None = None
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
    #: the cluster need only speak Kafka's protocol, and the ledger is another client's
    is_kafka: bool = False
    #: of Kafka's clients, for such a cluster: how to log in, and TLS
    kafka_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: settings of Spark under which its Kafka source is found (spark.jars, spark.jars.packages)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    #: all ledgers are of producers on one machine that was not started again: their times may be compared
    one_clock: bool = False
    #: what was done to the cluster while the ledger was written
    history: RunHistory | None = None

    @property
    def may_be_summed(self) -> bool:
        """Nothing is asked for that needs each send."""
        return not (self.is_foreign or self.log_dirs or self.tables or self.one_clock)


def _no_elections(topic: str, partition: int) -> Sequence[Election]:
    return ()


def _not_known(topic: str) -> bool | None:
    return None


def run(
    options: ValidateOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    elections: Elections = _no_elections,
    was_compacted: WasCompacted = _not_known,
) -> Verdict:
    """Start Spark, compare, stop Spark. `on_phase` hears what is done next, in words; `elections` is asked
    about partitions that lost something, `was_compacted` about their topics."""
    seconds = Seconds(on_phase)
    try:
        files = [*ledger_files(options.ledger), *poll_files(options.ledger)]
        is_short = text_bytes(sizes_of(files)) < SHORT_JOB_BYTES
        with seconds.timed("spark start", "Spark starts"):
            spark = start_session(
                options.master,
                "holdfast validate",
                is_short=is_short,
                memory=options.memory,
                more=options.spark_settings,
            )
    except UnreadableLedger as error:
        return reported(None, options.report, inconclusive(f"ledger: {error}"))
    except NoJava as error:
        return reported(None, options.report, inconclusive(str(error)))
    except SPARK_ERRORS as error:
        reason = f"Spark does not start on {options.master}: {reason_of(error)}"
        return reported(None, options.report, inconclusive(reason))
    except OSError as error:
        return reported(None, options.report, inconclusive(f"ledger: {error}"))
    try:
        return validate(spark, options, seconds, elections, was_compacted)
    finally:
        stop_session(spark)


def validate(
    spark: Any,
    options: ValidateOptions,
    seconds: Seconds | None = None,
    elections: Elections = _no_elections,
    was_compacted: WasCompacted = _not_known,
) -> Verdict:
    """Compare in a session that stands already."""
    seconds = Seconds() if seconds is None else seconds
    with closing(_cluster(spark, options)) as cluster, ExitStack() as settings:
        compared = _compared(spark, options, cluster, seconds, elections, was_compacted, settings)
    verdict = replace(compared, seconds=seconds.found)
    return reported(spark, options.report, verdict, cluster.reason_of)


def _cluster(spark: Any, options: ValidateOptions) -> JudgedCluster:
    if options.is_kafka:
        return KafkaCluster(spark, options.bootstrap_servers, options.timeout_ms, options.kafka_properties)
    return OwnCluster(options.bootstrap_servers, options.timeout_ms)


def _compared(
    spark: Any,
    options: ValidateOptions,
    cluster: JudgedCluster,
    seconds: Seconds,
    elections: Elections,
    was_compacted: WasCompacted,
    settings: ExitStack,
) -> Verdict:
    try:
        # first of all: what was polled was sent before, and lies below the ends that are asked for later
        polls = {} if options.is_foreign else sizes_of(poll_files(options.ledger))
        with seconds.timed("ledger", "Spark reads the ledger"):
            scale, settled, sends, totals, known, sizes = _read_ledger(
                spark, options, cluster, settings, polls
            )
        if totals.acked < max(1, options.acked_min):
            return inconclusive(_too_few(totals.acked, options.acked_min))
        if isinstance(settled, ClientError):
            raise settled
        with seconds.timed("offsets", "Brokers say where logs end"):
            ranges = cluster.ranges(totals.topics)
            if (why_not := cluster.why_not_judged(totals.topics)) is not None:
                return inconclusive(why_not)
            topics = cluster.look(totals.topics)
        check_topic_ids(totals.topic_ids, {name: topic.topic_id for name, topic in topics.items()})
        if known is not None:
            with seconds.timed("compare", "Spark reads the topics and compares"):
                verdict = _verdict_of_sums(spark, options, known, ranges)
            if verdict is not None:
                verdict = _with_later(_with_expired(verdict, totals, 0, ranges), settled, ranges)
                return _with_files_passed_over(spark, verdict, options.ledger)
            with seconds.timed("ledger", "Spark reads the ledger, to look at each send"):
                sends, totals = read_sends(spark, options.ledger, sizes=known.sizes, scale=scale)
        counts = {name: len(topic.partitions) for name, topic in topics.items()}
        check_partitions(spark, options.ledger, totals, counts, is_foreign=options.is_foreign)
        log = served_log(spark, options, cluster, ranges, scale, with_fields=totals.with_fields > 0)
        tables = replica_tables(
            spark,
            scale,
            options.log_dirs,
            topics,
            id_of_cluster(options.bootstrap_servers, options.timeout_ms) if options.log_dirs else "",
            is_foreign=options.is_foreign,
            is_told=lambda: _is_whole(options.ledger, sizes) and _has_no_more(cluster, totals.topics, ranges),
            cluster=cluster,
        )
        with seconds.timed("compare", "Spark reads the topics and compares"):
            kept, expired = _without_expired(sends, ranges)
            of_no_clock = _why_of_no_clock(sends) if options.one_clock and not options.is_foreign else ()
            verdict = judge(
                spark,
                kept,
                log,
                totals,
                partitions=len(ranges),
                ends=scale.rows(spark, _ends(settled, ranges), ENDS_SCHEMA),
                one_clock=options.one_clock and not options.is_foreign and not of_no_clock,
                has_order=not options.is_foreign,
                polls=read_all_polls(spark, scale, polls, totals, topics),
                scale=scale,
                **tables,
            )
            verdict = _with_later(_with_expired(verdict, totals, expired, ranges), settled, ranges)
            _check_same_topics(cluster, topics, verdict)
            verdict = _explained(spark, options, cluster, verdict, totals, topics, elections, was_compacted)
        others = tables["strays"].doubts if tables else ()
        verdict = replace(verdict, doubts=(*verdict.doubts, *of_no_clock, *others))
        if options.tables is not None:
            with seconds.timed("tables", "Spark writes the tables"):
                verdict = with_tables(spark, options.tables, verdict, ranges, elections, cluster.reason_of)
        return _with_files_passed_over(spark, verdict, options.ledger)
    except UnreadableLedger as error:
        return inconclusive(f"ledger: {error}")
    except (ClientError, BadOption) as error:
        return inconclusive(f"cluster: {error}")
    except (ReadFailed, *SPARK_ERRORS) as error:
        return inconclusive(f"reading failed: {cluster.reason_of(error)}")
    except OSError as error:
        return inconclusive(f"reading failed: {error}")


def _explained(
    spark: Any,
    options: ValidateOptions,
    cluster: JudgedCluster,
    verdict: Verdict,
    totals: Totals,
    topics: Mapping[str, TopicLook],
    elections: Elections,
    was_compacted: WasCompacted,
) -> Verdict:
    """The verdict with what compaction may have done, where to look, and what became of lost records."""
    ids = {name: topic.topic_id for name, topic in topics.items()}
    verdict = with_compaction(spark, verdict, options.log_dirs, ids, was_compacted)
    verdict = with_unnamed_topics(verdict, totals.topic_ids)
    verdict = with_places(verdict, options.log_dirs)
    reason_of = cluster.reason_of
    verdict = with_stories(spark, verdict, options.log_dirs, options.history, elections, reason_of)
    verdict = with_times(spark, verdict, reason_of)
    return with_values_named(verdict) if options.is_foreign else verdict


def _read_ledger(
    spark: Any,
    options: ValidateOptions,
    cluster: JudgedCluster,
    settings: ExitStack,
    polls: Mapping[str, int],
) -> tuple[Scale, list[OffsetRange] | ClientError, Any, Totals, SettledLedger | None, Mapping[str, int]]:
    """(how much there is; the logs' ends before the ledger was read, or why they are not known; the sends;
    their totals; instead of the sends the ledger, where it is settled; {file: bytes} of what was read). The
    scale, which `settings` hold, is what the topics of the last round make it. `polls`: {file: bytes}, for
    whose rules each send is needed.

    A topic that only later lines name makes it read again, now with that topic's ends known before.
    Raises: UnreadableLedger.
    """
    topics: set[str] = set()
    scale: Scale | None = None
    wanted = topics_named(ledger_files(options.ledger), is_foreign=options.is_foreign)
    while True:
        topics |= wanted
        settled: list[OffsetRange] | ClientError
        try:
            settled = cluster.ranges(tuple(sorted(topics))) if topics else []
        except ClientError as error:
            settled = error
        before, scale = scale, MUCH if scale is MUCH else _scale(options, polls, topics, settled)
        if scale is not before:
            settings.close()
            settings.enter_context(scale.settings(spark))
        may_be_summed = options.may_be_summed and not polls
        sends, known = None, settled_ledger(spark, options.ledger) if may_be_summed else None
        sizes = sizes_of(ledger_files(options.ledger))
        if known is None:
            sends, totals = read_sends(
                spark, options.ledger, is_foreign=options.is_foreign, sizes=sizes, scale=scale
            )
        else:
            totals = known.totals
        wanted = set(totals.topics)
        if wanted <= topics or isinstance(settled, ClientError):
            return scale, settled, sends, totals, known, sizes
        if sends is not None:
            forget_sends(spark)


def _scale(
    options: ValidateOptions,
    polls: Mapping[str, int],
    topics: set[str],
    ends: list[OffsetRange] | ClientError,
) -> Scale:
    """Nothing is little of which something cannot be looked at: why not is found out elsewhere. Nor are
    values of any size, which another client's ledger needs whole."""
    if options.is_foreign or isinstance(ends, ClientError):
        return MUCH
    try:
        sizes = {**sizes_of(ledger_files(options.ledger)), **polls}
        return scale_of(sizes, ends, options.log_dirs, topics)
    except (OSError, ValueError):
        return MUCH


def _check_same_topics(cluster: JudgedCluster, before: Mapping[str, TopicLook], verdict: Verdict) -> None:
    """Before anything is said against a topic. Raises: ClientError when one was made again meanwhile."""
    if any(verdict.counts.values()):
        check_same(before, cluster.look(before))


def _is_whole(ledger: str, sizes: Mapping[str, int]) -> bool:
    """All that there is of the ledger is in `sizes`, which was read."""
    return sizes_of(ledger_files(ledger)) == sizes and not doubts_of_files(ledger)


def _has_no_more(cluster: JudgedCluster, topics: Sequence[str], ranges: Sequence[OffsetRange]) -> bool:
    """No log has grown beyond these ranges: another producer, whose ledger is elsewhere, may have begun."""
    ends = {(item.topic, item.partition): item.end for item in ranges}
    try:
        return all(item.end <= ends.get((item.topic, item.partition), 0) for item in cluster.ranges(topics))
    except ClientError:
        return False


def _ends(
    settled: Sequence[OffsetRange], ranges: Sequence[OffsetRange]
) -> list[tuple[str, int, int, int, int]]:
    """Rows of view `ends`; of a partition that was added meanwhile nothing is settled."""
    before = {(item.topic, item.partition): item.end for item in settled}
    return [
        (*place, before.get(place, 0), item.end, item.start)
        for item in ranges
        for place in [(item.topic, item.partition)]
    ]


def _too_few(acked: int, acked_min: int) -> str:
    if acked == 0:
        return "the ledger has no acknowledged send (acks=all): nothing to check"
    return f"{acked} acknowledged sends (acks=all) are fewer than the {acked_min} asked for"


# --- reading -------------------------------------------------------------------------------------------


def served_log(
    spark: Any,
    options: ValidateOptions,
    cluster: JudgedCluster,
    ranges: list[OffsetRange],
    scale: Scale = MUCH,
    *,
    with_fields: bool = False,
) -> Any:
    """View `log` of durability.rules over exactly these ranges; much is read when it is first used.
    `with_fields`: keys, headers and timestamps are looked at; batches are with log dirs. Raises: ReadFailed.
    """
    if isinstance(cluster, KafkaCluster):
        cluster.records(ranges).createOrReplaceTempView("records")
        return spark.sql(VALUE_SQL)
    given = _log_options(spark, options, ranges)

    def read(schema: str) -> Any:
        if isinstance(scale, Little):
            names = tuple(arrow_schema(schema).names)
            return scale.table(spark, served_here(parse_options(given, Mode.BATCH), ranges, names))
        return spark.read.format("holdfast").options(**given).schema(schema).load()

    if options.is_foreign:
        read(_FOREIGN_COLUMNS).createOrReplaceTempView("records")
        return spark.sql(VALUE_SQL)
    of_batch = _BATCH_COLUMNS if options.log_dirs else ""
    if not with_fields:
        return read(_LOG_COLUMNS + of_batch).withColumnRenamed("leaderEpoch", "batch_epoch")
    # a timestamp that the broker has set says nothing of the producer's
    of_producer = F.when(F.col("timestampType") == 0, F.col("timestampMs"))
    fields = read(_LOG_COLUMNS + _FIELD_COLUMNS + of_batch)
    return (
        fields.withColumn("timestamp_ms", of_producer)
        .withColumnRenamed("leaderEpoch", "batch_epoch")
        .drop("timestampMs", "timestampType")
    )


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


def _why_of_no_clock(sends: Any) -> tuple[str, ...]:
    """Why times are not compared, although they are said to be of one clock: () when they may be."""
    count = sends.where("acked AND NOT coalesce(t0 <= t1, false)").count()
    what = "acknowledged sends tell no times, or an answer before the send: overtaken was not asked"
    return (f"{count} {what}",) if count else ()


def _with_expired(verdict: Verdict, totals: Totals, expired: int, ranges: Sequence[OffsetRange]) -> Verdict:
    facts = dict(verdict.facts)
    facts["sent_judged"] = totals.sent - expired
    facts["partitions_judged"] = sum(item.start == 0 for item in ranges)
    verdict = replace(verdict, facts=facts)
    if not expired:
        return verdict
    said = f"{expired} answered sends lie before the beginning of their logs (retention): not judged"
    return replace(verdict, doubts=(*verdict.doubts, said))


def _with_files_passed_over(spark: Any, verdict: Verdict, ledger: str) -> Verdict:
    doubts = doubts_of_files(ledger)
    if not doubts:
        return verdict
    verdict = replace(verdict, doubts=(*verdict.doubts, *doubts))
    never_sent = {}
    if verdict.counts.get("unexpected") or verdict.counts.get("polled_unsent"):
        unknown = spark.table("violations").where(F.col("detail").endswith(NEVER_SENT))
        never_sent = {row["class"]: row["count"] for row in unknown.groupBy("class").count().collect()}
    return of_a_part_of_the_ledger(verdict, never_sent)


def _with_later(verdict: Verdict, settled: Sequence[OffsetRange], ranges: Sequence[OffsetRange]) -> Verdict:
    """The verdict that says how many records came in while it was made."""
    later = sum(end - settled_end for _, _, settled_end, end, _ in _ends(settled, ranges))
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
    counts = {rule.name: 0 for rule in rules_of(totals)}
    seen = {"ok": totals.acked, "served": totals.sent}
    facts = facts_of(totals, seen, len(ranges))
    return Verdict(counts=counts, samples={}, facts=facts, notes=notes_of(totals))
