"""What one micro-batch of `holdfast validate --follow` judges, and what it leaves open for those after it.

All of it is in the state folder under the number of the micro-batch: one that Spark repeats after a restart
writes the same again, and nothing is counted twice. Knows nothing of where rows come from.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from holdfast.durability.follow_source import LINE, POLL, RECORD
from holdfast.durability.followed_polls import POLL_COLUMNS, FollowedPolls, PollsSeen
from holdfast.durability.followed_topics import FollowedTopics
from holdfast.durability.ledger import DEFECTS, REPEATED, SENDS_SQL
from holdfast.durability.ledger_lines import INFO, PROBLEM, TOPIC_ID
from holdfast.durability.rules import PAIRS_SQL
from holdfast.durability.rules.unexpected import NEVER_SENT
from holdfast.durability.session import local_path, local_source
from holdfast.durability.state_files import read_json, write_whole
from holdfast.durability.verdict import SAMPLES_MAX

#: Classes that a micro-batch can be sure of.
EARLY_RULES = (
    *("lost", "moved", "duplicated", "unexpected", "misplaced", "corrupt"),
    *("key_changed", "headers_changed", "timestamp_changed"),
)
#: Columns of what is read: lines of ledgers (`origin` 0), and records (1).
LINE_COLUMNS = (
    *("kind", "run", "producer", "pseq", "topic", "partition", "value_crc32c", "acks", "outcome"),
    *("offset", "leader_epoch", "t0", "t1", "timestamp_ms", "key_crc32c", "headers_crc32c"),
)
LOG_COLUMNS = (
    *("topic", "partition", "offset", "state", "producer", "pseq", "value_crc32c"),
    *("timestamp_ms", "key_crc32c", "headers_crc32c"),
)
LINES_SCHEMA = (
    "kind int, run string, producer string, pseq long, topic string, partition int, value_crc32c long, "
    "acks int, outcome int, offset long, leader_epoch int, t0 long, t1 long, timestamp_ms long, "
    "key_crc32c long, headers_crc32c long"
)
_LOG_SCHEMA = (
    "topic string, partition int, offset long, state string, producer string, pseq long, "
    "value_crc32c long, timestamp_ms long, key_crc32c long, headers_crc32c long"
)
_PLACED_SCHEMA = (
    "topic string, partition int, offset long, producer string, pseq long, acked boolean, value_crc32c long"
)
_FOUND_SCHEMA = (
    "class string, topic string, partition int, offset long, run string, producer string, pseq long, "
    "detail string"
)
_POSITIONS_SCHEMA = "topic string, partition int, next_offset long"
_STARTS_SCHEMA = "topic string, partition int, log_start long"
#: Partition of an open send whose lines contradict each other: with any other line of it they still do.
_UNCERTAIN = -1
#: What is counted of sends that retention has taken before they were looked at.
EXPIRED = "expired"

_UNPAIRED_SCHEMA = (
    "topic string, partition int, offset long, producer string, pseq long, state string, "
    "placed_partition int, placed_offset long"
)

#: What a micro-batch says without a closer look.
_FRESH_SQL = (
    f"count_if(origin = {LINE} AND kind IN (1, 3)) AS sent",
    f"count_if(origin = {LINE} AND kind IN (2, 3) AND outcome = 1) AS acked",
    f"count_if(origin = {RECORD}) AS served",
    f"count_if(origin = {POLL}) AS polls",
    f"count_if(kind = {PROBLEM}) AS problems",
    f"collect_set(CASE WHEN origin = {LINE} AND pseq >= 0 THEN topic END) AS topics",
    f"collect_set(CASE WHEN origin = {LINE} AND pseq >= 0 THEN run END) AS runs",
    f"collect_set(CASE WHEN kind = {TOPIC_ID} THEN struct(topic, run) END) AS ids",
)
#: How far each log was read, and from where on the micro-batch has read it again: it was truncated there.
_POSITIONS_SQL = """
SELECT topic, partition, coalesce(f.next_offset, p.next_offset) AS next_offset,
       CASE WHEN f.first_offset < p.next_offset THEN f.first_offset END AS cut_at
