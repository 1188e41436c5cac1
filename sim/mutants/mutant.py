"""What a mutant is: functions of production code replaced by wrong ones for the time of a run, and put back.

Owns the patching and the registry. Production code knows nothing of it. What is replaced must exist, in the
very class or module named and with the very same parameters: a refactoring that makes a mutant void is an
error, not a mutant that survives.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from holdfast.sim.campaign.run_spec import RunSpec, RunTemplate
from holdfast.sim.faults.names import FAULT_NAMES

#: takes the original function and then the original's own parameters
Wrong = Callable[..., Any]

#: enough for most; a healthy run of it takes half a second
SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Patch:
    """One function or value that is replaced."""

    #: the class or module in whose own namespace the name stands
    owner: Any
    name: str
    #: for a function `wrong(original, ...)`; for anything else the wrong value itself
    wrong: Any

    @property
    def place(self) -> str:
        """For people."""
        module = getattr(self.owner, "__module__", None)
        owner = f"{module}.{self.owner.__name__}" if module else self.owner.__name__
        return f"{owner}.{self.name}"

    def replacement(self) -> tuple[Any, Any]:
        """(what stands there, what shall stand there). Raises: AssertionError when it does not fit."""
        assert self.name in vars(self.owner), f"{self.place} is not there any more: mend the mutant"
        original = vars(self.owner)[self.name]
        function = original
        if isinstance(original, property):
            function = original.fget
        elif isinstance(original, (staticmethod, classmethod)):
            function = original.__func__
        if not inspect.isfunction(function):
            kinds = f"{type(original).__name__}, the mutant has {type(self.wrong).__name__}"
            assert type(original) is type(self.wrong), f"{self.place} is {kinds}"
            assert original != self.wrong, f"{self.place} has the wrong value already"
            return original, self.wrong
        self._check(function)
        wrong = _bound(self.wrong, function)
        if isinstance(original, property):
            return original, property(wrong)
        if isinstance(original, (staticmethod, classmethod)):
            return original, type(original)(wrong)
        return original, wrong

    def _check(self, function: Callable[..., Any]) -> None:
        wanted = list(inspect.signature(function).parameters)
        given = list(inspect.signature(self.wrong).parameters)[1:]
        assert wanted == given, f"{self.place} takes {wanted}, the mutant {given}: mend the mutant"
        assert inspect.iscoroutinefunction(function) == inspect.iscoroutinefunction(self.wrong), (
            f"one of {self.place} and its mutant is a coroutine, the other is not"
        )


def _bound(wrong: Wrong, original: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(wrong):

        @wraps(original)
        async def later(*given: Any, **named: Any) -> Any:
            return await wrong(original, *given, **named)

        return later

    @wraps(original)
    def at_once(*given: Any, **named: Any) -> Any:
        return wrong(original, *given, **named)

    return at_once


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a mutant shows: the band, the faults, the shape. Without anything: what `sim run` plays."""

    band: str = "budget"
    #: by name of a fault, those not named never; None: the mix of the seed
    faults: dict[str, int] | None = None
    #: fields of the shape that are other than the seed says
    shape: dict[str, Any] | None = None
    seconds: float = SECONDS
    gap_ms: int = 700

    def spec(self, seed: str) -> RunSpec:
        """What is played."""
        spec = RunTemplate(seconds=self.seconds, gap_ms=self.gap_ms, band=self.band, is_plain=True).spec(seed)
        if self.faults is not None:
            weights = dict.fromkeys(FAULT_NAMES, 0) | self.faults
            spec = replace(spec, plan=replace(spec.plan, weights=weights))
        return replace(spec, shape=replace(spec.shape, **self.shape)) if self.shape else spec

    def told(self) -> str:
        """One line for people."""
        words = [self.band] if self.band != "budget" else []
        words += [f"{name} {value}" for name, value in sorted((self.shape or {}).items())]
        words += [f"only {', '.join(sorted(self.faults))}"] if self.faults else []
        words += [f"{self.seconds:g} s"] if self.seconds != SECONDS else []
        return "; ".join(words)


ANYWHERE = Setting()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule broken."""

    name: str
    #: what it does, one sentence
    description: str
    #: the rules that it breaks
    breaks: str
    #: properties and rules of which one should notice
    by: tuple[str, ...]
    patches: tuple[Patch, ...]
    setting: Setting = ANYWHERE
    #: number in the list of mutants that was planned first, 0 for a later one
    row: int = 0
    #: part of the code
    part: str = ""
    #: why nothing that can be observed differs, or what else masks it; such a mutant need not be killed
    masked: str = ""
    #: why no seed is known that kills it, and what would: a defect of the simulator
    gap: str = ""

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Wrong inside, right again afterwards."""
        done: list[tuple[Patch, Any]] = []
        try:
            for patch in self.patches:
                original, wrong = patch.replacement()
                setattr(patch.owner, patch.name, wrong)
                done.append((patch, original))
            yield
        finally:
            for patch, original in reversed(done):
                setattr(patch.owner, patch.name, original)


#: by name, in the order of the modules that define them
MUTANTS: dict[str, Mutant] = {}


def mutant(
    owner: Any,
    name: str,
    *,
    breaks: str,
    by: str,
    row: int = 0,
    setting: Setting = ANYWHERE,
    masked: str = "",
    gap: str = "",
    more: tuple[Patch, ...] = (),
) -> Callable[[Wrong], Wrong]:
    """The function below takes the place of `owner.name`; its name and docstring are the mutant's."""

    def register(wrong: Wrong) -> Wrong:
        assert wrong.__doc__ is not None
        one = Mutant(
            wrong.__name__.replace("_", "-"),
            " ".join(wrong.__doc__.split()),
            breaks,
            tuple(by.split()),
            (Patch(owner, name, wrong), *more),
            setting,
            row,
            wrong.__module__.rpartition(".")[2],
            masked,
            gap,
        )
        assert one.name not in MUTANTS, one.name
        MUTANTS[one.name] = one
        return wrong

    return register
