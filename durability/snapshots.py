"""Snapshots: what a cluster served and what its replicas held, as Parquet, to be judged when it is gone.

Taken with the readers of our data sources, in this process; judged many at once, by the rules of
`durability.rules` over one session. Each snapshot is of one topic whose name no other snapshot has.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.durability.arrow import Columns
from holdfast.durability.judge import MARKS_SCHEMA, judge
from holdfast.durability.ledger import Totals, read_sends
from holdfast.durability.ledger_files import UnreadableLedger, poll_files
from holdfast.durability.ledger_source import sizes_of
from holdfast.durability.polls import read_all_polls
from holdfast.durability.read_options import parse_options
from holdfast.durability.scale import MUCH
from holdfast.durability.segment_source import BATCH_SCHEMA, arrow_schema, folder_rows
from holdfast.durability.segments import high_watermarks, parse_log_dirs, replica_folders
from holdfast.durability.session import local_source
from holdfast.durability.source import plan_ranges, read_range
from holdfast.durability.verdict import Verdict, inconclusive

LOG_SCHEMA = (
    "topic string, partition int, offset long, state string, producer string, pseq long, value_crc32c long, "
    "batch_crc32c long"
)
_SERVED, _BATCHES, _MARKS = "served.parquet", "batches.parquet", "marks.json"

_TOTALS_SQL = """
SELECT s.topic, count(*) AS sent, count_if(s.acked) AS acked, count_if(s.weakly_acked) AS weakly_acked,
       count_if(s.acked AND l.offset IS NOT NULL) AS ok
FROM sends s LEFT JOIN log l
  ON s.producer = l.producer AND s.pseq = l.pseq AND s.topic = l.topic AND s.partition = l.partition
     AND s.offset = l.offset AND s.value_crc32c = l.value_crc32c
WHERE s.pseq IS NOT NULL
GROUP BY s.topic
"""
_COUNTS_SQL = "SELECT topic, class, count(*) AS total FROM violations GROUP BY topic, class"


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
    served = [
        pa.Table.from_batches([batch])
        for wanted in plan_ranges(options)
        for batch in read_range(options, wanted, columns)
    ]
    table = pa.concat_tables(served) if served else arrow_schema(LOG_SCHEMA).empty_table()
    pq.write_table(table, folder / _SERVED)
    schema = arrow_schema(BATCH_SCHEMA)
    paths = parse_log_dirs(",".join(f"{broker}={path}" for broker, path in sorted(log_dirs.items())))
    rows = [
        row
        for replica in replica_folders(paths, frozenset((topic,)))
        for row in folder_rows(replica, by_batch=True)
    ]
    cells = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(cells, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / _BATCHES)
    marks = [
        (broker, name, partition, mark)
        for broker, path in sorted(log_dirs.items())
        for (name, partition), mark in sorted((high_watermarks(path) or {}).items())
        if name == topic
    ]
    (folder / _MARKS).write_text(json.dumps(marks), encoding="utf-8")
    return int(table.num_rows)


def sizes(folder: Path) -> tuple[int, int]:
    """Numbers of served records and of replicas' batches in a snapshot."""
    served, batches = (pq.read_metadata(folder / name).num_rows for name in (_SERVED, _BATCHES))
    return served, batches


def judge_all(spark: Any, ledger: Path, folders: Sequence[Path]) -> dict[str, Verdict]:
    """The verdict on each topic of the ledger. The view `violations` is there afterwards."""
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
    marks = [tuple(row) for folder in folders for row in json.loads((folder / _MARKS).read_text())]
    judge(
        spark,
        sends,
        log,
        totals,
        replica=batches.cache(),
        marks=spark.createDataFrame(marks, MARKS_SCHEMA),
        partitions=len(folders),
        polls=polls,
    )
    return _by_topic(spark, totals)


def _by_topic(spark: Any, totals: Totals) -> dict[str, Verdict]:
    counts: dict[str, dict[str, int]] = {topic: {} for topic in totals.topics}
    for row in spark.sql(_COUNTS_SQL).collect():
        counts.setdefault(row.topic, {})[row["class"]] = row.total
    verdicts = {}
    for row in spark.sql(_TOTALS_SQL).collect():
        if row.acked == 0:
            verdicts[row.topic] = inconclusive("no send was acknowledged (acks=all): nothing to check")
            continue
        facts = {name: row[name] for name in ("sent", "acked", "ok", "weakly_acked")}
        verdicts[row.topic] = Verdict(counts=counts[row.topic], samples={}, facts=facts)
    return verdicts
