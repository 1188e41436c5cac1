"""The producer against brokers that keep their promises: nothing is lost, doubled or reordered."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import BufferFull, ClientError, ProduceFailed, TimedOut
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.partitioner import murmur2
from holdfast.client.producer import Acks, Delivery, Producer, RecordMetadata
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import Connection
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster


class Play:
    """A cluster of three, and one producer."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.batches: list[Batch] = []
        self.producer: Producer

    async def begin(self, **config: Any) -> Producer:
        servers, settings = self.cluster.bootstrap_servers, {"linger_ms": 0, **config}
        self.producer = Producer(
            servers, **settings, on_batch=self.batches.append, runtime=self.cluster.runtime
        )
        await self.producer.start()
        await self.producer.partition_count("t")
        await settle()
        return self.producer

    async def send(self, *values: str, partition: int = 0, **more: Any) -> list[Delivery]:
        return [await self.producer.submit("t", v.encode(), partition=partition, **more) for v in values]

    async def wait(self, deliveries: list[Delivery], limit_ms: int = 5_000) -> list[int]:
        """Offsets of the records, once all are there; time moves on as far as needed."""
        for _ in range(limit_ms // 5):
            if all(delivery.done() for delivery in deliveries):
                break
            await self.world.clock.advance(5)
        return [delivery.result().offset for delivery in deliveries]

    def connections_of(self, broker_id: int) -> list[Connection]:
        """The broker's ends of its connections."""
        server = self.cluster.brokers[broker_id].server
        assert server is not None
        return [peer._connection for peer in server._connections.values() if peer._connection is not None]

    def log(self, partition: int = 0) -> list[str]:
        return [value.decode() for value in self.cluster.values("t", partition)]


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 3)
    play = Play(cluster)
    yield play
    if hasattr(play, "producer"):
        await play.producer.close(timeout_ms=0)
    await world.tasks.cancel_all()


async def test_a_record_is_acknowledged_with_its_offset_and_leader_epoch(play: Play) -> None:
    await play.begin()
    now_ms = play.cluster.runtime.clock.wall_ms()
    first, second = await play.send("a", "b", partition=1)
    assert await play.wait([first, second]) == [0, 1]
    assert first.result() == RecordMetadata("t", 1, offset=0, leader_epoch=1, timestamp_ms=now_ms)
    assert (await second).offset == 1
    assert play.log(1) == ["a", "b"]


async def test_with_linger_0_the_first_record_leaves_without_a_turn_of_the_loop(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("warm"))
    broker = play.cluster.brokers[1]
    before = len(broker.asked(ApiKey.PRODUCE))
    await play.send("a")
    await settle()
    assert len(broker.asked(ApiKey.PRODUCE)) == before + 1


async def test_records_wait_for_the_linger_time_and_travel_in_one_batch(play: Play) -> None:
    await play.begin(linger_ms=10)
    deliveries = await play.send("a", "b", "c")
    await play.world.clock.advance(9)
    assert play.log() == []
    await play.world.clock.advance(2)
    assert await play.wait(deliveries) == [0, 1, 2]
    assert [batch.count for batch in play.batches] == [3]


@pytest.mark.parametrize(
    "bad", [{"value": "text"}, {"key": 7}, {"headers": [("h", "1")]}, {"timestamp_ms": -1}]
)
async def test_a_record_that_cannot_be_encoded_is_refused_and_leaves_no_trace(
    play: Play, bad: dict[str, Any]
) -> None:
    """An empty batch left behind by it would stop the whole producer when its linger time is over."""
    producer = await play.begin(linger_ms=5)
    good = await play.send("a", partition=1)
    with pytest.raises((TypeError, ValueError)):
        await producer.submit("t", **{"value": b"v", "partition": 0, **bad})
    assert await play.wait(good) == [0]
    assert await play.wait(await play.send("b")) == [0]
    assert play.log(0) == ["b"]
    assert producer.buffered_bytes == 0


async def test_flush_sends_at_once_and_waits_for_everything_before_it(play: Play) -> None:
    await play.begin(linger_ms=60_000)
    deliveries = await play.send("a", "b")
    await play.producer.flush()
    assert all(delivery.done() for delivery in deliveries)


