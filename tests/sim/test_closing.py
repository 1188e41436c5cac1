"""What operators ask for once all was healed."""

from dataclasses import replace

from client.admin_configs import Resource
from sim import admin, closing
from sim.choices import Choices
from sim.closing import Wish
from sim.world import Shape, World

STRATEGY = "unclean.recovery.strategy"


def test_strategies_that_wait_for_operators_and_no_others_are_taken_away() -> None:
    world = World(replace(Shape(), partitions=1, producers=1, topics=3), Choices("5"))
    world.boot()
    world.start_load()
    wanted = {world.topics[0].name: "None", world.topics[1].name: "Aggressive"}
    for name, strategy in wanted.items():
        act = admin.set_config(Resource.topic(name), STRATEGY, strategy)
        done = Wish(strategy, act, lambda act=act: act.is_done(closing._image(world)))  # type: ignore[misc]
        closing.fulfil(world, done, 10_000)
    for wish in closing.ways_out(world):
        closing.fulfil(world, wish, 10_000)
    left = {name: closing._image(world).topic_config(name, STRATEGY) for name in wanted}
    assert left == {world.topics[0].name: None, world.topics[1].name: "Aggressive"}
    assert not list(closing.ways_out(world))
