"""Nodes of an earlier build and of this one in one cluster of real processes."""

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.records import ELR_FEATURE, METADATA_VERSION
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch
from tests.e2e.test_metadata_quorum import says
from tests.versions.conftest import Builds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PARTITIONS = 4


def change(cluster: LocalCluster, feature: str, verb: str, level: int) -> tuple[int, str]:
    """Exit code and output of `holdfast features`."""
    words = ["features", "--bootstrap-server", cluster.bootstrap_servers, verb]
    done = CliRunner().invoke(main, [*words, "--feature", f"{feature}={level}"])
    return done.exit_code, done.output


def is_done(answer: tuple[int, str]) -> bool:
    return answer[0] == 0


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

    def why_not_raised() -> str:
        code, text = change(cluster, METADATA_VERSION, "upgrade", 1)
        assert code != 0
        return text

    def raise_level() -> None:
        # A controller that leads since a moment ago has yet to hear from the others.
        wait_until(lambda: is_done(change(cluster, METADATA_VERSION, "upgrade", 1)))

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
            answer = change(cluster, ELR_FEATURE, verb, level)
            assert is_done(answer), answer
            load.wait_acked(100)
        replace(brokers[0])
        replace(controllers[0])
        assert not is_done(change(cluster, METADATA_VERSION, "upgrade", 1))
        for node in (brokers[0], controllers[0], brokers[2]):
            replace(node)
        # One of the others leads then, and a controller of the earlier build is left.
        cluster.stop([controllers[2]])
        cluster.start(controllers[2])
        cluster.wait_ready([controllers[2]])
        wait_until(lambda: "controllers [103] are of an earlier build" in why_not_raised())
        replace(controllers[2])
        raise_level()
        load.wait_acked(100)

        # An earlier broker is back only when the level is lowered.
        cluster.stop([brokers[0]])
        builds.present ^= {brokers[0].name}
        cluster.start(brokers[0])
        wait_until(lambda: cluster.pid(brokers[0]) is None)
        assert says(cluster, brokers[0], "metadata.version is at level 1, this broker supports [0, 0]")
        answer = change(cluster, METADATA_VERSION, "downgrade", 0)
        assert is_done(answer), answer
        cluster.start(brokers[0])
        cluster.wait_ready([brokers[0]])
        look.wait_full_isr("t")
        assert "upgrade broker 1 first" in why_not_raised()
        replace(brokers[0])
        raise_level()
    assert builds.present == {node.name for node in cluster.nodes}
    assert load.answers.failed == []
    assert_nothing_lost(cluster.bootstrap_servers, "t", PARTITIONS, load.answers)

    # What the earlier build has written opens without its processes, too.
    cluster.stop(brokers)
    cluster.kill(controllers)
    cluster.up()
    look.wait_full_isr("t")
    assert_nothing_lost(cluster.bootstrap_servers, "t", PARTITIONS, load.answers)
