"""Ledgers as a table of sends, and what is wrong with them (D11).

Reads the JSON lines with an explicit schema and pairs `invoke` with `complete`. A last line that a crash cut
is tolerated: its send stays unanswered, which claims nothing. Any other line that cannot be read makes a
ledger unreadable. Never judges the log.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.durability.session import local_source

#: What a ledger file is called.
SUFFIXES = (".jsonl", ".ndjson", ".json")

#: The columns of `invoke` and `complete` lines that the rules need; other fields are passed over.
SCHEMA = (
    "kind string, run string, producer string, pseq long, topic string, partition int, value_crc32c long, "
    "acks int, outcome string, offset long, leader_epoch int, unreadable string"
)

#: One row for each send. Lines that cannot be read have no key and gather in the row without one.
#: Strings are keys only: an aggregate over a string would make Spark sort instead of hash. Of several answers
#: the strongest counts (1 ok, 2 ok1, 3 info, 4 fail).
SENDS_SQL = """
SELECT run, producer, pseq, topic, partition, offset, leader_epoch, value_crc32c,
       coalesce(outcome = 1 AND acks = -1, false) AS acked,
       coalesce(outcome IN (1, 2) AND acks <> -1, false) AS weakly_acked,
       coalesce(outcome = 4, false) AS refused,
       coalesce(outcome = 3, false) AS unknown,
       invokes, answers, unreadable_lines
FROM (SELECT run, producer, pseq, topic,
             max(partition) AS partition,
             max(CASE WHEN outcome IN ('ok', 'ok1') AND offset >= 0 THEN offset END) AS offset,
             max(leader_epoch) AS leader_epoch,
             max(value_crc32c) AS value_crc32c,
             max(acks) AS acks,
             min(nullif(array_position(array('ok', 'ok1', 'info', 'fail'), outcome), 0)) AS outcome,
             count_if(kind = 'invoke') AS invokes,
             count_if(kind = 'complete') AS answers,
             count(unreadable) AS unreadable_lines
      FROM ledger_lines
      GROUP BY run, producer, pseq, topic)
"""

#: What the verdict needs to know of all sends together, one row for each writer and topic.
TOTALS_SQL = """
SELECT run, producer, topic,
       count(pseq) AS sent,
       min(pseq) AS first_pseq,
       max(pseq) AS last_pseq,
       count_if(acked) AS acked,
       count_if(weakly_acked) AS weakly_acked,
       count_if(refused) AS refused,
       count_if(unknown) AS unknown,
       count_if(answers = 0 AND pseq IS NOT NULL) AS unanswered,
       count_if(pseq IS NOT NULL AND invokes = 0) AS answers_without_send,
       count_if(pseq IS NOT NULL AND invokes > 1) AS repeated_sends,
       count_if(acked AND (offset IS NULL OR partition IS NULL OR value_crc32c IS NULL))
           AS acks_without_place,
       count_if((pseq IS NULL OR producer IS NULL OR run IS NULL OR topic IS NULL) AND invokes + answers > 0)
           AS lines_without_key,
       sum(unreadable_lines) AS unreadable_lines