async def test_keys_choose_the_partition_that_kafka_would_choose(play: Play) -> None:
    await play.begin()
    delivery = await play.producer.submit("t", b"v", key=b"holdfast")
    await play.wait([delivery])
    assert delivery.topic_partition.partition == (murmur2(b"holdfast") & 0x7FFFFFFF) % 3


async def test_in_a_topic_made_again_with_fewer_partitions_keys_and_turns_count_only_those(
    play: Play,
) -> None:
    await play.begin()
    await play.wait(
        [await play.producer.submit("t", b"old", partition=2), await play.producer.submit("t", b"old")]
    )
    for count in (1, 2):
        play.cluster.add_topic("t", count)
        play.producer._cluster.refresh()
        await play.world.clock.advance(100)
        keyed = [await play.producer.submit("t", b"v", key=b"k%d" % number) for number in range(9)]
        keyless = [await play.producer.submit("t", b"v") for _ in range(3)]
        await play.wait(keyed + keyless)
        assert {delivery.topic_partition.partition for delivery in keyed} == set(range(count))
        with pytest.raises(ClientError, match=f"partitions 0 to {count - 1}"):
            await play.producer.submit("t", b"v", partition=2)


async def test_records_without_key_avoid_a_partition_without_leader(play: Play) -> None:
    play.cluster.topics["t"][1].leader_id = -1
    await play.begin()
    deliveries = []
    for number in range(6):
        deliveries.append(await play.producer.submit("t", b"%d" % number))
        await play.wait(deliveries)
    assert sorted({delivery.topic_partition.partition for delivery in deliveries}) == [0, 2]


async def test_a_dead_leader_costs_one_refresh_and_no_pause_once_another_is_elected(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("a"))
    play.cluster.kill(1)
    play.cluster.move_leader("t", 0, 2)
    await settle()
    start_ms = play.world.clock.now_ms()
    deliveries = await play.send("b", "c")
    assert await play.wait(deliveries) == [1, 2]
    assert play.world.clock.now_ms() - start_ms <= 30
    assert play.log() == ["a", "b", "c"]


async def test_writes_go_on_soon_after_the_election_however_long_it_took(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("a"))
    play.cluster.kill(1)
    deliveries = await play.send("b", "c")
    await play.world.clock.advance(3_000)
    assert not any(delivery.done() for delivery in deliveries)
    play.cluster.move_leader("t", 0, 3)
    await play.world.clock.advance(150)
    assert [delivery.result().offset for delivery in deliveries] == [1, 2]
    assert play.log() == ["a", "b", "c"]


async def test_an_answer_lost_after_the_append_does_not_double_the_record(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("a"))
    play.cluster.brokers[1].answers_lost = 2
    deliveries = await play.send("b", "c", "d")
    assert await play.wait(deliveries) == [1, 2, 3]
    assert play.log() == ["a", "b", "c", "d"]


async def test_a_leader_that_dies_with_uncommitted_batches_leaves_no_gap_and_no_double(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("a"))
    play.cluster.brokers[1].answers_lost = 9
    deliveries = []
    for value in "bcdef":
        deliveries += await play.send(value)
    await settle()
    # The new leader has only the first of them.
    partition = play.cluster.topics["t"][0]
    kept = [(header, data) for header, data in partition.log if header.base_offset <= 1]
    entry = next(iter(partition.producers.values()))
    entry.batches = [batch for batch in entry.batches if batch[2] <= 1]
    partition.log[:] = kept
    play.cluster.kill(1)
    play.cluster.move_leader("t", 0, 2)
    assert await play.wait(deliveries) == [1, 2, 3, 4, 5]
    assert play.log() == list("abcdef")


async def test_a_silent_leader_is_left_as_soon_as_metadata_names_another(play: Play) -> None:
    await play.begin(request_timeout_ms=30_000, stall_ms=500)
    await play.wait(await play.send("a"))
    play.cluster.brokers[1].is_deaf = True
    deliveries = await play.send("b", "c")
    await play.world.clock.advance(1_000)
    play.cluster.move_leader("t", 0, 2)
    await play.world.clock.advance(700)
    assert [delivery.result().offset for delivery in deliveries] == [1, 2]


