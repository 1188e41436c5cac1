"""The swarm as a Spark job: the same seeds spread over executors, one row for each as Parquet.

Owns the schema of the rows and their files. The one module of the simulator that may use pyspark and pyarrow
(D1); it is loaded only when somebody asks for Spark, or for rows that Spark wrote.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sim.rows import Row, from_mapping
from sim.story import Recipe
from sim.swarm import play_seed

_COUNTS = pa.map_(pa.string(), pa.int64())
SCHEMA = pa.schema(
    [
        ("seed", pa.int64()),
        ("band", pa.string()),
        ("mix", pa.string()),
        ("violated", pa.string()),
        ("violation", pa.string()),
        ("defect", pa.string()),
        ("trace_hash", pa.string()),
        ("steps", pa.int64()),
        ("changes", pa.int64()),
        ("simulated_seconds", pa.float64()),
        ("wall_seconds", pa.float64()),
        ("cpu_seconds", pa.float64()),
        ("acknowledged_batches", pa.int64()),
        ("faults", _COUNTS),
        ("marks", _COUNTS),
        ("allowed", _COUNTS),
    ]
)
#: seeds of a task: few, so that no executor is left alone with the last ones
_SEEDS_PER_TASK = 4


def play_seeds(recipe: Recipe, seeds: range, master: str, target: Path) -> list[Row]:
    """Play `seeds` on the executors of `master` and write their rows to the folder `target`, replacing it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from durability.session import start_session

    spark = start_session(master, "holdfast sim swarm")
    try:
        tasks = -(-len(seeds) // _SEEDS_PER_TASK)
        table = spark.range(seeds.start, seeds.stop, numPartitions=tasks)
        rows = table.mapInArrow(_player(recipe), from_arrow_schema(SCHEMA))
        rows.write.mode("overwrite").parquet(target.resolve().as_uri())
    finally:
        spark.stop()
    return sorted((from_mapping(row) for row in read_parquet(target)), key=lambda row: row.seed)


def _player(recipe: Recipe) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def play(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist([_as_columns(play_seed(recipe, seed))], schema=SCHEMA)

    return play


def _as_columns(row: Row) -> dict[str, Any]:
    return {name: list(v.items()) if isinstance(v, dict) else v for name, v in asdict(row).items()}


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """The rows of a file or folder, as mappings."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows
