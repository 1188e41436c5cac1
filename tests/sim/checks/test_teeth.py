"""Each property has teeth of its own: asked alone it sees the mutants that are about it, in a few seeds."""

from typing import Any

import pytest

from holdfast.sim.campaign import run as sim_run
from holdfast.sim.checks.all import PROPERTIES
from holdfast.sim.mutants.find_kill import violation_of
from tests.sim.checks.mutants import PAIRS, Pair

SEEDS = 30
#: What `make test` plays; `make test-all` plays all.
OF_MAKE_TEST = {
    # all that tests FlushedIsDurable and ValidBrokerState
    "flush-covers-completion A-21",
    "new-folders-not-durable A-21",
    "roles-before-registration I-2",
    # one of each kind: a property, both refinements, liveness, the rules of a history
    "no-gate A-2",
    "elr-forgets Refinement DecisionsRefineModel",
    "no-gate Refinement ReplicasRefineModel",
    "unfencing-elects-nobody L-9",
    "shows-lagging-high-watermark rule 12",
    "gives-up-at-once impatient",
}


def pairs() -> list[Any]:
    slow, long = pytest.mark.slow, pytest.mark.long
    return [
        pytest.param(pair, id=str(pair), marks=slow if str(pair) in OF_MAKE_TEST else long) for pair in PAIRS
    ]


def test_what_make_test_plays_is_there() -> None:
    assert {str(pair) for pair in PAIRS} >= OF_MAKE_TEST


@pytest.mark.parametrize("pair", pairs())
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
