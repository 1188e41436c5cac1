"""A consumer in a group: when it commits, what its listener hears, how it leaves."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from holdfast.broker.core.groups.group import GroupState
from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError, CommitFailed
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.group_session import RebalanceListener
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.broker.groups.play import T
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.fake_groups import FakeGroups
from tests.unit.client.test_consumer import Play

T0 = TopicPartition("t", 0)


class Heard(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.on_revoked: Callable[[], Any] | None = None

    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("assigned", [index for _, index in partitions]))

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("revoked", [index for _, index in partitions]))
        if self.on_revoked is not None:
            await self.on_revoked()

    async def lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("lost", [index for _, index in partitions]))


class GroupPlay(Play):
    """The consumers are members of group g; topic t has three partitions."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.groups = cluster.groups = FakeGroups()
        self.consumers: list[Consumer] = []

    def member(self, **config: Any) -> Consumer:
        settings = {"heartbeat_interval_ms": 500, "session_timeout_ms": 10_000, **config}
        self.consumer = Consumer(
            self.cluster.bootstrap_servers, group_id="g", **settings, runtime=self.cluster.runtime
        )
        self.consumers.append(self.consumer)
        return self.consumer

    @property
    def committed(self) -> dict[int, int]:
        return {index: offset for index, offset in self.groups.play.committed().items() if offset >= 0}


@pytest.fixture
async def play() -> AsyncIterator[GroupPlay]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 3)
    cluster.topic_ids["t"] = T
    play = GroupPlay(cluster)
    yield play
    for consumer in play.consumers:
        await play.until(consumer.close())
    await settle()
    await world.tasks.cancel_all()


async def test_a_member_goes_on_where_another_one_has_stopped(play: GroupPlay) -> None:
    await play.write(*"abc")

    async def read_one(take: int) -> list[str]:
        found = []
        async with play.member() as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                found.append((record.value or b"").decode())
                if len(found) == take:
                    break
        return found

    assert await play.until(read_one(2)) == ["a", "b"]
    assert play.committed[0] == 2
    assert play.groups.play.coordinator.counted().groups[GroupState.STABLE] == 0, "it has left"
    assert await play.until(read_one(1)) == ["c"]


async def test_what_was_being_worked_at_when_it_failed_is_read_again(play: GroupPlay) -> None:
    await play.write(*"abc")

    async def fail_at(value: bytes) -> None:
        async with play.member() as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                if record.value == value:
                    raise ValueError("no such work")

    with pytest.raises(ValueError, match="no such work"):
        await play.until(fail_at(b"b"))
    assert play.committed[0] == 1


async def test_records_of_a_poll_count_as_read_with_the_next_one(play: GroupPlay) -> None:
    await play.write(*"abc")

    async def fail_after(polls: int) -> None:
        async with play.member() as consumer:
            consumer.subscribe("t")
            for _ in range(polls):
                assert await consumer.poll(max_records=1, timeout_ms=10_000)
            raise ValueError("no such work")

    with pytest.raises(ValueError, match="no such work"):
        await play.until(fail_after(2))
    assert play.committed[0] == 1


async def test_an_unopened_consumer_leaves_when_its_loop_is_left(play: GroupPlay) -> None:
    await play.write(*"ab")

    async def read() -> None:
        consumer = play.member()
        consumer._first_topics = ("t",)
        records = consumer.__aiter__()
        assert (await anext(records)).value == b"a"
        assert (await anext(records)).value == b"b"
        await records.aclose()

    await play.until(read())
    assert play.committed[0] == 1, "whether the last one was worked at is not known"


async def test_automatic_commits_come_between_records_and_never_name_the_one_in_hand(play: GroupPlay) -> None:
    await play.write(*"abc")
    consumer = play.member(auto_commit_interval_ms=1_000)
    await consumer.start()
    consumer.subscribe("t")
    records = consumer.__aiter__()
    assert (await play.until(anext(records))).value == b"a"
    await play.world.clock.advance(3_000)
    assert play.committed.get(0) is None, "it is still being worked at"
    assert (await play.until(anext(records))).value == b"b"
    await play.world.clock.advance(100)
    assert play.committed[0] == 1


async def test_a_commit_by_hand_is_acknowledged_and_can_be_asked_for(play: GroupPlay) -> None:
    await play.write(*"abc")
    consumer = play.member(enable_auto_commit=False)
    await consumer.start()
    consumer.subscribe("t")
    assert len(await play.read(3)) == 3
    await play.until(consumer.commit())
    assert (await play.until(consumer.committed()))[T0] == 3
    await play.until(consumer.commit({("t", 0): 1}))
    assert await play.until(consumer.committed([("t", 0)])) == {T0: 1}
    await play.until(consumer.close())
    assert play.committed[0] == 1, "nothing is committed by itself"


