"""Brokers hold clients to their quotas, and nothing else: followers and other clients go on."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.client_quotas import DescribeClientQuotasRequest
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    ResourceType,
)
from holdfast.protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch, values

#: what the cluster's client calls itself
CLIENT = "test"
RECORDS = batch("x" * 500)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = await Cluster(quota_window_num="2", quota_window_size_seconds="2").boot()
    await made.topic()
    yield made
    await made.end()


async def set_quota(cluster: Cluster, client_id: str, name: str, value: int | None) -> None:
    """Through broker 1; returns when all brokers have it."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    change = AlterableConfig(name, operation, None if value is None else str(value))
    resource = AlterConfigsResource(ResourceType.CLIENT, client_id, (change,))
    answer = await cluster.call(1, IncrementalAlterConfigsRequest(False, (resource,)))
    assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]

    def have_it() -> bool:
        images = [machine.node.core.image for machine in cluster.machines.values()]
        return all(image.client_quotas().get(client_id, {}).get(name) == value for image in images)

    await cluster.eventually(have_it)


def throttled(machine: BrokerMachine) -> tuple[int, int]:
    """(writes, fetches) after which a connection had to rest."""
    quotas = machine.node.core.client_quotas
    return quotas.produce.throttled_count, quotas.fetch.throttled_count


async def time_until_served(cluster: Cluster, machine: BrokerMachine) -> int:
    """How long the next request of the client takes, ms."""
    start_ms = cluster.clock.now_ms()
    await cluster.call(machine.id, InitProducerIdRequest(-1, -1), 20_000)
    return cluster.clock.now_ms() - start_ms


def fetch(cluster: Cluster, offset: int = 0) -> FetchRequest:
    row = FetchPartition(cluster.topic_id, 0, -1, offset, -1, -1, 1 << 20)
    return FetchRequest(None, CONSUMER_REPLICA_ID, -1, 0, 1, 1 << 20, (row,))


async def test_a_producer_over_its_quota_is_acknowledged_and_rests(cluster: Cluster) -> None:
    await set_quota(cluster, CLIENT, "producer_byte_rate", len(RECORDS))
    leader = await cluster.leader()
    answers = [await cluster.send(leader.id, RECORDS) for _ in range(3)]
    await cluster.eventually(lambda: all(answer.done() for answer in answers))
    assert [answer.result().partitions[0].base_offset for answer in answers] == [0, 1, 2]
    assert throttled(leader) == (1, 0)
    # three batches stand for 3 s, and 2 s are measured
    assert 900 <= await time_until_served(cluster, leader) <= 1_100


async def test_a_consumer_over_its_quota_gets_its_records_and_rests(cluster: Cluster) -> None:
    leader = await cluster.leader()
    for _ in range(3):
        await (await cluster.send(leader.id, RECORDS))
    await set_quota(cluster, "", "consumer_byte_rate", len(RECORDS))
    first = await cluster.call(leader.id, fetch(cluster))
    # 2 s of the quota are what one answer may have
    assert len(values(first.partitions[0].records)) == 2
    assert throttled(leader) == (0, 0)
    second = await cluster.call(leader.id, fetch(cluster, 2))
    assert len(values(second.partitions[0].records)) == 1
    assert throttled(leader) == (0, 1)
    assert 800 <= await time_until_served(cluster, leader) <= 1_100


async def test_replication_is_never_throttled(cluster: Cluster) -> None:
    """The default of all clients is one byte a second; brokers and controllers are not clients."""
    await set_quota(cluster, "", "consumer_byte_rate", 1)
    await set_quota(cluster, "", "producer_byte_rate", 1)
    leader = await cluster.leader()
    answer = await cluster.send(leader.id, RECORDS)
    await cluster.eventually(answer.done)
    await cluster.advance(1_000)
    assert answer.result().partitions[0].error_code == ErrorCode.NONE
    assert [len(machine.values()) for machine in cluster.machines.values()] == [1, 1, 1]
    assert {throttled(machine) for machine in cluster.machines.values()} == {(1, 0), (0, 0)}


async def test_followers_are_not_throttled_where_a_client_has_their_name(cluster: Cluster) -> None:
    """Their answers without records were counted: each brought a rest, and writes waited for it."""
    await set_quota(cluster, "", "consumer_byte_rate", 1)
    leader = await cluster.leader()
    quota = leader.node.core.client_quotas.fetch
    for machine in cluster.machines.values():
        quota.count(f"broker-{machine.id}", 1 << 20, cluster.clock.now_ms())
    before = throttled(leader)
    await cluster.advance(1_500)
    answer = await cluster.send(leader.id, RECORDS)
    await cluster.eventually(answer.done)
    await cluster.advance(1_000)
    assert answer.result().partitions[0].error_code == ErrorCode.NONE
    assert [len(machine.values()) for machine in cluster.machines.values()] == [1, 1, 1]
    assert throttled(leader) == before


async def test_a_quota_that_is_removed_holds_back_no_client(cluster: Cluster) -> None:
    await set_quota(cluster, CLIENT, "producer_byte_rate", 1)
    described = await cluster.call(2, DescribeClientQuotasRequest(None))
    assert [row.client_id for row in described.clients] == [CLIENT]
    await set_quota(cluster, CLIENT, "producer_byte_rate", None)
    leader = await cluster.leader()
    for _ in range(3):
        await (await cluster.send(leader.id, RECORDS))
    assert throttled(leader) == (0, 0)
    assert (await cluster.call(2, DescribeClientQuotasRequest(None))).clients == ()


async def test_quotas_hold_after_a_restart(cluster: Cluster) -> None:
    await set_quota(cluster, CLIENT, "producer_byte_rate", 7)
    await cluster[2].kill()
    await cluster[2].boot()
    await cluster.all_run()
    assert cluster[2].node.core.client_quotas.produce.limit_of(CLIENT) == 7
