"""What is kept of each seed of a swarm: one row, the same on every machine, and what rows amount to.

Owns the columns, their text and their sums. Only the seconds of the clock and of the processor differ between
two plays of a seed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import fsum
from pathlib import Path
from typing import Any

from holdfast.sim.campaign.artifact import name_of
from holdfast.sim.campaign.run import RunResult
from holdfast.sim.campaign.run_spec import RunSpec

#: columns that differ between two plays of a seed
TIMES = ("wall_seconds", "cpu_seconds")


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One seed."""

    seed: int
    band: str
    mix: str
    #: name of the property that was violated
    violated: str | None
    violation: str | None
    #: where a second play of the same seed parted from the first: a defect of the simulator
    defect: str | None
    trace_hash: str
    #: handles that ran
    steps: int
    #: steps after which properties were checked
    changes: int
    simulated_seconds: float
    wall_seconds: float
    cpu_seconds: float
    acknowledged_batches: int
    #: different states of a partition that were seen, numbers left out
    fingerprints: int
    #: by name, so often played
    faults: dict[str, int] = field(default_factory=dict)
    #: rare states, so often met; zeros too
    marks: dict[str, int] = field(default_factory=dict)
    #: losses that a rule allows in this band, by the rule
    allowed: dict[str, int] = field(default_factory=dict)

    @property
    def is_failing(self) -> bool:
        """A developer must look at it."""
        return self.violation is not None or self.defect is not None

    @property
    def is_broken(self) -> bool:
        """The simulator itself came to grief: there is no run to look at."""
        return not self.trace_hash


def broken_row(seed: int, spec: RunSpec, defect: str) -> SeedRow:
    """The row of a run that the simulator could not play to its end."""
    return SeedRow(seed, spec.band, spec.mix, None, None, defect, "", 0, 0, 0.0, 0.0, 0.0, 0, 0)


def row_of(
    seed: int, spec: RunSpec, result: RunResult, defect: str | None, wall_seconds: float, cpu_seconds: float
) -> SeedRow:
    """The row of a run that just ended."""
    return SeedRow(
        seed=seed,
        band=spec.band,
        mix=spec.mix,
        violated=name_of(result.violation),
        violation=result.violation,
        defect=defect,
        trace_hash=result.trace_hash,
        steps=result.handles,
        changes=result.changes,
        simulated_seconds=round(result.simulated_seconds, 3),
        wall_seconds=round(wall_seconds, 3),
        cpu_seconds=round(cpu_seconds, 3),
        acknowledged_batches=result.acknowledged_batches,
        fingerprints=result.fingerprints,
        faults=dict(sorted(result.faults.items())),
        marks=dict(sorted(result.marks.items())),
        allowed=dict(sorted(result.allowed.items())),
    )


def to_line(row: SeedRow) -> str:
    """One line of JSON."""
    return json.dumps(asdict(row), separators=(",", ":"))


def from_mapping(row: dict[str, Any]) -> SeedRow:
    """Columns that later versions add are left out. Raises: KeyError, TypeError."""
    names = [field.name for field in fields(SeedRow)]
    made = {name: row[name] for name in names}
    for name in ("faults", "marks", "allowed"):
        made[name] = dict(sorted(dict(made[name] or {}).items()))
    return SeedRow(**made)


class BadRows(Exception):
    """A folder without rows, or with rows of another version. The text says which."""


