"""Plays seeds with a mutant until a property notices; and the record of what was found.

Owns what counts as a kill: a violation with the mutant where the same story without it has none, and which is
not the mutant's own stumbling (a TypeError says that the mutant is broken, not that a property has teeth).
"""

import json
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

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


def find_kill(name: str, seeds: Sequence[str], known: MutantResult | None = None) -> MutantResult:
    """Play seeds until one kills the mutant; first the one that has killed it before, if that is `known`.

    Raises: AssertionError when the mutant itself stumbles.
    """
    mutant = MUTANTS[name]
    if known is not None and known.seed is not None:
        again = find_kill(name, (known.seed,))
        if again.is_killed:
            return replace(again, tried=known.tried)
    for tried, seed in enumerate(seeds, 1):
        violation = violation_of(mutant, seed)
        if violation is None:
            continue
        assert not _STUMBLED.search(violation), f"the mutant {name} stumbles, mend it: {violation}"
        if is_sound(mutant, seed):
            return MutantResult(name, tried, seed, property_of(violation), first_line(violation))
    return MutantResult(name, len(seeds), None, "", "")


def find_kills(
    names: Sequence[str], seeds: Sequence[str], jobs: int, known: Mapping[str, MutantResult]
) -> Iterator[MutantResult]:
    """As `find_kill`, from several processes, as they come."""
    if jobs == 1:
        for name in names:
            yield find_kill(name, seeds, known.get(name))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(find_kill, name, seeds, known.get(name)) for name in names]):
            yield future.result()


def property_of(violation: str) -> str:
    """The name that a violation begins with."""
    return violation.split()[0].rstrip(":")


def first_line(violation: str) -> str:
    """Without the state behind it."""
    lines = [line.strip() for line in violation.splitlines() if line.strip()]
    return lines[0][:160]


def load(path: Path) -> dict[str, MutantResult]:
    """The record; empty when there is none."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["mutants"]
    return {row["mutant"]: MutantResult(**row) for row in rows}


def save(path: Path, verdicts: dict[str, MutantResult]) -> None:
    """Rows in the order of the table; those of mutants that are gone are left out."""
    rows = [asdict(verdicts[name]) for name in MUTANTS if name in verdicts]
    path.write_text(json.dumps({"mutants": rows}, indent=1) + "\n", encoding="utf-8")


def cpu_seconds() -> float:
    """Used by this process so far, its children included."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
