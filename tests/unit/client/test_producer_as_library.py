"""The producer as applications use it: `send`, `submit`, `async with`, cancellation, metrics."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import ClientError, ProduceFailed
from holdfast.client.producer import Producer, RecordMetadata
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster


class Play:
    """A cluster of three with a topic of one partition."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.clock = cluster.world.clock

    def producer(self, **settings: Any) -> Producer:
        settings = {"linger_ms": 0, **settings}
        return Producer(self.cluster.bootstrap_servers, **settings, runtime=self.cluster.runtime)

    def refuse(self, count: int, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        """The leader refuses the next batches for good."""
        self.cluster.brokers[1].judge = _Judge(count, code)

    def log(self) -> list[str]:
        return [value.decode() for value in self.cluster.values("t", 0)]


class _Judge:
    def __init__(self, count: int, code: ErrorCode) -> None:
        self.left = count
        self.code = code

    def __call__(self, broker: object, row: object) -> ErrorCode | None:
        self.left -= 1
        return self.code if self.left >= 0 else None


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 1)
    yield Play(cluster)
    await settle()
    await world.tasks.cancel_all()


# --- send and submit -----------------------------------------------------------------------------------


async def test_send_returns_where_the_record_is(play: Play) -> None:
    async with play.producer() as producer:
        await producer.send("t", b"first")
        where = await producer.send("t", b"second", key=b"k", timestamp_ms=1_234)
    assert where == RecordMetadata("t", 0, offset=1, leader_epoch=1, timestamp_ms=1_234)
    assert play.log() == ["first", "second"]


async def test_send_raises_why_a_record_was_refused_and_whether_it_may_be_in_the_log(play: Play) -> None:
    async with play.producer() as producer:
        await producer.send("t", b"warm")
        play.refuse(1)
        with pytest.raises(ProduceFailed, match="INVALID_RECORD") as caught:
            await producer.send("t", b"bad")
    assert not caught.value.may_be_appended
    assert play.log() == ["warm"]


@pytest.mark.parametrize("acks", [-1, 2, "1", None])
def test_acks_are_all_one_or_nothing(acks: Any) -> None:
    with pytest.raises(ValueError, match='expected "all", 1 or 0'):
        Producer("h:1", acks=acks, runtime=memory_runtime()[0])


async def test_a_delivery_is_of_its_own_record_also_when_a_callback_adds_to_its_batch(play: Play) -> None:
    """Taking a record ends what is overdue, and what hears of that may send to the same batch."""
    heard: list[ErrorCode] = []

    def echo(batch: Batch) -> None:
        if batch.error is not None and not heard:
            heard.append(batch.error)
            producer.send_nowait("t", b"echo")

    producer = play.producer(on_batch=echo, delivery_timeout_ms=1_000)
    async with producer:
        await producer.send("t", b"warm")
        play.cluster.brokers[1].is_deaf = True
        await producer.submit("t", b"overdue")
        await settle()
        play.cluster.kill(1)
        await play.clock.advance(900)
        play.clock._now_ns += 200_000_000  # a busy loop: no timer has fired yet
        delivery = await producer.submit("t", b"mine")
        assert heard, "the overdue batch has ended meanwhile"
        play.cluster.move_leader("t", 0, 2)
        await play.clock.advance(900)
        where = await delivery
    assert play.log() == ["warm", "mine", "echo"]
    assert where.offset == 1


# --- cancellation --------------------------------------------------------------------------------------


async def test_a_submit_that_is_cancelled_while_it_waits_for_room_has_taken_nothing(play: Play) -> None:
    async with play.producer(buffer_memory_bytes=100) as producer:
        await producer.send("t", b"warm")
        play.cluster.brokers[1].is_deaf = True
        await producer.submit("t", b"x" * 200)
        waiting = asyncio.ensure_future(producer.submit("t", b"never"))
        await settle()
        waiting.cancel()
        await settle()
        assert waiting.cancelled()
        play.cluster.brokers[1].is_deaf = False
        closing = asyncio.ensure_future(producer.close())
        await play.clock.advance(20_000)
        await closing
    assert play.log() == ["warm", "x" * 200]


async def test_a_submit_that_is_cancelled_while_it_waits_for_the_topic_has_taken_nothing(play: Play) -> None:
    async with play.producer() as producer:
        waiting = asyncio.ensure_future(producer.submit("u", b"never"))
        await settle()
        waiting.cancel()
        play.cluster.add_topic("u", 1)
        await play.clock.advance(5_000)
        assert waiting.cancelled()
        await producer.send("u", b"later")
    assert play.cluster.values("u", 0) == [b"later"]


