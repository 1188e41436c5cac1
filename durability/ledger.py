"""Ledgers as a table of sends, and what is wrong with them (D11).

Pairs each send with its answer in one pass. A last line that a crash cut is tolerated: its send stays
unanswered, which claims nothing. Anything else that is no line of one ledger, and lines that contradict each
other, make a ledger unreadable, by file and line. Never judges the log.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.durability.arrow_ledger import CutTail, DamagedBatch, as_rows, place_in, read_batches
from holdfast.durability.digest_jobs import SMALL_BYTES
from holdfast.durability.foreign_lines import ForeignRow, foreign_row, name_of
from holdfast.durability.ledger_files import (
    UnreadableLedger,
    check_writers,
    is_arrow,
    ledger_files,
    opened,
    problem_of,
)
from holdfast.durability.ledger_lines import ORDER, PROBLEM, ROWS, TOPIC_ID, TORN, read_rows, surely_in_order
from holdfast.durability.ledger_source import plan, sizes_of
from holdfast.durability.scale import MUCH, Scale

#: One row for each send. Strings are keys only: an aggregate over a string would make Spark sort instead of
#: hash. Rows about files, not sends, have a negative `pseq`; each has its text in `run`.
SENDS_SQL = """
SELECT run, producer, pseq, topic, partition, offset, leader_epoch, value_crc32c, acks, outcome, t0, t1,
       timestamp_ms, key_crc32c, headers_crc32c,
       outcome <=> 1 AND acks <=> -1 AS acked,
       outcome <=> 2 AND acks IN (0, 1) AS weakly_acked,
       outcome <=> 4 AS refused,
       outcome <=> 3 AS unknown,
       invokes, answers,
       coalesce(least_outcome <> outcome OR least_offset <> most_offset OR least_partition <> partition
                OR (invokes <= 1 AND least_checksum <> value_crc32c)
                OR (outcome = 1 AND acks <> -1) OR (outcome = 2 AND acks = -1), false) AS contradictory
FROM (SELECT run, producer, pseq, topic,
             max(partition) AS partition,
             min(partition) AS least_partition,
             max(CASE WHEN outcome <= 2 AND offset >= 0 THEN offset END) AS offset,
             min(offset) AS least_offset,
             max(offset) AS most_offset,
             max(leader_epoch) AS leader_epoch,
             max(value_crc32c) AS value_crc32c,
             min(value_crc32c) AS least_checksum,
             max(acks) AS acks,
             max(outcome) AS outcome,
             min(outcome) AS least_outcome,
             min(t0) AS t0,
             min(t1) AS t1,
             max(timestamp_ms) AS timestamp_ms,
             max(key_crc32c) AS key_crc32c,
             max(headers_crc32c) AS headers_crc32c,
             count_if(kind IN (1, 3)) AS invokes,
             count_if(kind IN (2, 3)) AS answers
      FROM ledger_lines
      GROUP BY run, producer, pseq, topic)
"""

#: What the verdict needs to know of all sends together, one row for each writer and topic.
TOTALS_SQL = """
SELECT run, producer, topic,
       count(*) AS sent,
       min(pseq) AS first_pseq,
       max(pseq) AS last_pseq,
       max(partition) AS last_partition,
       count_if(acked) AS acked,
       count_if(weakly_acked) AS weakly_acked,
       count_if(refused) AS refused,
       count_if(unknown) AS unknown,
       count(timestamp_ms) AS with_fields,
       count_if(answers = 0) AS unanswered,
       count_if(invokes = 0) AS answers_without_send,
       count_if(invokes > 1) AS repeated_sends,
       count_if(contradictory) AS contradictions
FROM sends
GROUP BY run, producer, topic
"""
#: Of what is only shown some rows are enough; each topic id is needed, and the order in each block.
_REMARKS_SQL = f"""
SELECT * FROM (SELECT -pseq AS kind, run AS text, topic, count(*) OVER (PARTITION BY pseq) AS total,
                      row_number() OVER (PARTITION BY pseq ORDER BY t0, run, topic) AS nth
               FROM all_sends WHERE pseq < 0)
