"""Plain values that a node reports about itself, so that cores need no metrics library.

Owns the shape only. Names and labels follow the Kafka metrics that people know; `runtime.http.telemetry`
turns these into the text of /metrics. Counters are given as their running total and end in `_total`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeAlias, overload

#: (label, value) pairs in the order in which they are printed
Labels = tuple[tuple[str, str], ...]


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Level(Enum):
    """How loud a line of the log is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A sentence for the log of the node or the tool."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """Buckets as (upper bound inclusive, count of this bucket alone); the last bound is infinity."""

    buckets: tuple[tuple[float, int], ...]
    sum: float


@dataclass(frozen=True, slots=True)
class Sample:
    value: float | HistogramValue
    labels: Labels = ()


class LazySamples(Sequence[Sample]):
    """Samples that are made while they are read, each time anew: where there is one for each partition, so
    that their reader can give others their turn in between."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Iterator[Sample]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Sample]:
        return self._make()

    def __len__(self) -> int:
        return sum(1 for _ in self._make())

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return tuple(self._make())[index]


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


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Answer to a question over HTTP: its status, and a body of plain values for JSON."""

    status: int
    body: dict[str, Any]


#: Works an answer out in small pieces: others have their turn at each `yield`.
Steps: TypeAlias = Generator[None, None, HttpReply]


@dataclass(frozen=True, slots=True)
class BoardEvent:
    """One server-sent event of /v1/events; a page may resume after one that has an offset."""

    kind: str
    body: dict[str, Any]
    offset: int | None = None


class BoardWatch(Protocol):
    """What one watching page has been shown."""

    def news(self) -> Iterator[BoardEvent | None]:
        """The events since the last call, in small pieces: others have their turn at each None."""


class NodeTelemetry(Protocol):
    """What a node shows of itself to `runtime.http.telemetry`."""

    def is_ready(self) -> tuple[bool, str]:
        """Whether the node does its job, and a word why (not)."""

    def metrics(self) -> Iterable[MetricFamily]:
        """As of now; what is taken later may be of later. Runs on the event loop, which has turns between two
        families: cost per partition at most, never per record."""

    def inspect(self, path: str, query: Sequence[tuple[str, str]]) -> Steps:
        """Answer GET `path` below /v1/; unknown ones and bad queries too."""

    def watch(self, last_offset: int | None) -> BoardWatch:
        """Follow the cluster for a page that knows it up to this metadata offset, None for nothing."""


def gauge(name: str, help: str, value: float) -> MetricFamily:
    """A gauge without labels."""
    return MetricFamily(name, MetricKind.GAUGE, help, (Sample(value),))


def counter(name: str, help: str, value: float) -> MetricFamily:
    """A counter without labels; `value` is the running total."""
    return MetricFamily(name, MetricKind.COUNTER, help, (Sample(value),))


def merged(families: Iterable[MetricFamily]) -> list[MetricFamily]:
    """One family for each name, with the samples of all: a scrape must not hold a name twice."""
    found: dict[str, MetricFamily] = {}
    for family in families:
        known = found.get(family.name)
        if known is None:
            found[family.name] = family
        else:
            assert known.kind is family.kind, f"{family.name} is of two kinds"
            found[family.name] = replace(known, samples=(*known.samples, *family.samples))
    return list(found.values())


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

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many at once, at a quarter of the cost."""
        for index, times in Counter(map(partial(bisect_left, self._bounds), values)).items():
            self._counts[index] += times
        self._sum += sum(values)

    def value(self) -> HistogramValue:
        """A copy of what was counted so far."""
        return HistogramValue(tuple(zip(self._bounds, self._counts, strict=True)), self._sum)