async def test_a_send_that_is_cancelled_after_its_record_was_taken_sends_it_whole(play: Play) -> None:
    async with play.producer() as producer:
        await producer.send("t", b"warm")
        play.cluster.brokers[1].answers_lost = 1
        sending = asyncio.ensure_future(producer.send("t", b"taken"))
        await settle()
        sending.cancel()
        await play.clock.advance(1_000)
        assert sending.cancelled()
    assert play.log() == ["warm", "taken"]


async def test_a_delivery_can_be_awaited_again_after_a_wait_for_it_was_cancelled(play: Play) -> None:
    async with play.producer() as producer:
        await producer.send("t", b"warm")
        play.cluster.brokers[1].is_deaf = True
        delivery = await producer.submit("t", b"slow")
        first = asyncio.ensure_future(_offset(delivery))
        await settle()
        first.cancel()
        await settle()
        play.cluster.brokers[1].is_deaf = False
        second = asyncio.ensure_future(_offset(delivery))
        await play.clock.advance(20_000)
        assert await second == 1
        assert await delivery == delivery.result()


async def _offset(delivery: Any) -> int:
    offset: int = (await delivery).offset
    return offset


# --- leaving the block ---------------------------------------------------------------------------------


async def test_leaving_the_block_sends_what_is_there(play: Play) -> None:
    async with play.producer(linger_ms=5_000) as producer:
        for value in (b"a", b"b"):
            await producer.submit("t", value)
    assert play.log() == ["a", "b"]
    with pytest.raises(ClientError, match="closed"):
        await producer.send("t", b"c")


async def test_leaving_the_block_by_an_exception_sends_what_is_there_and_raises_that_exception(
    play: Play,
) -> None:
    async def work() -> None:
        async with play.producer(linger_ms=5_000) as producer:
            await producer.submit("t", b"a")
            raise KeyError("of the application")

    with pytest.raises(KeyError):
        await work()
    assert play.log() == ["a"]


async def test_leaving_the_block_raises_a_failure_that_was_told_nowhere(play: Play) -> None:
    async def work() -> None:
        async with play.producer(linger_ms=5) as producer:
            await producer.submit("t", b"a")
            await producer.submit("t", b"b")

    play.refuse(1)
    with pytest.raises(ProduceFailed, match="2 records were not acknowledged: .*INVALID_RECORD") as caught:
        await work()
    assert not caught.value.may_be_appended


@pytest.mark.parametrize("told", ["result", "await", "callback", "on_batch"])
async def test_leaving_the_block_raises_no_failure_that_was_told(play: Play, told: str) -> None:
    heard: list[Any] = []
    more = {"on_batch": heard.append} if told == "on_batch" else {}
    play.refuse(1)
    async with play.producer(**more) as producer:
        delivery = await producer.submit("t", b"a")
        if told == "callback":
            delivery.add_done_callback(heard.append)
        await settle()
        await producer.flush()
        if told == "result":
            with pytest.raises(ProduceFailed):
                delivery.result()
        if told == "await":
            with pytest.raises(ProduceFailed):
                await delivery
    assert len(heard) == (told in ("callback", "on_batch"))


async def test_a_producer_that_was_started_by_hand_may_enter_the_block_as_well(play: Play) -> None:
    producer = play.producer()
    await producer.start()
    async with producer:
        await producer.send("t", b"a")
    assert len(play.cluster.brokers[1].asked(ApiKey.INIT_PRODUCER_ID)) <= 1


# --- metrics -------------------------------------------------------------------------------------------


async def test_metrics_count_what_became_of_records(play: Play) -> None:
    async with play.producer(batch_size_bytes=1_000) as producer:
        await producer.send("t", b"a")
        play.refuse(1)
        with pytest.raises(ProduceFailed):
            await producer.send("t", b"b")
        play.cluster.brokers[1].answers_lost = 1
        sending = asyncio.ensure_future(producer.send("t", b"c"))
        await play.clock.advance(1_000)
        await sending
        metrics = producer.metrics()
    assert (metrics.records_acknowledged, metrics.records_refused, metrics.records_unknown) == (2, 1, 0)
    assert metrics.batches_acknowledged == 2
    assert (metrics.requests_sent, metrics.batches_repeated) == (4, 1)
    assert metrics.bytes_acknowledged > 0
    assert metrics.buffered_bytes == 0
    assert 0 <= metrics.delivery_ms_max <= metrics.delivery_ms_sum