FROM positions_before p
FULL OUTER JOIN (SELECT topic, partition, max(offset) + 1 AS next_offset, min(offset) AS first_offset
                 FROM fresh_log GROUP BY topic, partition) f USING (topic, partition)
"""
#: What is open of the log, without what was truncated since.
_LOG_SQL = f"""
SELECT {", ".join(LOG_COLUMNS)} FROM fresh_log
UNION ALL
SELECT {", ".join(f"o.{name}" for name in LOG_COLUMNS)} FROM open_log_before o
LEFT JOIN positions c ON c.topic = o.topic AND c.partition = o.partition
WHERE c.cut_at IS NULL OR o.offset < c.cut_at
"""
#: Places in which sends were found by an earlier micro-batch, and that a truncation has taken since.
_STALE_SQL = """
SELECT p.*, c.cut_at FROM placed_before p
JOIN positions c ON p.topic = c.topic AND p.partition = c.partition
LEFT ANTI JOIN fresh_log f ON f.topic = p.topic AND f.partition = p.partition AND f.offset = p.offset
                          AND f.producer = p.producer AND f.pseq = p.pseq
WHERE p.offset >= c.cut_at
"""
#: Records that no open send has, each with the place in which the same send was found before.
_UNPAIRED_SQL = """
SELECT u.log_topic AS topic, u.log_partition AS partition, u.log_offset AS offset, u.producer, u.pseq,
       u.state, p.partition AS placed_partition, p.offset AS placed_offset
FROM (SELECT * FROM pairs WHERE NOT known AND state = 'good') u
LEFT JOIN (SELECT * FROM placed_before
           LEFT ANTI JOIN stale USING (topic, partition, offset, producer, pseq)) p
  ON p.topic = u.log_topic AND p.producer = u.producer AND p.pseq = u.pseq
"""
#: What is surely wrong by now; each row once, for `found_before` is left out.
_CANDIDATES_SQL = f"""
SELECT 'corrupt' AS class, log_topic AS topic, log_partition AS partition, log_offset AS offset, run,
       producer, pseq, 'checksum does not hold, or is not the ledger''s' AS detail
FROM pairs WHERE state = 'damaged' OR differs
UNION ALL
SELECT kind, log_topic, log_partition, log_offset, run, producer, pseq, 'is not what the ledger says'
FROM pairs LATERAL VIEW explode(array(
    CASE WHEN key_differ THEN 'key_changed' END, CASE WHEN headers_differ THEN 'headers_changed' END,
    CASE WHEN timestamp_differs THEN 'timestamp_changed' END)) AS kind
WHERE kind IS NOT NULL
UNION ALL
SELECT 'unexpected', log_topic, log_partition, log_offset, run, producer, pseq,
       CASE WHEN state = 'foreign' THEN 'not the value of a ledger' ELSE 'was refused before the append' END
FROM pairs WHERE state = 'foreign' OR (refused AND log_topic IS NOT NULL)
UNION ALL
SELECT 'unexpected', topic, partition, offset, NULL, producer, pseq, '{NEVER_SENT}'
FROM unpaired LEFT SEMI JOIN open_log_before USING (topic, partition, offset, producer, pseq)
WHERE placed_offset IS NULL
UNION ALL
SELECT CASE WHEN partition = placed_partition THEN 'duplicated' ELSE 'misplaced' END,
       topic, partition, offset, NULL, producer, pseq,
       concat('also at ', topic, '-', placed_partition, ' offset ', placed_offset)
FROM unpaired WHERE placed_offset IS NOT NULL AND (partition, offset) <> (placed_partition, placed_offset)
UNION ALL
SELECT 'misplaced', log_topic, log_partition, log_offset, run, producer, pseq,
       concat('was sent to ', topic, '-', partition)
FROM pairs WHERE known AND NOT refused AND log_partition <> partition
UNION ALL
SELECT 'duplicated', topic, log_partition, log_offset, run, producer, pseq,
       concat('also at offset ', first_offset)
