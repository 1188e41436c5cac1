"""Faults of several steps reach the states that they are aimed at; and marks count where they can be met."""

from collections import Counter
from dataclasses import replace

import pytest

from sim.checkers.marks import MARKS, marks_of
from sim.choices import Choices
from sim.faults import Plan
from sim.points import Points
from sim.run import run
from sim.story import BANDS
from sim.world import Shape, World

SHAPE = replace(Shape(), partitions=2, producers=2, recovery_manager=True)


@pytest.mark.parametrize(
    ("fault", "marks"),
    [
        ("stop_unseen", ("registered again before it was fenced",)),
        ("starve_follower", ("follower diverged, several epochs",)),
        ("min_isr_with_elr", ("min ISR changed with an ELR",)),
        ("act_while_leaderless", ("recovery cancelled", "last known ELR above min ISR")),
    ],
)
def test_an_aimed_fault_reaches_its_state_and_breaks_no_promise(fault: str, marks: tuple[str, ...]) -> None:
    met: Counter[str] = Counter()
    for seed in ("1", "2", "3"):
        result = run(Choices(seed), SHAPE, 14, plan=Plan(gap_ms=1_500, only=(fault,)))
        assert result.violation is None, result.as_text()
        met.update(result.marks)
        if all(met[mark] for mark in marks):
            return
    raise AssertionError(f"never met: {[mark for mark in marks if not met[mark]]}")


def test_a_stop_is_cut_short_at_many_of_its_steps() -> None:
    result = run(Choices("1"), SHAPE, 14, plan=Plan(gap_ms=700, only=("crash_in_stop",)))
    assert result.violation is None, result.as_text()
    cut_short = sum(count for name, count in result.faults.items() if name.endswith("at a stop"))
    assert cut_short > 3
    assert result.marks["ended after leaving, logs not flushed"] > 0


def test_marks_count_only_where_they_can_be_met() -> None:
    shapes = {band: replace(Shape(), **given) for band, given in BANDS.items()}
    assert "log cut below the high watermark" not in marks_of(shapes["budget"])
    assert "log cut below the high watermark" in marks_of(shapes["over-budget"])
    assert "recovery elected" not in marks_of(shapes["budget"])
    assert "recovery elected" in marks_of(shapes["manager"])
    assert {mark for shape in shapes.values() for mark in marks_of(shape)} == set(MARKS)


def test_a_point_of_a_boot_to_come_is_not_reached_before_nor_after_it() -> None:
    world = World(Shape(), Choices("points"))
    broker, points, reached = world.brokers[0], Points(world.trace), list[int]()
    is_open: list[bool] = []
    points.arm_within(
        broker, 1, frozenset(("flush",)), 1, lambda: reached.append(broker.boots), lambda: bool(is_open)
    )
    world.trace.add("flush", "b1 /data/x")
    broker.boots = 1
    world.trace.add("flush", "b1 /data/x")  # it does not count yet
    is_open.append(True)
    world.trace.add("flush", "b1 /data/x")
    assert reached == []
    world.trace.add("flush", "b1 /data/x")
    assert reached == [1]
    points.arm_within(broker, 1, frozenset(("flush",)), 0, lambda: reached.append(broker.boots))
    broker.boots = 2
    world.trace.add("flush", "b1 /data/x")
    assert reached == [1]
    assert world.trace.listener is None
    world.close()
