"""Brokers with two log dirs as real processes: one is taken away under load, and comes back (R27, B24)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.storage.clean_shutdown import FILE_NAME
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(make_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    """One controller, three brokers; each has `data` and `more` as log dirs."""

    def two_dirs(made: LocalCluster) -> None:
        for node in made.brokers:
            file = made.properties_file(node)
            first = made.data_folder(node)
            both = f"log.dirs={first},{first.parent / 'more'}\n"
            file.write_text(file.read_text().replace(f"log.dirs={first}\n", both))

    return make_cluster(
        controllers=1, before_up=two_dirs, replica_high_watermark_checkpoint_interval_ms="200"
    )


def partitions_in(folder: Path) -> set[int]:
    """Indexes of topic t whose logs lie there."""
    return {int(path.name.rpartition("-")[2]) for path in folder.glob("t-*")}


def test_broker_lives_on_when_one_of_its_log_dirs_fails(cluster: LocalCluster) -> None:
    """Its partitions there get other leaders, those in the other dir stay; after a repair all come back."""
    servers = cluster.bootstrap_servers
    look = watch(servers)
    look.create_topic("t", 6, 3, 2)
    hit = cluster.brokers[0]
    failed, other = _dirs(cluster, hit)
    wait_until(lambda: partitions_in(failed) | partitions_in(other) == set(range(6)))
    lost, kept = partitions_in(failed), partitions_in(other)
    assert len(lost) == len(kept) == 3
    with Load(servers, "t") as load:
        load.wait_acked(500)
        aside = failed.with_name("aside")
        failed.rename(aside)
        failed.write_text("no folder\n")
        wait_until(lambda: all(hit.node_id not in row.isr for row in _rows(cluster, lost)))
        load.wait_acked(1000)
        for row in _rows(cluster, lost):
            assert row.leader_id not in (-1, hit.node_id)
            assert hit.node_id not in (row.eligible_leader_replicas or ())
            assert row.offline_replicas == (hit.node_id,)
        wait_until(lambda: all(hit.node_id in row.isr for row in _rows(cluster, kept)))
        assert cluster.is_ready(hit)
        cluster.stop([hit])
        failed.unlink()
        aside.rename(failed)
        assert not (failed / FILE_NAME).exists()
        assert not (other / FILE_NAME).exists()
        cluster.start(hit)
        cluster.wait_ready([hit])
        look.wait_full_isr("t")
        load.wait_acked(500)
    assert not load.answers.failed
    assert_nothing_lost(servers, "t", 6, load.answers)
    assert (partitions_in(failed), partitions_in(other)) == (lost, kept)


def test_broker_starts_without_a_log_dir_and_takes_a_new_one_later(cluster: LocalCluster) -> None:
    """What lay in the dir is not made anew elsewhere; with an empty dir in its place it is fetched again."""
    servers = cluster.bootstrap_servers
    look = watch(servers)
    look.create_topic("t", 2, 3, 2)
    hit = cluster.brokers[0]
    failed, other = _dirs(cluster, hit)
    wait_until(lambda: partitions_in(failed) | partitions_in(other) == {0, 1})
    lost, kept = partitions_in(failed), partitions_in(other)
    with Load(servers, "t") as load:
        load.wait_acked(500)
        cluster.kill([hit])
        failed.rename(failed.with_name("broken"))
        failed.write_text("no folder\n")
        cluster.start(hit)
        cluster.wait_ready([hit])
        wait_until(lambda: all(hit.node_id in row.isr for row in _rows(cluster, kept)))
        assert all(hit.node_id not in row.isr for row in _rows(cluster, lost))
        assert partitions_in(other) == kept
        cluster.kill([hit])
        failed.unlink()
        cluster.start(hit)
        cluster.wait_ready([hit])
        look.wait_full_isr("t")
        assert partitions_in(failed) | partitions_in(other) == lost | kept
    assert not load.answers.failed
    assert_nothing_lost(servers, "t", 2, load.answers)


def _dirs(cluster: LocalCluster, node: Node) -> tuple[Path, Path]:
    first = cluster.data_folder(node)
    return first, first.parent / "more"


def _rows(cluster: LocalCluster, indexes: set[int]) -> list[DescribedPartition]:
    described = watch(cluster.bootstrap_servers).describe("t").partitions
    return [row for row in described if row.partition_index in indexes]
