"""What consumers were given, as far as one micro-batch of `holdfast validate --follow` can be sure of it.

The rules are those of `durability.rules`, over what was read so far. In one session a row is sure at once.
What a record was sent as, and what became of its place, is asked in a micro-batch behind that of its poll:
then ledgers and log were looked at behind the poll.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from holdfast.durability.followed_topics import FollowedTopics
from holdfast.durability.judge import ENDS_SCHEMA
from holdfast.durability.poll_files import POLL_SCHEMA
from holdfast.durability.poll_lines import PROBLEM
from holdfast.durability.rules import (
    poll_skipped,
    polled_again,
    polled_and_gone,
    polled_uncommitted,
    polled_unsent,
    watermark_back,
)
from holdfast.durability.rules.rule import Rule

#: Classes that a micro-batch can be sure of.
EARLY_RULES = tuple(
    module.RULE.name
    for module in (
        polled_and_gone,
        polled_unsent,
        polled_again,
        poll_skipped,
        polled_uncommitted,
        watermark_back,
    )
)
POLL_COLUMNS = tuple(column.split()[0] for column in POLL_SCHEMA.split(", "))
#: Rows that a micro-batch leaves to the next: the last poll of a session and partition, a gap between two
#: that the log was not read up to, a record of which something is still to be asked, and one that is not
#: judged before a ledger names its run.
_LAST, _GAP, _OPEN, _UNNAMED = "last", "gap", "open", "unnamed"
_KEPT_SCHEMA = f"{POLL_SCHEMA}, kept_as string, gap_from long, since int, asked boolean"
_POLLED_SCHEMA = (
    "topic string, partition int, offset long, run string, producer string, pseq long, value_crc32c long, "
    "consumer string, session string, poll long"
)
#: Micro-batches in whose places a record is looked for before all of them are: consumers are not far behind.
_RECENT = 3
_PROBLEMS_MAX = 3
_COLUMNS = ", ".join(POLL_COLUMNS)

_SESSIONS_SQL = """
SELECT file, run, consumer, session, min(poll) AS first_poll, max(poll) AS last_poll,
       min(line) AS first_line, max(line) AS last_line
FROM fresh_polls GROUP BY file, run, consumer, session ORDER BY file, first_line
"""
_TOPICS_SQL = """
SELECT file, run, topic, collect_set(topic_id) AS topic_ids, max(partition) AS partition, min(line) AS line
FROM fresh_polls GROUP BY file, run, topic ORDER BY file, line
"""
#: The last poll of each partition in the session that each file is at, with the highest high watermark.
_LAST_SQL = f"""
SELECT {_COLUMNS.replace("high_watermark", "highest AS high_watermark")}, '{_LAST}' AS kept_as,
       CAST(NULL AS long) AS gap_from, CAST(NULL AS int) AS since, CAST(NULL AS boolean) AS asked
FROM (SELECT *, row_number() OVER (PARTITION BY run, consumer, session, topic, partition
                                   ORDER BY line DESC, nth DESC) AS nth_last,
             max(high_watermark) OVER (PARTITION BY run, consumer, session, topic, partition) AS highest,
             max_by(struct(consumer, session), struct(line, nth)) OVER (PARTITION BY file) AS newest
      FROM polls)
WHERE nth_last = 1 AND newest = struct(consumer, session)
"""
#: Records in the places where the log has them now, as far as it was read.
_PLACES_SQL = """
SELECT topic, partition, offset, state, producer, pseq, value_crc32c FROM log_so_far
UNION ALL
SELECT topic, partition, offset, 'good', producer, pseq, value_crc32c FROM placed_so_far
LEFT ANTI JOIN stale_so_far USING (topic, partition, offset, producer, pseq)
"""
#: Records that are in their place as they were sent. A send whose lines contradict each other has none.
_SETTLED_SQL = """
SELECT topic, partition, log_offset AS offset, producer, pseq, value_crc32c FROM pairs
WHERE known AND NOT refused AND log_partition = partition AND NOT differs
UNION ALL
SELECT topic, partition, offset, producer, pseq, value_crc32c FROM placed_lately
LEFT ANTI JOIN stale_so_far USING (topic, partition, offset, producer, pseq)
"""
_UNSETTLED_SQL = f"""
SELECT o.* FROM open_polls o LEFT ANTI JOIN ({_SETTLED_SQL}) s
  ON s.topic = o.topic AND s.partition = o.partition AND s.offset = o.offset AND s.producer = o.producer
     AND s.pseq = o.pseq AND coalesce(s.value_crc32c = o.value_crc32c, true)