FROM (SELECT *, row_number() OVER copies AS nth, first_value(log_offset) OVER copies AS first_offset
      FROM pairs WHERE (acked OR weakly_acked OR unknown) AND log_partition = partition
      WINDOW copies AS (PARTITION BY topic, partition, producer, pseq
                        ORDER BY log_offset <=> offset DESC, log_offset))
WHERE nth > 1
UNION ALL
SELECT CASE WHEN places = 0 THEN 'lost' ELSE 'moved' END, a.topic, a.partition, a.offset, run, producer,
       pseq,
       CASE WHEN places = 0 THEN concat('the log was read up to offset ', next_offset, ' without it')
            ELSE concat('found at offset ', lowest) END
FROM (SELECT topic, partition, offset, run, producer, pseq,
             count_if(log_partition = partition) AS places,
             coalesce(bool_or(log_partition = partition AND log_offset = offset), false) AS is_there,
             min(CASE WHEN log_partition = partition THEN log_offset END) AS lowest
      FROM pairs WHERE acked GROUP BY topic, partition, offset, run, producer, pseq) a
JOIN positions c ON c.topic = a.topic AND c.partition = a.partition
LEFT ANTI JOIN unreadable u ON u.topic = a.topic AND u.partition = a.partition AND u.offset = a.offset
LEFT ANTI JOIN repeated r ON r.topic = a.topic AND r.producer = a.producer AND r.pseq = a.pseq
WHERE NOT is_there AND a.offset < c.next_offset
UNION ALL
SELECT 'lost', topic, partition, offset, NULL, producer, pseq,
       concat('it was read there; the log was truncated at offset ', cut_at)
FROM stale WHERE acked
"""
#: Places of damaged records: which record was there is not known.
_UNREADABLE_SQL = """
SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset FROM pairs WHERE state = 'damaged'
UNION ALL
SELECT topic, partition, offset FROM found_before WHERE class = 'corrupt'
"""
#: Acknowledged sends that are not in their place although the log was read past it. One whose place cannot be
#: read stays open, and is no reason to look back each time.
_MISSING_SQL = f"""
SELECT DISTINCT p.topic, p.producer, p.pseq FROM pairs p
JOIN positions c ON c.topic = p.topic AND c.partition = p.partition
LEFT ANTI JOIN found_before f
  ON f.class IN ('lost', 'moved', '{EXPIRED}') AND f.topic = p.topic AND f.partition = p.partition
     AND f.offset = p.offset AND f.producer = p.producer AND f.pseq = p.pseq
LEFT ANTI JOIN unreadable u ON u.topic = p.topic AND u.partition = p.partition AND u.offset = p.offset
WHERE p.acked AND NOT coalesce(p.log_partition = p.partition AND p.log_offset = p.offset, false)
  AND p.offset < c.next_offset
"""
#: Those of them that an earlier micro-batch has found: their lines came again.
_REPEATED_SQL = "SELECT * FROM missing LEFT SEMI JOIN placed_before USING (topic, producer, pseq)"
_REPEATED_SCHEMA = "topic string, producer string, pseq long"
#: Sends that wait for an answer or for their record. A send that was refused or found is settled; so is one
#: whose lines were told to come again. One whose lines contradict each other is kept, for records of it may
#: come later: nothing is said of them either.
_OPEN_SENDS_SQL = f"""
SELECT CASE WHEN answers > 0 THEN 3 ELSE 1 END AS kind, run, producer, pseq, topic,
       coalesce(partition, {_UNCERTAIN}) AS partition, value_crc32c,
       acks, outcome, offset, leader_epoch, t0, t1, timestamp_ms, key_crc32c, headers_crc32c
FROM sends LEFT ANTI JOIN settled USING (topic, producer, pseq)
LEFT ANTI JOIN repeated USING (topic, producer, pseq)
WHERE NOT refused
"""
_SETTLED_SQL = """
SELECT topic, partition, log_offset AS offset, producer, pseq, acked, value_crc32c, acked AND perfect AS ok
FROM pairs
WHERE log_partition = partition
  AND ((acked OR weakly_acked) AND log_offset = offset OR weakly_acked AND offset IS NULL OR unknown)
