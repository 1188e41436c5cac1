"""Records are deleted from a whole cluster, and stay deleted (DeleteRecords)."""

from collections.abc import AsyncIterator

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from holdfast.runtime.memory.disk import MemoryDisk
from tests.unit.broker.cluster import Cluster, batch, values


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three batches of four records, committed."""
    cluster = await Cluster().boot()
    await cluster.topic(min_insync_replicas="2")
    for number in range(3):
        row = await cluster.produce((await cluster.leader()).id, batch(*(f"{number}.{n}" for n in range(4))))
        assert row.error_code == ErrorCode.NONE
    yield cluster
    await cluster.end()


async def delete(cluster: Cluster, offset: int, timeout_ms: int = 5000) -> tuple[str, int]:
    """(error, low watermark) of the leader's answer."""
    rows = (DeleteRecordsPartition(cluster.topic_id, 0, offset),)
    leader = await cluster.leader()
    row = (await cluster.call(leader.id, DeleteRecordsRequest(timeout_ms, rows))).partitions[0]
    return ErrorCode(row.error_code).name, row.low_watermark


def starts(cluster: Cluster) -> set[int]:
    return {m.partition().log.log_start_offset for m in cluster.machines.values() if m.is_running}


async def earliest(cluster: Cluster) -> int:
    question = ListOffsetsRequest((ListOffsetsPartition(cluster.topic_id, 0, -1, EARLIEST_TIMESTAMP),))
    answer = await cluster.call((await cluster.leader()).id, question)
    offset: int = answer.partitions[0].offset
    return offset


async def test_all_replicas_begin_later_and_readers_are_told(cluster: Cluster) -> None:
    assert await delete(cluster, 6) == ("NONE", 6)
    assert (starts(cluster), await earliest(cluster)) == ({6}, 6)
    leader = await cluster.leader()
    below = await cluster.fetch(leader.id, 5)
    assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 6)
    assert values((await cluster.fetch(leader.id, 6)).records)[2:] == [
        "1.2",
        "1.3",
        *(f"2.{n}" for n in range(4)),
    ]


async def test_what_is_not_committed_is_not_deleted(cluster: Cluster) -> None:
    assert await delete(cluster, 13) == ("OFFSET_OUT_OF_RANGE", -1)
    assert await delete(cluster, -1) == ("NONE", 12)
    assert starts(cluster) == {12}


async def test_deleted_records_stay_deleted_after_a_loss_of_power_of_all(cluster: Cluster) -> None:
    """The answer says that each log start is durable."""
    assert await delete(cluster, 6) == ("NONE", 6)
    for machine in cluster.machines.values():
        await machine.lose_power()
    for machine in cluster.machines.values():
        await machine.boot()
    await cluster.eventually(lambda: all(cluster.has_role(m) for m in cluster.machines.values()))
    assert starts(cluster) == {6}
    assert await earliest(cluster) == 6


async def test_a_follower_that_was_away_begins_later_when_it_is_back(cluster: Cluster) -> None:
    leader = await cluster.leader()
    away = next(m for m in cluster.machines.values() if m is not leader)
    await away.kill()
    await cluster.in_sync(*sorted(m.id for m in cluster.machines.values() if m is not away))
    assert await delete(cluster, 6) == ("NONE", 6)
    await away.boot()
    await cluster.in_sync(1, 2, 3)
    await cluster.eventually(lambda: starts(cluster) == {6})


async def test_a_new_follower_gets_the_batch_that_the_log_begins_in(cluster: Cluster) -> None:
    """It begins where the leader does, although that can send only whole batches."""
    assert await delete(cluster, 6) == ("NONE", 6)
    leader = await cluster.leader()
    new = next(m for m in cluster.machines.values() if m is not leader)
    await new.kill()
    new.disk = MemoryDisk()
    await new.boot()
    await cluster.in_sync(1, 2, 3)
    assert new.bytes() == leader.bytes()
    await cluster.eventually(lambda: starts(cluster) == {6})
    await new.lose_power()
    await new.boot()
    await cluster.in_sync(1, 2, 3)
    assert (new.partition().log.log_start_offset, new.bytes()) == (6, leader.bytes())


async def test_the_next_leader_does_not_show_deleted_records(cluster: Cluster) -> None:
    assert await delete(cluster, 6) == ("NONE", 6)
    leader = await cluster.leader()
    await leader.kill()
    await cluster.leader(not_one_of=(leader.id,))
    assert await earliest(cluster) == 6
