"""Groups on real nodes in memory: the topic of the offsets is made, and offsets outlive their coordinator."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import JoinGroupProtocol, JoinGroupRequest
from holdfast.protocol.topic_names import OFFSETS_TOPIC, TopicPartition
from holdfast.storage.log import Log
from tests.unit.broker.cluster import Cluster

T0 = TopicPartition("t", 0)


class Play:
    """Three brokers, topic t, and an operator's calls."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        servers = [f"localhost:{machine.port}" for machine in cluster.machines.values()]
        self.admin = Admin(servers, runtime=cluster._client)

    @classmethod
    async def begin(cls, **properties: str) -> "Play":
        cluster = await Cluster(3, **{"offsets_topic_num_partitions": "2", **properties}).boot()
        await cluster.topic()
        return cls(cluster)

    def logs(self, partition: int) -> list[Log]:
        """Of a partition of the offsets, on all brokers that run."""
        topic = self.cluster.image.topic(OFFSETS_TOPIC)
        assert topic is not None
        key = PartitionId(topic.topic_id, partition)
        return [m.node.log_manager.logs[key] for m in self.cluster.machines.values() if m.is_running]

    async def ask(self, call: Any) -> Any:
        """The answer, or the client's error."""

        async def caught() -> Any:
            try:
                return await call
            except ClientError as error:
                return error

        return await self.cluster._wait(caught())

    async def offset(self) -> int:
        found = await self.ask(self.admin.group_offsets("g"))
        offset: int = found[T0].offset
        return offset

    async def end(self) -> None:
        await self.ask(self.admin.close())
        await self.cluster.end()


async def test_committed_offsets_outlive_every_coordinator() -> None:
    play = await Play.begin()
    coordinators = []
    for offset in (5, 6, 7):
        assert await play.ask(play.admin.alter_group_offsets("g", {T0: offset})) is None
        assert await play.offset() == offset
        coordinator = (await play.ask(play.admin.describe_group("g"))).coordinator_id
        coordinators.append(coordinator)
        await play.cluster[coordinator].kill()
        assert await play.offset() == offset
        await play.cluster[coordinator].boot()
        await play.cluster.all_run()
        await play.cluster.in_sync(1, 2, 3)
        await play.cluster.eventually(lambda: all(len(row.isr) == 3 for row in _rows(play.cluster)))
    assert len(set(coordinators)) > 1
    await play.end()


def _rows(cluster: Cluster) -> list[Any]:
    topic = cluster.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    return list(topic.partitions.values())


async def test_offsets_survive_a_stop_of_the_whole_cluster() -> None:
    play = await Play.begin()
    await play.ask(play.admin.alter_group_offsets("g", {T0: 5}))
    for machine in play.cluster.machines.values():
        await machine.kill()
    for machine in play.cluster.machines.values():
        await machine.boot()
    await play.cluster.all_run()
    assert await play.offset() == 5
    await play.end()


async def test_the_log_of_the_offsets_is_short_on_every_replica_and_stays_so() -> None:
    play = await Play.begin(
        log_retention_check_interval_ms="1000",
        offsets_topic_segment_bytes="2048",
        offsets_topic_num_partitions="1",
    )
    for machine in play.cluster.machines.values():
        turn = machine.node.core.groups._turn
        turn.config = replace(turn.config, snapshot_records_min=20)
    for offset in range(70):
        assert await play.ask(play.admin.alter_group_offsets("g", {T0: offset})) is None
    await play.cluster.eventually(
        lambda: all(40 < log.log_start_offset < log.log_end_offset for log in play.logs(0))
    )
    await play.cluster.eventually(lambda: all(log.size_bytes < 6_000 for log in play.logs(0)))
    starts = [log.log_start_offset for log in play.logs(0)]
    for machine in play.cluster.machines.values():
        await machine.stop()
        await machine.boot()
        await play.cluster.all_run()
        await play.cluster.eventually(lambda: all(len(row.isr) == 3 for row in _rows(play.cluster)))
    assert [log.log_start_offset for log in play.logs(0)] == starts
    assert await play.offset() == 69
    await play.end()


async def test_a_group_is_listed_and_deleted() -> None:
    play = await Play.begin()
    await play.ask(play.admin.alter_group_offsets("g", {T0: 5}))
    (listed,) = await play.ask(play.admin.list_groups())
    assert (listed.group_id, listed.state) == ("g", "Empty")
    assert await play.ask(play.admin.delete_group("g")) is None
    assert await play.ask(play.admin.list_groups()) == []
    assert (await play.ask(play.admin.delete_group("g"))).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert (await play.ask(play.admin.describe_group("g"))).code is ErrorCode.GROUP_ID_NOT_FOUND
    await play.end()


async def test_offsets_of_a_group_with_members_are_theirs() -> None:
    play = await Play.begin(group_initial_rebalance_delay_ms="0")
    await play.ask(play.admin.alter_group_offsets("g", {T0: 5}))
    coordinator = (await play.ask(play.admin.describe_group("g"))).coordinator_id
    protocol = JoinGroupProtocol("range", b"")
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", (protocol,), False, False)
    joined = await play.cluster.call(coordinator, join)
    assert (joined.error_code, joined.member_id[:5]) == (ErrorCode.NONE, "test-")
    refused = await play.ask(play.admin.alter_group_offsets("g", {T0: 6}))
    assert refused.code is ErrorCode.NON_EMPTY_GROUP
    assert await play.offset() == 5
    await play.end()


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ({("none", 0): 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({("t", 9): 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_offsets_of_partitions_that_are_not_there_are_refused(
    offsets: dict[tuple[str, int], int], code: ErrorCode
) -> None:
    play = await Play.begin()
    assert (await play.ask(play.admin.alter_group_offsets("g", offsets))).code is code
    await play.end()
