"""What operators ask for once all was healed."""

from dataclasses import replace

from holdfast.client.admin_configs import Resource
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.load import final_operations, operators
from holdfast.sim.load.final_operations import FinalOperation
from holdfast.sim.machine.choices import Choices

STRATEGY = "unclean.recovery.strategy"


def test_strategies_that_wait_for_operators_and_no_others_are_taken_away() -> None:
    world = World(replace(ClusterSpec(), partitions=1, producers=1, topics=3), Choices("5"))
    world.boot()
    world.start_load()
    wanted = {world.topics[0].name: "None", world.topics[1].name: "Aggressive"}
    for name, strategy in wanted.items():
        act = operators.set_config(Resource.topic(name), STRATEGY, strategy)
        done = FinalOperation(strategy, act, lambda act=act: act.is_done(final_operations._image(world)))  # type: ignore[misc]
        final_operations.fulfil(world, done, 10_000)
    for operation in final_operations.unblocking_operations(world):
        final_operations.fulfil(world, operation, 10_000)
    left = {name: final_operations._image(world).topic_config(name, STRATEGY) for name in wanted}
    assert left == {world.topics[0].name: None, world.topics[1].name: "Aggressive"}
    assert not list(final_operations.unblocking_operations(world))
