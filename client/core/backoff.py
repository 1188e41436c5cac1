"""Pauses between repetitions: none before the first, then doubling up to a limit (D9)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_ms` is the pause before the second repetition; the one before the first is zero."""

    first_ms: int
    max_ms: int

    def __post_init__(self) -> None:
        assert 0 < self.first_ms <= self.max_ms

    def pause_ms(self, repetitions: int) -> int:
        """Pause before repetition number `repetitions` + 1."""
        if repetitions <= 0:
            return 0
        return min(self.max_ms, self.first_ms << min(repetitions - 1, 30))
