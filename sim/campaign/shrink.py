"""Makes a failing run smaller while the same property stays violated.

Owns the edits and their order: fewer faults, a shorter run, fewer partitions and producers, least delays,
first come, first served. Every try is a replay of an edited tape, in which zero is the simplest choice.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.sim.campaign.artifact import Artifact, artifact_of, name_of
from holdfast.sim.campaign.recording import record
from holdfast.sim.campaign.run_spec import RunSpec
from holdfast.sim.machine.choices import Tape

REPLAYS = 300
#: stream of the faults: two draws for each, how long until it and which one; zero is none
_FAULTS = "fault"
_DRAWS_PER_FAULT = 2
#: by what they make simple; streams that an edit may empty
_DELAYS = ("net", "disk", "strain")
_ORDER = ("sched",)
#: numbers of the shape that may come down to one
_COUNTS = ("topics", "partitions", "producers", "readers")
_SHORTEST_S = 0.5
#: a run of least delays gets more done in its time; by more than this much it is no simpler
_GROWS_AT_MOST = 1.5
#: a run without one of the faults that fails so much later got past the place
_PAST_S = 1.0


@dataclass(slots=True)
class Shrinker:
    """One failing run on its way down."""

    #: the smallest so far
    best: Artifact
    budget: int
    tell: Callable[[str], object]
    replays: int = 0

    def run(self) -> Artifact:
        """Try all edits until none helps or the budget is used up."""
        while self.replays < self.budget:
            before = _size(self.best)
            steps = (self._faults, self._earlier, self._seconds, self._shape, self._delays, self._order)
            for step in steps:
                step()
            if _size(self.best) == before:
                break
        return self.best

    def _try(self, what: str, spec: RunSpec, tape: Tape, *, may_grow: bool = True) -> bool:
        """Keep the edited run when it still fails in the same way."""
        if self.replays >= self.budget:
            return False
        self.replays += 1
        recording = record(spec, tape)
        result = recording.result
        if name_of(result.violation) != self.best.property_name:
            return False
        if not may_grow and result.handles > _GROWS_AT_MOST * self.best.steps:
            return False
        self.best = artifact_of(spec, recording.tape, result, self.best.mutant)
        self.tell(f"{self.replays} replays: {what}; {_size_told(self.best)}")
        return True

    def _faults(self) -> None:
        """Leave out half of the faults, then quarters, down to single ones."""
        size = max(1, len(played_faults(self.best.tape)) // 2)
        while self.replays < self.budget:
            at, is_smaller = 0, False
            while at < len(played := played_faults(self.best.tape)) and self.replays < self.budget:
                out = played[at : at + size]
                if self._try(f"{len(out)} faults fewer", self.best.spec, without_faults(self.best.tape, out)):
                    is_smaller = True
                else:
                    at += size
            if size == 1 and not is_smaller:
                return
            size = max(1, size // 2)

    def _earlier(self) -> None:
        """Drop the time that passes before faults which are left out."""
        shorter = without_gaps(self.best.tape)
        if len(shorter[_FAULTS]) < len(self.best.tape.get(_FAULTS, ())):
            self._try("faults sooner", self.best.spec, shorter)

    def _seconds(self) -> None:
        """Heal earlier."""
        for share in (0.25, 0.5, 0.75, 0.9):
            spec = self.best.spec
            seconds = round(spec.seconds * share, 2)
            if seconds >= _SHORTEST_S and self._try(
                f"{seconds:g} s", replace(spec, seconds=seconds), self.best.tape
            ):
                return

    def _shape(self) -> None:
        for what in _COUNTS:
            for count in range(1, getattr(self.best.spec.shape, what)):
                fewer: dict[str, Any] = {what: count}
                spec = replace(self.best.spec, shape=replace(self.best.spec.shape, **fewer))
                if self._try(f"{what} {count}", spec, self.best.tape):
                    break

    def _delays(self) -> None:
        self._empty(_DELAYS, "least delays")

    def _order(self) -> None:
        self._empty(_ORDER, "first come, first served")

    def _empty(self, labels: tuple[str, ...], what: str) -> None:
        for label in labels:
            if any(self.best.tape.get(label, ())):
                zeros: dict[str, array[int]] = {**self.best.tape, label: array("Q")}
                self._try(f"{what} ({label})", self.best.spec, zeros, may_grow=False)


def shrink(
    artifact: Artifact, budget: int = REPLAYS, tell: Callable[[str], object] = lambda _: None
) -> Artifact:
    """A smaller run that violates the same property, after at most `budget` replays.

    Raises: NotFailing when the run does not fail any more.
    """
    assert artifact.violation is not None, "a run that passes has nothing to shrink to"
    shrinker = Shrinker(artifact, budget, tell)
    if not shrinker._try("as it is", artifact.spec, artifact.tape):
        raise NotFailing(f"{artifact.property_name} of commit {artifact.commit} is not violated any more")
    return shrinker.run()


class NotFailing(Exception):
    """The run that was to be shrunk does not violate its property with this code."""


def played_faults(tape: Tape) -> list[int]:
    """Numbers of the faults that a tape plays."""
    values = tape.get(_FAULTS, array("Q"))
    return [n for n, value in enumerate(values[1::_DRAWS_PER_FAULT]) if value]


def without_faults(tape: Tape, numbers: list[int]) -> Tape:
    """The tape without some faults; those that stay draw what they drew."""
    values = array("Q", tape.get(_FAULTS, ()))
    for number in numbers:
        values[_DRAWS_PER_FAULT * number + 1] = 0
    return {**tape, _FAULTS: values}


def without_gaps(tape: Tape) -> Tape:
    """The tape without the faults that are left out and the time before them; the others move up."""
    values = tape.get(_FAULTS, array("Q"))
    kept = array("Q")
    moved = {label: draws for label, draws in tape.items() if not label.startswith(f"{_FAULTS}.")}
    for number in played_faults(tape):
        own = f"{_FAULTS}.{number}"
        if own in tape:
            moved[f"{_FAULTS}.{len(kept) // _DRAWS_PER_FAULT}"] = tape[own]
        kept.extend(values[_DRAWS_PER_FAULT * number : _DRAWS_PER_FAULT * (number + 1)])
    return {**moved, _FAULTS: kept}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A failing run without one of its faults, which gets past the place where that fails."""

    #: of the faults that were played, counted from 0
    fault: int
    events: list[str]
    #: the simulated second at which it fails too; None: never
    fails_at_s: float | None


