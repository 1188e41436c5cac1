"""The swarm as a Spark job: the same seeds spread over executors, one row for each as Parquet.

Owns the schema of the rows and their files. The one module of the simulator that may use pyspark and pyarrow
(D1); it is loaded only when the user asks for Spark, or for rows that Spark wrote.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.sim.campaign.rows import SeedRow, from_mapping
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.campaign.swarm import play_seeds as play_seeds_here

#: the columns of a row, as Spark spells them
SCHEMA = (
    "seed bigint, band string, mix string, violated string, violation string, defect string, "
    "trace_hash string, steps bigint, changes bigint, simulated_seconds double, wall_seconds double, "
    "cpu_seconds double, acknowledged_batches bigint, fingerprints bigint, faults map<string,bigint>, "
    "marks map<string,bigint>, allowed map<string,bigint>"
)
#: seeds of a task: few, so that no executor is left alone with the last ones
_SEEDS_PER_TASK = 4


def play_seeds(template: RunTemplate, seeds: Sequence[int], master: str, target: Path) -> list[SeedRow]:
    """Play `seeds` on the executors of `master` and write their rows to the folder `target`, replacing it."""
    from holdfast.durability.session import local_path, start_session

    spark = start_session(master, "holdfast sim swarm")
    try:
        tasks = -(-len(seeds) // _SEEDS_PER_TASK)
        # Each in a process of its own: a seed that ends it, or takes too long, costs its own row only.
        rows = spark.sparkContext.parallelize(seeds, tasks).mapPartitions(
            lambda some: map(_columns, play_seeds_here(template, some, jobs=1))
        )
        table = spark.createDataFrame(rows, SCHEMA, verifySchema=False)
        table.write.mode("overwrite").parquet(local_path(target))
    finally:
        spark.stop()
    return sorted((from_mapping(row) for row in read_parquet(target)), key=lambda row: row.seed)


def _columns(row: SeedRow) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in SeedRow.__slots__)


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """The rows of a file or folder, as mappings."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows
