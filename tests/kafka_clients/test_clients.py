"""Unmodified Kafka clients against our brokers: what they are told is true, also while leaders are killed."""

import threading

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.clients import Found, KafkaClient

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]  # their warnings are not ours

PARTITIONS = 3


def topic_of(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


def undisturbed(number: int) -> None:
    """Nothing happens while records are sent."""


def check_read_back(client: KafkaClient, topic: str, acknowledged: list[Found], sent: list[bytes]) -> None:
    """Every acknowledged record is read at its offset, and each value once."""
    found = client.read(topic, PARTITIONS, len(sent))
    assert set(acknowledged) <= set(found)
    assert sorted(row.value for row in found) == sorted(sent)


def test_a_topic_is_created_described_and_deleted(
    client: KafkaClient, request: pytest.FixtureRequest, cluster: HoldfastCluster
) -> None:
    topic = topic_of(request)
    client.create_topic(topic, PARTITIONS, {"retention.ms": "123456"})
    cluster.wait_until(lambda: topic in client.topics())
    assert client.topic_config(topic, "retention.ms") == "123456"
    assert len(cluster.isr(topic, PARTITIONS - 1)) == 3
    client.delete_topic(topic)
    cluster.wait_until(lambda: topic not in client.topics())


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_what_is_acknowledged_is_read_back(
    client: KafkaClient, request: pytest.FixtureRequest, idempotent: bool
) -> None:
    topic = topic_of(request)
    client.create_topic(topic, PARTITIONS, {})
    values = [b"value %d" % number for number in range(2_000)]
    acknowledged = client.produce(topic, values, undisturbed, idempotent=idempotent)
    assert len(set(acknowledged)) == len(values)
    check_read_back(client, topic, acknowledged, values)


def test_deleted_records_are_read_no_more(client: KafkaClient, request: pytest.FixtureRequest) -> None:
    topic = topic_of(request)
    client.create_topic(topic, 1, {})
    client.produce(topic, [b"value %d" % number for number in range(100)], undisturbed, idempotent=False)
    assert client.delete_records(topic, 0, 40) == 40
    assert [row.offset for row in client.read(topic, 1, 60)] == list(range(40, 100))


@pytest.mark.timeout(30)  # half as long as a client is patient
def test_what_is_not_served_fails_at_once_and_says_so(client: KafkaClient) -> None:
    with pytest.raises(Exception, match=r"(?i)transactional.?id.?authorization.?failed|transactions are not"):
        client.begin_transaction()


@pytest.mark.timeout(30)
def test_the_group_protocol_of_kip_848_ends_a_consumer_at_once(cluster: HoldfastCluster) -> None:
    """Where the API is missing librdkafka looks for another coordinator for ever, and says nothing."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.kafka_bootstrap, "group.id": "new", "group.protocol": "consumer"}
    )
    consumer.subscribe(["any"])
    error = None
    while error is None or error.code() != confluent_kafka.KafkaError._FATAL:  # others may come before it
        message = consumer.poll(1)
        error = None if message is None else message.error()
    consumer.close()
    assert "version not supported" in error.str()


def test_no_acknowledged_record_is_lost_or_doubled_while_leaders_are_killed(
    client: KafkaClient, request: pytest.FixtureRequest, cluster: HoldfastCluster
) -> None:
    topic = topic_of(request)
    client.create_topic(topic, PARTITIONS, {})
    cluster.wait_until(lambda: cluster.leader(topic))
    values = [b"value %d" % number for number in range(6_000)]
    kills = iter([1_000, 3_000, 5_000])
    due = [next(kills)]
    restarts: list[threading.Thread] = []

    def kill_a_leader(number: int) -> None:
        if number < due[0]:
            return
        due[0] = next(kills, 1 << 62)
        for thread in restarts:
            thread.join()
        cluster.wait_until(lambda: len(cluster.isr(topic)) == 3)
        leader = cluster.leader(topic)
        assert leader is not None
        cluster.kill(leader)
        restarts.append(threading.Thread(target=cluster.restart, args=(leader,)))
        restarts[-1].start()

    acknowledged = client.produce(topic, values, kill_a_leader, idempotent=True)
    for thread in restarts:
        thread.join()
    assert len(restarts) == 3
    assert len(set(acknowledged)) == len(values)
    check_read_back(client, topic, acknowledged, values)