"""
#: Records whose send is not settled: its line may come with the next micro-batch, or its answer.
_OPEN_LOG_SQL = f"""
SELECT {", ".join(LOG_COLUMNS)} FROM log
LEFT ANTI JOIN settled USING (topic, producer, pseq)
LEFT ANTI JOIN (SELECT * FROM sends WHERE partition IS NULL) USING (topic, producer, pseq)
LEFT ANTI JOIN (SELECT * FROM unpaired WHERE placed_offset IS NOT NULL) USING (topic, producer, pseq)
LEFT ANTI JOIN (SELECT * FROM candidates WHERE class = 'unexpected' AND detail = '{NEVER_SENT}')
  USING (topic, partition, offset, producer, pseq)
WHERE state = 'good'
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What one micro-batch has found."""

    batch: int
    counts: Mapping[str, int]
    #: class -> at most SAMPLES_MAX rows
    samples: Mapping[str, Sequence[Mapping[str, Any]]]
    #: sent, acked, ok and served: how many of each were new
    facts: Mapping[str, int]
    #: lines that are none of a ledger
    doubts: tuple[str, ...] = ()
    #: what is wrong with lines together -> number of sends, and one of them
    defects: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: topic that a line names -> topic ids that acknowledged
    topic_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: class -> rows that were never sent, as far as the ledger was read; None: an earlier build did not say
    never_sent: Mapping[str, int] | None = None
    #: runs that lines name; None: an earlier build did not say
    runs: Sequence[str] | None = None
    #: as in PollsSeen
    sessions: Sequence[Sequence[Any]] = ()
    spoiled: Sequence[str] = ()
    poll_doubts: Sequence[str] = ()

    def as_json(self) -> str:
        """For the state folder."""
        return json.dumps(asdict(self))


@dataclass
class FollowState:
    """What micro-batches leave to those after them, in folders with their numbers."""

    folder: Path
    #: None: every topic is as it was
    topics: FollowedTopics | None = None
    _steps: dict[int, Step] = field(default_factory=dict)

    def steps(self) -> list[Step]:
        """All that were finished, those of earlier runs too, in order. Raises: UnreadableState."""
        for path in (self.folder / "steps").glob("[0-9]*.json"):
            if int(path.stem) not in self._steps:
                self._steps[int(path.stem)] = read_json(path, lambda kept: Step(**kept))
        return [self._steps[batch] for batch in sorted(self._steps)]

    def take(self, frame: Any, batch: int) -> Step:
        """Judge what is new together with what is open, and keep what is open then."""
        spark = frame.sparkSession
        # what is known of a checkpointed view may name columns that it has no more, at which a union breaks
        spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
        step = self._judged(spark, frame.localCheckpoint(), batch)
        write_whole(self.folder / "steps" / f"{batch}.json", step.as_json())
        self._steps[batch] = step
        for name in ("open_sends", "open_log", "positions", "polls"):
            self._forget(name, batch - 1)
        return step

    def _judged(self, spark: Any, fresh: Any, batch: int) -> Step:
        fresh = self._of_judged(fresh)
        row = fresh.agg(*map(F.expr, _FRESH_SQL)).first()
        topic_ids = _topic_ids(row)
        if self.topics is not None:
            self.topics.heard(topic_ids)
        lines = fresh.where(F.col("origin") == LINE).select(*LINE_COLUMNS)
        fresh.where(F.col("origin") == RECORD).select(*LOG_COLUMNS).createOrReplaceTempView("fresh_log")
        for name, schema in (
            ("open_sends", LINES_SCHEMA), ("open_log", _LOG_SCHEMA), ("positions", _POSITIONS_SCHEMA),
        ):  # fmt: skip
            before = self._of_judged(self._read(spark, name, schema, [batch - 1]))
            before.createOrReplaceTempView(f"{name}_before")
        lines.unionByName(spark.table("open_sends_before")).createOrReplaceTempView("ledger_lines")
        sends = _without_answers_that_prove_nothing(spark.sql(SENDS_SQL).where("pseq >= 0"))
        sends.localCheckpoint().createOrReplaceTempView("sends")
        _view(spark, "positions", _POSITIONS_SQL)
        _view(spark, "log", _LOG_SQL)
        _view(spark, "pairs", _WITH_UNKNOWN_SQL)
        self._look_back(spark, batch)
        _view(spark, "candidates", _NEW_SQL)
        _view(spark, "settled", _SETTLED_SQL)
        seen = self._take_polls(spark, fresh, row, batch)
        counts, never_sent, samples = self._findings(spark)
        self._write_if(bool(counts), spark.table("candidates"), "found", batch)
        self._write(spark.table("settled").drop("ok"), "placed", batch)
        self._write(spark.table("positions").drop("cut_at"), "positions", batch)
        self._write(spark.sql(_OPEN_SENDS_SQL), "open_sends", batch)
        self._write(spark.sql(_OPEN_LOG_SQL), "open_log", batch)
        facts = {name: row[name] for name in ("sent", "acked", "served")}
        facts["ok"] = spark.table("settled").where("ok").count()
        facts[EXPIRED] = counts.pop(EXPIRED, 0)
        problems = lines.where(F.col("kind") == PROBLEM).select("run").limit(3) if row.problems else None
        doubts = () if problems is None else tuple(f"ledger: {one.run}" for one in problems.collect())
        defects = _defects(spark.table("sends"), spark.table("repeated"))
        if seen is None:
            return Step(batch, counts, samples, facts, doubts, defects, topic_ids, never_sent, row.runs)
        facts["polled"] = seen.records
        polled = (seen.sessions, seen.spoiled, seen.doubts)
        return Step(batch, counts, samples, facts, doubts, defects, topic_ids, never_sent, row.runs, *polled)

    def _take_polls(self, spark: Any, fresh: Any, row: Any, batch: int) -> PollsSeen | None:
        """Add to view `candidates` what is wrong with polls; None when there was none so far."""
        before = [step for step in self.steps() if step.batch < batch]
        if not row.polls and not any("polled" in step.facts for step in before):
            return None
        polls = FollowedPolls(
            spark,
            batch,
            partial(self._read, spark),
            self._write,
            self.topics,
            None if (named := runs_named(before)) is None else named.union(row.runs),
            {
                (run, consumer, session): (file, line, poll)
                for step in before
                for file, run, consumer, session, line, poll in step.sessions
            },
            frozenset(file for step in before for file in step.spoiled),
            _PLACED_SCHEMA,
        )
        seen, found = polls.take(fresh.where(F.col("origin") == POLL).select(*POLL_COLUMNS))
        found.createOrReplaceTempView("polls_found")
        _view(spark, "candidates", _WITH_POLLS_SQL)
        return seen

    def _of_judged(self, frame: Any) -> Any:
        """The rows without those of topics of which nothing more is said."""
        gone = [] if self.topics is None else list(self.topics.withdrawn)
        return frame.where(~F.coalesce(F.col("topic").isin(gone), F.lit(False))) if gone else frame

    def _findings(self, spark: Any) -> tuple[dict[str, int], dict[str, int], dict[str, list[dict[str, Any]]]]:
        """(count by class, those of them that were never sent, samples) of view `candidates`, after the
        cluster was asked whether their topics are what they were: only then are they sure. Raises:
        ClientError."""
        counts, never_sent, places = _counts(spark.table("candidates"))
        if counts and self.topics is not None:
            starts = [(*place, start) for place, start in self.topics.look_at(places).items()]
            spark.createDataFrame(starts, _STARTS_SCHEMA).createOrReplaceTempView("log_starts")
            _view(spark, "candidates", _CONFIRMED_SQL)
            counts, never_sent, _ = _counts(spark.table("candidates"))
        return (
            counts,
            never_sent,
            _samples(spark.table("candidates"), [name for name in counts if name != EXPIRED]),
        )

    def _look_back(self, spark: Any, batch: int) -> None:
        """Views of what earlier micro-batches have settled, and of what is not as it was; empty, and cheap,
        where nothing new is about it."""
        self._read(spark, "found", _FOUND_SCHEMA, range(batch)).createOrReplaceTempView("found_before")
        spark.sql(_UNREADABLE_SQL).createOrReplaceTempView("unreadable")
        is_cut = not spark.table("positions").where("cut_at IS NOT NULL").isEmpty()
        has_unpaired = not spark.table("pairs").where("NOT known AND state = 'good'").isEmpty()
        _view(spark, "missing", _MISSING_SQL)
        is_missing = not spark.table("missing").isEmpty()
        earlier = range(batch) if is_cut or has_unpaired or is_missing else ()
        placed = self._read(spark, "placed", _PLACED_SCHEMA, earlier)
        stale = self._read(spark, "stale", _PLACED_SCHEMA, earlier)
        names = ["topic", "partition", "offset", "producer", "pseq"]
        placed.join(stale, names, "left_anti").createOrReplaceTempView("placed_before")
        for name, sql, schema, is_any in (
            ("stale", _STALE_SQL, f"{_PLACED_SCHEMA}, cut_at long", is_cut),
            ("unpaired", _UNPAIRED_SQL, _UNPAIRED_SCHEMA, has_unpaired),
            ("repeated", _REPEATED_SQL, _REPEATED_SCHEMA, is_missing),
        ):
            if is_any:
                _view(spark, name, sql)
            else:
                spark.createDataFrame([], schema).createOrReplaceTempView(name)
        self._write_if(is_cut, spark.table("stale").drop("cut_at"), "stale", batch)

    def _read(self, spark: Any, name: str, schema: str, batches: Any) -> Any:
        there = [path for number in batches if (path := self.folder / name / str(number)).is_dir()]
        if not there:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*(local_source(path) for path in there))

    def _write(self, frame: Any, name: str, batch: int) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(local_path(self.folder / name / str(batch)))

    def _write_if(self, is_any: bool, frame: Any, name: str, batch: int) -> None:
        """Write what is often empty. An attempt that was killed may have seen something."""
        if is_any:
            self._write(frame, name, batch)
        else:
            shutil.rmtree(self.folder / name / str(batch), ignore_errors=True)

    def _forget(self, name: str, before: int) -> None:
        """Of batches that Spark cannot repeat any more."""
        for path in (self.folder / name).glob("[0-9]*"):
            if path.name.isdecimal() and int(path.name) < before:
                shutil.rmtree(path, ignore_errors=True)


_NEW_SQL = f"""
SELECT DISTINCT c.* FROM ({_CANDIDATES_SQL}) c
LEFT ANTI JOIN found_before f
  ON (f.class = c.class OR f.class = '{EXPIRED}' AND c.class = 'lost')
     AND f.topic = c.topic AND f.partition = c.partition AND f.offset = c.offset
     AND f.producer <=> c.producer AND f.pseq <=> c.pseq
