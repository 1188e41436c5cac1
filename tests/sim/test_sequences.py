"""Faults of several steps reach the states that they are aimed at; and marks count where they can be met."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.sim.campaign.run import run
from holdfast.sim.campaign.run_spec import BANDS
from holdfast.sim.checks.observe.coverage_marks import MARKS, marks_of
from holdfast.sim.cluster.world import ClusterSpec, World, logs_of
from holdfast.sim.faults.table import Faults, Plan
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.crash_points import Points

pytestmark = pytest.mark.slow

SHAPE = replace(ClusterSpec(), partitions=2, producers=2, recovery_manager=True)


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


def test_a_move_is_called_off_while_too_few_of_those_who_stay_are_in_sync() -> None:
    """R103 refuses it; operators' other acts of this plan are the beginnings of moves."""
    lines: list[str] = []
    shape, plan = replace(SHAPE, brokers=5), Plan(gap_ms=2_500, only=("tear_move",))
    result = run(Choices("1"), shape, 14, plan=plan, sink=lines.append)
    assert result.violation is None, result.as_text()
    refused = [line for line in lines if " act cancel " in line and "INVALID_REPLICA_ASSIGNMENT" in line]
    assert refused


def test_one_that_leaves_with_a_move_is_elected_when_the_move_is_all_but_done() -> None:
    """F7: without ELR, where losses are allowed. The move may end by a later record, not by that one."""
    told: list[str] = []
    shape = replace(SHAPE, brokers=4, partitions=1, elr=False, over_budget=True)
    for seed in ("1", "2", "3"):
        plan = Plan(gap_ms=9_000, only=("strand_move",))
        result = run(Choices(seed), shape, 16, plan=plan, sink=told.append)
        assert result.violation is None, result.as_text()
    rows = [line for line in "\n".join(told).splitlines() if "holdfast.controller: t-0: leader none" in line]
    elected = [line for line in rows if "an operator" in line]
    assert len(elected) > 1  # one that stays, then one that leaves


def test_an_isr_flaps_and_who_waits_for_an_answer_waits_longer_than_it_is_below_min_isr() -> None:
    lows, in_flight = 0, 0
    for world in playing("flap_isr", replace(SHAPE, min_isr=3), 14):
        rows = world.partitions()
        lows += any(len(row.isr) < row.min_isr for _, row in rows)
        in_flight += any(len(row.isr) == row.min_isr and under_way(world, row.leader) for _, row in rows)
    assert lows > 10
    assert in_flight > 10


def test_a_log_forgets_its_producers_while_nothing_of_it_is_under_way() -> None:
    shape = replace(SHAPE, over_budget=True, recovery_manager=False, every_write=False)
    for seed in range(1, 7):
        ends: dict[int, int] = {}
        for world in playing("forget_producers", shape, 25, str(seed)):
            for place, row in world.partitions():
                broker = next((b for b in world.brokers if b.node_id == row.leader), None)
                replica = None if broker is None else world.replica(broker, place)
                if replica is not None and place in world.load.resting:
                    if replica.log.log_end_offset == 0 < ends.get(place, 0):
                        return
                elif replica is not None:
                    ends[place] = replica.log.log_end_offset
    raise AssertionError("no log was empty after it had had records")


def playing(fault: str, shape: ClusterSpec, seconds: int, seed: str = "2") -> Iterator[World]:
    """A world with load and this fault, again and again."""
    world = World(shape, Choices(seed))
    faults = Faults(world, Plan(gap_ms=2_500, only=(fault,)))
    with logs_of(world):
        world.boot()
        world.start_load()
        faults.start()
        for _ in range(seconds * 50):
            world.pass_time(20)
            yield world
    assert faults.counts[fault] > 1
    world.close()


def under_way(world: World, leader: int | None) -> bool:
    """Some answer of this broker to a producer has not arrived."""
    hosts = {machine.host for machine in world.producer_machines.values()}
    ends = [c for c in world.network.connections if c.host.name == f"b{leader}" and c.other.host in hosts]
    return any(end._arrivals_due for end in ends)


def test_marks_count_only_where_they_can_be_met() -> None:
    shapes = {band: replace(ClusterSpec(), **given) for band, given in BANDS.items()}
    assert "log cut below the high watermark" not in marks_of(shapes["budget"])
    assert "log cut below the high watermark" in marks_of(shapes["over-budget"])
    assert "recovery elected" not in marks_of(shapes["budget"])
    assert "recovery elected" in marks_of(shapes["manager"])
    assert {mark for shape in shapes.values() for mark in marks_of(shape)} == set(MARKS)


def test_a_point_of_a_boot_to_come_is_not_reached_before_nor_after_it() -> None:
    world = World(ClusterSpec(), Choices("points"))
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
