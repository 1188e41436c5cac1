"""The same requests, good and bad, to Holdfast and to Kafka itself: the same error codes, or a reason."""

from pathlib import Path

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.programs import jars, kafka_server
from tests.kafka_clients.raw_client import RawClient
from tests.kafka_clients.transcript import ROWS, play

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_every_request_gets_the_error_codes_of_the_transcript(tmp_path: Path) -> None:
    with HoldfastCluster.running(tmp_path / "cluster", brokers=1) as cluster:
        client = RawClient(cluster.kafka_bootstrap)
        found = play(client)
        client.close()
    assert found == {row.name: row.says for row in ROWS}


@pytest.mark.long
def test_kafka_says_the_same_but_for_the_differences_that_are_listed(tmp_path: Path) -> None:
    jars("java")
    with kafka_server(tmp_path) as address:
        client = RawClient(address)
        found = play(client)
        client.close()
    assert found == {row.name: row.kafka_says for row in ROWS}


def test_each_difference_has_its_reason() -> None:
    for row in ROWS:
        assert (row.kafka is not None) == bool(row.why), row.name
        assert row.kafka != row.says, row.name
    assert len({row.name for row in ROWS}) == len(ROWS)