def passing_neighbour(artifact: Artifact, failed_at_s: float, budget: int) -> Neighbour | None:
    """The run without the last fault that it needed to fail at that second. Behind it no faults are played,
    but when all is healed the same thing may still come to light."""
    played = played_faults(artifact.tape)
    for fault in reversed(range(max(0, len(played) - budget), len(played))):
        recording = record(artifact.spec, without_faults(artifact.tape, [played[fault]]))
        result = recording.result
        if result.violation is None:
            return Neighbour(fault, recording.events, None)
        if result.simulated_seconds > failed_at_s + _PAST_S:
            return Neighbour(fault, recording.events, result.simulated_seconds)
    return None


def _size(artifact: Artifact) -> tuple[int, float, tuple[int, ...], int, int, int]:
    spec = artifact.spec
    return (
        len(played_faults(artifact.tape)),
        spec.seconds,
        tuple(getattr(spec.shape, what) for what in _COUNTS),
        len(artifact.tape.get(_FAULTS, ())),
        sum(1 for label in (*_DELAYS, *_ORDER) if any(artifact.tape.get(label, ()))),
        artifact.steps,
    )


def _size_told(artifact: Artifact) -> str:
    faults, seconds, counts, _, _, steps = _size(artifact)
    told = ", ".join(f"{count} {what}" for count, what in zip(counts, _COUNTS, strict=True))
    return f"{faults} faults, {seconds:g} s, {told}, {steps} steps"