async def test_order_is_kept_when_the_first_of_several_batches_is_refused(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("a"))
    play.cluster.brokers[1].errors[ApiKey.PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    deliveries = []
    for value in "bcde":
        deliveries += await play.send(value)
    assert await play.wait(deliveries) == [1, 2, 3, 4]
    assert play.log() == list("abcde")


async def test_not_enough_replicas_after_append_is_repeated_and_written_once(play: Play) -> None:
    await play.begin()
    play.cluster.brokers[1].errors[ApiKey.PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] * 3
    assert await play.wait(await play.send("a")) == [0]
    assert play.log() == ["a"]


async def test_the_first_batch_of_an_identity_goes_alone(play: Play) -> None:
    """A log that may have forgotten a producer takes any first sequence (R93): the second must not overtake
    the first."""
    play.cluster.brokers[1].errors[ApiKey.PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    await play.begin(batch_size_bytes=200)
    deliveries = await play.send("a" * 100, "b" * 100, "c" * 100)
    assert await play.wait(deliveries) == [0, 1, 2]
    assert [value[0] for value in play.log()] == ["a", "b", "c"]


async def test_a_record_that_no_broker_ever_saw_fails_for_certain(play: Play) -> None:
    await play.begin(delivery_timeout_ms=2_000)
    for broker_id in (1, 2, 3):
        play.cluster.kill(broker_id)
    (delivery,) = await play.send("a")
    with pytest.raises(ProduceFailed) as caught:
        await play.wait([delivery])
    assert not caught.value.may_be_appended
    assert play.batches[-1].outcome is DeliveryOutcome.FAIL


async def test_a_record_whose_answer_never_came_is_of_unknown_fate(play: Play) -> None:
    await play.begin(delivery_timeout_ms=2_000)
    await play.wait(await play.send("a"))
    play.cluster.brokers[1].is_deaf = True
    (delivery,) = await play.send("b")
    with pytest.raises(ProduceFailed) as caught:
        await play.wait([delivery])
    assert caught.value.may_be_appended
    assert play.batches[-1].outcome is DeliveryOutcome.INFO


async def test_refusals_only_until_the_delivery_timeout_are_a_certain_failure(play: Play) -> None:
    play.cluster.brokers[1].judge = lambda broker, row: ErrorCode.NOT_ENOUGH_REPLICAS
    await play.begin(delivery_timeout_ms=2_000)
    (delivery,) = await play.send("a")
    with pytest.raises(ProduceFailed) as caught:
        await play.wait([delivery])
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert not caught.value.may_be_appended


async def test_after_a_batch_expired_unanswered_the_producer_goes_on_under_a_new_epoch(play: Play) -> None:
    """D12: the lost batch may still arrive; under the old epoch it would be taken or make a gap."""
    producer = await play.begin(delivery_timeout_ms=2_000, request_timeout_ms=30_000)
    await play.wait(await play.send("a"))
    assert producer.identity is not None
    old = producer.identity
    broker = play.cluster.brokers[1]
    broker.is_deaf = True
    (lost,) = await play.send("b")
    await play.world.clock.advance(2_500)
    assert lost.done()
    late = broker.asked(ApiKey.PRODUCE)[-1].partitions[0]
    broker.is_deaf = False
    assert await play.wait(await play.send("c", "d")) == [1, 2]
    assert producer.identity == (old.producer_id, old.producer_epoch + 1)
    code, _ = play.cluster.topics["t"][0].append(late.records)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert play.log() == ["a", "c", "d"]


async def test_a_fenced_producer_takes_a_fresh_id_and_writes_once(play: Play) -> None:
    producer = await play.begin()
    await play.wait(await play.send("a"))
    assert producer.identity is not None
    play.cluster.topics["t"][0].producers[producer.identity.producer_id].epoch = 7
    old_id = producer.identity.producer_id
    assert await play.wait(await play.send("b")) == [1]
    assert producer.identity.producer_id != old_id
    assert play.log() == ["a", "b"]


async def test_a_producer_that_may_have_no_id_says_so_at_once(play: Play) -> None:
    for broker in play.cluster.brokers.values():
        broker.errors[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 100
    await play.begin()
    (delivery,) = await play.send("a")
    with pytest.raises(ProduceFailed, match="no producer id") as caught:
        await play.wait([delivery], limit_ms=1_000)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for broker in play.cluster.brokers.values():
        broker.errors.clear()
    assert await play.wait(await play.send("b")) == [0]


async def test_a_hopeless_batch_fails_and_those_behind_it_are_written_in_order(play: Play) -> None:
    await play.begin()
    await play.wait(await play.send("a"))
    play.cluster.brokers[1].errors[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
    deliveries = []
    for value in "bcd":
        deliveries += await play.send(value)
    await play.wait(deliveries[1:])
    with pytest.raises(ProduceFailed) as caught:
        deliveries[0].result()
    assert not caught.value.may_be_appended
    assert play.log() == ["a", "c", "d"]


async def test_a_record_is_as_large_as_its_key_value_and_headers_together(play: Play) -> None:
    await play.begin(record_size_bytes_max=1_000)
    with pytest.raises(ClientError, match="record of 1001 bytes, 1000 are allowed") as caught:
        await play.send("a" * 400, key=bytes(300), headers=[("h" * 100, bytes(201)), ("", None)])
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    fits = await play.send("a" * 400, key=bytes(300), headers=[("h" * 100, bytes(200))])
    assert await play.wait(fits) == [0]


@pytest.mark.parametrize("acks", ["all", 0])
async def test_a_batch_that_no_frame_can_hold_fails_at_once_and_holds_no_other_back(
    play: Play, acks: Acks
) -> None:
    await play.begin(acks=acks, record_size_bytes_max=100 << 20, buffer_memory_bytes=200 << 20)
    await play.wait(await play.send("warm"))
    large = await play.producer.submit("t", bytes(65 << 20), partition=0)
    behind = await play.send("behind")
    await play.wait(behind, limit_ms=1_000)
    await settle()
    with pytest.raises(ProduceFailed, match="a frame of") as caught:
        large.result()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not caught.value.may_be_appended
    assert play.log() == ["warm", "behind"]


def test_a_request_larger_than_any_frame_is_refused_as_a_setting() -> None:
    with pytest.raises(ValueError, match="no frame has room"):
        Producer("h:1", request_size_bytes_max=64 << 20)


async def test_send_waits_for_room_and_send_nowait_says_that_there_is_none(play: Play) -> None:
    producer = await play.begin(buffer_memory_bytes=1_000, batch_size_bytes=500, max_block_ms=100)
    await producer.partition_count("t")
    play.cluster.brokers[1].is_deaf = True
    while producer.buffered_bytes < 1_000:
        producer.send_nowait("t", bytes(300), partition=0)
    with pytest.raises(BufferFull):
        producer.send_nowait("t", b"x", partition=0)
    waiting = play.cluster.runtime.tasks.start("send", expect_timeout(producer))
    await play.world.clock.advance(200)
    await waiting.wait()


async def expect_timeout(producer: Producer) -> None:
    with pytest.raises(TimedOut):
        await producer.submit("t", b"x", partition=0)


async def test_on_batch_may_send_more_and_order_holds(play: Play) -> None:
    producer = await play.begin()
    left = list("bcdefgh")

    def more(batch: Batch) -> None:
        if left:
            producer.send_nowait("t", left.pop(0).encode(), partition=0)

    producer._on_batch = more
    await play.send("a")
    for _ in range(20):
        await play.world.clock.advance(1)
    assert play.log() == list("abcdefgh")


async def test_a_callback_that_raises_is_told_to_the_loop_and_keeps_nothing_from_the_others(
    play: Play,
) -> None:
    producer = await play.begin(linger_ms=5)
    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["message"]))

    def raise_error(done: object) -> None:
        raise ZeroDivisionError

    producer._on_batch = raise_error
    first, second = await play.send("a", "b")
    first.add_done_callback(raise_error)
    awaited: list[Any] = []
    waiting = play.cluster.runtime.tasks.start("wait", _result(second, awaited))
    flushing = play.cluster.runtime.tasks.start("flush", producer.flush())
    await settle()
    await flushing.wait()
    await waiting.wait()
    assert awaited == [second.result()]
    assert heard == ["a callback of a record raised: mend it", "on_batch of the producer raised: mend it"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_records_get_through_where_batches_are_too_large(play: Play, idempotent: bool) -> None:
    """max.message.bytes of the topic is below batch_size_bytes; one record is larger than that."""
    await play.begin(idempotent=idempotent, linger_ms=5)
    play.cluster.brokers[1].judge = lambda _, row: (
        ErrorCode.MESSAGE_TOO_LARGE if len(row.records) > 1_000 else None
    )
    called: list[int] = []
    values = [str(number) * 100 for number in range(10)]
    values[6:6] = ["x" * 2_000]
    deliveries = await play.send(*values)
    for number, delivery in enumerate(deliveries):
        delivery.add_done_callback(lambda done, number=number: called.append(number))  # type: ignore[misc]
    awaited: list[Any] = []
    waiting = play.cluster.runtime.tasks.start("wait", _result(deliveries[9], awaited))
    too_large = deliveries.pop(6)
    assert await play.wait(deliveries) == list(range(10))
    with pytest.raises(ProduceFailed, match="MESSAGE_TOO_LARGE"):
        too_large.result()
    await waiting.wait()
    assert awaited == [deliveries[8].result()]
    assert sorted(called) == list(range(11))
    assert play.log() == values[:6] + values[7:]
    assert play.producer.buffered_bytes == 0


async def _result(delivery: Delivery, results: list[Any]) -> None:
    results.append(await delivery)


async def test_tags_come_back_in_the_order_of_the_offsets(play: Play) -> None:
    producer = await play.begin(linger_ms=5)
    await producer.partition_count("t")
    for tag in (11, 12, 13):
        producer.send_nowait("t", b"v", partition=0, tag=tag)
    await producer.flush()
    assert [batch.tags for batch in play.batches] == [[11, 12, 13]]


async def test_with_acks_0_all_that_waits_goes_without_another_word(play: Play) -> None:
    """Nothing is answered, so what waits behind a few batches must be sent when those are written."""
    producer = await play.begin(acks=0, batch_size_bytes=400, linger_ms=50)
    await play.wait(await play.send("warm"))
    for _ in range(60):
        producer.send_nowait("t", b"x" * 100, partition=0)
    await play.world.clock.advance(50)
    await settle()
    assert len(play.log()) == 61


async def test_with_acks_0_a_broker_that_reads_slowly_slows_the_sender_down(play: Play) -> None:
    """Else everything would pile up in the connection, also beyond buffer_memory_bytes."""
    producer = await play.begin(acks=0, buffer_memory_bytes=100_000, batch_size_bytes=50_000)
    await play.wait(await play.send("warm"))
    peers = play.connections_of(1)
    for peer in peers:
        peer.pause_reading()
    sent = 0
    while producer.buffered_bytes < 100_000:
        producer.send_nowait("t", bytes(50_000), partition=0)
        await settle()
        sent += 1
        assert sent < 1_000
    for peer in peers:
        peer.resume_reading()
    await producer.flush()
    await settle()
    assert len(play.log()) == 1 + sent
    assert {batch.outcome for batch in play.batches} == {DeliveryOutcome.OK1}


async def test_with_acks_0_what_was_not_written_when_the_connection_broke_is_sent_again(play: Play) -> None:
    producer = await play.begin(acks=0, buffer_memory_bytes=100_000, batch_size_bytes=50_000)
    await play.wait(await play.send("warm"))
    for peer in play.connections_of(1):
        peer.pause_reading()
    for _ in range(1_000):
        if producer.buffered_bytes >= 100_000:
            break
        producer.send_nowait("t", bytes(50_000), partition=0)
        await settle()
    waiting = producer.buffered_bytes // 50_000
    assert waiting > 0
    play.cluster.world.network.reset_connections(play.cluster.brokers[1].port)
    for _ in range(200):
        await play.world.clock.advance(5)
    assert producer.buffered_bytes == 0
    assert len(play.log()) == 1 + waiting


async def test_acks_1_successes_promise_less_and_acks_0_has_no_offset(play: Play) -> None:
    await play.begin(acks=1)
    assert await play.wait(await play.send("a")) == [0]
    await play.producer.close()
    await play.begin(acks=0)
    assert await play.wait(await play.send("b")) == [-1]
    await settle()
    assert play.log() == ["a", "b"]
    assert [batch.outcome for batch in play.batches] == [DeliveryOutcome.OK1, DeliveryOutcome.OK1]


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
async def test_compressed_batches_are_smaller_and_marked(play: Play, compression: str) -> None:
    await play.begin(compression=compression, linger_ms=5)
    deliveries = await play.send(*["same text again " * 10] * 20)
    await play.wait(deliveries)
    ((header, data),) = play.cluster.topics["t"][0].log
    assert header.compression == {"gzip": 1, "lz4": 3, "zstd": 4}[compression]
    assert header.record_count == 20
    assert len(data) < 1_000


@pytest.mark.parametrize("max_block_ms", [1_000, 3_000, 60_000])
async def test_an_unknown_topic_is_said_to_be_unknown(play: Play, max_block_ms: int) -> None:
    """Also by a caller without the patience to see whether it is only being created."""
    producer = await play.begin(max_block_ms=max_block_ms)
    failed = play.cluster.runtime.tasks.start("send", expect_unknown(producer))
    await play.world.clock.advance(10_000)
    await failed.wait()


async def expect_unknown(producer: Producer) -> None:
    with pytest.raises(ClientError, match="create it first"):
        await producer.submit("nowhere", b"x")


async def test_any_single_bootstrap_server_is_enough(play: Play) -> None:
    addresses = play.cluster.bootstrap_servers.split(",")
    play.cluster.kill(1)
    play.cluster.move_leader("t", 0, 2)
    servers = [addresses[0], addresses[2]]
    play.producer = Producer(servers, linger_ms=0, runtime=play.cluster.runtime)
    await play.producer.start()
    await play.world.clock.advance(100)
    assert await play.wait(await play.send("a")) == [0]


async def test_close_gives_every_record_an_outcome(play: Play) -> None:
    await play.begin()
    play.cluster.brokers[1].is_deaf = True
    deliveries = await play.send("a", "b")
    closing = play.cluster.runtime.tasks.start("close", play.producer.close(timeout_ms=100))
    await play.world.clock.advance(200)
    await closing.wait()
    assert all(delivery.done() for delivery in deliveries)
    with pytest.raises(ClientError, match="closed"):
        await play.send("c")


async def test_a_producer_that_is_closing_takes_no_more_records(play: Play) -> None:
    """Their batches would be behind the flush that close() waits for, and no timer would end them."""
    await play.begin()
    play.cluster.brokers[1].is_deaf = True
    (first,) = await play.send("a")
    closing = play.cluster.runtime.tasks.start("close", play.producer.close(timeout_ms=100))
    await settle()
    with pytest.raises(ClientError, match="closed: send before"):
        await play.send("b", partition=1)
    with pytest.raises(ClientError, match="closed: send before"):
        play.producer.send_nowait("t", b"b", partition=1)
    await play.world.clock.advance(200)
    await closing.wait()
    assert first.done()


async def test_who_waits_for_room_when_the_producer_closes_is_told(play: Play) -> None:
    producer = await play.begin(buffer_memory_bytes=1_000)
    play.cluster.brokers[1].is_deaf = True
    deliveries = await play.send("a" * 2_000)
    told: list[str] = []

    async def send_more() -> None:
        with pytest.raises(ClientError) as caught:
            await producer.submit("t", b"b", partition=1)
        told.append(str(caught.value))

    sending = play.cluster.runtime.tasks.start("send", send_more())
    closing = play.cluster.runtime.tasks.start("close", producer.close(timeout_ms=100))
    await play.world.clock.advance(200)
    await closing.wait()
    await sending.wait()
    assert "closed" in told[0]
    assert deliveries[0].done()


async def test_a_cancelled_close_still_ends_everything(play: Play) -> None:
    """asyncio.wait_for gives up on close() like that: no record, no connection may be left behind."""
    producer = await play.begin()
    play.cluster.brokers[1].is_deaf = True
    deliveries = await play.send("a")
    closing = play.cluster.runtime.tasks.start("close", producer.close())
    await settle()
    closing.cancel()
    await closing.wait()
    await settle()
    assert deliveries[0].done()
    with pytest.raises(ProduceFailed, match="the producer was closed"):
        deliveries[0].result()
    assert not any(play.connections_of(broker_id) for broker_id in play.cluster.brokers)


async def test_a_callback_that_takes_time_and_sends_does_not_break_what_is_on_its_way(play: Play) -> None:
    """It repeats its record at once, while a batch whose time is nearly over waits to be written."""
    producer = await play.begin(delivery_timeout_ms=300)
    for partition in range(3):
        await play.wait(await play.send("warm", partition=partition))
    play.cluster.move_leader("t", 0, -1)
    play.cluster.move_leader("t", 1, -1)
    producer._cluster.refresh()
    await play.world.clock.advance(50)

    def repeat(batch: Batch) -> None:
        if batch.outcome is DeliveryOutcome.FAIL:
            play.world.clock._now_ns += 2_000_000  # it takes 2 ms
            producer.send_nowait("t", b"again", partition=2)

    producer._on_batch = repeat
    start_ms = play.world.clock.now_ms()
    (first,) = await play.send("a", partition=0)
    await play.world.clock.advance(1)
    (second,) = await play.send("b", partition=1)
    await play.world.clock.advance(start_ms + 299 - play.world.clock.now_ms())
    # Just when the time of "a" is over, and with 1 ms left for "b", metadata names a leader for "b".
    play.world.clock._now_ns = (start_ms + 300) * 1_000_000
    play.cluster.move_leader("t", 1, 2)
    producer._cluster.cache.update(play.cluster.metadata(("t",)))
    producer._metadata_changed()
    await play.world.clock.advance(1_000)
    assert first.done()
    assert second.done()
    assert producer._sender._requests == {}


async def test_order_holds_when_a_new_leader_does_not_know_the_producer(play: Play) -> None:
    """It was elected uncleanly, or retention has taken what this producer wrote. Its ISR is too small for a
    moment when the first batch arrives, and large enough when the second one does."""
    await play.begin()
    await play.wait(await play.send("warm", partition=1))  # a connection to broker 2
    await play.wait(await play.send("warm"))
    play.cluster.topics["t"][0].producers.clear()
    play.cluster.move_leader("t", 0, 2)
    play.producer._cluster.refresh()
    await play.world.clock.advance(20)
    play.cluster.brokers[2].errors[ApiKey.PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    deliveries = await play.send("a", "b", "c")
    offsets = await play.wait(deliveries)
    assert play.log() == ["warm", "a", "b", "c"]
    assert offsets == [1, 2, 3]


async def test_an_id_of_a_former_cluster_is_not_used_in_the_one_made_anew_at_its_addresses(
    play: Play,
) -> None:
    """The new cluster gives the same id to another producer; then batches are taken for each other's."""
    await play.begin()
    await play.wait(await play.send("old"))
    cluster, told = play.cluster, play.cluster.metadata
    cluster.metadata = lambda names: replace(told(names), cluster_id="another")  # type: ignore[method-assign]
    cluster.add_topic("t", 3)
    cluster.next_producer_id = 6  # ids begin again, too
    cluster.offset = 5
    other = Producer(cluster.bootstrap_servers, linger_ms=0, runtime=cluster.runtime)
    await other.start()
    await other.partition_count("t")
    for value in (b"x", b"y"):
        await play.wait([await other.submit("t", value, partition=0)])
    play.producer._cluster.refresh()
    await play.world.clock.advance(200)
    (mine,) = await play.send("mine")
    assert await play.wait([mine]) == [2]
    assert play.log() == ["x", "y", "mine"]
    await other.close(timeout_ms=0)


async def test_with_acks_0_a_leader_that_moved_on_is_noticed(play: Play) -> None:
    await play.begin(acks=0)
    await play.send("a")
    await play.world.clock.advance(10)
    play.cluster.move_leader("t", 0, 2)  # both brokers are up: a planned move
    for _ in range(300):
        await play.send("b")
        await play.world.clock.advance(100)
    assert "b" in play.log()  # 30 s of records, each reported as OK1


def bug(now_ms: int) -> list[Any]:
    raise ZeroDivisionError("a bug")


async def test_after_its_core_raised_a_producer_sends_nothing_and_tells_all_who_wait(
    play: Play, failures_logged: list[str]
) -> None:
    """Its records fail, calls are refused, and the owner of its tasks hears of the bug, once."""
    producer = await play.begin(linger_ms=60_000)
    (waiting,) = await play.send("a")
    flushing = play.cluster.runtime.tasks.start("flush", producer.flush())
    producer._pump.post(bug)
    await settle()
    with pytest.raises(ProduceFailed, match="a bug"):
        waiting.result()
    assert flushing.is_done
    with pytest.raises(ZeroDivisionError):
        await play.send("b")
    producer._pump.post(bug)
    await play.world.clock.advance(120_000)
    assert play.log() == []
    assert isinstance(await play.world.tasks.failure(), ZeroDivisionError)
    assert len(failures_logged) == 1
