"""A log dir fails, its broker goes on and is mended later (R27)."""

import pytest

from holdfast.sim.campaign.run import run
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.faults.log_dir_faults import FailingDirs
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices

SHAPE = ClusterSpec(log_dirs=2, voters=1, producers=2)


@pytest.mark.slow
def test_brokers_outlive_a_log_dir_and_nothing_is_lost() -> None:
    result = run(Choices("1"), SHAPE, 8, plan=Plan(gap_ms=700, only=("fail_dir",)))
    assert result.violation is None, result.as_text()
    assert result.faults["fail_dir"] > 1
    assert result.events["dirfault"] == result.faults["fail_dir"]
    # no broker ended by itself; each that had lost a dir was stopped for it, and came back with both
    assert result.boots > SHAPE.brokers + SHAPE.voters
    assert "kill" not in result.events


def test_only_one_of_three_replicas_may_be_in_a_failed_dir() -> None:
    """The other dir's partitions count too: who lost a dir is lossy until it was started anew."""
    world = World(SHAPE, Choices("2"))
    world.boot()
    budget = Budget(world)
    budget.update()
    dirs = FailingDirs(world, budget, lambda delay_ms, what: None)
    stream = world.choices.stream("test")
    assert dirs.fail(stream)
    hit = [broker for broker in world.brokers if broker.machine.sim_disk.has_faults]
    for _ in range(20):
        dirs.fail(stream)
    assert [broker for broker in world.brokers if broker.machine.sim_disk.has_faults] == hit
    world.close()


def test_broker_with_one_log_dir_is_left_alone() -> None:
    world = World(ClusterSpec(voters=1), Choices("3"))
    world.boot()
    budget = Budget(world)
    budget.update()
    assert not FailingDirs(world, budget, lambda delay_ms, what: None).fail(world.choices.stream("test"))
    world.close()