"""
_ALL_SENDS_SQL = """
SELECT topic, producer, pseq, partition, value_crc32c, refused FROM sends
UNION ALL
SELECT topic, producer, pseq, partition, value_crc32c, false FROM placed_so_far
LEFT ANTI JOIN sends USING (topic, producer, pseq)
"""
#: Of each record whose place was read: another one is there. What is there without a name says nothing yet.
_ELSEWISE_SQL = """
SELECT d.* FROM due d
LEFT SEMI JOIN (SELECT * FROM places WHERE state = 'good' AND producer IS NOT NULL) p
  ON p.topic = d.topic AND p.partition = d.partition AND p.offset = d.offset
"""
#: Those that were given before the log was truncated below them.
_CUT_SQL = """
SELECT p.* FROM polled_before p JOIN positions c ON c.topic = p.topic AND c.partition = p.partition
WHERE p.offset >= c.cut_at
"""


@dataclass(frozen=True, slots=True)
class PollsSeen:
    """What is left of polls beside rows that break a rule, for a verdict and for later micro-batches."""

    #: (file, run, consumer, session, last line, last poll) of what was new
    sessions: tuple[Sequence[Any], ...] = ()
    #: files of which nothing more is judged, for they are none of polls of this ledger
    spoiled: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    records: int = 0


@dataclass
class FollowedPolls:
    """The polls of one micro-batch."""

    spark: Any
    batch: int
    #: (name, schema, micro-batches) -> rows that they have left
    read: Callable[[str, str, Iterable[int]], Any]
    write: Callable[[Any, str, int], None]
    topics: FollowedTopics | None
    #: runs that ledgers have named; None: it is not known which, and each is taken for one
    runs: frozenset[str] | None
    #: {(run, consumer, session): (file, last line, last poll)} of earlier micro-batches
    sessions: Mapping[tuple[str, str, str], tuple[str, int, int]]
    #: of earlier micro-batches
    spoiled: frozenset[str]
    placed_schema: str
    _spoiled: list[str] = field(default_factory=list)

    def take(self, fresh: Any) -> tuple[PollsSeen, Any]:
        """(what was seen, rows that break a rule), of the rows of polls. Views that
        micro-batches have are there, and are as they were afterwards. Raises: ClientError, OSError."""
        spark = self.spark
        kept = self.read("polls", _KEPT_SCHEMA, [self.batch - 1])
        fresh = fresh.where(~F.col("file").isin(list(self.spoiled)))
        doubts = self._problems(fresh)
        fresh = fresh.where("remark IS NULL")
        fresh.createOrReplaceTempView("fresh_polls")
        sessions = spark.sql(_SESSIONS_SQL).collect()
        doubts += self._wrong_sessions(sessions)
        # a consumer may be there before the first send of its run
        fresh = fresh.unionByName(kept.where(f"kept_as = '{_UNNAMED}'").select(*POLL_COLUMNS))
        is_named = F.lit(True) if self.runs is None else F.col("run").isin(list(self.runs))
        fresh.where(is_named).createOrReplaceTempView("fresh_polls")
        doubts += self._wrong_topics()
        bad = [*self.spoiled, *self._spoiled]
        fresh = fresh.where(~F.col("file").isin(bad))
        unnamed = self._kept(fresh.where(~is_named), _UNNAMED)
        fresh = self._view("fresh_polls", fresh.where(is_named))
        kept = kept.where(~F.col("file").isin(bad)).localCheckpoint()
        seen = PollsSeen(
            tuple(
                (row.file, row.run, row.consumer, row.session, row.last_line, row.last_poll)
                for row in sessions
            ),
            tuple(dict.fromkeys(self._spoiled)),
            tuple(doubts[:_PROBLEMS_MAX]),
            fresh.count(),
        )
        log = spark.table("log")
        try:
            found = self._judged(fresh, kept, unnamed)
        finally:
            log.createOrReplaceTempView("log")
        return seen, found

    # --- what is none ---------------------------------------------------------------------------------

    def _problems(self, fresh: Any) -> list[str]:
        problems = fresh.where(F.col("remark") == PROBLEM).groupBy("file")
        rows = problems.agg(F.min_by("text", "line").alias("text")).orderBy("file").collect()
        self._spoiled += [row.file for row in rows]
        return [f"polls: {row.text}" for row in rows]

    def _wrong_topics(self) -> list[str]:
        """Polls are of the ledger's topics, and of partitions that there are. Raises: ClientError,
        OSError."""
        doubts: list[str] = []
        topics = self.topics
        if topics is None:
            return doubts
        was_asked = False
        for row in self.spark.sql(_TOPICS_SQL).collect():
            why = ""
            if row.topic not in topics.named:
                why = f"polls of topic {row.topic}, of which there is no send"
            else:
                topics.heard({row.topic: row.topic_ids})
                count = topics.partitions_of(row.topic)
                if count is not None and row.partition >= count and not was_asked:
                    topics.look()  # it may have got more since
                    was_asked = True
                    count = topics.partitions_of(row.topic)
                if count is not None and row.partition >= count:
                    why = f"a poll of {row.topic}-{row.partition}, which has {count} partitions"
            if why:
                doubts.append(f"polls: {row.file}: {why}")
                self._spoiled.append(row.file)
        return doubts

    def _wrong_sessions(self, sessions: Iterable[Any]) -> list[str]:
        """A session is in one file, its polls rise, and none goes on behind another one."""
        known = dict(self.sessions)
        at = {
            file: (line, name) for name, (file, line, _) in sorted(known.items(), key=lambda one: one[1][1])
        }
        doubts = []
        for row in sessions:
            name = row.run, row.consumer, row.session
            file, _, poll = known.get(name, (row.file, 0, -1))
            why = ""
            if file != row.file:
                why = f"session {row.session} of consumer {row.consumer} is in {file} and in {row.file}"
            elif name in self.sessions and at[file][1] != name:
                why = f"{file}: session {row.session} goes on behind another one"
            elif row.first_poll < poll:
                why = f"{file}: poll {row.first_poll} after poll {poll} of its session"
            if why:
                doubts.append(f"polls: {why}")
                self._spoiled.append(row.file)
            known[name] = (row.file, row.last_line, row.last_poll)
        return doubts

    # --- what is wrong --------------------------------------------------------------------------------

    def _kept(self, polls: Any, kept_as: str) -> Any:
        return polls.select(
            *POLL_COLUMNS,
            F.lit(kept_as).alias("kept_as"),
            F.lit(None).cast("long").alias("gap_from"),
            F.lit(self.batch).alias("since"),
            F.lit(False).alias("asked"),
        )

    def _judged(self, fresh: Any, kept: Any, unnamed: Any) -> Any:
        spark, batch = self.spark, self.batch
        as_fresh = self._kept(fresh, _OPEN)
        as_fresh.createOrReplaceTempView("polls")
        found = [self._rows(polled_uncommitted.RULE)]
        self._view("polls", as_fresh.unionByName(kept.where(f"kept_as = '{_LAST}'")))
        found += [self._rows(polled_again.RULE), self._rows(watermark_back.RULE)]
        new_gaps = spark.sql(poll_skipped.GAPS).drop("gap_from").withColumnRenamed("before", "gap_from")
        new_gaps = new_gaps.withColumn("kept_as", F.lit(_GAP))
        gaps = kept.where(f"kept_as = '{_GAP}'").unionByName(new_gaps)
        last = spark.sql(_LAST_SQL)
        gaps, read_gaps = self._split(gaps, "g.offset <= c.next_offset")
        self._view("open_polls", kept.where(f"kept_as = '{_OPEN}'").unionByName(as_fresh))
        spark.table("log").createOrReplaceTempView("log_so_far")
        self._view("placed_lately", self.read("placed", self.placed_schema, range(batch - _RECENT, batch)))
        cut = self._cut()
        stale = self.read("stale", self.placed_schema, range(batch + 1))
        stale.createOrReplaceTempView("stale_so_far")
        left = self._view("left_polls", spark.sql(_UNSETTLED_SQL))
        to_ask = left.where(f"since < {batch} AND NOT asked")
        rest, is_read = self._split(left, f"g.offset < c.next_offset AND g.since < {batch}")
        if not (cut is None and to_ask.isEmpty() and is_read.isEmpty() and read_gaps.isEmpty()):
            found += self._looked_back(to_ask, is_read, read_gaps, cut)
        rest = rest.withColumn("asked", F.col("asked") | (F.col("since") < batch))
        self.write(last.unionByName(gaps).unionByName(rest).unionByName(unnamed), "polls", batch)
        columns = [column.split()[0] for column in _POLLED_SCHEMA.split(", ")]
        self.write(fresh.select(*columns), "polled", batch)
        together = found[0]
        for more in found[1:]:
            together = together.unionByName(more)
        return together.localCheckpoint()

    def _looked_back(self, to_ask: Any, is_read: Any, gaps: Any, cut: Any | None) -> list[Any]:
        """Against everything that was read."""
        spark, batch = self.spark, self.batch
        placed = self.read("placed", self.placed_schema, range(batch))
        self._view("placed_so_far", placed.unionByName(spark.table("settled").select(placed.columns)))
        # what was read again after a truncation, or was settled now, is in both
        once = spark.sql(_PLACES_SQL).dropDuplicates(["topic", "partition", "offset"])
        places = self._view("places", once)
        self._view("all_sends", spark.sql(_ALL_SENDS_SQL))
        to_ask.createOrReplaceTempView("polls")
        found = [self._rows(polled_unsent.RULE)]
        gaps.withColumnRenamed("gap_from", "before").createOrReplaceTempView("read_gaps")
        places.createOrReplaceTempView("log")
        found.append(self._rows(poll_skipped.RULE, poll_skipped.skipped_sql("read_gaps")))
        is_read.createOrReplaceTempView("due")
        gone = spark.sql(_ELSEWISE_SQL)
        if cut is not None:
            gone = gone.select(cut.columns).unionByName(cut)
        gone.createOrReplaceTempView("polls")
        spark.createDataFrame([], ENDS_SCHEMA).createOrReplaceTempView("ends")
        return [*found, self._rows(polled_and_gone.RULE)]

    def _cut(self) -> Any | None:
        """Earlier polls above where the log was truncated; None when it was not."""
        if self.spark.table("positions").where("cut_at IS NOT NULL").isEmpty():
            return None
        before = self.read("polled", _POLLED_SCHEMA, range(self.batch))
        before.createOrReplaceTempView("polled_before")
        return self.spark.sql(_CUT_SQL).localCheckpoint()

    def _split(self, rows: Any, condition: str) -> tuple[Any, Any]:
        """(the others, those of which the log was read so far): `g` are the rows, `c` positions."""
        rows.createOrReplaceTempView("to_split")
        split = self.spark.sql(
            f"""SELECT g.*, coalesce({condition}, false) AS is_read FROM to_split g
            LEFT JOIN positions c ON c.topic = g.topic AND c.partition = g.partition"""
        ).localCheckpoint()
        return split.where("NOT is_read").drop("is_read"), split.where("is_read").drop("is_read")

    def _rows(self, rule: Rule, sql: str | None = None) -> Any:
        found = self.spark.sql(f"SELECT '{rule.name}' AS class, * FROM ({sql or rule.sql})")
        return found.localCheckpoint()

    def _view(self, name: str, frame: Any) -> Any:
        frame = frame.localCheckpoint()
        frame.createOrReplaceTempView(name)
        return frame
