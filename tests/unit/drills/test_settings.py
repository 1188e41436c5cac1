"""The tables of expectations: which settings lose records, by which rule."""

import re
from pathlib import Path

import pytest

from holdfast.drills.catalogue import DRILLS
from holdfast.drills.drill import Drill
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss, Settings, expectation_of

FULL = Settings()
#: R12, N-3, B1, F7, A-6, D8, R62: the numbers that rules are cited by
RULE = re.compile(r"\b([RFBDANG]-?\d+)\b")


def expected(drill: str, settings: Settings) -> ExpectedLoss:
    row = expectation_of(DRILLS[drill].expectations, settings)
    assert row is not None
    return row.loss


def test_the_twelve_named_drills_are_there() -> None:
    named = {
        "last-replica-standing", "power-outage", "clean-elr-recovery", "kip-timeline",
        "whole-cluster-power-cut", "rolling-power-cut", "min-isr-change", "stale-reply",
        "controller-failover-in-recovery", "acks1-invisible", "flush-every-write", "recovery-tool",
    }  # fmt: skip
    assert named <= DRILLS.keys()


@pytest.mark.parametrize("drill", DRILLS.values(), ids=DRILLS)
def test_every_drill_can_be_played_with_the_full_protocol_and_both_ways_of_what_it_compares(
    drill: Drill,
) -> None:
    sides = [FULL]
    if drill.compares is not None:
        sides += [FULL.with_axis(drill.compares, is_on) for is_on in (False, True)]
    assert all(expectation_of(drill.expectations, side) is not None for side in sides)
    assert all(RULE.search(row.rule) for row in drill.expectations), "a row cites its rule"


@pytest.mark.parametrize(
    ("drill", "axis"),
    [
        ("power-outage", Axis.MANAGER),
        ("last-replica-standing", Axis.ELR),
        ("clean-elr-recovery", Axis.ELR),
        ("min-isr-change", Axis.ELR),
        ("acks1-invisible", Axis.ELR),
    ],
)
def test_the_baseline_loses_and_the_full_protocol_does_not(drill: str, axis: Axis) -> None:
    assert DRILLS[drill].compares is axis
    assert expected(drill, FULL.with_axis(axis, False)) is ExpectedLoss.CERTAIN
    assert expected(drill, FULL) is ExpectedLoss.NONE


def test_flushing_every_write_loses_nothing_at_any_setting() -> None:
    for manager in (True, False):
        for elr in (True, False):
            assert expected("flush-every-write", Settings(manager=manager, elr=elr)) is ExpectedLoss.NONE


def test_beyond_the_budget_the_recovery_must_tell_of_the_loss() -> None:
    for name in ("over-budget", "whole-cluster-power-cut"):
        row = expectation_of(DRILLS[name].expectations, FULL)
        assert row is not None
        assert (row.loss, row.is_told) == (ExpectedLoss.POSSIBLE, True)


def test_the_first_row_that_speaks_of_the_settings_counts() -> None:
    rows = (
        Expectation(ExpectedLoss.CERTAIN, "R1", manager=False),
        Expectation(ExpectedLoss.NONE, "R2", elr=True, strategies=("Balanced",)),
    )
    found = expectation_of(rows, Settings(manager=False))
    assert found is not None
    assert found.rule == "R1"
    assert expectation_of(rows, Settings(elr=False)) is None
    assert expectation_of(rows, Settings(strategy="None")) is None


def test_every_drill_is_told_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "drills.md").read_text(encoding="utf-8")
    assert [name for name in DRILLS if f"## {name}\n" not in text] == []
