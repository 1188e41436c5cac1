"""The swarm as a Spark job: the same rows as of processes, as Parquet."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.sim.campaign.rows import TIMES, SeedRow, read_rows
from holdfast.sim.campaign.spark_engine import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SEEDS = "0..5"
SMALL = ("--seconds", "2", "--voters", "1", "--partitions", "1", "--producers", "2", "--fault-gap-ms", "400")


def swarm(folder: Path, *engine: str) -> dict[str, object]:
    """Its summary; a process of its own, for the job ends its Spark session."""
    command = [sys.executable, "-m", "holdfast.cli", "sim", "swarm", "--seeds", SEEDS, "--dir", str(folder)]
    ran = subprocess.run(
        [*command, "--output", "json", *SMALL, *engine], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary: dict[str, object] = json.loads(ran.stdout)
    return summary


def test_both_engines_give_equal_rows_for_equal_seeds(tmp_path: Path) -> None:
    local, spark = tmp_path / "local", tmp_path / "by spark"
    sums = [swarm(local, "--jobs", "2"), swarm(spark, "--engine", "spark", "--master", "local[2]")]
    assert list(spark.glob("rows-0-5.parquet/*.parquet"))
    rows = [
        [
            {name: value for name, value in asdict(row).items() if name not in TIMES}
            for row in read_rows(folder)
        ]
        for folder in (local, spark)
    ]
    assert rows[0] == rows[1]
    assert [row["seed"] for row in rows[0]] == list(range(6))
    for name in ("seeds", "steps", "simulated_seconds", "faults", "marks", "acknowledged_batches"):
        assert sums[0][name] == sums[1][name]


def test_the_columns_are_those_of_a_row() -> None:
    assert tuple(column.split()[0] for column in SCHEMA.split(", ")) == SeedRow.__slots__
