"""Beyond the fault budget losses are seen and counted with their rule, and never come unreported."""

from collections import Counter
from dataclasses import replace

import pytest

from controller.election import ElectionReason
from sim.checkers.bands import LAST_REPLICA_STANDING, LYING_DISKS, excuse, excuse_of_loss
from sim.checkers.logs import EpochOffsetUniqueness, LeaderCompleteness, NoCommittedRecordLostGlobally
from sim.checkers.views import Ghost
from sim.choices import Choices
from sim.faults import Plan
from sim.run import run
from sim.world import Shape

LYING = replace(Shape(), every_write=True, disks_lie=True)
NO_ELR = replace(Shape(), elr=False)
OVER = replace(Shape(), over_budget=True)
RECOVERED = Ghost(unclean=ElectionReason.LAST_KNOWN_LEADER.value)


def test_in_budget_nothing_is_excused_not_even_after_an_unclean_election() -> None:
    assert excuse_of_loss(Shape(), RECOVERED) is None
    assert excuse(NoCommittedRecordLostGlobally(), Shape(), RECOVERED) is None


def test_beyond_the_budget_a_loss_is_excused_once_the_controller_has_told_of_it_b4() -> None:
    assert excuse_of_loss(OVER, Ghost()) is None
    rule = excuse(LeaderCompleteness(), OVER, RECOVERED)
    assert rule == "B-4: beyond the budget, elected as last_known_leader"


def test_beyond_the_budget_all_copies_may_go_before_anybody_is_elected() -> None:
    assert excuse(NoCommittedRecordLostGlobally(), OVER, Ghost()) is not None
    assert excuse(LeaderCompleteness(), OVER, Ghost()) is None


@pytest.mark.parametrize("shape", [LYING, NO_ELR, OVER])
def test_what_is_not_about_loss_holds_in_every_band(shape: Shape) -> None:
    assert excuse(EpochOffsetUniqueness(), shape, RECOVERED) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "faults", "rule"),
    [
        (LYING, ("power_all",), LYING_DISKS),
        (OVER, ("power_broker", "power_leader", "power_all"), "B-4"),
        (
            NO_ELR,
            ("isolate_broker", "kill_broker", "power_leader", "power_broker", "cut_controllers"),
            LAST_REPLICA_STANDING,
        ),
    ],
    ids=["disks lie", "over budget", "without ELR"],
)
def test_the_loss_that_a_rule_allows_is_observed_b5(shape: Shape, faults: tuple[str, ...], rule: str) -> None:
    plan = Plan(gap_ms=500, only=faults)
    allowed: Counter[str] = Counter()
    for seed in range(8):
        result = run(Choices(str(seed)), shape, 10, plan=plan)
        assert result.violation is None, result.as_text()
        allowed.update(result.allowed)
    lost = sum(count for name, count in allowed.items() if name.startswith("lost") and rule in name)
    assert lost > 0, allowed
