"""One cluster for all tests of fault drivers; each test leaves it healed."""

from collections.abc import Iterator

import pytest

from holdfast.localcluster.faults.fault import healing
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.launch import shared_launcher
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK
from tests.e2e.load import watch

#: small segments, so that a few hundred records make several of them
TOPIC_CONFIGS = {"segment.bytes": "4096", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers and three controllers, with a topic `t` of some segments."""
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("faults") / "cluster",
        3,
        3,
        properties=QUICK,
        power_loss="tracked",
        launcher=shared_launcher(),
    )
    try:
        cluster.up()
        watch(cluster.bootstrap_servers).create_topic("t", 1, 3, 2)
        yield cluster
    finally:
        cluster.destroy()


@pytest.fixture
def cluster(shared: LocalCluster) -> Iterator[LocalCluster]:
    """The same, all nodes up and ready at the beginning of each test."""
    shared.up()
    with healing(shared):
        yield shared


@pytest.fixture
def targets(cluster: LocalCluster) -> Iterator[Targets]:
    """Finds nodes of the cluster."""
    found = Targets(cluster, seed=1)
    yield found
    found.close()
