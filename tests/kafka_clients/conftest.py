"""A cluster for foreign clients, and each of them in turn."""

from collections.abc import Iterator

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.clients import CLIENTS, KafkaClient


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    """Three brokers, which all tests here share; each has topics of its own."""
    folder = tmp_path_factory.mktemp("kafka-clients") / "cluster"
    with HoldfastCluster.running(folder) as made:
        yield made


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, cluster: HoldfastCluster) -> Iterator[KafkaClient]:
    """Each foreign client."""
    module, make = CLIENTS[request.param]
    pytest.importorskip(module, reason=f"{request.param} is not installed: pip install '.[dev]'")
    cluster.restart()
    made = make(cluster.kafka_bootstrap)
    yield made
    made.close()
