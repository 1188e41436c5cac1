"""Each property has teeth of its own: asked alone it sees the mutants that are about it, in a few seeds."""

import pytest

from holdfast.sim.campaign import run as sim_run
from holdfast.sim.checks.all import PROPERTIES
from holdfast.sim.mutants.find_kill import violation_of
from tests.sim.checks.mutants import PAIRS, Pair

SEEDS = 30


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_broken_rule_is_seen_by_the_property_that_is_about_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, failures_logged: object
) -> None:
    names = (pair.by, *pair.only)
    chosen = [one for one in PROPERTIES if any(f"{one.name} ".startswith(f"{name} ") for name in names)]
    monkeypatch.setattr(sim_run, "all_properties", lambda: [one() for one in chosen])
    said = []
    for seed in range(SEEDS):
        violation = violation_of(pair.mutant, str(seed))
        if violation is not None and violation.startswith(pair.by):
            return
        said.append(violation)
    pytest.fail(f"{pair.by} does not see {pair.mutant.name}: {said}")
