"""Nodes that stop while their disk fails: the process ends all the same, with exit code 1."""

import errno

import pytest

from sim.choices import Choices
from sim.nodes import SimNode
from sim.world import Shape, World, logs_of


@pytest.mark.parametrize(("name", "part"), [("c102", "__cluster_metadata"), ("b1", "/metadata")])
def test_a_node_whose_metadata_log_cannot_be_closed_ends_with_an_error(name: str, part: str) -> None:
    world = World(Shape(), Choices("stops"))
    ended: list[str] = []
    with logs_of(world):
        world.boot()
        node = next(node for node in world.nodes if node.name == name)

        def heard(who: SimNode) -> None:
            ended.append(who.name)

        node.on_exit = heard
        node.stop()
        node.machine.platter.fail("open", part, errno.ENOSPC)
        world.eventually("it ends", lambda: bool(ended), 10_000)
        assert node.exit_code == 1
    world.close()
