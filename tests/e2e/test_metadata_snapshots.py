"""Snapshots with real processes and a tiny threshold: all are killed, one loses its disk, all agree again."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.cli.inspect.metadata_log import read_folder
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import MetadataImage
from holdfast.raft.core.snapshot_format import parse_name
from holdfast.storage.core.files import METADATA_FOLDER
from tests.e2e.load import wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PARTITIONS = 30


def folder(cluster: LocalCluster, node: Node) -> Path:
    found = [path for path in cluster.home(node).rglob(METADATA_FOLDER) if path.is_dir()]
    assert len(found) == 1, found
    return found[0]


def snapshots(cluster: LocalCluster, node: Node) -> int:
    return sum(parse_name(path.name) is not None for path in folder(cluster, node).iterdir())


def is_trimmed(cluster: LocalCluster, node: Node) -> bool:
    return min(path.name for path in folder(cluster, node).glob("*.log")) > f"{0:020}.log"


def size_bytes(cluster: LocalCluster, node: Node) -> int:
    return sum(path.stat().st_size for path in folder(cluster, node).iterdir() if "index" not in path.name)


def image_of(cluster: LocalCluster, node: Node) -> MetadataImage:
    """What the node's files say of the cluster, wherever they end."""
    log, _ = read_folder(folder(cluster, node))
    delta = MetadataDelta(MetadataImage() if log.base is None else log.base.image)
    for logged in log.records:
        delta.replay(logged.record, logged.offset, 0)
    return delta.restored(0, 0)


def test_a_flapping_cluster_keeps_small_logs_and_agrees_after_all_were_killed_and_one_was_wiped(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(metadata_log_max_record_bytes_between_snapshots="2000")
    look = watch(cluster.bootstrap_servers)
    look.create_topic("t", PARTITIONS, 3, 2)
    flapping = cluster.brokers[2]
    for _ in range(4):
        cluster.kill([flapping])
        wait_until(lambda: all(flapping.node_id not in p.isr for p in look.describe("t").partitions))
        cluster.start(flapping)
        cluster.wait_ready([flapping])
        look.wait_full_isr("t")
    for node in cluster.nodes:
        wait_until(partial(is_trimmed, cluster, node))
        assert snapshots(cluster, node) == 2
        assert size_bytes(cluster, node) < 200_000

    cluster.kill(cluster.nodes)
    wiped = cluster.brokers[0]
    shutil.rmtree(folder(cluster, wiped))
    for node in cluster.nodes:
        cluster.start(node)
    cluster.wait_ready(cluster.nodes)
    look.wait_full_isr("t")
    assert is_trimmed(cluster, wiped)
    told = CliRunner().invoke(main, ["explain", "t", "0", "--bootstrap-server", cluster.bootstrap_servers])
    assert told.exit_code == 0, told.output
    assert "a snapshot holds what is below offset" in told.stderr
    assert "Why: " in told.stdout

    cluster.kill(cluster.nodes)
    images = {image_of(cluster, node) for node in cluster.nodes}
    assert len(images) == 1
    assert len({hash(image) for image in images}) == 1