FROM sends
GROUP BY run, producer, topic
"""

_SHOWN_CHARS = 120


_SUMS = (
    "sent",
    "acked",
    "weakly_acked",
    "refused",
    "unknown",
    "unanswered",
    "answers_without_send",
    "repeated_sends",
    "acks_without_place",
    "lines_without_key",
    "unreadable_lines",
)


class UnreadableLedger(Exception):
    """The ledger proves nothing as it is. The text says which part and why."""


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
    topics: tuple[str, ...]
    runs: tuple[str, ...]
    producers: int
    #: last lines cut by a crash
    torn_lines: int


def ledger_files(path: str) -> list[str]:
    """The ledger files at `path`, a file or a folder that is searched all the way down; sorted.

    Raises: UnreadableLedger when there are none, or some that Spark passes over without a word.
    """
    root = Path(path)
    found = [root] if root.is_file() else sorted(root.rglob("*"))
    files = [file for file in found if file == root or (file.suffix in SUFFIXES and file.is_file())]
    if not files:
        raise UnreadableLedger(f"{path}: no ledger file ({', '.join('*' + s for s in SUFFIXES)}) there")
    for file in files:
        if file.name.startswith(("_", ".")):
            raise UnreadableLedger(f"{file}: Spark reads no file whose name begins with _ or . (rename it)")
    return [str(file) for file in files]


def read_sends(spark: Any, path: str) -> tuple[Any, Totals]:
    """(the sends as a cached DataFrame, their totals). The ledger has been read to its end when this returns.

    Registers the views `ledger_lines` and `sends`. Raises: UnreadableLedger.
    """
    files = ledger_files(path)
    torn = count_torn_lines(files)
    lines = (
        spark.read.schema(SCHEMA)
        .options(mode="PERMISSIVE", columnNameOfCorruptRecord="unreadable", lineSep="\n")
        .json([local_source(Path(file)) for file in files])
    )
    lines.createOrReplaceTempView("ledger_lines")
    sends = spark.sql(SENDS_SQL).cache()
    sends.createOrReplaceTempView("sends")
    return sends, totals_of(spark, torn)


def totals_of(spark: Any, torn_lines: int) -> Totals:
    """The totals of view `sends`, after its defects were looked for. Raises: UnreadableLedger."""
    rows = spark.sql(TOTALS_SQL).collect()
    sums = {name: sum(row[name] for row in rows) for name in _SUMS}
    if sums["unreadable_lines"] > torn_lines:
        found = spark.sql("SELECT kind, unreadable FROM ledger_lines WHERE unreadable IS NOT NULL").first()
        shown = "" if found is None else found.unreadable[:_SHOWN_CHARS]
        raise UnreadableLedger(
            f"{sums['unreadable_lines'] - torn_lines} lines that are no ledger lines, e.g. {shown!r}"
        )
    for name, what in (
        ("lines_without_key", "lines without run, producer, pseq or topic"),
        ("answers_without_send", "answers to sends that were never written down"),
        ("repeated_sends", "sends written down more than once: (run, producer, topic, pseq) must be unique"),
        ("acks_without_place", "acknowledgements without partition, offset or value_crc32c"),
    ):
        if sums[name]:
            raise UnreadableLedger(f"{sums[name]} {what}")
    written = [row for row in rows if row.sent]
    _check_names([(row.topic, row.producer, row.first_pseq, row.last_pseq, row.run) for row in written])
    return Totals(
        sent=sums["sent"],
        acked=sums["acked"],
        weakly_acked=sums["weakly_acked"],
        refused=sums["refused"],
        unanswered=sums["unanswered"],
        unknown=sums["unknown"],
        topics=tuple(sorted({row.topic for row in written})),
        runs=tuple(sorted({row.run for row in written})),
        producers=len({(row.run, row.producer) for row in written}),
        torn_lines=torn_lines,
    )


def _check_names(writers: list[tuple[str, str, int, int, str]]) -> None:
    """Values name (producer, pseq) but no run, so two runs must not share names in a topic. `writers` is
    [(topic, producer, first and last pseq, run)]. Raises: UnreadableLedger."""
    for before, after in pairwise(sorted(writers)):
        if before[:2] == after[:2] and after[2] <= before[3]:
            raise UnreadableLedger(
                f"producer {before[1]} has the same numbers in runs {before[4]} and {after[4]}, and values "
                "do not say their run: give producers other names, or each run a topic of its own"
            )


def count_torn_lines(files: list[str]) -> int:
    """How many of the files end in a line that was cut: no line end behind it, and no JSON object."""
    return sum(_ends_torn(file) for file in files)


def _ends_torn(file: str) -> bool:
    step = 4096
    with Path(file).open("rb") as opened:
        end = opened.seek(0, 2)
        tail = b""
        while end > 0 and b"\n" not in tail:
            start = max(0, end - step)
            opened.seek(start)
            tail = opened.read(end - start) + tail
            end = start
    last = tail.rpartition(b"\n")[2]
    if not last.strip():
        return False
    try:
        return not isinstance(json.loads(last), dict)
    except ValueError:
        return True
