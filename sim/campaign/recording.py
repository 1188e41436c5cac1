"""A run with everything that happened in it, and how two such runs differ.

Owns the determinism check: equal inputs must give equal draws and equal events, so a difference is a defect
of the simulator and of nothing else.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from holdfast.sim.campaign.run import RunResult, run
from holdfast.sim.campaign.run_spec import RunSpec
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.machine.choices import Choices, Tape

_NOTHING = "(its end)"


@dataclass(frozen=True, slots=True)
class Recording:
    """A run, its draws and its events."""

    spec: RunSpec
    result: RunResult
    tape: dict[str, "array[int]"]
    #: how many choices each draw had; empty when the draws came from a tape
    bounds: dict[str, "array[int]"]
    #: every event, oldest first
    events: list[str]


def play(spec: RunSpec, tape: Tape | None = None) -> RunResult:
    """The run and nothing beside it: the fastest way."""
    choices = Choices(spec.seed) if tape is None else Choices(spec.seed, tape=tape)
    return run(choices, spec.shape, spec.seconds, plan=spec.plan)


def record(spec: RunSpec, tape: Tape | None = None, listeners: Sequence[Property] = ()) -> Recording:
    """The run, drawn from its seed or from a tape, with everything kept."""
    choices = Choices(spec.seed, record=True) if tape is None else Choices(spec.seed, tape=tape)
    pieces: list[str] = []
    result = run(choices, spec.shape, spec.seconds, plan=spec.plan, sink=pieces.append, listeners=listeners)
    bounds = choices.bounds() if tape is None else {}
    return Recording(spec, result, choices.tape(), bounds, "".join(pieces).splitlines())


def first_event_that_differs(one: list[str], other: list[str]) -> tuple[int, str, str] | None:
    """(its number, that of the one, that of the other); None when all are equal."""
    for number, (left, right) in enumerate(zip_longest(one, other, fillvalue=_NOTHING)):
        if left != right:
            return number, left, right
    return None


def difference(one: Recording, other: Recording) -> str | None:
    """Where two runs of one story part: a draw of each stream, and the first event. None: nowhere."""
    found = [
        f"stream {label}: {place}"
        for label in sorted({*one.tape, *other.tape})
        if (place := _draw_that_differs(one, other, label)) is not None
    ]
    event = first_event_that_differs(one.events, other.events)
    if event is not None:
        found.append(f"event {event[0]}: {event[1]!r} and {event[2]!r}")
    if one.result.violation != other.result.violation:
        found.append(f"verdict: {one.result.violation!r} and {other.result.violation!r}")
    return "; ".join(found) or None


def _draw_that_differs(one: Recording, other: Recording, label: str) -> str | None:
    nothing = array("Q")
    for what, left, right in (
        ("value", one.tape.get(label, nothing), other.tape.get(label, nothing)),
        ("bound", one.bounds.get(label, nothing), other.bounds.get(label, nothing)),
    ):
        if left != right:
            at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
            if at is None:
                return f"{len(left)} and {len(right)} draws"
            return f"{what} of draw {at} is {left[at]} and {right[at]}"
    return None
