"""What a client asks nodes about topics: those that it uses, for as long as it does (KAFKA-8904)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.client.consumer import Consumer
from holdfast.client.core.wanted_topics import METADATA_MAX_IDLE_MS, NAMES_A_REQUEST
from holdfast.client.producer import Delivery, Producer
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.schema.fields import ARRAY_MAX
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster

#: metadata are asked for once a minute when nothing happens
MINUTE_MS = 60_000
IDLE_MS = METADATA_MAX_IDLE_MS + 2 * MINUTE_MS


class Play:
    """One broker with two topics, and clients of it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.clients: list[Producer | Consumer] = []

    async def producer(self, **config: Any) -> Producer:
        servers, settings = self.cluster.bootstrap_servers, {"linger_ms": 0, **config}
        made = Producer(servers, **settings, runtime=self.cluster.runtime)
        self.clients.append(made)
        await made.start()
        return made

    def consumer(self) -> Consumer:
        made = Consumer(self.cluster.bootstrap_servers, runtime=self.cluster.runtime)
        self.clients.append(made)
        return made

    async def offset_of(self, delivery: Delivery) -> int:
        await self.world.clock.advance(2_000)
        return delivery.result().offset

    def asked(self) -> list[tuple[str, ...]]:
        """Names in each metadata request so far."""
        return [request.topics for request in self.cluster.brokers[1].asked(ApiKey.METADATA)]

    def forget_asked(self) -> None:
        self.cluster.brokers[1].requests.clear()

    def values(self, topic: str) -> list[bytes]:
        return self.cluster.values(topic, 0)


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start(1)
    cluster.add_topic("t", 1)
    cluster.add_topic("u", 1)
    play = Play(cluster)
    yield play
    for client in play.clients:
        if isinstance(client, Producer):
            await client.close(timeout_ms=0)
        else:
            await client.close()
    await settle()
    await world.tasks.cancel_all()


async def test_a_producer_asks_no_more_for_a_topic_that_it_has_stopped_sending_to(play: Play) -> None:
    producer = await play.producer()
    assert await play.offset_of(await producer.submit("u", b"1")) == 0
    for index in range(IDLE_MS // MINUTE_MS):
        assert await play.offset_of(await producer.submit("t", b"%d" % index)) == index
        await play.world.clock.advance(MINUTE_MS)
    assert play.asked()[-1] == ("t",)


async def test_a_topic_that_was_forgotten_is_asked_for_when_it_is_sent_to_again(play: Play) -> None:
    """By then it may be another one of that name, and have more partitions."""
    producer = await play.producer()
    assert await play.offset_of(await producer.submit("t", b"1")) == 0
    await play.world.clock.advance(IDLE_MS)
    assert play.asked()[-1] == ()
    play.cluster.topics.pop("t")
    play.cluster.add_topic("t", 3)
    assert await play.offset_of(await producer.submit("t", b"2", partition=2)) == 0
    assert play.asked()[-1] == ("t",)


async def test_who_sends_without_waiting_need_not_know_that_a_topic_was_forgotten(play: Play) -> None:
    producer = await play.producer()
    await producer.partition_count("t")
    await play.world.clock.advance(IDLE_MS)
    assert play.asked()[-1] == ()
    producer.send_nowait("t", b"1")
    producer.send_nowait("t", b"2")
    await play.world.clock.advance(1_000)
    assert play.values("t") == [b"1", b"2"]
    assert play.asked()[-1] == ("t",)


async def test_a_topic_is_not_forgotten_while_a_record_of_it_has_no_outcome(play: Play) -> None:
    producer = await play.producer(delivery_timeout_ms=10 * IDLE_MS)
    await producer.partition_count("t")
    play.cluster.move_leader("t", 0, -1)
    await play.world.clock.advance(MINUTE_MS)
    delivery = await producer.submit("t", b"1")
    await play.world.clock.advance(IDLE_MS)
    assert play.asked()[-1] == ("t",)
    play.cluster.move_leader("t", 0, 1)
    assert await play.offset_of(delivery) == 0


async def test_a_consumer_asks_for_what_is_assigned_and_forgets_the_rest(play: Play) -> None:
    consumer = play.consumer()
    consumer.assign([("t", 0), ("u", 0)])
    await play.world.clock.advance(IDLE_MS)
    assert play.asked()[-1] == ("t", "u")
    consumer.assign([("u", 0)])
    play.forget_asked()
    await play.world.clock.advance(METADATA_MAX_IDLE_MS - 2 * MINUTE_MS)
    assert play.asked()[-1] == ("t", "u")  # it may come back
    await play.world.clock.advance(4 * MINUTE_MS)
    assert play.asked()[-1] == ("u",)
    producer = await play.producer()
    assert await play.offset_of(await producer.submit("t", b"1")) == 0
    consumer.assign([("t", 0), ("u", 0)])
    await consumer.poll(timeout_ms=0)
    await play.world.clock.advance(2_000)
    assert [record.value for record in await consumer.poll(timeout_ms=0)] == [b"1"]


@pytest.mark.slow
async def test_more_topics_than_a_request_has_room_for_are_asked_for_in_several(play: Play) -> None:
    """All in one, they ended the process: no array of a message is that long."""
    producer = await play.producer()
    now_ms = play.world.clock.now_ms()
    for index in range(ARRAY_MAX + 1):
        producer._cluster.wanted.use(f"never-made-{index}", now_ms)
    play.forget_asked()
    assert await play.offset_of(await producer.submit("t", b"1")) == 0
    asked = play.asked()
    assert {name for names in asked for name in names} >= {"t", "never-made-0", f"never-made-{ARRAY_MAX}"}
    assert max(map(len, asked)) == NAMES_A_REQUEST


async def test_topics_whose_metadata_have_no_room_in_one_answer_are_asked_for_in_several(play: Play) -> None:
    for index in range(10):
        play.cluster.add_topic(f"large-{index}", 1)
    play.cluster.brokers[1].metadata_topics_max = 3
    producer = await play.producer()
    now_ms = play.world.clock.now_ms()
    for index in range(10):
        producer._cluster.wanted.use(f"large-{index}", now_ms)
    assert await play.offset_of(await producer.submit("t", b"1")) == 0
    assert await play.offset_of(await producer.submit("large-7", b"1")) == 0


async def test_a_topic_whose_metadata_alone_have_no_room_does_not_keep_others_from_theirs(play: Play) -> None:
    producer = await play.producer()
    play.cluster.brokers[1].too_large_topic = "huge"
    producer._cluster.wanted.use("huge", play.world.clock.now_ms())
    sending = asyncio.ensure_future(producer.submit("t", b"1"))
    await play.world.clock.advance(2_000)
    assert sending.done(), producer._cluster._problem
    assert await play.offset_of(sending.result()) == 0