def read_rows(folder: Path) -> list[SeedRow]:
    """All rows in `rows*.jsonl` and `rows*.parquet`, by seed. Raises: BadRows."""
    rows: list[SeedRow] = []
    try:
        for path in sorted(folder.glob("rows*.jsonl")):
            rows += [from_mapping(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        tables = sorted(folder.glob("rows*.parquet"))
        if tables:
            from holdfast.sim.campaign.spark_engine import (
                read_parquet,  # the one module that may use its libraries (D1)
            )

            rows += [from_mapping(row) for table in tables for row in read_parquet(table)]
    except (KeyError, TypeError, ValueError) as error:
        raise BadRows(f"{folder} has rows of another version: {error!r}") from error
    if not rows:
        raise BadRows(f"{folder} has no rows*.jsonl and no rows*.parquet")
    return sorted(rows, key=lambda row: row.seed)


def sums(rows: Sequence[SeedRow]) -> dict[str, Any]:
    """What many seeds amount to; the summary that is kept."""
    violations: dict[str, list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.seed):
        if row.violated is not None:
            violations[row.violated].append(row.seed)
    return _with_rates(
        {
            "seeds": len(rows),
            "seed_ranges": ranges_of(row.seed for row in rows),
            "violations": violations,
            "defects": sorted(row.seed for row in rows if row.defect is not None),
            "bands": Counter(row.band for row in rows),
            "mixes": Counter(row.mix for row in rows),
            "steps": sum(row.steps for row in rows),
            "changes": sum(row.changes for row in rows),
            "simulated_seconds": fsum(row.simulated_seconds for row in rows),
            "wall_seconds": fsum(row.wall_seconds for row in rows),
            "cpu_seconds": fsum(row.cpu_seconds for row in rows),
            "acknowledged_batches": sum(row.acknowledged_batches for row in rows),
            "faults": _added(row.faults for row in rows),
            "allowed": _added(row.allowed for row in rows),
            "marks": _added(row.marks for row in rows),
        }
    )


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of two sets of seeds that have none in common."""
    total: dict[str, Any] = {}
    for name, value in one.items():
        if name == "seed_ranges":
            total[name] = ranges_of(_seeds_in(value) | _seeds_in(other[name]))
        elif isinstance(value, dict):
            total[name] = {key: value[key] for key in value.keys() - other[name].keys()}
            total[name] |= {
                key: value[key] + more if key in value else more for key, more in other[name].items()
            }
        elif isinstance(value, (int, float, list)):
            total[name] = value + other[name]
        else:
            assert value == other[name], f"{name} differs: {value} and {other[name]}"
            total[name] = value
    return _with_rates(total)


def shared_seeds(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[int]:
    """Seeds that are in both sums."""
    return _seeds_in(one["seed_ranges"]) & _seeds_in(other["seed_ranges"])


def ranges_of(seeds: Iterable[int]) -> list[list[int]]:
    """[first, last] of each stretch of seeds without a gap."""
    ranges: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if ranges and ranges[-1][1] == seed - 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ranges


def _seeds_in(ranges: Iterable[Sequence[int]]) -> set[int]:
    return {seed for first, last in ranges for seed in range(first, last + 1)}


def _with_rates(total: dict[str, Any]) -> dict[str, Any]:
    """The sums in a fixed order, with what follows from them."""
    seconds, cpu = total["simulated_seconds"], total["cpu_seconds"]
    sorted_sums = {
        name: dict(sorted(value.items())) if isinstance(value, dict) else value
        for name, value in total.items()
    }
    return {
        **sorted_sums,
        "violations": {name: sorted(seeds) for name, seeds in sorted(total["violations"].items())},
        "defects": sorted(total["defects"]),
        "simulated_seconds": round(seconds, 1),
        "wall_seconds": round(total["wall_seconds"], 1),
        "cpu_seconds": round(cpu, 1),
        "simulated_seconds_per_cpu_second": _rate(seconds, cpu),
        "seeds_per_cpu_minute": _rate(60 * total["seeds"], cpu),
        "batches_per_simulated_second": _rate(total["acknowledged_batches"], seconds),
        "faults_per_simulated_second": _rate(sum(total["faults"].values()), seconds),
        "marks_never_met": sorted(name for name, count in total["marks"].items() if not count),
    }


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for some in counts:
        for name, count in some.items():
            total[name] = total.get(name, 0) + count
    return total


def _rate(count: float, of: float) -> float:
    return round(count / of, 2) if of else 0.0
