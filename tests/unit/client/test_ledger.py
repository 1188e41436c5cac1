"""The ledger on disk: nothing is sent before it is written down (D11)."""

import pytest

from holdfast.client.core.history import parse_row, parse_value
from holdfast.client.ledger import Ledger
from holdfast.client.producer import Producer
from holdfast.protocol.api_keys import ApiKey
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster


async def rows_of(world: MemoryWorld, ledger: Ledger) -> list[dict[str, object]]:
    file = await world.disk.open(ledger.path, create=False)
    return [parse_row(line) for line in file.read_at(0, file.size).splitlines()]


async def test_every_record_has_its_two_rows_and_they_say_where_it_is() -> None:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 1)
    ledger = Ledger("/ledger", "run", "p0", runtime=runtime)
    producer = Producer(cluster.bootstrap_servers, linger_ms=0, ledger=ledger, runtime=runtime)
    await producer.start()
    for _ in range(3):
        pseq, value = ledger.next_value(100)
        delivery = await producer.submit("t", value, tag=pseq)
        await settle()
        assert delivery.done()
    await producer.close()
    rows = await rows_of(world, ledger)
    assert [(r["kind"], r["pseq"]) for r in rows if r["kind"] == "invoke"] == [
        ("invoke", n) for n in range(3)
    ]
    done = [r for r in rows if r["kind"] == "complete"]
    assert [(r["pseq"], r["outcome"], r["offset"]) for r in done] == [(n, "ok", n) for n in range(3)]
    written = [parse_value(value) for value in cluster.values("t", 0)]
    assert written == [("p0", n) for n in range(3)]
    await world.tasks.cancel_all()


async def test_a_sent_record_is_in_the_file_before_any_answer() -> None:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 1)
    cluster.brokers[1].is_deaf = True
    ledger = Ledger("/ledger", "run", "p0", flush_ms=1_000_000, runtime=runtime)
    producer = Producer(cluster.bootstrap_servers, linger_ms=0, ledger=ledger, runtime=runtime)
    cluster.brokers[1].is_deaf = False
    await producer.start()
    await producer.partition_count("t")
    await settle()
    cluster.brokers[1].is_deaf = True
    await producer.submit("t", b"x")
    await settle()
    assert len(cluster.brokers[1].asked(ApiKey.PRODUCE)) == 1
    assert [row["kind"] for row in await rows_of(world, ledger)] == ["invoke"]
    await producer.close(timeout_ms=0)
    assert [row.get("outcome") for row in await rows_of(world, ledger)] == [None, "info"]
    await world.tasks.cancel_all()


async def test_each_process_writes_a_file_of_its_own() -> None:
    runtime, world = memory_runtime()
    first, second = (
        Ledger("/ledger", "run", "p0", runtime=runtime),
        Ledger("/ledger", "run", "p0", runtime=runtime),
    )
    await first.open()
    await second.open()
    assert len(await world.disk.listdir("/ledger")) == 2
    await first.close()
    await second.close()


async def test_with_fsync_rows_survive_the_loss_of_power_after_the_flush_time() -> None:
    runtime, world = memory_runtime()
    ledger = Ledger("/ledger", "run", "p0", flush_ms=50, fsync=True, runtime=runtime)
    await ledger.open()
    ledger.invoke(0, "t", 0, 1, -1, 2)
    await world.clock.advance(40)
    assert not world.disk.durable_bytes(ledger.path)
    await world.clock.advance(20)
    assert parse_row(world.disk.durable_bytes(ledger.path) or b"")["pseq"] == 0
    await world.tasks.cancel_all()


@pytest.mark.parametrize("folder", ["/ledger", "/new/ledger", "ledger", "new/one/ledger"])
async def test_with_fsync_the_name_of_the_ledger_survives_it_too_wherever_it_lies(folder: str) -> None:
    runtime, world = memory_runtime()
    ledger = Ledger(folder, "run", "p0", fsync=True, runtime=runtime)
    await ledger.open()
    ledger.invoke(0, "t", 0, 1, -1, 2)
    await ledger.close()
    world.disk.power_loss()
    assert await world.disk.exists(ledger.path)


async def test_a_ledger_that_cannot_be_written_stops_the_producer() -> None:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 1)
    ledger = Ledger("/ledger", "run", "p0", flush_ms=1_000_000, runtime=runtime)
    producer = Producer(cluster.bootstrap_servers, linger_ms=0, ledger=ledger, runtime=runtime)
    await producer.start()
    await producer.partition_count("t")
    await settle()
    world.disk.fail("append", ledger.path)
    delivery = await producer.submit("t", b"x")
    await settle()
    assert delivery.done()
    with pytest.raises(DiskError):
        await producer.submit("t", b"y")
    assert cluster.brokers[1].asked(ApiKey.PRODUCE) == []
    await world.tasks.cancel_all()
