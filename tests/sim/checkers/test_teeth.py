"""A broken rule of brokers or controllers is seen by the property that is about it, within a few seeds."""

from dataclasses import replace

import pytest

from sim import run as sim_run
from sim.checkers.all import PROPERTIES
from sim.choices import Choices
from sim.run import run, shape_of
from sim.world import Shape
from tests.sim.checkers.mutants import MUTANTS, Mutant

SEEDS = 60


def first_violation(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str | None]:
    """The first seed that finds one of those that are meant, and what it says."""
    if mutant.only:
        chosen = [one for one in PROPERTIES if one.name.startswith(mutant.only)]
        monkeypatch.setattr(sim_run, "all_properties", lambda: [one() for one in chosen])
    for seed in range(SEEDS):
        shape = replace(shape_of(str(seed), Shape()), **dict(mutant.shape))
        found = run(Choices(str(seed)), shape, 12, plan=mutant.plan()).violation
        if found is not None and found.startswith(mutant.killers):
            return seed, found
    return SEEDS, None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.patch.__name__} {one.killers[0]}")
def test_a_broken_rule_is_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.patch(monkeypatch)
    seed, found = first_violation(mutant, monkeypatch)
    print(f"\n{mutant.patch.__name__}: seed {seed}: {found}")
    assert found is not None, f"not seen by {mutant.killers} in {SEEDS} seeds"
