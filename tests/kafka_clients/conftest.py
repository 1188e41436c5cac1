"""A cluster for foreign clients, and each of them in turn."""

import gc
import warnings
from collections.abc import Iterator

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.clients import CLIENTS, KafkaClient


@pytest.fixture(autouse=True)
def leaks_of_foreign_clients() -> Iterator[None]:
    """Connections that they leave open end with their test: in another one, warnings are errors."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


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
