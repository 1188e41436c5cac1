"""Plain values that a node reports about itself, so that cores need no metrics library.

Owns the shape only. Names and labels follow the Kafka metrics that people know; `runtime.telemetry` turns
these into the text of /metrics. Counters are given as their running total and end in `_total`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

#: (label, value) pairs in the order in which they are printed
Labels = tuple[tuple[str, str], ...]


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """Buckets as (upper bound inclusive, count of this bucket alone); the last bound is infinity."""

    buckets: tuple[tuple[float, int], ...]
    sum: float


@dataclass(frozen=True, slots=True)
class Sample:
    value: float | HistogramValue
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one name."""

    name: str
    kind: MetricKind
    help: str
    samples: Sequence[Sample] = ()

    def __post_init__(self) -> None:
        assert (self.kind is MetricKind.COUNTER) == self.name.endswith("_total"), (
            f"{self.name}: counters and only counters end in _total"
        )


class NodeTelemetry(Protocol):
    """What a node shows of itself to `runtime.telemetry`."""

    def is_ready(self) -> tuple[bool, str]:
        """Whether the node does its job, and a word why (not)."""

    def metrics(self) -> Iterable[MetricFamily]:
        """A snapshot. Runs on the event loop: cost per partition at most, never per record."""


def gauge(name: str, help: str, value: float) -> MetricFamily:
    """A gauge without labels."""
    return MetricFamily(name, MetricKind.GAUGE, help, (Sample(value),))


def counter(name: str, help: str, value: float) -> MetricFamily:
    """A counter without labels; `value` is the running total."""
    return MetricFamily(name, MetricKind.COUNTER, help, (Sample(value),))


class Histogram:
    """Counts observations in fixed buckets; cheap enough for one `observe` a request."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), "bucket bounds must ascend"
        self._bounds = (*bounds, float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` in the first bucket whose bound is not below it, as if it came so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def value(self) -> HistogramValue:
        """A copy of what was counted so far."""
        return HistogramValue(tuple(zip(self._bounds, self._counts, strict=True)), self._sum)
