"""A voter that is lost to the end: how it is lost, that nothing brings it back, what the others must do."""

from array import array
from dataclasses import replace

import pytest

from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.checks import liveness
from holdfast.sim.cluster.nodes import State
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.lost_voter import Loss
from holdfast.sim.faults.partial_heal import draw_healed_subset
from holdfast.sim.faults.table import Faults, Plan
from holdfast.sim.machine.choices import Choices

SHAPE = replace(ClusterSpec(), producers=2, partitions=2, loses_voter=True)
NO_FAULTS = Plan(gap_ms=1_000_000)


def lost(loss: Loss, *, as_candidate: bool = False, shape: ClusterSpec = SHAPE) -> tuple[World, Faults]:
    """A cluster under load that has just lost c102, or a candidate; none, where it has too few."""
    draws = [0, 0, int(loss), 1, int(as_candidate)]
    world = World(shape, Choices("5", tape={"lost": array("Q", draws)}))
    faults = Faults(world, NO_FAULTS)
    world.boot()
    world.start_load()
    faults.lose_a_voter(8_000)
    world.pass_time(100)
    if shape.voters > 1:
        world.eventually("a voter is lost", lambda: bool(world.lost))
    return world, faults


def reaches(world: World, one: str, other: str) -> bool:
    hosts = world.network.hosts
    return not world.network.link(hosts[one], hosts[other]).is_cut


@pytest.mark.parametrize("loss", Loss)
def test_nothing_brings_a_lost_voter_back_and_the_others_do_without_it(loss: Loss) -> None:
    world, faults = lost(loss)
    assert world.lost == {"c102"}
    faults.heal()
    world.pass_time(8_000)
    assert (world.controllers[1].state is State.DOWN) is (loss is Loss.DEAD)
    ways = {
        Loss.OUT_OF_REACH: (False, False, False),
        Loss.OUT_OF_REACH_OF_VOTERS: (False, False, True),
        Loss.OUT_OF_REACH_OF_ONE_VOTER: (False, True, True),
        Loss.DEAF: (False, False, True),
    }
    if loss in ways:
        assert tuple(reaches(world, one, "c102") for one in ("c101", "c103", "b1")) == ways[loss]
        assert reaches(world, "c102", "c101") is (loss is Loss.DEAF)
    world.load.acknowledged.clear()
    liveness.settle(world, liveness.BEFORE_THE_LOAD_ENDS)
    liveness.settle(world, liveness.ALL_LED)
    liveness.settle(world, liveness.WHILE_THE_LOAD_GOES_ON)


def test_a_voter_that_runs_for_office_is_lost_in_an_epoch_of_its_own() -> None:
    world, _ = lost(Loss.DEAD, as_candidate=True)
    (name,) = world.lost
    voters = {voter.name: voter for voter in world.controllers}
    epochs = {
        name: voter.server.driver.raft_epoch for name, voter in voters.items() if voter.server is not None
    }
    assert epochs.pop(name) > max(epochs.values())
    assert voters[name].state is State.RUNNING
    assert [reaches(world, other, name) for other in epochs] == [False, False]
    assert reaches(world, "b1", name)


def test_a_majority_that_follows_a_leader_is_enough_once_a_voter_is_lost() -> None:
    world, _ = lost(Loss.DEAD)
    liveness.settle(world, liveness.BEFORE_THE_LOAD_ENDS)
    follower = next(voter for voter in world.controllers if voter.is_up and not voter.is_active)
    follower.kill()
    assert not liveness.has_quorum_leader(world)


def test_a_lost_voter_is_none_of_those_that_are_healed_first() -> None:
    world, _ = lost(Loss.OUT_OF_REACH)
    drawn = [draw_healed_subset(world, Choices(str(seed)).stream("core")) for seed in range(20)]
    assert {one.voters for one in drawn} == {frozenset(("c101", "c103"))}


def test_no_voter_is_lost_where_no_majority_would_be_left() -> None:
    world, _ = lost(Loss.DEAD, shape=replace(SHAPE, voters=1))
    assert world.lost == set()


@pytest.mark.usefixtures("failures_logged")
def test_stories_of_the_band_lose_a_voter_and_keep_every_promise() -> None:
    spec = RunTemplate(ClusterSpec(partitions=2, producers=2), seconds=8.0, band="lost-voter").spec("3")
    assert spec.shape.loses_voter
    assert {"switch_elr", "unregister_broker"} <= spec.plan.weights.keys()
    result = play(spec)
    assert result.violation is None, result.as_text()
    assert result.events["lost"] == 1
