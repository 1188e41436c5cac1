"""The properties speak up when the code that keeps them is broken on purpose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.partition import Partition
from sim.choices import Choices
from sim.faults import Plan
from sim.run import run
from sim.world import Shape

SEEDS = [str(number) for number in range(1, 9)]
advance = Partition.advance_high_watermark


def first_violation(plan: Plan) -> str | None:
    """Of the first seed that finds one."""
    for seed in SEEDS:
        result = run(Choices(seed), Shape(), 12, plan=plan)
        if result.violation is not None:
            return result.violation
    return None


def without_gate(partition: Partition, now_ms: int) -> bool:
    """The high watermark moves below min ISR too, as before KIP-966."""
    registration = partition.registration
    if registration is None:
        return advance(partition, now_ms)
    partition.registration = replace(registration, min_isr=0)
    try:
        return advance(partition, now_ms)
    finally:
        partition.registration = registration


def without_followers(partition: Partition, now_ms: int) -> bool:
    """The leader counts nobody but itself."""
    leadership = partition.leadership
    if leadership is None:
        return advance(partition, now_ms)
    progress, leadership.progress = leadership.progress, {}
    try:
        return advance(partition, now_ms)
    finally:
        leadership.progress = progress


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "name"), [(without_gate, "I-8"), (without_followers, "A-2")], ids=["gate", "followers"]
)
def test_a_high_watermark_that_moves_too_early_is_seen(
    broken: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partition, "advance_high_watermark", broken)
    violation = first_violation(Plan(gap_ms=500, only=("kill_broker", "isolate_broker", "pause_broker")))
    assert violation is not None
    assert violation.startswith((name, "A-2"))