async def test_a_revoked_partition_can_be_committed_and_a_lost_one_cannot(play: GroupPlay) -> None:
    await play.write(*"abc")
    heard = Heard()
    first = play.member(enable_auto_commit=False)
    heard.on_revoked = first.commit
    await first.start()
    first.subscribe("t", heard)
    assert len(await play.read(3)) == 3
    second = play.member()
    await second.start()
    second.subscribe("t")
    for _ in range(10):
        await play.until(first.poll(timeout_ms=200))
        await play.until(second.poll(timeout_ms=200))
    assert heard.calls == [("assigned", [0, 1, 2]), ("revoked", [0, 1, 2]), ("assigned", [0, 1])] or (
        heard.calls[2][1] == [2]
    )
    assert play.committed[0] == 3
    play.groups.play.leave(first._member.core.member_id)
    await play.world.clock.advance(600)
    with pytest.raises(CommitFailed):
        await play.until(first.commit({("t", 0): 1}))
    await play.until(first.poll(timeout_ms=200))
    assert "lost" in [kind for kind, _ in heard.calls]


async def test_a_listener_that_raises_is_called_again_by_the_next_poll(play: GroupPlay) -> None:
    class Failing(Heard):
        async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
            await super().assigned(partitions)
            if len(self.calls) == 1:
                raise ValueError("not yet")

    heard = Failing()
    consumer = play.member()
    await consumer.start()
    consumer.subscribe("t", heard)
    with pytest.raises(ValueError, match="not yet"):
        await play.poll(timeout_ms=2_000)
    await play.poll(timeout_ms=100)
    assert heard.calls == [("assigned", [0, 1, 2])] * 2


@pytest.mark.parametrize(
    "read",
    [
        lambda consumer: consumer.poll(timeout_ms=60_000),
        lambda consumer: consumer.poll_batches(timeout_ms=60_000),
        lambda consumer: anext(consumer.__aiter__()),
    ],
)
async def test_an_application_that_gave_up_waiting_has_the_interval_and_no_more(
    play: GroupPlay, read: Callable[[Consumer], Awaitable[object]]
) -> None:
    consumer = play.member(max_poll_interval_ms=5_000)
    await consumer.start()
    consumer.subscribe("t")
    await play.poll(timeout_ms=2_000)

    async def wait() -> None:
        await read(consumer)

    waiting = asyncio.ensure_future(wait())
    await play.world.clock.advance(100)
    waiting.cancel()
    await play.world.clock.advance(4_500)
    assert play.groups.play.coordinator.counted().groups[GroupState.STABLE] == 1
    await play.world.clock.advance(1_000)
    assert play.groups.play.coordinator.counted().groups[GroupState.STABLE] == 0, "it has left"


async def test_a_fenced_member_that_is_polled_in_a_loop_lets_others_run(play: GroupPlay) -> None:
    former = play.member(group_instance_id="i")
    await former.start()
    former.subscribe("t")
    await play.poll(timeout_ms=2_000)
    await play.member(group_instance_id="i").start()
    play.consumer.subscribe("t")
    await play.poll(timeout_ms=2_000)
    with pytest.raises(ClientError, match="another process"):
        await play.until(former.poll(timeout_ms=10_000))
    errors: list[ClientError] = []

    async def poll_on() -> None:
        while len(errors) < 100:
            try:
                await former.poll()
            except ClientError as error:
                errors.append(error)

    polling = asyncio.ensure_future(poll_on())
    for _ in range(3):
        await NEXT_TURN
    assert 0 < len(errors) < 100
    polling.cancel()


async def test_an_automatic_commit_that_is_refused_for_good_is_told(
    play: GroupPlay, caplog: pytest.LogCaptureFixture
) -> None:
    await play.write(*"abc")
    consumer = play.member(auto_commit_interval_ms=1_000)
    await consumer.start()
    consumer.subscribe("t")
    await play.read(3)
    refused = OffsetCommitResponse(ErrorCode.INVALID_GROUP_ID, "not yours", ())
    play.groups.scripted[OffsetCommitRequest] = refused
    with caplog.at_level(logging.WARNING, "holdfast.consumer"):
        await play.world.clock.advance(2_000)
        await play.poll(timeout_ms=500)
    assert "group g: what was read is not committed: group g: not yours" in caplog.text
    play.groups.scripted.clear()


async def test_a_listener_may_seek_what_it_was_given(play: GroupPlay) -> None:
    await play.write(*"abc")
    consumer = play.member()

    class Seeking(RebalanceListener):
        async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
            consumer.seek(("t", 0), 2)

    await consumer.start()
    consumer.subscribe("t", Seeking())
    assert await play.read(1) == ["c"]


async def test_a_pattern_takes_topics_that_come_later_and_none_of_the_clusters_own(play: GroupPlay) -> None:
    play.cluster.add_topic("__consumer_offsets", 1)
    consumer = play.member(metadata_max_age_ms=300)
    await consumer.start()
    consumer.subscribe(re.compile("t|.*_.*"))
    await play.poll(timeout_ms=2_000)
    assert {topic for topic, _ in consumer.assignment} == {"t"}
    play.cluster.add_topic("t_2", 1)
    for _ in range(10):
        await play.poll(timeout_ms=200)
    assert {topic for topic, _ in consumer.assignment} == {"t", "t_2"}
    play.cluster.delete_topic("t_2")
    for _ in range(10):
        await play.poll(timeout_ms=200)
    assert {topic for topic, _ in consumer.assignment} == {"t"}


