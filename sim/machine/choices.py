"""Every free choice of a run: drawn from a seed, written on a tape, or read from one.

Owns the named streams. A stream draws only for its own purpose, so one more draw of the network moves nothing
in the schedule. Zero is always the simplest choice: first in line, no fault, least delay. A tape that ends
goes on with zeros, and among equals with each in turn (a partition without any writes would be a failure of
its own), so a tape may be cut and edited freely.
"""

import random
from array import array
from collections.abc import Mapping
from typing import Protocol


class Stream(Protocol):
    """Choices of one kind."""

    def draw(self, bound: int) -> int:
        """An integer in [0, bound), zero the simplest."""

    def draw_alike(self, bound: int) -> int:
        """As `draw`, but none is simpler than another: behind the end of a tape they come in turn."""


class SeededStream:
    """Draws from a generator and forgets; the fastest kind."""

    __slots__ = ("_random",)

    def __init__(self, seed: str) -> None:
        # A text seeds the same generator in every process, with any hash seed.
        self._random = random.Random(seed).random

    def draw(self, bound: int) -> int:
        return int(self._random() * bound)

    draw_alike = draw


class RecordedStream:
    """Draws like a seeded stream of the same seed and keeps what came out."""

    __slots__ = ("_random", "bounds", "values")

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random
        self.bounds = array("Q")
        self.values = array("Q")

    def draw(self, bound: int) -> int:
        value = int(self._random() * bound)
        self.bounds.append(bound)
        self.values.append(value)
        return value

    draw_alike = draw


class ReplayedStream:
    """Reads what was drawn; a value that an edit made too large is taken modulo its bound."""

    __slots__ = ("_turns", "_values", "position")

    def __init__(self, values: "array[int]") -> None:
        self._values = values
        #: so many were read
        self.position = 0
        #: so many choices among equals were made behind the end
        self._turns = 0

    def draw(self, bound: int) -> int:
        position = self.position
        if position >= len(self._values):
            return 0
        self.position = position + 1
        value = self._values[position]
        return value if value < bound else value % bound

    def draw_alike(self, bound: int) -> int:
        if self.position < len(self._values):
            return self.draw(bound)
        self._turns += 1
        return self._turns % bound


#: {label: values}: all that a run was free to choose
Tape = Mapping[str, "array[int]"]


class Choices:
    """The streams of one run, made when first asked for."""

    def __init__(self, seed: str, *, record: bool = False, tape: Tape | None = None) -> None:
        self.seed = seed
        self._record = record
        self._tape = tape
        self._streams: dict[str, Stream] = {}

    def stream(self, label: str) -> Stream:
        """The stream of that name; the same object each time."""
        found = self._streams.get(label)
        if found is None:
            found = self._streams[label] = self._make(label)
        return found

    def _make(self, label: str) -> Stream:
        if self._tape is not None:
            return ReplayedStream(self._tape.get(label, array("Q")))
        kind = RecordedStream if self._record else SeededStream
        return kind(f"{self.seed}:{label}")

    def tape(self) -> dict[str, "array[int]"]:
        """What was drawn so far, or read so far from another tape. Not of a run that just draws."""
        if self._tape is not None:
            return {
                label: array("Q", self._tape.get(label, ())[: stream.position])
                for label, stream in sorted(self._streams.items())
                if isinstance(stream, ReplayedStream)
            }
        return {label: array("Q", stream.values) for label, stream in self._recorded()}

    def bounds(self) -> dict[str, "array[int]"]:
        """How many choices each draw had. Only of a run that records."""
        return {label: array("Q", stream.bounds) for label, stream in self._recorded()}

    def _recorded(self) -> list[tuple[str, RecordedStream]]:
        assert self._record, "this run keeps no tape: ask for it before it starts"
        return [
            (label, stream)
            for label, stream in sorted(self._streams.items())
            if isinstance(stream, RecordedStream)
        ]


def one_in(stream: Stream, count: int) -> bool:
    """True once in `count` draws; never when `count` is 0."""
    return count > 0 and stream.draw(count) == count - 1


def evenly(stream: Stream, low: int, high: int) -> int:
    """An integer in [low, high], none simpler than another: of what should go on as usual behind the end of a
    tape."""
    return low + stream.draw_alike(high - low + 1)


def between(stream: Stream, low: int, high: int) -> int:
    """An integer in [low, high]; low is the simplest."""
    return low + stream.draw(high - low + 1)
