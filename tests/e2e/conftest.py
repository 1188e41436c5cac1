"""Clusters of real processes for the end-to-end tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.localcluster.launch import CommandLauncher, shared_launcher
from holdfast.localcluster.processes import LocalCluster

#: Sessions end soon, so that tests of silent brokers do not take long.
QUICK = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
}


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """Makes clusters that are killed when the test ends, in any state."""
    made: list[LocalCluster] = []

    def make(
        brokers: int = 3,
        controllers: int = 3,
        *,
        before_up: Callable[[LocalCluster], None] = lambda made: None,
        open_files_max: int | None = None,
        **properties: str,
    ) -> LocalCluster:
        keys = {**QUICK, **{key.replace("_", "."): value for key, value in properties.items()}}
        folder = tmp_path / f"cluster-{len(made)}"
        launcher = shared_launcher() if open_files_max is None else CommandLauncher(open_files_max)
        cluster = LocalCluster.create(folder, brokers, controllers, properties=keys, launcher=launcher)
        made.append(cluster)
        before_up(cluster)
        cluster.up()
        return cluster

    yield make
    for cluster in made:
        for node in cluster.nodes:
            cluster.resume(node)
        cluster.kill(cluster.nodes)


@pytest.fixture
def cluster(make_cluster: Callable[..., LocalCluster]) -> LocalCluster:
    """Three controllers and three brokers."""
    return make_cluster()
