"""The recovery manager and real brokers over the wire: power cuts, page caches lost, answers."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from holdfast.protocol.messages.replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopic,
    ReplicaLogInfo,
)
from tests.unit.broker.cluster import Cluster, batch

SENT = ["a0", "a1", "a2"]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = await Cluster().boot()
    yield made
    await made.end()


async def switch_manager(cluster: Cluster, value: str) -> None:
    key = AlterableConfig("unclean.recovery.manager.enabled", ConfigOperation.SET, value)
    resource = AlterConfigsResource(*CLUSTER_RESOURCE, (key,))
    answer = await cluster.ask_controller(IncrementalAlterConfigsRequest(False, (resource,)))
    assert answer.responses[0].error_code == ErrorCode.NONE


async def power_outage(cluster: Cluster) -> None:
    """Chapter 5.3.3: only 2 flushes; 1, 2 and 3 lose power in this order, 3 is the last known leader."""
    await cluster.topic(min_insync_replicas="2")
    for value in SENT:
        row = await cluster.produce((await cluster.leader()).id, batch(value))
        assert row.error_code == ErrorCode.NONE
    flushing = cluster[2].tasks.start("flush", flush(cluster, 2))
    await cluster.eventually(lambda: flushing.is_done)
    for broker_id, isr in ((1, (2, 3)), (2, (3,)), (3, ())):
        await cluster[broker_id].lose_power()
        await cluster.eventually(partial(has_isr, cluster, isr))
    assert registration(cluster).last_known_leader == 3


async def flush(cluster: Cluster, broker_id: int) -> None:
    await cluster[broker_id].node.log_manager.logs[PartitionId(cluster.topic_id, 0)].flush()


def registration(cluster: Cluster) -> PartitionRegistration:
    found = cluster.image.partition(cluster.topic_id, 0)
    assert found is not None
    return found


def has_isr(cluster: Cluster, isr: tuple[int, ...]) -> bool:
    return registration(cluster).isr == isr


@pytest.mark.parametrize(("manager", "leader", "kept"), [("true", 2, SENT), ("false", 3, [])])
async def test_a_power_outage_loses_what_the_last_known_leader_lost_unless_logs_are_compared(
    cluster: Cluster, manager: str, leader: int, kept: list[str]
) -> None:
    """B1, D8.8, R66: acknowledged records, one of three logs has them."""
    await switch_manager(cluster, manager)
    await power_outage(cluster)
    for broker_id in (3, 1, 2):
        await cluster[broker_id].boot()
    assert (await cluster.leader()).id == leader
    await cluster.in_sync(1, 2, 3)
    await cluster.eventually(lambda: [cluster[n].values() for n in (1, 2, 3)] == [kept] * 3)


async def log_of(cluster: Cluster, broker_id: int) -> tuple[int, ReplicaLogInfo]:
    """(broker epoch, the row of the partition)."""
    request = GetReplicaLogInfoRequest(broker_id, (LogInfoTopic(cluster.topic_id, (0,)),))
    answer: GetReplicaLogInfoResponse = await cluster.call(broker_id, request)
    assert answer.error_code == ErrorCode.NONE
    ((row,),) = (topic.partitions for topic in answer.topics)
    return answer.broker_epoch, row


@pytest.mark.slow
async def test_leaders_and_followers_tell_of_their_logs_as_they_are(cluster: Cluster) -> None:
    """R61."""
    await cluster.topic(min_insync_replicas="2")
    for value in SENT:
        await cluster.produce((await cluster.leader()).id, batch(value))
    flushing = cluster[2].tasks.start("flush", flush(cluster, 2))
    await cluster.eventually(lambda: flushing.is_done)
    for broker_id in (1, 2, 3):
        broker_epoch, row = await log_of(cluster, broker_id)
        assert broker_epoch == cluster.image.brokers[broker_id].broker_epoch
        assert (row.error_code, row.last_written_leader_epoch, row.current_leader_epoch) == (0, 0, 0)
        assert (row.log_end_offset, row.flushed_offset) == (3, 3 if broker_id == 2 else 0)


async def test_a_broker_that_came_back_tells_of_what_is_left_and_is_another_one(cluster: Cluster) -> None:
    """R62, R63: also while no replica leads, and also if it answered before."""
    await switch_manager(cluster, "true")
    await cluster.topic(min_insync_replicas="2", unclean_recovery_strategy="None")
    for value in SENT:
        await cluster.produce((await cluster.leader()).id, batch(value))
    before, row = await log_of(cluster, 1)
    assert row.log_end_offset == 3
    for broker_id in (1, 2, 3):
        await cluster[broker_id].lose_power()
    await cluster.eventually(partial(has_isr, cluster, ()))
    for broker_id in (1, 2, 3):
        await cluster[broker_id].boot()
    await cluster.all_run()
    assert registration(cluster).leader is None
    after, row = await log_of(cluster, 1)
    assert after > before
    assert (row.log_end_offset, row.last_written_leader_epoch) == (0, -1)
    assert row.current_leader_epoch == registration(cluster).leader_epoch
