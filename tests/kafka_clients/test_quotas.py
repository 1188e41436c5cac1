"""A client over its quota is told so in Kafka's answers, and every record arrives."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.raw_client import RawClient, error_codes
from tests.kafka_clients.transcript import fetch, produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: Bytes a second. A single request of more than ten times as much is over it, however slow the machine is.
RATE = 2_000
BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v" * 11 * RATE)], base_offset=0, leader_epoch=-1)
ENTITY = [{"entity_type": "client-id", "entity_name": "raw"}]


def alter(client: RawClient, *, remove: bool) -> None:
    changes = [
        {"key": key, "value": float(RATE), "remove": remove}
        for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    fields = {"entries": [{"entity": ENTITY, "ops": changes}], "validate_only": False}
    answer = client.ask(KafkaApi.ALTER_CLIENT_QUOTAS, 1, fields)
    assert error_codes(answer) == [0]


def described(client: RawClient) -> dict[str, float]:
    """The quotas of this client as the broker knows them."""
    fields = {
        "components": [{"entity_type": "client-id", "match_type": 0, "match": "raw"}],
        "strict": True,
    }
    answer = client.ask(KafkaApi.DESCRIBE_CLIENT_QUOTAS, 1, fields)
    assert error_codes(answer) == [0]
    return {value.key: value.value for entry in answer.entries for value in entry.values}


def throttle_ms(answer: Any) -> int:
    """What the answer tells; it tells no error."""
    assert set(error_codes(answer)) == {0}
    return int(answer.throttle_time.total_seconds() * 1_000)


def first_write(cluster: HoldfastCluster, client: RawClient) -> Any:
    """The answer to a write that was taken: the broker may hear a moment later that it leads a new topic."""

    def taken() -> Any:
        answer = client.ask(KafkaApi.PRODUCE, 9, produce(BATCH))
        return answer if set(error_codes(answer)) == {0} else None

    return cluster.wait_until(taken)


def test_throttle_times_are_told_while_a_quota_is_set_and_records_arrive(tmp_path: Path) -> None:
    with HoldfastCluster.running(tmp_path / "cluster", brokers=1) as cluster:
        cluster.create_topic("t")
        client = RawClient(cluster.kafka_bootstrap)
        assert throttle_ms(first_write(cluster, client)) == 0
        assert throttle_ms(client.ask(KafkaApi.FETCH, 12, fetch(0))) == 0
        alter(client, remove=False)
        both = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        cluster.wait_until(lambda: described(client) == both)
        assert throttle_ms(client.ask(KafkaApi.PRODUCE, 9, produce(BATCH))) > 0
        answer = client.ask(KafkaApi.FETCH, 12, fetch(1))
        assert throttle_ms(answer) > 0
        (partition,) = answer.responses[0].partitions
        assert partition.high_watermark == 2
        assert BATCH[61:] == bytes(partition.records)[61:]  # behind the head, which has the broker's offset
        alter(client, remove=True)
        cluster.wait_until(lambda: not described(client))
        assert throttle_ms(client.ask(KafkaApi.FETCH, 12, fetch(0))) == 0
        client.close()