WHERE nth <= 100 OR kind IN ({TOPIC_ID}, {ORDER})
ORDER BY kind, nth
"""

_SUMS = (
    "sent", "acked", "weakly_acked", "refused", "unknown", "unanswered", "with_fields",
    "answers_without_send", "repeated_sends", "contradictions",
)  # fmt: skip
REPEATED = "sends written down more than once: (run, producer, topic, pseq) must be unique"
_REPEATED_FOREIGN = "sends written down more than once: no two records of a topic may have equal values"
#: Defects that are seen in several lines together: (sum, condition, words).
DEFECTS = (
    ("answers_without_send", "invokes = 0", "answers to sends that were never written down"),
    ("repeated_sends", "invokes > 1", REPEATED),
    ("contradictions", "contradictory", "sends with answers that contradict each other or their acks"),
)
_SHOWN_MAX = 5
#: Enough of a file to see which topics it is about, of all files together, and the least of each.
_HEAD_BYTES = 256 << 10
_HEADS_BYTES = 8 << 20
_HEAD_BYTES_MIN = 4 << 10


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over all sends of a ledger."""

    sent: int
    acked: int
    weakly_acked: int
    refused: int
    unanswered: int
    #: answered with `info`: time-outs and disconnects
    unknown: int
    #: whose key, headers and timestamp are known; older ledgers did not tell
    with_fields: int
    topics: tuple[str, ...]
    runs: tuple[str, ...]
    producers: int
    #: last lines cut by a crash
    torn_lines: int
    #: topic -> topic ids that acknowledged, as producers wrote them down; older ones did not
    topic_ids: dict[str, tuple[str, ...]]
    #: topic -> highest partition that a line names
    last_partitions: dict[str, int]
    #: no answered send has a smaller offset than an earlier one of its producer in its partition; False: they
    #: must be looked at
    in_order: bool


# --- looking into files ------------------------------------------------------------------------------


