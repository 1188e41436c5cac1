"""Nodes that stop while their disk fails: the process ends all the same, with exit code 1."""

import errno

import pytest

from holdfast.sim.cluster.nodes import SimNode
from holdfast.sim.cluster.world import ClusterSpec, World, logs_of
from holdfast.sim.machine.choices import Choices


@pytest.mark.parametrize(("name", "part"), [("c102", "__cluster_metadata"), ("b1", "/metadata")])
def test_a_node_whose_metadata_log_cannot_be_closed_ends_with_an_error(name: str, part: str) -> None:
    world = World(ClusterSpec(), Choices("stops"))
    ended: list[str] = []
    with logs_of(world):
        world.boot()
        node = next(node for node in world.nodes if node.name == name)

        def heard(who: SimNode) -> None:
            ended.append(who.name)

        node.on_exit = heard
        node.stop()
        node.machine.sim_disk.fail("open", part, errno.ENOSPC)
        world.eventually("it ends", lambda: bool(ended), 10_000)
        assert node.exit_code == 1
    world.close()


def test_a_process_that_is_asked_to_stop_in_the_moment_of_its_boot_ends() -> None:
    """Seed 9020: the process before it was asked."""
    world = World(ClusterSpec(), Choices("stops"))
    with logs_of(world):
        world.boot()
        broker = world.brokers[0]
        broker.kill()
        world.pass_time(100)
        broker.boot()
        broker.stop()
        world.eventually("it ends", lambda: broker.exit_code is not None, 20_000)
        assert broker.exit_code == 0
    world.close()
