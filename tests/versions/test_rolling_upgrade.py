"""Nodes of an earlier build and of this one in one cluster of real processes."""

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.records import ELR_FEATURE
from tests.e2e.load import Load, assert_nothing_lost, watch
from tests.versions.conftest import Builds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PARTITIONS = 4


def change_elr(cluster: LocalCluster, verb: str, level: int) -> None:
    words = ["features", "--bootstrap-server", cluster.bootstrap_servers, verb]
    done = CliRunner().invoke(main, [*words, "--feature", f"{ELR_FEATURE}={level}"])
    assert done.exit_code == 0, done.output


def test_nodes_are_replaced_by_this_build_and_back_under_load_and_nothing_is_lost(
    cluster: LocalCluster, builds: Builds
) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", PARTITIONS, 3, 2)

    def replace(node: Node, *, cleanly: bool = True) -> None:
        if cleanly:
            cluster.stop([node])
        else:
            cluster.kill([node])
        builds.present ^= {node.name}
        cluster.start(node)
        cluster.wait_ready([node])
        load.wait_acked(100)
        look.wait_full_isr("t")

    brokers, controllers = cluster.brokers, cluster.controllers
    with Load(cluster.bootstrap_servers, "t", records_per_second=500) as load:
        # Both builds are among the brokers and among the controllers nearly all of the time.
        replace(brokers[0])
        replace(controllers[0])
        replace(brokers[1], cleanly=False)
        replace(controllers[1], cleanly=False)
        look.create_topic("made-by-both", PARTITIONS, 3, 2)
        look.wait_full_isr("made-by-both")
        for verb, level in (("downgrade", 0), ("upgrade", 1)):
            change_elr(cluster, verb, level)
            load.wait_acked(100)
        replace(brokers[0])
        replace(controllers[0])
        for node in (brokers[0], controllers[0], brokers[2], controllers[2]):
            replace(node)
    assert builds.present == {node.name for node in cluster.nodes}
    assert load.answers.failed == []
    assert_nothing_lost(cluster.bootstrap_servers, "t", PARTITIONS, load.answers)

    # What the earlier build has written opens without its processes, too.
    cluster.stop(brokers)
    cluster.kill(controllers)
    cluster.up()
    look.wait_full_isr("t")
    assert_nothing_lost(cluster.bootstrap_servers, "t", PARTITIONS, load.answers)
