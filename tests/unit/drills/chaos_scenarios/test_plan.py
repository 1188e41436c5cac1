"""What a scenario will do, before anything runs: the same seed draws the same faults."""

from itertools import islice

import pytest

from holdfast.drills.chaos_scenarios.command import KEYS
from holdfast.drills.chaos_scenarios.model import RandomPhase
from holdfast.drills.chaos_scenarios.parse import parse
from holdfast.drills.chaos_scenarios.plan import NothingExpected, draws, expected, plan_lines
from holdfast.drills.ground import not_possible
from holdfast.drills.settings import Settings
from tests.unit.drills.chaos_scenarios.test_parse import WHOLE

NOISE = RandomPhase("noise", 30, {"kill": 3, "pause": 1}, ("most leaders", "random broker"), (1.0, 2.0))


def test_the_seed_fixes_what_is_drawn() -> None:
    first = list(islice(draws(NOISE, 5, 1), 200))
    assert first == list(islice(draws(NOISE, 5, 1), 200))
    assert first != list(islice(draws(NOISE, 6, 1), 200))
    assert first != list(islice(draws(NOISE, 5, 2), 200))


def test_weights_targets_and_durations_are_kept_to() -> None:
    drawn = list(islice(draws(NOISE, 1, 1), 400))
    kills = sum(one.fault == "kill" for one in drawn)
    assert 250 < kills < 350
    assert {one.target for one in drawn} == {"most leaders", "random broker"}
    assert all(1.0 <= one.seconds <= 2.0 for one in drawn)


def test_the_first_expectation_for_the_settings_counts() -> None:
    scenario = parse(WHOLE, KEYS)
    assert expected(scenario, Settings(elr=True)).loss.value == "none"
    assert expected(scenario, Settings(elr=False)).loss.value == "loss"
    only_with_elr = parse(WHOLE[: WHOLE.rindex("[[expect]]")], KEYS)
    with pytest.raises(NothingExpected, match="expects nothing with manager on, elr off"):
        expected(only_with_elr, Settings(elr=False))


def test_the_plan_says_each_step_in_words() -> None:
    lines = plan_lines(parse(WHOLE, KEYS), Settings(seed=7), "compose")
    assert "seed 7, driver compose, manager on, elr on, strategy Balanced" in lines
    assert "   pause: leader of t-0, called 'old leader'" in lines
    assert "   partition: old leader (how from-controllers), for 2.5 s" in lines
    assert "   wait until the ISR of t-1 has 2" in lines
    assert lines[-1] == "expected: none (of the rules)"


def test_faults_that_containers_do_not_have_are_refused_before_anything_runs() -> None:
    assert not_possible("local", ["flip-bit", "kill"]) == []
    (refusal,) = not_possible("compose", ["flip-bit", "kill"])
    assert refusal.startswith("flip-bit is not possible with containers")
