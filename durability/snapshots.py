"""Snapshots: what a cluster served and what its replicas held, as Parquet, to be judged when it is gone.

Taken with the readers of our data sources, in this process; judged many at once, by the rules of
`durability.rules` over one session. Each snapshot is of one topic whose name no other snapshot has.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.durability.arrow import Columns
from holdfast.durability.beside_verdict import with_times
from holdfast.durability.cluster_look import look
from holdfast.durability.flushed import Flushed
from holdfast.durability.judge import (
    FLUSHED_SCHEMA,
    MARKS_SCHEMA,
    MEMBERS_SCHEMA,
    NOTHING_COMPARED,
    judge,
    notes_of,
    replicas_in_doubt,
    sample_of,
    short_notes,
)
from holdfast.durability.ledger import Totals, read_sends
from holdfast.durability.ledger_files import UnreadableLedger, doubts_of_files, poll_files
from holdfast.durability.ledger_source import sizes_of
from holdfast.durability.log_dir_files import high_watermarks
from holdfast.durability.polls import read_all_polls
from holdfast.durability.power_cuts import OPEN_COLUMNS, OpenRow, Replica, must_be_whole, surely_in_sync
from holdfast.durability.read_options import parse_options
from holdfast.durability.rules import COMPARED_BY_TOPIC_SQL, findings_sql
from holdfast.durability.scale import MUCH
from holdfast.durability.segment_source import BATCH_SCHEMA, arrow_schema, folder_rows
from holdfast.durability.segments import ReplicaFolder, parse_log_dirs, replica_folders
from holdfast.durability.session import local_source
from holdfast.durability.source import plan_ranges, read_range
from holdfast.durability.verdict import SAMPLES_MAX, Verdict, inconclusive, of_a_part_of_the_ledger

LOG_SCHEMA = (
    "topic string, partition int, offset long, state string, producer string, pseq long, value_crc32c long, "
    "batch_crc32c long"
)
_SERVED, _BATCHES, _MARKS = "served.parquet", "batches.parquet", "marks.json"
#: What the last of them says in rows.
_TABLES = ("marks", "flushed", "members")
#: Brokers write high watermarks every 5 s, the first ones later than that, and on a busy machine later still.
_MARKS_S, _PAUSE_S = 30.0, 0.1

_TOTALS_SQL = """
SELECT s.topic, count(*) AS sent, count_if(s.acked) AS acked, count_if(s.weakly_acked) AS weakly_acked,
       count_if(s.acked AND l.offset IS NOT NULL) AS ok,
       count_if(NOT (s.acked OR s.weakly_acked OR s.refused)) AS unknown,
       count(s.timestamp_ms) AS with_fields
FROM sends s LEFT JOIN log l
  ON s.producer = l.producer AND s.pseq = l.pseq AND s.topic = l.topic AND s.partition = l.partition
     AND s.offset = l.offset AND s.value_crc32c = l.value_crc32c
