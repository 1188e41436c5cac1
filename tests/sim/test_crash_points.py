"""Crashes at named points: heard of in the trace, played within the budget."""

import pytest

from holdfast.sim.campaign.run import run
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.crash_points import POINTS, Points
from holdfast.sim.machine.trace import Trace


def test_a_point_is_reached_by_the_named_node_after_so_many_passes() -> None:
    world = World(ClusterSpec(), Choices("points"))
    trace, points, reached = world.trace, Points(world.trace), list[str]()
    points.arm("epochs.renamed", world.brokers[0], 1, lambda: reached.append("b1"))
    here = "/data/t-0/leader-epoch-checkpoint.tmp /data/t-0/leader-epoch-checkpoint"
    for name, kind in (("b1", "rename"), ("b2", "rename"), ("b1", "flush")):
        trace.add(kind, f"{name} {here}")
    assert reached == []
    trace.add("rename", f"b1 {here}")
    assert reached == ["b1"]
    trace.add("rename", f"b1 {here}")
    assert reached == ["b1"]
    world.close()


def test_points_that_are_disarmed_are_not_reached() -> None:
    world = World(ClusterSpec(), Choices("points"))
    points, reached = Points(world.trace), list[str]()
    for name in POINTS:
        points.arm(name, world.brokers[0], 0, lambda: reached.append("b1"))
    points.disarm()
    world.trace.add("sync", "b1 /data")
    assert reached == []
    world.close()


def test_the_trace_tells_its_listener_everything() -> None:
    heard: list[tuple[str, str]] = []
    trace = Trace(lambda: 7)
    trace.listener = lambda kind, text: heard.append((kind, text))
    trace.add("flush", "b1 /data")
    assert heard == [("flush", "b1 /data")]
    assert trace.newest() == ["7 flush b1 /data"]
    assert trace.counts == {"flush": 1}


@pytest.mark.slow
def test_machines_crash_right_behind_their_effects_and_nothing_is_lost() -> None:
    result = run(Choices("2"), ClusterSpec(), 6, plan=Plan(gap_ms=300, only=("crash_at_point",)))
    assert result.violation is None, result.as_text()
    assert sum(count for name, count in result.faults.items() if " at " in name) > 2