def topics_named(files: Iterable[str], *, is_foreign: bool = False) -> set[str]:
    """Topics that the first lines of the files are about; a file may name others further on."""
    topics: set[str] = set()
    paths = list(files)
    size = min(_HEAD_BYTES, max(_HEAD_BYTES_MIN, _HEADS_BYTES // max(1, len(paths))))
    for path in paths:
        if is_arrow(path):
            topics |= _topics_in_batches(path, size)
            continue
        try:
            with opened(path) as file:
                head = file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            continue
        for line in head.split(b"\n"):
            if is_foreign and isinstance(row := foreign_row(line), ForeignRow):
                topics.add(row.topic)
            elif not is_foreign and problem_of(line) is None:
                topics.add(json.loads(line)["topic"])
    return topics


def _topics_in_batches(path: str, size: int) -> set[str]:
    topics: set[str] = set()
    with suppress(CutTail, DamagedBatch), closing(read_batches(path)) as batches:
        for position, rows in batches:
            topics.update(pc.unique(rows["topic"]).drop_null().to_pylist())
            if position > size:
                break
    return topics


def _row_of(path: str, sought: tuple[str, str, int, str]) -> str:
    """`file, row n of the batch at byte m` of the last row about a send, "" when there is none."""
    found = ""
    with suppress(CutTail, DamagedBatch):
        for batch in read_batches(path):
            if not pc.any(pc.equal(batch.rows["pseq"], sought[2])).as_py():
                continue
            rows = as_rows([batch]).select(["run", "producer", "pseq", "topic"]).to_pylist()
            for number, row in enumerate(rows, 1):
                if tuple(row.values()) == sought:
                    found = place_in(path, number, batch.position)
    return found


def line_of(
    files: Iterable[str], run: str, producer: str, pseq: int, topic: str, *, is_foreign: bool = False
) -> str:
    """`file, line n`, or the row of an Arrow batch, of the last line about a send; the files alone when none
    is found."""
    names = list(files)
    needle, found = (name_of(pseq) if is_foreign else f'"pseq":{pseq}').encode(), ""
    for path in names:
        if is_arrow(path):
            found = _row_of(path, (run, producer, pseq, topic)) or found
            continue
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                if needle not in line.replace(b" ", b""):
                    continue
                if _is_about(line, (run, producer, pseq, topic), is_foreign=is_foreign):
                    found = f"{path}, line {number}"
    return found or ", ".join(names[:_SHOWN_MAX])


def _is_about(line: bytes, sought: tuple[str, str, int, str], *, is_foreign: bool) -> bool:
    """True of a line that is about the send (run, producer, pseq, topic)."""
    if is_foreign:
        found = foreign_row(line)
        return isinstance(found, ForeignRow) and (found.number, found.topic) == sought[2:]
    if problem_of(line) is not None:
        return False
    row = json.loads(line)
    return tuple(row[name] for name in ("run", "producer", "pseq", "topic")) == sought


def send_named(producer: str, pseq: int, *, is_foreign: bool) -> str:
    """A send in the words of its ledger."""
    return f"value_sha256 {name_of(pseq)}..." if is_foreign else f"producer {producer}, record {pseq}"


# --- sends ---------------------------------------------------------------------------------------------


def read_sends(
    spark: Any,
    path: str,
    *,
    is_foreign: bool = False,
    sizes: Mapping[str, int] | None = None,
    scale: Scale = MUCH,
) -> tuple[Any, Totals]:
    """(the sends as a DataFrame that is kept, their totals). The ledger has been read to its end when this
    returns. `is_foreign`: its lines are another client's. `sizes`: {file: bytes that are read} instead of
    all.
    Registers the views `ledger_lines` and `sends`. Raises: UnreadableLedger.
    """
    sizes = sizes_of(ledger_files(path)) if sizes is None else sizes
    # partitioned as the join with the log wants them, so that they are moved once
    lines = scale.gathered(_lines(spark, sizes, is_foreign=is_foreign), "producer", "pseq", "topic")
    lines.createOrReplaceTempView("ledger_lines")
    everything = scale.kept(spark.sql(SENDS_SQL))
    everything.createOrReplaceTempView("all_sends")
    sends = everything.where("pseq >= 0")
    sends.createOrReplaceTempView("sends")
    return sends, _totals_of(spark, list(sizes), is_foreign=is_foreign)


def forget_sends(spark: Any) -> None:
    """Let go of what `read_sends` keeps in memory; it is read again before it is used again."""
    spark.table("all_sends").unpersist()


def _lines(spark: Any, sizes: Mapping[str, int], *, is_foreign: bool) -> Any:
    """All lines as a DataFrame; few are read here and now, which is sooner done than Spark can plan."""
    if sum(sizes.values()) <= SMALL_BYTES:
        batches = [batch for ranges in plan(sizes, 1, is_foreign=is_foreign) for batch in read_rows(ranges)]
        return spark.createDataFrame(pa.Table.from_batches(batches, schema=ROWS))
    return (
        spark.read.format("holdfast.ledger")
        .option("minPartitions", str(spark.sparkContext.defaultParallelism))
        .option("foreign", str(is_foreign).lower())
        .option("sizes", json.dumps(dict(sizes)))
        .load(json.dumps(list(sizes)))
    )


def _totals_of(spark: Any, files: list[str], *, is_foreign: bool) -> Totals:
    """The totals of view `sends`, after its defects were looked for. Raises: UnreadableLedger."""
    rows = spark.sql(TOTALS_SQL).collect()
    remarks = spark.sql(_REMARKS_SQL).collect()
    problems = [row for row in remarks if row.kind == PROBLEM]
    if problems:
        shown = "; ".join(row.text for row in problems[:_SHOWN_MAX])
        raise UnreadableLedger(f"{problems[0].total} lines that are no ledger lines: {shown}")
    sums = {name: sum(row[name] for row in rows) for name in _SUMS}
    for name, condition, what in DEFECTS:
        if sums[name]:
            words = _REPEATED_FOREIGN if is_foreign and what == REPEATED else what
            example = _an_example(spark, files, condition, is_foreign=is_foreign)
            raise UnreadableLedger(f"{sums[name]} {words}: {example}")
    check_writers([(row.topic, row.producer, row.first_pseq, row.last_pseq, row.run) for row in rows])
    last_partitions: dict[str, int] = {}
    for row in rows:
        if row.last_partition is not None:
            last_partitions[row.topic] = max(row.last_partition, last_partitions.get(row.topic, 0))
    ids: dict[str, list[str]] = {}
    for row in remarks:
        if row.kind == TOPIC_ID:
            ids.setdefault(row.topic, []).append(row.text)
    return Totals(
        sent=sums["sent"],
        acked=sums["acked"],
        weakly_acked=sums["weakly_acked"],
        refused=sums["refused"],
        unanswered=sums["unanswered"],
        unknown=sums["unknown"],
        with_fields=sums["with_fields"],
        topics=tuple(sorted({row.topic for row in rows})),
        runs=tuple(sorted({row.run for row in rows})),
        producers=len({(row.run, row.producer) for row in rows}),
        torn_lines=next((row.total for row in remarks if row.kind == TORN), 0),
        topic_ids={topic: tuple(found) for topic, found in ids.items()},
        last_partitions=last_partitions,
        in_order=surely_in_order(row.text for row in remarks if row.kind == ORDER),
    )


def _an_example(spark: Any, files: list[str], condition: str, *, is_foreign: bool) -> str:
    row = spark.sql(
        f"SELECT run, producer, pseq, topic FROM sends WHERE {condition} ORDER BY pseq, producer LIMIT 1"
    ).first()
    place = line_of(files, row.run, row.producer, row.pseq, row.topic, is_foreign=is_foreign)
    return f"{place} ({send_named(row.producer, row.pseq, is_foreign=is_foreign)})"


def check_partitions(
    spark: Any, path: str, totals: Totals, partitions: dict[str, int], *, is_foreign: bool = False
) -> None:
    """Answers and sends may only name partitions that there are; {topic: number of partitions}.

    Raises: UnreadableLedger.
    """
    for topic, count in sorted(partitions.items()):
        if totals.last_partitions.get(topic, 0) < count:
            continue
        row = spark.sql(
            "SELECT * FROM sends WHERE topic = :topic AND partition >= :count ORDER BY pseq LIMIT 1",
            args={"topic": topic, "count": count},
        ).first()
        if row is not None:
            files, send = ledger_files(path), (row.run, row.producer, row.pseq, topic)
            raise UnreadableLedger(
                f"a send to {topic}-{row.partition}, which has {count} partitions: "
                f"{line_of(files, *send, is_foreign=is_foreign)} "
                f"({send_named(row.producer, row.pseq, is_foreign=is_foreign)})"
            )