WHERE s.pseq IS NOT NULL
GROUP BY s.topic
"""


def take(
    bootstrap_servers: str, topic: str, log_dirs: Mapping[int, str], folder: Path, timeout_ms: int = 60_000
) -> int:
    """Write everything that the cluster serves of the topic, and its replicas' batches; how many records.

    `log_dirs` is {broker id: log dir}. Raises: client.core.errors.ClientError, OSError.
    """
    folder.mkdir(parents=True)
    options = parse_options(
        {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": topic,
            "kafkaConsumer.pollTimeoutMs": str(timeout_ms),
        }
    )
    columns = Columns(parsed=True, only=tuple(arrow_schema(LOG_SCHEMA).names))
    ranges = plan_ranges(options)
    served = [
        pa.Table.from_batches([batch]) for wanted in ranges for batch in read_range(options, wanted, columns)
    ]
    table = pa.concat_tables(served) if served else arrow_schema(LOG_SCHEMA).empty_table()
    pq.write_table(table, folder / _SERVED)
    named = ",".join(f"{broker}={path}" for broker, path in sorted(log_dirs.items()))
    paths = parse_log_dirs(named) if named else {}
    replicas = replica_folders(paths, frozenset((topic,)))
    before = [Flushed.of(replica) for replica in replicas]
    at_first = _in_sync(bootstrap_servers, topic, log_dirs, timeout_ms)
    batches = _batches(replicas)
    pq.write_table(batches, folder / _BATCHES)
    flushed = [one.still().row for one in before]
    in_sync = _in_sync(bootstrap_servers, topic, log_dirs, timeout_ms)
    filled = {wanted.partition for wanted in ranges if wanted.end > 0}
    marks = _marks(topic, log_dirs, [(broker, index) for broker, _, index in in_sync if index in filled])
    odd = batches.filter(pc.is_null(batches["damaged"])).select(OPEN_COLUMNS).to_pylist()
    surely_so = surely_in_sync(
        set(in_sync).intersection(at_first),
        [OpenRow(**row) for row in odd],
        must_be_whole(marks["marks"], flushed),
        {(one.broker, one.topic, one.partition): one.path for one in replicas},
        lambda: _in_sync(bootstrap_servers, topic, log_dirs, timeout_ms),
    )
    members = [(*replica, replica in surely_so) for replica in in_sync]
    said = marks | {"flushed": flushed, "members": members}
    (folder / _MARKS).write_text(json.dumps(said), encoding="utf-8")
    return int(table.num_rows)


def _batches(replicas: Sequence[ReplicaFolder]) -> pa.Table:
    schema = arrow_schema(BATCH_SCHEMA)
    rows = [row for replica in replicas for row in folder_rows(replica, by_batch=True)]
    cells = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(cells, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _in_sync(bootstrap_servers: str, topic: str, log_dirs: Collection[int], timeout_ms: int) -> list[Replica]:
    """Replicas in the ISR now, of brokers whose log dirs are known."""
    return [
        (broker, topic, index)
        for index, partition in look(bootstrap_servers, (topic,), timeout_ms)[topic].partitions.items()
        for broker in partition.isr
        if broker in log_dirs
    ]


def _marks(topic: str, log_dirs: Mapping[int, str], in_sync: Collection[tuple[int, int]]) -> dict[str, Any]:
    """Stored high watermarks, and doubts about the replicas in sync, (broker, partition), that have none
    after a while; whether they were asked for at all."""
    deadline = time.monotonic() + _MARKS_S
    while True:
        stored = {broker: high_watermarks(path) for broker, path in sorted(log_dirs.items())}
        missing = [
            (broker, index) for broker, index in in_sync if not (stored[broker] or {}).get((topic, index))
        ]
        if not missing or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    marks = [
        (broker, name, partition, mark)
        for broker, of_broker in stored.items()
        for (name, partition), mark in sorted((of_broker or {}).items())
        if name == topic
    ]
    doubts = [
        f"broker {broker} has stored no high watermark of {topic}-{index}: its replica was not compared"
        for broker, index in missing
    ]
    return {"topic": topic, "brokers": list(stored), "marks": marks, "doubts": doubts}


def sizes(folder: Path) -> tuple[int, int]:
    """Numbers of served records and of replicas' batches in a snapshot."""
    served, batches = (pq.read_metadata(folder / name).num_rows for name in (_SERVED, _BATCHES))
    return served, batches