async def test_a_deleted_topic_keeps_no_other_one_from_being_committed_at_the_end(play: GroupPlay) -> None:
    play.cluster.add_topic("u", 1)
    await play.write(*"abc")
    consumer = play.member(metadata_max_age_ms=300, auto_commit_interval_ms=60_000)
    await consumer.start()
    consumer.subscribe(("t", "u"))
    await play.read(3)
    assert consumer.position(("u", 0)) == 0
    play.cluster.delete_topic("u")
    await play.world.clock.advance(1_000)
    await play.until(consumer.close())
    assert play.committed[0] == 3


async def test_a_topic_made_again_is_read_from_its_first_record_by_a_group_that_begins_at_ends(
    play: GroupPlay,
) -> None:
    await play.write(*"abc")
    consumer = play.member(auto_offset_reset="latest", metadata_max_age_ms=300)
    await consumer.start()
    consumer.subscribe("t")
    await play.poll(timeout_ms=2_000)
    assert consumer.position(("t", 0)) == 3
    play.cluster.delete_topic("t")
    for _ in range(10):
        await play.poll(timeout_ms=200)
    assert consumer.assignment == ()
    play.cluster.add_topic("t", 3)
    await play.write("x")
    assert await play.read(1) == ["x"]


async def test_a_topic_that_is_not_there_is_told_and_waited_for(play: GroupPlay) -> None:
    consumer = play.member()
    await consumer.start()
    consumer.subscribe("later")
    with pytest.raises(ClientError, match="create it first"):
        await play.poll(timeout_ms=10_000)
    play.cluster.add_topic("later", 1)
    for _ in range(10):
        await play.poll(timeout_ms=200)
    assert consumer.assignment == (TopicPartition("later", 0),)


async def test_a_group_begins_where_the_reset_policy_says_and_goes_on_at_its_commits(play: GroupPlay) -> None:
    play.cluster.topics["t"][0].leader_epoch = 3  # as the commit says
    await play.write(*"abc")
    play.groups.play.commit_offset(1, index=0)
    consumer = play.member(auto_offset_reset="latest")
    await consumer.start()
    consumer.subscribe("t")
    assert await play.read(2) == ["b", "c"]
    assert consumer.position(("t", 1)) == 0


async def test_a_commit_tells_in_which_epoch_was_read(play: GroupPlay) -> None:
    await play.write(*"abc")
    consumer = play.member()
    await consumer.start()
    consumer.subscribe("t")
    await play.read(3)
    await play.until(consumer.commit())
    (shard,) = play.groups.play.coordinator.shards.values()
    offsets = {key.partition_index: at for key, at in shard.groups["g"].offsets.items()}
    assert (offsets[0].offset, offsets[0].leader_epoch) == (3, 1)


async def test_a_member_that_reads_on_notices_that_what_the_group_had_read_was_cut(play: GroupPlay) -> None:
    """An unclean election: offset 3 was read in an epoch that the log ended at 1 of."""
    await play.write(*"abc")
    partition = play.cluster.topics["t"][0]
    consumer = play.member()
    await consumer.start()
    consumer.subscribe("t")
    await play.read(3)
    await play.until(consumer.close())
    del partition.log[1:]
    partition.log_start = 0
    play.cluster.move_leader("t", 0, 2)
    await play.write(*"xyz")
    second = play.member()
    await second.start()
    second.subscribe("t")
    found = await play.read(3)
    assert found[-3:] == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("config", "use", "word"),
    [
        ({}, lambda one: one.assign([("t", 0)]), "subscribe"),
        ({"group_id": None}, lambda one: one.subscribe(re.compile("t")), "pattern"),
    ],
)
async def test_what_cannot_be_is_refused(play: GroupPlay, config: Any, use: Any, word: str) -> None:
    settings = {"group_id": "g"} | config
    consumer = Consumer(play.cluster.bootstrap_servers, **settings, runtime=play.cluster.runtime)
    with pytest.raises(ValueError, match=word):
        use(consumer)


async def test_a_consumer_without_group_commits_nothing(play: GroupPlay) -> None:
    consumer = play.begin()
    with pytest.raises(ValueError, match="group_id"):
        await consumer.commit()
    with pytest.raises(ValueError, match="group_id"):
        Consumer(play.cluster.bootstrap_servers, group_instance_id="i", runtime=play.cluster.runtime)


async def test_an_error_of_the_membership_is_raised_by_a_poll(play: GroupPlay) -> None:
    consumer = play.member(session_timeout_ms=1_000)  # below what the coordinator takes
    await consumer.start()
    consumer.subscribe("t")
    with pytest.raises(ClientError, match=r"group\.min\.session\.timeout\.ms") as caught:
        await play.poll(timeout_ms=3_000)
    assert caught.value.code is ErrorCode.INVALID_SESSION_TIMEOUT
