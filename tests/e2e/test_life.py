"""A cluster of real processes: whole restarts after a clean stop and after `kill -9` of everything."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import Load, assert_nothing_lost, produce, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def status(cluster: LocalCluster) -> str:
    result = CliRunner().invoke(main, ["cluster", "status", "--dir", str(cluster.folder)])
    assert result.exit_code == 0, result.output
    return result.output


def log_text(cluster: LocalCluster) -> str:
    return "".join(Path(cluster.log_file(node)).read_text() for node in cluster.controllers)


def test_everything_is_there_after_a_clean_stop_and_brokers_register_clean(cluster: LocalCluster) -> None:
    watch(cluster.bootstrap_servers).create_topic("t", 3, 3, 2)
    answers = produce(cluster.bootstrap_servers, "t", 2000)
    assert not answers.failed
    cluster.down()
    cluster.up()
    assert_nothing_lost(cluster.bootstrap_servers, "t", 3, answers)
    rows = [line for line in status(cluster).splitlines() if line.startswith("broker-")]
    assert len(rows) == 3
    assert all(" clean " in row and "unclean" not in row for row in rows)
    assert watch(cluster.bootstrap_servers).wait_full_isr("t") >= 0


def test_everything_is_there_after_kill_of_all_six_processes_at_once(cluster: LocalCluster) -> None:
    watch(cluster.bootstrap_servers).create_topic("t", 3, 3, 2)
    answers = produce(cluster.bootstrap_servers, "t", 2000)
    assert not answers.failed
    cluster.kill(cluster.nodes)
    cluster.up()
    watch(cluster.bootstrap_servers).wait_full_isr("t")
    assert_nothing_lost(cluster.bootstrap_servers, "t", 3, answers)
    rows = [line for line in status(cluster).splitlines() if line.startswith("broker-")]
    assert all(" unclean " in row for row in rows)
    assert "unclean" in log_text(cluster)


def test_leaders_and_the_active_controller_are_killed_under_load(cluster: LocalCluster) -> None:
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", 3, 3, 2)
    with Load(cluster.bootstrap_servers, "t") as load:
        for broker in cluster.brokers:
            cluster.kill([broker])
            load.wait_acked(500)
            cluster.start(broker)
            cluster.wait_ready([broker])
            look.wait_full_isr("t")
        active = next(n for n in cluster.controllers if n.node_id == look.active_controller())
        cluster.kill([active])
        load.wait_acked(500)
        look.wait_other_controller(active.node_id, 0)
        cluster.start(active)
    assert not load.answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, "t", 3, load.answers)
