"""The consumer against brokers that keep their promises: every record once, in order, with any leader."""

import asyncio
import struct
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest

from holdfast.client.consumer import Consumer
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.errors import ClientError, CorruptRecords, NoSuchOffset, TimedOut
from holdfast.client.core.next_turn import NEXT_TURN
from holdfast.client.producer import Producer
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import parse_header
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster, FakePartition
from tests.unit.client.test_decoding import HUGE_KEYS, poisoned

T = TypeVar("T")


class Play:
    """A cluster of three with a topic of two partitions, a producer to fill it, and one consumer."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.consumer: Consumer

    def begin(self, **config: Any) -> Consumer:
        self.consumer = Consumer(self.cluster.bootstrap_servers, **config, runtime=self.cluster.runtime)
        return self.consumer

    async def write(self, *values: str, partition: int = 0, **config: Any) -> None:
        servers, settings = self.cluster.bootstrap_servers, {"linger_ms": 1_000, **config}
        producer = Producer(servers, **settings, runtime=self.cluster.runtime)
        await producer.start()
        for value in values:
            await producer.submit("t", value.encode(), partition=partition, timestamp_ms=1_000)
        await self.until(producer.close())

    async def until(self, work: Coroutine[Any, Any, T], limit_ms: int = 20_000) -> T:
        """The result of `work`, while time moves on."""
        results: list[T] = []
        errors: list[Exception] = []

        async def keep() -> None:
            try:
                results.append(await work)
            except (ClientError, ValueError) as error:
                errors.append(error)

        task = self.cluster.runtime.tasks.start("until", keep())
        for _ in range(limit_ms // 5):
            if task.is_done:
                break
            await self.world.clock.advance(5)
        if errors:
            raise errors[0]
        return results[0]

    async def poll(self, **more: Any) -> list[ConsumerRecord]:
        return await self.until(self.consumer.poll(**more))

    async def read(self, count: int) -> list[str]:
        """Values of the next `count` records."""
        found: list[str] = []
        for _ in range(200):
            found += [(record.value or b"").decode() for record in await self.poll(timeout_ms=100)]
            if len(found) >= count:
                break
        return found


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 2)
    play = Play(cluster)
    yield play
    if hasattr(play, "consumer"):
        await play.consumer.close()
    await settle()
    await world.tasks.cancel_all()


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
async def test_records_come_with_everything_that_was_written(play: Play, compression: str) -> None:
    producer = Producer(
        play.cluster.bootstrap_servers,
        compression=compression,  # type: ignore[arg-type]  # one of them
        runtime=play.cluster.runtime,
    )
    await producer.start()
    for i in range(20):
        await producer.submit("t", b"v%d" % i * 9, b"k", 1, 1_000 + i, [("h", b"x"), ("n", None)])
    await play.until(producer.close())
    consumer = play.begin()
    consumer.assign([("t", 1)])
    records = await play.poll()
    assert [record.offset for record in records] == list(range(20))
    assert records[3] == ("t", 1, 3, 1, 1_003, b"k", b"v3" * 9, [("h", b"x"), ("n", None)])


async def test_max_records_splits_a_batch_and_the_position_follows_what_was_handed_out(play: Play) -> None:
    await play.write(*"abcdefg")
    consumer = play.begin()
    consumer.assign([("t", 0)])
    assert [record.offset for record in await play.poll(max_records=3)] == [0, 1, 2]
    assert consumer.position(("t", 0)) == 3
    assert [record.offset for record in await play.poll(max_records=100)] == [3, 4, 5, 6]
    assert consumer.position(("t", 0)) == 7
    assert consumer.high_watermark(("t", 0)) == 7


async def test_a_seek_into_a_batch_begins_at_that_record_and_forgets_what_was_decoded(play: Play) -> None:
    await play.write(*"abcdefg")
    consumer = play.begin()
    consumer.assign([("t", 0)])
    await play.poll(max_records=2)
    consumer.seek(("t", 0), 5)
    assert await play.read(2) == ["f", "g"]
    consumer.seek_to_beginning()
    assert await play.read(7) == list("abcdefg")


async def test_from_the_end_only_new_records_are_read(play: Play) -> None:
    await play.write("a", "b")
    consumer = play.begin(auto_offset_reset="latest")
    consumer.assign([("t", 0)])
    assert await play.poll(timeout_ms=100) == []
    await play.write("c")
    assert await play.read(1) == ["c"]


async def test_an_empty_poll_ends_when_its_time_is_over(play: Play) -> None:
    consumer = play.begin()
    consumer.assign([("t", 0)])
    start_ms = play.world.clock.now_ms()
    assert await play.poll(timeout_ms=300) == []
    assert 300 <= play.world.clock.now_ms() - start_ms <= 310


async def test_new_records_end_a_waiting_poll(play: Play) -> None:
    consumer = play.begin(max_wait_ms=50)
    consumer.assign([("t", 0)])
    assert await play.poll(timeout_ms=10) == []
    await play.write("a")
    start_ms = play.world.clock.now_ms()
    assert [record.value for record in await play.poll(timeout_ms=10_000)] == [b"a"]
    assert play.world.clock.now_ms() - start_ms <= 60


async def test_a_change_of_leaders_loses_and_repeats_nothing(play: Play) -> None:
    consumer = play.begin(max_wait_ms=50)
    consumer.assign([("t", 0), ("t", 1)])
    found: list[str] = []
    for step in range(6):
        await play.write(f"a{step}", f"b{step}")
        found += await play.read(2)
        leader = play.cluster.topics["t"][0].leader_id
        if step % 2:
            play.cluster.world.network.reset_connections(play.cluster.brokers[leader].port)
        play.cluster.move_leader("t", 0, 1 + leader % 3)
    assert found == [f"{name}{step}" for step in range(6) for name in "ab"]


async def test_reading_survives_the_death_of_the_leader(play: Play) -> None:
    await play.write("a")
    consumer = play.begin()
    consumer.assign([("t", 0)])
    assert await play.read(1) == ["a"]
    play.cluster.kill(1)
    play.cluster.move_leader("t", 0, 2)
    await play.write("b")
    assert await play.read(1) == ["b"]


async def test_a_damaged_batch_is_never_handed_out_and_never_passed_over(play: Play) -> None:
    await play.write("a")
    await play.write("b" * 50)
    await play.write("c")
    header, data = play.cluster.topics["t"][0].log[1]
    good, bad = data, data[:-3] + b"\0\0\0"
    play.cluster.topics["t"][0].log[1] = (header, bad)
    consumer = play.begin()
    consumer.assign([("t", 0)])
    assert [record.value for record in await play.poll()] == [b"a"]
    for _ in range(2):
        with pytest.raises(CorruptRecords, match="crc"):
            await play.poll()
    play.cluster.topics["t"][0].log[1] = (header, good)
    assert await play.read(2) == ["b" * 50, "c"]


@pytest.mark.parametrize(("codec", "payload"), [(1, b"not gzip"), *HUGE_KEYS])
async def test_a_batch_that_does_not_unpack_is_a_damaged_one(play: Play, codec: int, payload: bytes) -> None:
    await play.write("a")
    await play.write("b")
    data = poisoned(codec, payload)
    play.cluster.topics["t"][0].log[0] = (parse_header(data), data)
    consumer = play.begin()
    consumer.assign([("t", 0)])
    for _ in range(2):
        with pytest.raises(CorruptRecords, match=r"t-0 at offset 0: \w+"):
            await play.poll()
        assert consumer.position(("t", 0)) == 0


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
async def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused_by_name(
    play: Play, compression: str
) -> None:
    await play.write("a", compression=compression)
    await play.write("b" * 900_000, compression=compression)
    consumer = play.begin(unpacked_bytes_max=800_000)
    consumer.assign([("t", 0)])
    assert [record.value for record in await play.poll()] == [b"a"]
    with pytest.raises(CorruptRecords, match=r"t-0 at offset 1: .* unpack to more than \d+ bytes"):
        await play.poll()
    assert consumer.position(("t", 0)) == 1


async def test_more_records_than_there_is_memory_for_are_refused_before_they_are_made(play: Play) -> None:
    await play.write(*"abcdefgh")
    consumer = play.begin(unpacked_bytes_max=2_000)
    consumer.assign([("t", 0)])
    with pytest.raises(CorruptRecords, match="8 records take more than 2000 bytes"):
        await play.poll()


async def test_other_partitions_go_on_and_a_seek_goes_behind_the_damaged_batch(play: Play) -> None:
    for partition in (0, 1):
        for value in ("a", "b"):
            await play.write(f"{value}{partition}", partition=partition)
    data = poisoned(0, b"\xff" * 30)
    play.cluster.topics["t"][0].log[0] = (parse_header(data), data)
    consumer = play.begin()
    consumer.assign([("t", 0), ("t", 1)])
    found: list[bytes | None] = []
    errors: list[CorruptRecords] = []
    while len(found) < 2:
        try:
            found += [record.value for record in await play.poll()]
        except CorruptRecords as error:
            errors.append(error)
        assert len(errors) < 10, "the damaged partition holds up the other one"
    assert found == [b"a1", b"b1"]
    while not errors:
        with pytest.raises(CorruptRecords) as caught:
            await play.poll()
        errors.append(caught.value)
    assert (errors[0].partition, errors[0].offset, errors[0].next_offset) == (("t", 0), 0, 1)
    assert "seek to 1" in str(errors[0])
    consumer.seek(errors[0].partition, errors[0].next_offset or 0)
    assert await play.read(1) == ["b0"]


async def test_a_batch_is_not_passed_over_either_when_the_codec_fails_in_an_unforeseen_way(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.core.consumer_records.UNDECODABLE", ())
    await play.write("a")
    await play.write("b")
    codec, payload = HUGE_KEYS[0]
    data = bytearray(poisoned(codec, payload))
    log = play.cluster.topics["t"][0].log
    struct.pack_into(">qii", data, 0, 1, len(data) - 12, log[0][0].leader_epoch)  # base offset, length, epoch
    log[1] = (parse_header(data), bytes(data))
    consumer = play.begin()
    consumer.assign([("t", 0)])
    assert [record.value for record in await play.poll()] == [b"a"]
    for _ in range(2):
        errors: list[Any] = []
        await play.until(_keep(consumer.poll(), errors))
        assert [type(error) for error in errors] == [OverflowError]
        assert consumer.position(("t", 0)) == 1


async def test_raw_batches_come_as_they_are_in_the_log(play: Play) -> None:
    await play.write(*"abc")
    await play.write("d")
    consumer = play.begin()
    consumer.assign([("t", 0)])
    consumer.seek(("t", 0), 1)
    batches = await play.until(consumer.poll_batches())
    assert [bytes(batch.data) for batch in batches] == [data for _, data in play.cluster.topics["t"][0].log]
    assert [batch.start_offset for batch in batches] == [1, 3]
    assert {batch.high_watermark for batch in batches} == {4}


async def test_without_policy_a_position_outside_the_log_is_an_error(play: Play) -> None:
    await play.write("a")
    consumer = play.begin(auto_offset_reset="none")
    consumer.assign([("t", 0)])
    with pytest.raises(NoSuchOffset):
        await play.poll()
    consumer.seek(("t", 0), 77)
    with pytest.raises(NoSuchOffset, match="no offset 77") as refused:
        await play.poll()
    assert refused.value.partition == ("t", 0)
    assert consumer.topic_id(("t", 0)) == play.cluster.topic_ids["t"]
    consumer.seek(("t", 0), 0)
    assert await play.read(1) == ["a"]


@pytest.mark.parametrize("raw", [False, True])
async def test_an_error_of_one_partition_takes_nothing_from_the_others(play: Play, *, raw: bool) -> None:
    play.cluster.add_topic("t", 3)
    for index in range(3):
        await play.write("x", partition=index)
    consumer = play.begin(auto_offset_reset="none")
    consumer.assign([("t", 0), ("t", 1), ("t", 2)])
    for index, offset in enumerate((0, 999, 0)):
        consumer.seek(("t", index), offset)
    for _ in range(60):
        await play.world.clock.advance(5)  # the application is busy: all answers are there
    got: list[int] = []
    errors: list[NoSuchOffset] = []
    for _ in range(4):
        try:
            if raw:
                got += [found.partition for found in await play.until(consumer.poll_batches(timeout_ms=100))]
            else:
                got += [found.partition for found in await play.poll(timeout_ms=100)]
        except NoSuchOffset as error:
            errors.append(error)
            consumer.seek(("t", 1), 0)
    assert sorted(got) == [0, 1, 2]
    assert len(errors) == 1


async def test_offsets_are_asked_of_the_leaders_again_until_they_know(play: Play) -> None:
    await play.write("a", "b")
    play.cluster.topics["t"][1].log_start = 5
    consumer = play.begin()
    wanted = await play.until(consumer.partitions("t"))
    play.cluster.brokers[1].errors[ApiKey.LIST_OFFSETS] = [ErrorCode.OFFSET_NOT_AVAILABLE] * 3
    assert await play.until(consumer.end_offsets(wanted)) == {("t", 0): 2, ("t", 1): 5}
    assert await play.until(consumer.beginning_offsets(wanted)) == {("t", 0): 0, ("t", 1): 5}
    found = await play.until(consumer.offsets_for_times({("t", 0): 500, ("t", 1): 500}))
    assert [answer.offset for answer in found.values()] == [0, -1]


async def test_offsets_are_asked_of_the_new_leader_after_a_change(play: Play) -> None:
    consumer = play.begin()
    await play.until(consumer.partitions("t"))
    play.cluster.kill(1)
    play.cluster.move_leader("t", 0, 3)
    assert await play.until(consumer.end_offsets([("t", 0)])) == {("t", 0): 0}


async def test_a_leader_that_is_starting_or_stopping_is_asked_again(play: Play) -> None:
    consumer = play.begin()
    await play.until(consumer.partitions("t"))
    leader = play.cluster.brokers[1]
    leader.is_starting = True
    play.world.clock.call_later(300, lambda: setattr(leader, "is_starting", False))
    assert await play.until(consumer.end_offsets([("t", 0)])) == {("t", 0): 0}
    leader.is_starting = True
    with pytest.raises(TimedOut, match="starting") as caught:
        await play.until(consumer.end_offsets([("t", 0)], timeout_ms=1_000))
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_topic_deleted_while_its_leader_is_connected_to_is_unknown(play: Play) -> None:
    consumer = play.begin()
    await play.until(consumer.partitions("t"))
    network, port = play.world.network, play.cluster.brokers[2].port
    kept: list[Any] = []
    lookup = play.cluster.runtime.tasks.start("lookup", _keep(consumer.end_offsets([("t", 1)]), kept))
    while not any(connection.port == port for connection in network._connections):
        await asyncio.sleep(0)
    network.cut_off(port)  # accepted, and not a word yet
    play.cluster.topics.clear()
    play.cluster.offset += 1
    consumer.assign([("t", 0)])  # asks for metadata
    await play.world.clock.advance(100)
    network.mend(port)
    await play.world.clock.advance(5_000)
    assert lookup.is_done
    (error,) = kept
    assert isinstance(error, ClientError)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _keep(work: Coroutine[Any, Any, Any], kept: list[Any]) -> None:
    try:
        kept.append(await work)
    except (ClientError, AssertionError, OverflowError) as error:
        kept.append(error)


@pytest.mark.parametrize("story", ["no leader", "no topic", "dead leader", "refused"])
async def test_a_partition_that_cannot_be_looked_up_holds_back_no_other(play: Play, story: str) -> None:
    play.cluster.add_topic("t", 3)
    for index in range(3):
        await play.write("x", partition=index)
    names = [("t", 0), ("t", 1), ("t", 2)]
    match story:
        case "no leader":
            play.cluster.move_leader("t", 2, -1)
        case "no topic":
            names[2] = ("gone", 0)
        case "dead leader":
            play.cluster.kill(3)
        case _:
            play.cluster.brokers[3].is_starting = True
    consumer = play.begin()
    consumer.assign(names)
    start_ms = play.world.clock.now_ms()
    assert await play.read(2) == ["x", "x"]
    assert play.world.clock.now_ms() - start_ms <= 1_000
    if story == "no topic":
        play.cluster.add_topic("gone", 1)
        assert await play.poll(timeout_ms=1_000) == []
        assert consumer.position(("gone", 0)) == 0
        return
    if story == "dead leader":
        await play.cluster.restart(3)
    play.cluster.brokers[3].is_starting = False
    play.cluster.move_leader("t", 2, 3)
    assert await play.read(1) == ["x"]


async def test_a_topic_made_again_with_fewer_partitions_is_read_and_the_vanished_one_is_an_error(
    play: Play,
) -> None:
    for index in range(2):
        await play.write("old", partition=index)
    play.begin().assign([("t", 0), ("t", 1)])
    assert await play.read(2) == ["old", "old"]
    play.cluster.add_topic("t", 1)
    await play.write("new")
    found: list[str] = []
    for _ in range(5):
        try:
            found += await play.read(1)
        except ClientError as error:
            found.append(str(error))
        if "new" in found and len(found) > 1:
            break
    gone = "t was made again without partition 1: assign others"
    assert set(found) == {"new", gone}


async def test_a_topic_that_may_not_be_looked_up_ends_a_waiting_poll(play: Play) -> None:
    play.cluster.brokers[1].errors[ApiKey.LIST_OFFSETS] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    play.begin().assign([("t", 0), ("t", 1)])
    with pytest.raises(ClientError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        await play.poll(timeout_ms=5_000)
    await play.write("granted")
    assert await play.read(1) == ["granted"]


async def test_a_closed_consumer_says_so_at_once(play: Play) -> None:
    consumer = play.begin()
    await consumer.close()
    with pytest.raises(ClientError, match="closed"):
        await play.until(consumer.partitions("t"), limit_ms=5)


async def test_a_lookup_that_no_broker_answers_ends_with_a_reason(play: Play) -> None:
    consumer = play.begin()
    await play.until(consumer.partitions("t"))
    play.cluster.topics["t"][0].leader_id = -1
    play.cluster.topics["t"][0].leader_epoch = 2
    with pytest.raises(TimedOut, match=r"no leader|NOT_LEADER"):
        await play.until(consumer.end_offsets([("t", 0)], timeout_ms=1_000))


async def test_who_polls_without_patience_hears_of_records_all_the_same(play: Play) -> None:
    await play.write("a", "b")
    consumer = play.begin()
    consumer.assign([("t", 0)])
    found = []
    for _ in range(10_000):  # the usual loop; nothing else lets the event loop turn
        found += await consumer.poll(timeout_ms=0)
    assert [record.value for record in found] == [b"a", b"b"]


async def test_a_seek_that_no_request_can_carry_is_refused_and_holds_back_no_other_partition(
    play: Play,
) -> None:
    await play.write("a", partition=0)
    await play.write("b", partition=1)
    play.cluster.move_leader("t", 1, 1)
    consumer = play.begin()
    consumer.assign([("t", 0), ("t", 1)])
    consumer.seek(("t", 1), 0)
    with pytest.raises(ValueError, match="expected 0 to"):
        consumer.seek(("t", 0), 1 << 63)
    assert await play.read(1) == ["b"]


async def test_after_its_core_raised_a_consumer_fetches_nothing_and_tells_who_polls(
    play: Play, failures_logged: list[str]
) -> None:
    def bug(now_ms: int) -> list[Any]:
        raise ZeroDivisionError("a bug")

    consumer = play.begin()
    consumer.assign([("t", 0)])
    assert await play.poll(timeout_ms=100) == []
    consumer._pump.post(bug)
    await play.write("a")
    with pytest.raises(ZeroDivisionError):
        await consumer.poll()
    assert isinstance(await play.world.tasks.failure(), ZeroDivisionError)
    assert len(failures_logged) == 1


async def test_who_polls_while_the_core_raises_hears_of_it_at_once(
    play: Play, failures_logged: list[str]
) -> None:
    def bug(now_ms: int) -> list[Any]:
        raise ZeroDivisionError("a bug")

    consumer = play.begin()
    consumer.assign([("t", 0)])
    told: list[Exception] = []

    async def poll() -> None:
        try:
            await consumer.poll(timeout_ms=10_000)
        except ZeroDivisionError as error:
            told.append(error)

    play.world.tasks.start("poll", poll())
    await settle()
    consumer._pump.post(bug)
    await settle()
    assert len(told) == 1


async def test_who_goes_on_polling_a_broken_consumer_lets_others_run(
    play: Play, failures_logged: list[str]
) -> None:
    def bug(now_ms: int) -> list[Any]:
        raise ZeroDivisionError("a bug")

    consumer = play.begin()
    consumer._pump.post(bug)
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    with pytest.raises(ZeroDivisionError):
        await consumer.poll()
    assert ran == [1]


# --- subscriptions -------------------------------------------------------------------------------------


async def test_a_subscription_reads_every_partition_also_those_that_are_added(play: Play) -> None:
    await play.write("a", partition=0)
    await play.write("b", partition=1)
    consumer = play.begin(metadata_max_age_ms=1_000)
    consumer.subscribe("t")
    assert sorted(await play.read(2)) == ["a", "b"]
    play.cluster.topics["t"].append(FakePartition(leader_id=3))
    play.cluster.offset += 1
    await play.write("c", partition=2)
    assert await play.read(1) == ["c"]
    assert consumer.assignment == (("t", 0), ("t", 1), ("t", 2))


async def test_a_subscription_with_latest_misses_nothing_of_a_partition_that_is_added(play: Play) -> None:
    await play.write("before", partition=0)
    consumer = play.begin(auto_offset_reset="latest", metadata_max_age_ms=1_000)
    consumer.subscribe(["t"])
    assert await play.poll(timeout_ms=100) == []
    play.cluster.topics["t"].append(FakePartition(leader_id=3))
    play.cluster.offset += 1
    await play.write("after", partition=2)
    assert await play.read(1) == ["after"]


async def test_a_subscribed_topic_that_is_deleted_is_read_again_once_it_is_made_again(play: Play) -> None:
    await play.write("old", partition=1)
    consumer = play.begin()
    consumer.subscribe(["t"])
    assert await play.read(1) == ["old"]
    play.cluster.delete_topic("t")
    assert await play.poll(timeout_ms=5_000) == []
    play.cluster.add_topic("t", 1)
    await play.write("new")
    assert await play.read(1) == ["new"]
    assert await play.poll(timeout_ms=1_000) == []
    assert consumer.assignment == (("t", 0),)


async def test_a_topic_that_was_never_there_is_told_once_in_a_while_and_read_once_it_is(play: Play) -> None:
    await play.write("a")
    consumer = play.begin()
    consumer.subscribe(["t", "typo"])
    assert await play.read(1) == ["a"], "the others are read all the same"
    with pytest.raises(ClientError, match="topic typo: UNKNOWN_TOPIC_OR_PARTITION; create it first"):
        await play.poll(timeout_ms=10_000)
    assert await play.poll(timeout_ms=1_000) == []
    play.cluster.add_topic("typo", 1)
    assert await play.poll(timeout_ms=5_000) == []
    assert ("typo", 0) in consumer.assignment


async def test_a_topic_that_cannot_be_called_so_is_refused_at_once(play: Play) -> None:
    with pytest.raises(ClientError, match="a/b"):
        play.begin().subscribe(["a/b"])


# --- where to begin ------------------------------------------------------------------------------------


async def test_an_assignment_may_say_where_each_partition_begins(play: Play) -> None:
    await play.write("a", "b", "c", partition=0)
    await play.write("x", partition=1)
    consumer = play.begin(auto_offset_reset="none")
    consumer.assign({("t", 0): 2, ("t", 1): "latest"})
    assert await play.read(1) == ["c"]
    assert await play.poll(timeout_ms=100) == []
    assert consumer.position(("t", 1)) == 1
    consumer.assign({("t", 1): "earliest"})
    assert await play.read(1) == ["x"]
    assert consumer.assignment == (("t", 1),)


async def test_a_position_of_a_partition_that_is_not_read_is_a_key_error(play: Play) -> None:
    consumer = play.begin()
    consumer.assign([("t", 0)])
    for act in (consumer.position, consumer.high_watermark):
        with pytest.raises(KeyError):
            act(("t", 1))


# --- async for, cancellation, metrics ------------------------------------------------------------------


async def take(consumer: Consumer, count: int, found: list[str]) -> None:
    """The next records by `async for`."""
    if count == 0:
        return
    async for record in consumer:
        found.append((record.value or b"").decode())
        if len(found) >= count:
            break


async def test_async_for_gives_records_one_by_one_and_the_position_goes_with_them(play: Play) -> None:
    await play.write(*"abcdef")
    consumer = play.begin()
    found: list[str] = []
    async with consumer:
        consumer.assign([("t", 0)])
        await play.until(take(consumer, 2, found))
        assert consumer.position(("t", 0)) == 2
        assert [record.value for record in await play.poll(max_records=1)] == [b"c"]
        consumer.seek(("t", 0), 5)
        found.clear()
        await play.until(take(consumer, 1, found))
    assert found == ["f"]
    with pytest.raises(ClientError, match="closed"):
        await play.poll()


async def test_async_for_closes_a_consumer_that_it_has_opened(play: Play) -> None:
    await play.write(*"ab")
    consumer = Consumer(play.cluster.bootstrap_servers, "t", runtime=play.cluster.runtime)
    found: list[str] = []
    await play.until(take(consumer, 2, found))
    await settle()
    assert found == ["a", "b"]
    with pytest.raises(ClientError, match="closed"):
        await play.until(consumer.poll())


async def test_a_cancelled_async_for_has_taken_no_record(play: Play) -> None:
    consumer = play.begin()
    async with consumer:
        consumer.assign([("t", 0)])
        found: list[str] = []
        reading = asyncio.ensure_future(take(consumer, 1, found))
        await play.world.clock.advance(300)
        reading.cancel()
        await settle()
        assert reading.cancelled()
        await play.write("a")
        assert await play.read(1) == ["a"]


async def test_an_async_for_that_never_waits_lets_others_run(play: Play) -> None:
    await play.write(*(str(number) for number in range(2_000)))
    consumer = play.begin()
    async with consumer:
        consumer.assign([("t", 0)])
        found: list[str] = []
        await play.until(take(consumer, 1, found))
        found.clear()
        reading = asyncio.ensure_future(take(consumer, 1_999, found))
        for _ in range(3):
            await NEXT_TURN
        assert 500 <= len(found) < 1_999
        reading.cancel()
        await settle()
        assert await play.read(1_999 - len(found)) == [str(n) for n in range(len(found) + 1, 2_000)]


async def test_a_second_task_that_waits_for_the_records_of_one_consumer_is_refused(play: Play) -> None:
    consumer = play.begin()
    consumer.assign([("t", 0)])
    first = asyncio.ensure_future(consumer.poll(timeout_ms=10_000))
    await settle()
    with pytest.raises(RuntimeError, match="give each its own"):
        await consumer.poll(timeout_ms=1_000)
    await play.write("a")
    assert [record.value for record in await play.until(_result(first))] == [b"a"]


async def _result(future: "asyncio.Future[T]") -> T:
    return await future


async def test_metrics_tell_what_was_read_and_what_is_left(play: Play) -> None:
    await play.write(*"abc", partition=0)
    consumer = play.begin()
    consumer.assign([("t", 0), ("t", 1)])
    assert consumer.metrics().lag == {("t", 0): None, ("t", 1): None}
    await play.poll(max_records=1)
    await play.world.clock.advance(100)
    metrics = consumer.metrics()
    assert (metrics.records_read, metrics.batches_read) == (3, 1)
    assert metrics.bytes_read > 60
    assert metrics.requests_sent >= 2
    assert metrics.lag == {("t", 0): 2, ("t", 1): None}, "an empty partition has nothing to tell of"
    assert metrics.buffered_bytes == 0
