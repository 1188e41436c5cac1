"""Operators: what they are asked for happens through the real admin client, and what is refused is told."""

from dataclasses import replace

import pytest

from holdfast.protocol.topic_names import TopicPartition
from holdfast.sim.campaign.run import RunResult, run
from holdfast.sim.cluster.world import ClusterSpec, World, varied
from holdfast.sim.faults.table import Plan
from holdfast.sim.load import operators
from holdfast.sim.load.clients import partition_at, place_of
from holdfast.sim.machine.choices import Choices

SHAPE = replace(ClusterSpec(), brokers=4, voters=1, partitions=1, producers=1)
MOVES = ("move_partition", "move_back", "cancel_move")


def test_an_act_is_carried_out_and_tells_its_asker() -> None:
    world = World(SHAPE, Choices("admin"))
    world.boot()
    world.start_load()
    done: list[bool] = []
    target = (4, 1, 2)
    act = operators.move(TopicPartition("t", 0), target)
    world.operator_queue.put("move", act, lambda: done.append(True))
    world.eventually("moved", lambda: [row.replicas for _, row in world.partitions()] == [target])
    assert done == [True]
    assert world.operator_queue.outcomes == {"ok": 1}
    assert not world.operator_queue.is_quiet, "an answer that was just given may still change something"
    world.pass_time(11_000)
    assert world.operator_queue.is_quiet
    world.close()


def test_what_is_refused_is_told_by_its_code() -> None:
    world = World(SHAPE, Choices("admin"))
    world.boot()
    world.start_load()
    done: list[bool] = []
    world.operator_queue.put("move", operators.move(TopicPartition("t", 0), (9,)), lambda: done.append(True))
    world.eventually("answered", lambda: bool(world.operator_queue.outcomes))
    assert world.operator_queue.outcomes == {"INVALID_REPLICA_ASSIGNMENT": 1}
    assert done == []
    world.close()


def test_operators_who_hear_nothing_are_not_asked_for_more() -> None:
    world = World(SHAPE, Choices("admin"))
    world.boot()
    world.start_load()
    for controller in world.controllers:
        controller.lose_power()
    for number in range(3):
        assert not world.operator_queue.is_busy
        world.operator_queue.put(f"drop {number}", operators.drop_topic("x"))
    assert world.operator_queue.is_busy
    world.operator_queue.clear()
    assert not world.operator_queue.is_busy
    world.close()


def played(names: tuple[str, ...], shape: ClusterSpec, seed: str = "1", gap_ms: int = 250) -> RunResult:
    result = run(Choices(seed), shape, 6, plan=Plan(gap_ms=gap_ms, only=names))
    assert result.violation is None, result.as_text()
    return result


@pytest.mark.slow
def test_partitions_are_moved_there_and_back_and_elsewhere_and_nothing_is_lost() -> None:
    result = played(MOVES, replace(SHAPE, brokers=5, partitions=2))
    assert result.faults["move_partition"] > 3
    assert result.acknowledged > 10


@pytest.mark.slow
def test_partitions_and_topics_come_and_go_under_load() -> None:
    names = ("add_partition", "make_topic", "drop_topic", "elect_preferred", "change_flush")
    result = played(names, replace(SHAPE, topics=2))
    assert set(names) <= set(result.faults)


@pytest.mark.slow
def test_records_are_deleted_while_leaders_come_and_go() -> None:
    result = played(("delete_records", "kill_leader"), replace(SHAPE, brokers=3))
    assert result.faults["delete_records"] > 2


def test_min_isr_goes_up_and_down_within_the_budget() -> None:
    names = ("change_min_isr", "power_leader", "kill_broker")
    result = played(names, replace(SHAPE, recovery_manager=True), gap_ms=500)
    assert result.faults["change_min_isr"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["change_strategy", "elect_unclean", "switch_elr"])
def test_what_may_lose_records_is_only_done_where_that_is_allowed(name: str) -> None:
    assert name not in played((name,), SHAPE).faults
    allowing = replace(SHAPE, elr=False, switches_elr=True) if name == "switch_elr" else SHAPE
    allowing = allowing if name == "switch_elr" else replace(SHAPE, over_budget=True)
    assert played((name,), allowing).faults[name] > 3


def test_every_partition_with_load_has_one_place() -> None:
    assert place_of("t", 3) == 3
    assert place_of("t2", 3) == 2003
    assert place_of("x1", 0) is None
    assert partition_at(2003) == TopicPartition("t2", 3)


def test_topics_beyond_the_first_have_sizes_of_their_own_that_leave_power_cuts_in_budget() -> None:
    seen = set()
    for seed in range(60):
        choices = Choices(str(seed))
        shape = varied(ClusterSpec(), choices.stream("shape.more"))
        world = World(shape, choices)
        for topic in world.topics[1:]:
            assert topic.min_isr <= topic.replicas <= shape.brokers
            assert topic.min_isr > 1 or topic.every_write
            seen.add((topic.replicas, topic.min_isr))
        seen.add((shape.brokers, shape.racks))
        world.close()
    assert {(3, 2), (1, 1), (2, 2), (5, 3)} <= seen
