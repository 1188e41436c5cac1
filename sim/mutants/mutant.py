"""What a mutant is: production code with other text in it for the time of a run, and put back.

Owns the declarations and the registry. Production code knows nothing of it. What a patch of text cannot say
is a function that takes the place of another. The text that is changed, or the function that is replaced,
must exist, the latter with the very same parameters: a refactoring that makes a mutant void is an error, not
a mutant that survives.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeAlias

from holdfast.sim.campaign.run_spec import RunSpec, RunTemplate
from holdfast.sim.faults.names import FAULT_NAMES
from holdfast.sim.mutants.source_patch import SourcePatch, patched

#: takes the original function and then the original's own parameters
Wrong = Callable[..., Any]
#: what a declaration returns
Changes: TypeAlias = "Patch | SourcePatch | tuple[Patch | SourcePatch, ...]"
Patches = Callable[[], Changes]

#: enough for most; a healthy run of it takes half a second
SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Patch:
    """One function or value that is replaced as a whole."""

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
    patches: tuple[Patch | SourcePatch, ...]
    setting: Setting = ANYWHERE
    #: part of the code
    part: str = ""
    #: PROPERTY@SEED: what noticed it first, and at which seed; empty while none is known
    killed_by: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def killer(self) -> str:
        """The property, or rule of the history, that noticed it first; empty when none did."""
        return self.killed_by.partition("@")[0]

    @property
    def killing_seed(self) -> str | None:
        """The first seed at which something noticed it, None when none is known."""
        return self.killed_by.partition("@")[2] or None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Wrong inside, right again afterwards."""
        done: list[tuple[Patch, Any]] = []
        try:
            for one in self.patches:
                if isinstance(one, Patch):
                    original, wrong = one.replacement()
                    setattr(one.owner, one.name, wrong)
                    done.append((one, original))
            with patched(one for one in self.patches if isinstance(one, SourcePatch)):
                yield
        finally:
            for replaced, original in reversed(done):
                setattr(replaced.owner, replaced.name, original)


#: by name, in the order of the modules that define them
MUTANTS: dict[str, Mutant] = {}


def mutant(
    *,
    breaks: str,
    by: str,
    setting: Setting = ANYWHERE,
    killed_by: str = "",
) -> Callable[[Patches], Patches]:
    """The function below returns the patches; its name and docstring are the mutant's."""

    def register(patches: Patches) -> Patches:
        _register(patches, patches(), breaks, by, setting, killed_by)
        return patches

    return register


def replacing(
    owner: Any,
    name: str,
    *,
    breaks: str,
    by: str,
    setting: Setting = ANYWHERE,
    killed_by: str = "",
    more: tuple[Patch | SourcePatch, ...] = (),
) -> Callable[[Wrong], Wrong]:
    """The function below takes the place of `owner.name`; its name and docstring are the mutant's."""

    def register(wrong: Wrong) -> Wrong:
        patches = (Patch(owner, name, wrong), *more)
        _register(wrong, patches, breaks, by, setting, killed_by)
        return wrong

    return register


def _register(
    function: Callable[..., Any], patches: Changes, breaks: str, by: str, setting: Setting, killed_by: str
) -> None:
    assert function.__doc__ is not None
    one = Mutant(
        function.__name__.replace("_", "-"),
        " ".join(function.__doc__.split()),
        breaks,
        tuple(by.split()),
        patches if isinstance(patches, tuple) else (patches,),
        setting,
        function.__module__.rpartition(".")[2],
        killed_by,
    )
    assert one.name not in MUTANTS, one.name
    MUTANTS[one.name] = one
