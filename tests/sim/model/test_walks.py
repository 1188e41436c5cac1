"""Walks of the model: nothing breaks without a mutant, everything wrong is noticed, equal seeds are equal."""

from collections import Counter
from random import Random

import pytest

from holdfast.sim.model.bands import is_expected_loss
from holdfast.sim.model.mutants import MUTANTS
from holdfast.sim.model.rules import Rules
from holdfast.sim.model.seeded import walk_seed
from holdfast.sim.model.state import Setup
from holdfast.sim.model.walk import WalkResult, draw_plan, replay_trace, shrink
from holdfast.sim.model.wrong_brokers import NoGate

STEPS = 2000


def walks(first: int, count: int, band: str = "mixed", steps: int = STEPS) -> list[WalkResult]:
    return [walk_seed(seed, steps, Rules(), band) for seed in range(first, first + count)]


def broken(verdicts: list[WalkResult]) -> list[str]:
    return [verdict.problem for verdict in verdicts if verdict.is_broken]


@pytest.mark.parametrize(
    "band", ["mixed", "lossless", "in-budget", "flush-every-write", "edge", "manager-off"]
)
def test_no_property_breaks(band: str) -> None:
    assert broken(walks(0, 8, band)) == []


def test_equal_seeds_make_equal_walks() -> None:
    one, other = walk_seed(7, 500, Rules()), walk_seed(7, 500, Rules())
    assert (one.trace, one.marks, one.setup) == (other.trace, other.marks, other.setup)
    assert walk_seed(8, 500, Rules()).trace != one.trace


def test_a_trace_replays_to_the_same_end() -> None:
    verdict = walk_seed(0, STEPS, NoGate())
    again = replay_trace(verdict.setup, NoGate(), verdict.trace)
    assert again.problem == verdict.problem
    assert again.trace == verdict.trace


def test_a_shrunk_trace_breaks_the_same_property_and_tells_its_story() -> None:
    verdict = walk_seed(2, STEPS, MUTANTS["elr-not-cleared"]())
    shortest = shrink(verdict, MUTANTS["elr-not-cleared"]())
    assert shortest.property_name == verdict.property_name
    assert len(shortest.trace) < len(verdict.trace) / 10
    story: list[str] = []
    replay_trace(verdict.setup, MUTANTS["elr-not-cleared"](), shortest.trace, story)
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