"""
#: Candidates of partitions that are still judged. What lay before the beginning of its log was removed by
#: retention: nothing can be said of it.
_CONFIRMED_SQL = f"""
SELECT CASE WHEN class = 'lost' AND offset < log_start THEN '{EXPIRED}' ELSE class END AS class,
       topic, partition, offset, run, producer, pseq, detail
FROM candidates JOIN log_starts USING (topic, partition)
WHERE NOT (class = 'polled_and_gone' AND offset < log_start)
"""
#: Candidates, and what is wrong with polls. In sessions each row is told when it is read; of a record that
#: several consumers were given, and that was told before, nothing more is said.
_WITH_POLLS_SQL = """
SELECT * FROM candidates
UNION ALL
SELECT c.* FROM polls_found c
LEFT ANTI JOIN found_before f
  ON f.class IN ('polled_and_gone', 'polled_unsent') AND f.class = c.class AND f.topic = c.topic
     AND f.partition = c.partition AND f.offset = c.offset AND f.producer <=> c.producer
     AND f.pseq <=> c.pseq
"""
#: The pairs of the judge, with what a send's answer was.
_WITH_UNKNOWN_SQL = f"""
SELECT p.*, coalesce(s.outcome = 3, false) AS unknown, s.value_crc32c
FROM ({PAIRS_SQL}) p
LEFT JOIN (SELECT topic AS t, producer AS p, pseq AS n, outcome, value_crc32c FROM sends) s
  ON s.t = p.topic AND s.p = p.producer AND s.n = p.pseq
