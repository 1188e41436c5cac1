"""What consumers were given as a table, and what makes it no proof.

Its files are looked at before the ledger is read and the logs' ends are asked for: what was polled was sent
before, and lies below these ends. The rules are in `durability.rules`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.durability.cluster_look import TopicLook
from holdfast.durability.ledger import Totals
from holdfast.durability.ledger_files import UnreadableLedger, why_made_again
from holdfast.durability.poll_files import POLL_SCHEMA, read_polls
from holdfast.durability.poll_lines import CUT, PROBLEM
from holdfast.durability.scale import Little, Scale
from holdfast.durability.segment_source import arrow_schema

_SHOWN_MAX = 5
_REMARKS_SQL = f"""
SELECT remark, count(*) AS total,
       slice(array_sort(collect_list(struct(file, line, text))), 1, {_SHOWN_MAX}) AS said
FROM all_polls WHERE remark IS NOT NULL GROUP BY remark
"""
_TOPICS_SQL = """
SELECT run, topic, topic_id, count(*) AS records, max(partition) AS partition,
       max_by(struct(file, line), partition) AS place, min(struct(file, line)) AS first
FROM all_polls WHERE remark IS NULL GROUP BY run, topic, topic_id ORDER BY first
"""
_SESSIONS_SQL = """
SELECT run, consumer, session, min(file) AS first, max(file) AS last
FROM all_polls WHERE remark IS NULL GROUP BY run, consumer, session ORDER BY run, consumer, session
"""


@dataclass(frozen=True, slots=True)
class Polls:
    """What consumers were given, ready for the rules."""

    #: view `polls` of durability.rules.rule
    table: Any
    records: int
    consumers: int
    notes: tuple[str, ...] = ()


def read_all_polls(
    spark: Any,
    scale: Scale,
    sizes: Mapping[str, int],
    totals: Totals,
    topics: Mapping[str, TopicLook] | None = None,
) -> Polls | None:
    """What the files say that were {file: bytes} long; None when there are none. `totals` are the ledger's,
    `topics` what the cluster says of its topics; None: it is gone. Raises: UnreadableLedger."""
    if not sizes:
        return None
    read = scale.kept(_all_rows(spark, scale, sizes))
    read.createOrReplaceTempView("all_polls")
    remarks = {row.remark: row for row in spark.sql(_REMARKS_SQL).collect()}
    if PROBLEM in remarks:
        shown = "; ".join(one.text for one in remarks[PROBLEM].said)
        raise UnreadableLedger(f"{remarks[PROBLEM].total} lines that are none of polls: {shown}")
    found = spark.sql(_TOPICS_SQL).collect()
    for row in found:
        _check_topic(row, totals, topics)
    sessions = spark.sql(_SESSIONS_SQL).collect()
    for row in sessions:
        if row.first != row.last:
            raise UnreadableLedger(
                f"session {row.session} of consumer {row.consumer} is in {row.first} and in {row.last}"
            )
    return Polls(
        read.where("remark IS NULL"),
        sum(row.records for row in found),
        len({(row.run, row.consumer) for row in sessions}),
        (f"{remarks[CUT].total} files of polls end in a cut line",) if CUT in remarks else (),
    )


def _all_rows(spark: Any, scale: Scale, sizes: Mapping[str, int]) -> Any:
    if not isinstance(scale, Little):
        return spark.read.format("holdfast.polls").option("sizes", json.dumps(dict(sizes))).load()
    schema = arrow_schema(POLL_SCHEMA)
    batches = [batch for path, size in sizes.items() for batch in read_polls(path, size, schema)]
    return scale.table(spark, pa.Table.from_batches(batches, schema=schema))


def _check_topic(row: Any, totals: Totals, topics: Mapping[str, TopicLook] | None) -> None:
    """Polls are of the ledger's runs and topics, and of partitions that there are.

    Raises: UnreadableLedger."""
    first = f"{row.first.file}, line {row.first.line}"
    if row.run not in totals.runs:
        raise UnreadableLedger(f"{first}: polls of run {row.run}, of which there is no send")
    if row.topic not in totals.topics:
        raise UnreadableLedger(f"{first}: polls of topic {row.topic}, of which there is no send")
    if topics is None:
        return
    look = topics[row.topic]
    if row.topic_id not in (None, look.topic_id):
        raise UnreadableLedger(f"{first}: {why_made_again(row.topic, [row.topic_id], look.topic_id)}")
    if row.partition >= len(look.partitions):
        raise UnreadableLedger(
            f"{row.place.file}, line {row.place.line}: a poll of {row.topic}-{row.partition}, which has "
            f"{len(look.partitions)} partitions"
        )
