"""Walks of the model: nothing breaks without a mutant, everything wrong is noticed, equal seeds are equal."""

from collections import Counter
from random import Random

import pytest

from holdfast.sim.model.bands import is_expected_loss
from holdfast.sim.model.mutants import MUTANTS
from holdfast.sim.model.seeded import walk_seed
from holdfast.sim.model.state import Setup
from holdfast.sim.model.walk import WalkResult, draw_plan, replay_trace, shrink

STEPS = 2000


def walks(first: int, count: int, band: str = "mixed", steps: int = STEPS) -> list[WalkResult]:
    return [walk_seed(seed, steps, band) for seed in range(first, first + count)]


def broken(verdicts: list[WalkResult]) -> list[str]:
    return [verdict.problem for verdict in verdicts if verdict.is_broken]


@pytest.mark.parametrize(
    "band", ["mixed", "lossless", "in-budget", "flush-every-write", "edge", "manager-off"]
)
def test_no_property_breaks(band: str) -> None:
    assert broken(walks(0, 8, band)) == []


def test_equal_seeds_make_equal_walks() -> None:
    one, other = walk_seed(7, 500), walk_seed(7, 500)
    assert (one.trace, one.marks, one.setup) == (other.trace, other.marks, other.setup)
    assert walk_seed(8, 500).trace != one.trace


def test_a_trace_replays_to_the_same_end() -> None:
    with MUTANTS["no-gate"].applied():
        verdict = walk_seed(0, STEPS)
        again = replay_trace(verdict.setup, verdict.trace)
    assert again.problem == verdict.problem
    assert again.trace == verdict.trace


def test_a_shrunk_trace_breaks_the_same_property_and_tells_its_story() -> None:
    story: list[str] = []
    with MUTANTS["elr-not-cleared"].applied():
        verdict = walk_seed(4, STEPS)
        shortest = shrink(verdict)
        replay_trace(verdict.setup, shortest.trace, story)
    assert shortest.property_name == verdict.property_name
    assert len(shortest.trace) < len(verdict.trace) / 10
    assert len(story) == len(shortest.trace)
    assert "isr" in story[-1]


def test_the_mix_of_walks_is_as_planned() -> None:
    mixes = Counter(draw_plan(Random(seed).getrandbits, None).mix for seed in range(1000))
    assert 330 < mixes["tuned"] < 470
    assert 330 < mixes["swarm"] < 470
    assert 140 < mixes["triggers"] < 260


def test_the_budget_of_a_set_up_names_its_band() -> None:
    names = [Setup(budget_excess=excess).band for excess in (None, 0, 1, 2)]
    assert names == ["lossless", "in budget", "edge", "over budget"]


@pytest.mark.parametrize("name", sorted(name for name, one in MUTANTS.items() if one.killed_by))
def test_a_mutant_is_caught_at_its_seed(name: str) -> None:
    """A walker that misses one of them has become blunt. Those without a seed have a directed walk."""
    mutant = MUTANTS[name]
    property_name, _, seed = mutant.killed_by.partition("@")
    with mutant.applied():
        assert walk_seed(int(seed), STEPS, mutant.band).property_name == property_name
    assert walk_seed(int(seed), STEPS, mutant.band).property_name is None


@pytest.mark.slow
def test_beyond_the_budget_records_are_lost_and_never_in_silence() -> None:
    """G-4, G-5: a zero here would mean that the injector is broken."""
    for band in ("edge", "over-budget"):
        verdicts = walks(0, 200, band)
        assert broken(verdicts) == []
        lost = [verdict for verdict in verdicts if verdict.lost]
        assert 4 <= len(lost) <= 100
        assert all(verdict.reported for verdict in lost)
    assert sum(verdict.lost for verdict in walks(0, 200, "in-budget")) == 0
    assert sum(verdict.lost for verdict in walks(0, 200, "flush-every-write")) == 0


@pytest.mark.slow
def test_without_elr_the_same_faults_lose_acknowledged_records() -> None:
    names = [verdict.property_name for verdict in walks(0, 200, "elr-off") if verdict.is_broken]
    assert len(names) >= 10
    assert all(is_expected_loss("elr-off", name) for name in names)


RARE_STATES = {
    "AlterPartition refused: fenced leader epoch",
    "AlterPartition refused: ineligible replica",
    "AlterPartition refused: invalid update version",
    "AlterPartition refused: stale broker epoch",
    "ELR cleared by expansion",
    "ELR of one",
    "ELR of two or more",
    "ISR and ELR empty",
    "ISR empty",
    "all killed",
    "clean registration",
    "clean stop",
    "diverging answer",
    "elected from ELR",
    "fetch timed out",
    "fsync failed",
    "high watermark below the epoch's start",
    "last known ELR above min ISR",
    "late copy of a proposal",
    "log info refused",
    "min ISR change with ELR",
    "power outage",
    "reassignment cancelled",
    "reassignment completed",
    "reassignment refused",
    "records lost by power",
    "recovery by all last known",
    "recovery lost by failover",
    "recovery started",
    "recovery without proof",
    "replica deleted",
    "stopped before it had an epoch",
    "truncated",
    "truncated to 0",
    "unclean registration",
}


@pytest.mark.slow
def test_a_longer_sweep_breaks_nothing_and_meets_every_rare_state() -> None:
    verdicts = walks(10_000, 600)
    assert broken(verdicts) == []
    met = Counter[str]()
    for verdict in verdicts:
        met.update(verdict.marks)
    assert RARE_STATES - met.keys() == set()
