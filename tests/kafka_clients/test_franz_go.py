"""franz-go, a client written in Go: a program with it, and two tests of its own suite against our brokers."""

import os
from pathlib import Path

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.judges import franz_go
from tests.kafka_clients.programs import compiled, run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(1_200),  # the first compilation takes minutes
    pytest.mark.xdist_group("franz-go"),
]

#: Of TestGroupETL, which reads each record in several chains of groups.
SUITE_RECORDS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For what is compiled."""
    return tmp_path_factory.mktemp("franz-go")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    """franz_go/main.go."""
    return franz_go(folder)


@pytest.fixture(scope="module")
def suite(folder: Path) -> Path:
    """franz-go's own tests."""
    return compiled("github.com/twmb/franz-go/pkg/kgo", folder / "kgo.test", is_test=True)


def test_a_topic_is_created_described_and_deleted(program: Path, cluster: HoldfastCluster) -> None:
    cluster.restart()
    words = [str(program), cluster.kafka_bootstrap, "franz-go"]
    assert run([*words, "create"]).lines == ["retention.ms 123456"]
    assert len(cluster.isr("franz-go", 2)) == 3
    assert run([*words, "delete"]).code == 0
    with pytest.raises(TimeoutError, match="there is no franz-go"):
        cluster.wait_until(lambda: cluster.leader("franz-go"), 1)


def check_own_test(suite: Path, bootstrap: str, name: str) -> None:
    """One test of franz-go's suite passes."""
    environment = {
        **os.environ,
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "3",
        "KGO_TEST_RECORDS": str(SUITE_RECORDS),
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
        "KGO_LOG_LEVEL": "none",
    }
    done = run([str(suite), "-test.run", f"^{name}$", "-test.v"], timeout_s=400, env=environment)
    assert done.code == 0, done
    assert f"--- PASS: {name}" in done.out


own_tests = pytest.mark.parametrize("name", ["TestClient_Produce", "TestGroupETL"])


@own_tests
def test_tests_of_the_clients_own_suite_pass(suite: Path, cluster: HoldfastCluster, name: str) -> None:
    cluster.restart()
    check_own_test(suite, cluster.kafka_bootstrap, name)