"""


def runs_named(steps: Iterable[Step]) -> frozenset[str] | None:
    """By lines of ledgers; None when it is not known of all."""
    runs = [step.runs for step in steps]
    return None if None in runs else frozenset(run for of_step in runs for run in of_step or ())


def _view(spark: Any, name: str, sql: str) -> None:
    """Compute a view once. What is built on it begins at its rows, not at its plan, which would be analysed
    once for each use."""
    spark.sql(sql).localCheckpoint().createOrReplaceTempView(name)


def _without_answers_that_prove_nothing(sends: Any) -> Any:
    """Of a send whose lines contradict each other it is not known what it was, nor what became of it."""
    is_odd = F.col("contradictory") | (F.col("invokes") != 1) | F.col("partition").eqNullSafe(_UNCERTAIN)
    changes = {name: F.col(name) & ~is_odd for name in ("acked", "weakly_acked", "refused")}
    changes["unknown"] = F.col("unknown") | is_odd
    changes["outcome"] = F.when(is_odd, INFO).otherwise(F.col("outcome"))
    for name in ("partition", "value_crc32c", "timestamp_ms", "key_crc32c", "headers_crc32c"):
        changes[name] = F.when(~is_odd, F.col(name))
    return sends.withColumns(changes)


def _defects(sends: Any, repeated: Any) -> dict[str, tuple[int, str]]:
    """What is wrong with lines together -> number of sends, and one of them."""
    named = F.struct("topic", "producer", "pseq")
    conditions = [F.expr(condition) for _, condition, _ in DEFECTS]
    row = sends.agg(
        *(F.count_if(condition) for condition in conditions),
        *(F.min(F.when(condition, named)) for condition in conditions),
    ).first()
    found = [(words, row[n], row[len(DEFECTS) + n]) for n, (_, _, words) in enumerate(DEFECTS)]
    if not repeated.isEmpty():
        found.append((REPEATED, *repeated.agg(F.count("*"), F.min(named)).first()))
    defects: dict[str, tuple[int, str]] = {}
    for words, count, one in found:
        if count:
            before, _ = defects.get(words, (0, ""))
            defects[words] = (before + count, f"{one.producer} record {one.pseq} of topic {one.topic}")
    return defects


def _topic_ids(row: Any) -> dict[str, list[str]]:
    """Topic that a line names -> topic ids of its acknowledgements, of a row of `_FRESH_SQL`."""
    found: dict[str, list[str]] = {topic: [] for topic in sorted(row.topics)}
    for one in sorted((one.topic, one.run) for one in row.ids):
        found.setdefault(one[0], []).append(one[1])
    return found


def _counts(candidates: Any) -> tuple[dict[str, int], dict[str, int], set[tuple[str, int]]]:
    """(count by class, those of them that were never sent, partitions that have any)."""
    is_unknown = F.col("detail").endswith(NEVER_SENT).alias("is_unknown")
    rows = candidates.groupBy("class", "topic", "partition", is_unknown).count().collect()
    counts: Counter[str] = Counter()
    never_sent: Counter[str] = Counter()
    for row in rows:
        counts[row["class"]] += row["count"]
        if row.is_unknown:
            never_sent[row["class"]] += row["count"]
    return dict(counts), dict(never_sent), {(row["topic"], row["partition"]) for row in rows}


def _samples(candidates: Any, classes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    samples: dict[str, list[dict[str, Any]]] = {}
    for name in classes:
        rows = candidates.where(F.col("class") == name).orderBy("topic", "partition", "offset")
        samples[name] = [
            {key: value for key, value in row.asDict().items() if key != "class"}
            for row in rows.limit(SAMPLES_MAX).collect()
        ]
    return samples
