"""Numbers of several runs: percentiles, medians, spread, and the correction for coordinated omission."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in ms."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of several runs."""

    median: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        digits = 0 if self.median >= 100 else 1 if self.median >= 10 else 2
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """The spread of one figure over all runs."""
    return Spread(median(values), min(values), max(values), len(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the ascending `ordered` do not exceed."""
    assert ordered
    return ordered[max(0, math.ceil(len(ordered) * share - 1e-9) - 1)]


def latency(samples_ms: Sequence[float]) -> Latency:
    """Percentiles of the samples."""
    ordered = sorted(samples_ms)
    return Latency(
        len(ordered),
        percentile(ordered, 0.50),
        percentile(ordered, 0.90),
        percentile(ordered, 0.99),
        percentile(ordered, 0.999),
        ordered[-1],
    )


def corrected(samples_ms: Sequence[float], interval_ms: float) -> list[float]:
    """Samples of a closed loop and those it left out: while one request took longer than `interval_ms`,
    others would have been waiting (HdrHistogram's correction for coordinated omission)."""
    assert interval_ms > 0
    everything = list(samples_ms)
    for sample in samples_ms:
        missing = sample - interval_ms
        while missing >= interval_ms:
            everything.append(missing)
            missing -= interval_ms
    return everything


def latency_spreads(runs: Sequence[Latency]) -> dict[str, Spread]:
    """Each percentile over all runs."""
    rows = [asdict(run) for run in runs]
    return {key: spread([row[key] for row in rows]) for key in rows[0] if key != "count"}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned first column, right-aligned others."""
    lines = [list(heads), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
