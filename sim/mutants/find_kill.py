"""Plays seeds with a mutant until a property notices.

Owns what counts as a kill: a violation with the mutant where the same story without it has none, and which is
not the mutant's own stumbling (a TypeError says that the mutant is broken, not that a property has teeth).
"""

import re
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from holdfast.sim.campaign.recording import play
from holdfast.sim.mutants.mutant import Mutant
from holdfast.sim.mutants.table import MUTANTS

#: errors that no assertion of ours raises
_STUMBLED = re.compile(r"\b(TypeError|AttributeError|NameError|UnboundLocalError|ImportError)\(")


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of a mutant. `seed` is None when no property noticed within `tried` seeds."""

    mutant: str
    tried: int
    seed: str | None
    #: the property, or the first rule of the history
    by: str
    #: the first line of the violation
    text: str

    @property
    def killed_by(self) -> str:
        """As declarations have it."""
        return f"{self.by}@{self.seed}" if self.is_killed else ""

    @property
    def is_killed(self) -> bool:
        return self.seed is not None


def violation_of(mutant: Mutant, seed: str) -> str | None:
    """Play one seed with the mutant. None: every property held. A run that never rests is a violation, after
    so many handles: bounds of its processor seconds would let the machine decide."""
    with mutant.applied():
        return play(mutant.setting.spec(seed)).violation


def is_sound(mutant: Mutant, seed: str) -> bool:
    """The same story without the mutant keeps every promise."""
    return play(mutant.setting.spec(seed)).violation is None


def find_kill(name: str, seeds: Sequence[str], *, declared_first: bool = False) -> MutantResult:
    """Play seeds until one kills the mutant; with `declared_first` the seed that its declaration names before
    all others, as if it were the only one when it still does.

    Raises: AssertionError when the mutant itself stumbles.
    """
    mutant = MUTANTS[name]
    if declared_first and mutant.killing_seed is not None:
        again = find_kill(name, (mutant.killing_seed,))
        if again.is_killed:
            return again
    for tried, seed in enumerate(seeds, 1):
        violation = violation_of(mutant, seed)
        if violation is None:
            continue
        assert not _STUMBLED.search(violation), f"the mutant {name} stumbles, mend it: {violation}"
        if is_sound(mutant, seed):
            return MutantResult(name, tried, seed, property_of(violation), first_line(violation))
    return MutantResult(name, len(seeds), None, "", "")


def find_kills(
    names: Sequence[str], seeds: Sequence[str], jobs: int, *, declared_first: bool = False
) -> Iterator[MutantResult]:
    """As `find_kill`, from several processes, as they come."""
    if jobs == 1:
        for name in names:
            yield find_kill(name, seeds, declared_first=declared_first)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(find_kill, name, seeds, declared_first=declared_first) for name in names]
        for future in as_completed(waiting):
            yield future.result()


def property_of(violation: str) -> str:
    """The name that a violation begins with."""
    return violation.split()[0].rstrip(":")


def first_line(violation: str) -> str:
    """Without the state behind it."""
    lines = [line.strip() for line in violation.splitlines() if line.strip()]
    return lines[0][:160]


def cpu_seconds() -> float:
    """Used by this process so far, its children included."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
