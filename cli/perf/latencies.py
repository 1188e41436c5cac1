"""Latencies of many records in little memory, and their percentiles, as Kafka's tools report them.

Owns the sums of a run. Above a number of records only one in so many is kept, at even distances.
"""

import math
from collections.abc import Sequence

#: samples that are kept; Kafka keeps as many
SAMPLES_MAX = 500_000


class Latencies:
    """All records of a run: exact sums, and samples for percentiles."""

    def __init__(self, expected: int = 0) -> None:
        """`expected`: how many records there may be; 0: not known."""
        self.count = 0
        self._sum_ms = 0.0
        self.max_ms = 0.0
        self._every = max(1, math.ceil(expected / SAMPLES_MAX))
        self._samples: list[float] = []

    def add(self, samples_ms: Sequence[float]) -> None:
        """Take the records of a batch."""
        if not samples_ms:
            return
        start = -self.count % self._every
        self._samples.extend(samples_ms[start :: self._every])
        self.count += len(samples_ms)
        self._sum_ms += sum(samples_ms)
        self.max_ms = max(self.max_ms, max(samples_ms))
        if len(self._samples) > 2 * SAMPLES_MAX:
            self._samples = self._samples[::2]
            self._every *= 2

    @property
    def average_ms(self) -> float:
        """0 without records."""
        return self._sum_ms / self.count if self.count else 0.0

    def percentiles(self, *shares: float) -> list[float]:
        """The smallest sample that at least so large a share of all does not exceed; 0 without records."""
        ordered = sorted(self._samples)
        if not ordered:
            return [0.0 for _ in shares]
        return [ordered[max(0, math.ceil(len(ordered) * share - 1e-9) - 1)] for share in shares]
