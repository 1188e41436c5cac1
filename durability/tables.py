"""The tables behind a verdict as Parquet (`holdfast validate --tables DIR`): one folder a table, partitioned
by `run` and `tp`, for queries of your own.

- `run` is the ledger's; of what is no send and no poll, all runs that were judged, separated by commas.
- `tp` is TOPIC-PARTITION.
- `sends`: one row a send, with its answer. `outcome`: ok (acks=all), ok1 (acks=1 or 0), info (no definite
  answer), fail (refused), NULL (no answer). Times are monotonic nanoseconds of the producer's machine.
- `final`: one row a record that the cluster served. `state`: good, damaged, foreign (no value of a ledger).
- `replicas`: one row a batch in a replica's segment files (with `--log-dirs`), what cannot be read with a
  `problem`.
- `meta`: one row a replica: its checkpointed high watermark, and whether the metadata had it in the ISR.
- `polls`: one row a record that a consumer was given (`durability.poll_files`), without `producer` and `pseq`
  when its value is none of a ledger. In one session records come in the order of `line` and `nth`. `t1` is in
  monotonic nanoseconds of the consumer's machine; `high_watermark` that of the answer, -1 or NULL: not known.
- `events`: one row a leader epoch: leader, ISR at first and at last, whether the election was unclean, why.
- `anomalies`: all rows that break a rule, with `class`; counts are those of the verdict.

A table without rows is a folder without files.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.durability.loss_story import Election
from holdfast.durability.session import local_path

#: Columns of each table, in front of `run` and `tp`.
SCHEMAS = {
    "sends": (
        "producer string, pseq long, acks int, outcome string, offset long, leader_epoch int, t0 long, "
        "t1 long, value_crc32c long, timestamp_ms long, key_crc32c long, headers_crc32c long"
    ),
    "final": (
        "offset long, state string, producer string, pseq long, value_crc32c long, timestamp_ms long, "
        "key_crc32c long, headers_crc32c long"
    ),
    "replicas": (
        "broker int, base_offset long, last_offset long, leader_epoch int, crc long, crc_ok boolean, "
        "damaged boolean, records int, segment string, position long, problem string"
    ),
    "meta": "broker int, high_watermark long, is_in_sync boolean",
    "polls": (
        "consumer string, session string, poll long, line long, nth int, offset long, leader_epoch int, "
        "high_watermark long, t1 long, producer string, pseq long, value_crc32c long"
    ),
    "events": (
        "leader_epoch int, leader int, first_isr array<int>, last_isr array<int>, is_unclean boolean, "
        "timestamp_ms long, cause string"
    ),
    "anomalies": (
        "class string, offset long, producer string, pseq long, detail string, broker int, segment string, "
        "position long"
    ),
}
_OUTCOMES = "element_at(array('ok', 'ok1', 'info', 'fail'), outcome)"
_TP = "concat(topic, '-', partition)"
_EVENTS = f"topic string, partition int, {SCHEMAS['events']}"


def write_tables(
    spark: Any, folder: Path, runs: Iterable[str], elections: Mapping[tuple[str, int], Iterable[Election]]
) -> None:
    """Write the views of the verdict that was just made, in place of what an earlier one has written there.
    `elections`: all leader epochs of each partition. Raises: what Spark raises."""
    all_runs = ",".join(sorted(runs))
    events = [
        (
            *place,
            *(one.leader_epoch, one.leader, list(one.first_isr), list(one.last_isr)),
            *(one.is_unclean, one.timestamp_ms, one.cause),
        )
        for place, found in sorted(elections.items())
        for one in found
    ]
    meta = spark.table("marks").join(spark.table("members"), ["broker", "topic", "partition"], "full_outer")
    sources = {
        "sends": spark.table("sends"),
        "final": spark.table("log"),
        "replicas": spark.table("replica"),
        "meta": meta,
        "polls": spark.table("polls"),
        "events": spark.createDataFrame(events, _EVENTS),
        "anomalies": spark.table("violations"),
    }
    for name, frame in sources.items():
        columns = [item.split()[0] for item in SCHEMAS[name].split(", ")]
        chosen = [f"{_OUTCOMES} AS outcome" if column == "outcome" else column for column in columns]
        run = "run" if name in ("sends", "polls") else f"'{all_runs}' AS run"
        made = frame.selectExpr(*chosen, run, f"{_TP} AS tp")
        made.repartition("run", "tp").write.mode("overwrite").partitionBy("run", "tp").parquet(
            local_path(folder / name)
        )
