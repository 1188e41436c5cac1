"""Requests that are well-formed and mean harm: no value of any field costs more than one connection."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.raw_client import RawClient, request
from tests.unit.kafka_listener.hostile import requests

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

#: What a request that waits for others may take before the client is fed up.
WAIT_S = 0.5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    """One broker, with a topic that hostile requests may find."""
    with HoldfastCluster.running(tmp_path_factory.mktemp("hostile") / "cluster", brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


@given(st.lists(requests, min_size=1, max_size=5))
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_a_broker_outlives_every_value_of_every_field(
    broker: HoldfastCluster, wanted: list[tuple[KafkaApi, int, Any]]
) -> None:
    hostile = RawClient(broker.kafka_bootstrap, WAIT_S)
    for api, version, fields in wanted:
        try:
            answer = hostile.send(request(api, version, fields))
        except OSError:
            hostile.close()  # refused, or it waits, or it was a write with acks 0
        else:
            assert struct.unpack_from(">i", answer) == (1,), "the correlation id of the request"
    hostile.close()
    good = RawClient(broker.kafka_bootstrap)
    assert good.ask(KafkaApi.API_VERSIONS, 0, {}).error_code.value == 0
    good.close()


def test_no_request_was_more_than_a_peers_mistake(broker: HoldfastCluster) -> None:
    """Nothing that a client sends is an error of ours, and none is left half done."""
    for node in broker.nodes:
        assert broker.is_running(node)
        said = broker.log(node)
        assert "Traceback" not in said
        assert "could not be translated" not in said