def judge_all(spark: Any, ledger: Path, folders: Sequence[Path]) -> dict[str, Verdict]:
    """The verdict on each topic of the ledger, each with the doubts and notes about its own replicas. The
    view `violations` is there afterwards."""
    try:
        files = poll_files(str(ledger))
        sends, totals = read_sends(spark, str(ledger))
        polls = read_all_polls(spark, MUCH, sizes_of(files), totals)
    except UnreadableLedger as error:
        return {"": inconclusive(f"ledger: {error}")}
    log = spark.read.schema(LOG_SCHEMA).parquet(*[local_source(folder / _SERVED) for folder in folders])
    batches = spark.read.schema(BATCH_SCHEMA).parquet(
        *[local_source(folder / _BATCHES) for folder in folders]
    )
    looks = {topic: found for folder in folders for topic, found in _read_marks(folder).items()}
    marks, flushed, members = (
        [tuple(row) for found in looks.values() for row in found[name]] for name in _TABLES
    )
    judge(
        spark,
        sends,
        log,
        totals,
        replica=batches.cache(),
        marks=spark.createDataFrame(marks, MARKS_SCHEMA),
        flushed=spark.createDataFrame(flushed, FLUSHED_SCHEMA),
        members=spark.createDataFrame(members, MEMBERS_SCHEMA),
        partitions=len(folders),
        polls=polls,
    )
    verdicts = _by_topic(spark, totals, () if polls is None else polls.notes)
    for topic, found in looks.items():
        verdict = verdicts.get(topic, inconclusive("the ledger has no send to the topic"))
        verdicts[topic] = replace(verdict, doubts=(*verdict.doubts, *found["doubts"]))
    verdicts = _with_replicas(spark, verdicts, {topic for topic, found in looks.items() if found["brokers"]})
    verdicts = {topic: with_times(spark, verdict) for topic, verdict in verdicts.items()}
    doubts = doubts_of_files(str(ledger))
    if not doubts:
        return verdicts
    return {
        topic: of_a_part_of_the_ledger(replace(verdict, doubts=(*verdict.doubts, *doubts)))
        for topic, verdict in verdicts.items()
    }


def _read_marks(folder: Path) -> dict[str, dict[str, Any]]:
    """{topic: what its marks say}. A snapshot of an earlier build does not say what was flushed and who was
    in sync: that proves less, and the topic is in doubt."""
    found = json.loads((folder / _MARKS).read_text(encoding="utf-8"))
    missing = [name for name in _TABLES if name not in found]
    if missing and found["brokers"]:
        found["doubts"].append(f"an earlier build took the snapshot, without {' and '.join(missing)}")
    return {found["topic"]: dict.fromkeys(missing, ()) | found}


def _by_topic(spark: Any, totals: Totals, notes: tuple[str, ...]) -> dict[str, Verdict]:
    """`notes`: about all topics."""
    counts: dict[str, dict[str, int]] = {}
    samples: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in spark.sql(findings_sql(SAMPLES_MAX, "topic, class")).collect():
        counts.setdefault(row.topic, {})[row["class"]] = row.total
        samples.setdefault(row.topic, {}).setdefault(row["class"], []).append(sample_of(row))
    verdicts = {}
    for row in spark.sql(_TOTALS_SQL).collect():
        if row.acked == 0:
            verdicts[row.topic] = inconclusive("no send was acknowledged (acks=all): nothing to check")
            continue
        of_topic = replace(
            totals, sent=row.sent, unknown=row.unknown, unanswered=0, with_fields=row.with_fields
        )
        verdicts[row.topic] = Verdict(
            counts=counts.get(row.topic, {}),
            samples=samples.get(row.topic, {}),
            facts={name: row[name] for name in ("sent", "acked", "ok", "weakly_acked")},
            notes=(*notes_of(of_topic), *notes),
        )
    return verdicts


def _with_replicas(
    spark: Any, verdicts: Mapping[str, Verdict], topics: Collection[str]
) -> dict[str, Verdict]:
    """What was compared of the replicas of `topics`, of which there were log dirs."""
    compared = {row.topic: row for row in spark.sql(COMPARED_BY_TOPIC_SQL).collect()}
    found = dict(verdicts)
    for topic in topics:
        row, verdict = compared.get(topic), verdicts[topic]
        if row is None or row.compared == 0:
            found[topic] = replace(verdict, doubts=(*verdict.doubts, NOTHING_COMPARED))
        if row is not None:
            found[topic] = replace(
                found[topic],
                notes=(*short_notes(row.short), *verdict.notes),
                doubts=(*found[topic].doubts, *replicas_in_doubt(row)),
            )
    return found