#: the first seed at which each mutant is caught, and by what: kept, because a walker that misses one of them
#: has become blunt
KILLING_SEEDS: dict[str, tuple[int, str]] = {
    "accepts-fenced-members": (1, "A-4 AcceptedProposal"),
    "accepts-old-leader-epoch": (0, "A-4 AcceptedProposal"),
    "accepts-old-partition-epoch": (0, "A-4 AcceptedProposal"),
    "accepts-stale-broker-epochs": (61, "A-4 AcceptedProposal"),
    "acknowledges-below-min-isr": (0, "A-2 HighWatermarkQuorum"),
    "cancels-below-min-isr": (146, "A-17 ReassignmentKeepsData"),
    "completes-below-min-isr": (4, "A-17 ReassignmentKeepsData"),
    "completes-without-adding": (0, "A-17 ReassignmentKeepsData"),
    "counts-unflushed": (20, "A-2 HighWatermarkQuorum"),
    "elects-any-unfenced": (0, "A-3 IsrGrowth"),
    "elects-elr-before-isr": (7, "A-13 ElectionOrder"),
    "elects-fenced-elr": (0, "A-11 EpochsGrow"),
    "elects-fenced-last-known-leader": (0, "A-13 ElectionOrder"),
    "elr-above-min-isr": (0, "A-9 ElrUpdate"),
    "elr-forgets": (0, "A-9 ElrUpdate"),
    "elr-not-cleared": (0, "A-9 ElrUpdate"),
    "every-start-is-clean": (0, "A-8 UncleanExclusion"),
    "file-before-flush": (3, "A-19 CleanStopOrder"),
    "flush-covers-completion": (0, "A-21 FlushCovers"),
    "gate-by-maximal-isr": (0, "A-2 HighWatermarkQuorum"),
    "goes-on-after-failed-flush": (1, "A-20 FailStop"),
    "high-watermark-off-by-one": (0, "A-2 HighWatermarkQuorum"),
    "ignores-pending-expansion": (0, "I-7 ReplicationQuorumSuperset"),
    "joins-below-epoch-start": (0, "A-5 CaughtUpJoins"),
    "joins-below-high-watermark": (0, "A-5 CaughtUpJoins"),
    "joins-in-old-incarnation": (22, "I-8 LeaderCandidateCompleteness"),
    "keeps-file": (3, "I-17 CleanFileDiscipline"),
    "keeps-high-watermark-when-cut": (0, "I-1 TypeOK"),
    "last-known-elr-cleared-by-election": (0, "A-12 LastKnownElrGains"),
    "last-known-elr-forgets-unclean": (0, "I-14 MinIsrRecoveryQuorum"),
    "leader-epoch-not-bumped": (0, "A-11 EpochsGrow"),
    "longest-log-before-epoch": (13, "A-14 BalancedRecovery"),
    "majority-high-watermark": (0, "A-2 HighWatermarkQuorum"),
    "matches-answers-by-offset": (121, "A-1 CommittedOnlyGrows"),
    "min-isr-by-config": (3, "A-11 EpochsGrow"),
    "never-truncates": (0, "L-6 AllCatchUp"),
    "new-leader-commits-all": (0, "A-2 HighWatermarkQuorum"),
    "no-divergence-check": (0, "I-8 LeaderCandidateCompleteness"),
    "no-gate": (0, "A-2 HighWatermarkQuorum"),
    "recovers-at-random": (0, "A-14 BalancedRecovery"),
    "recovers-from-outsiders": (220, "A-14 BalancedRecovery"),
    "recovers-on-first-reply": (0, "A-14 BalancedRecovery"),
    "recovers-without-revalidation": (1, "A-14 BalancedRecovery"),
    "redirects-drop-candidates": (191, "A-17 ReassignmentKeepsData"),
    "redirects-drop-last-known": (191, "A-17 ReassignmentKeepsData"),
    "registers-over-live-epoch": (0, "A-7 RegistrationGranted"),
    "roles-before-registration": (3, "I-18 EpochsInLog"),
    "serves-former-epochs": (16, "A-15 FollowerAppends"),
    "shows-lagging-high-watermark": (4, "A-6 AppliedHighWatermark"),
    "shrinks-before-confirmed": (0, "I-7 ReplicationQuorumSuperset"),
    "takes-old-registrations": (2, "I-7 ReplicationQuorumSuperset"),
    "takes-stale-answers": (0, "A-15 FollowerAppends"),
    "takes-stale-log-info": (605, "A-14 BalancedRecovery"),
    "truncates-to-high-watermark": (0, "A-16 TruncationPoint"),
    "truncates-to-leaders-end": (49, "A-16 TruncationPoint"),
    "truncates-to-own-end": (0, "L-6 AllCatchUp"),
    "unclean-stays-in-elr": (0, "A-8 UncleanExclusion"),
}


def test_every_mutant_has_a_killing_seed_or_a_story() -> None:
    in_stories = [name for name, kind in MUTANTS.items() if kind.is_rare]
    assert sorted([*KILLING_SEEDS, *in_stories]) == sorted(MUTANTS)


@pytest.mark.parametrize("name", sorted(KILLING_SEEDS))
def test_mutant_is_caught_at_its_seed(name: str) -> None:
    seed, property_name = KILLING_SEEDS[name]
    kind = MUTANTS[name]
    assert walk_seed(seed, STEPS, kind(), kind.band).property_name == property_name
    assert walk_seed(seed, STEPS, Rules(), kind.band).property_name is None


@pytest.mark.slow
def test_every_row_of_the_plan_is_caught_within_thirty_seeds() -> None:
    """Those of the list that was planned first (`row`), as far as they concern the protocol."""
    late = [
        name
        for name, kind in MUTANTS.items()
        if kind.row and not any(walk_seed(seed, STEPS, kind(), kind.band).is_broken for seed in range(30))
    ]
    assert late == []


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
