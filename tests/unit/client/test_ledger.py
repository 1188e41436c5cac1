"""The ledger on disk: nothing is sent before it is written down (D11)."""

import sys

import pytest

from holdfast.client.core.history import parse_row, parse_value
from holdfast.client.core.outcomes import DeliveryOutcome
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


async def test_an_arrow_ledger_has_each_record_before_any_answer() -> None:
    pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 1)
    ledger = Ledger("/ledger", "run", "p0", flush_ms=1_000_000, file_format="arrow", runtime=runtime)
    producer = Producer(cluster.bootstrap_servers, linger_ms=0, ledger=ledger, runtime=runtime)
    await producer.start()
    await producer.partition_count("t")
    await settle()
    cluster.brokers[1].is_deaf = True
    await producer.submit("t", b"x")
    await settle()
    assert await arrow_rows_of(world, ledger) == [("run", "p0", 1, 0)]
    await world.tasks.cancel_all()


async def test_an_arrow_ledger_grows_by_batches() -> None:
    pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    runtime, world = memory_runtime()
    ledger = Ledger("/ledger", "run", "p0", file_format="arrow", runtime=runtime)
    await ledger.open()
    for pseq in range(3):
        ledger.invoke(pseq, "t", 0, 100 + pseq, -1, 1)
        ledger.write()
    ledger.complete([0, 1, 2], "t", 0, DeliveryOutcome.OK, 7, 3, None, 2, bytes(16))
    await ledger.close()
    assert ledger.path.endswith(".arrows")
    rows = await arrow_rows_of(world, ledger)
    assert [(kind, pseq) for _, _, kind, pseq in rows] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    await world.tasks.cancel_all()


def test_an_arrow_ledger_without_pyarrow_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "holdfast.client.core.arrow_rows", raising=False)
    with pytest.raises(ValueError, match="an Arrow ledger needs pyarrow"):
        Ledger("/ledger", "run", "p0", file_format="arrow", runtime=memory_runtime()[0])


async def arrow_rows_of(world: MemoryWorld, ledger: Ledger) -> list[tuple[str, str, int, int]]:
    """(run, producer, kind, number) of each row, as anything reads it that knows Arrow."""
    import pyarrow as pa

    file = await world.disk.open(ledger.path, create=False)
    table = pa.ipc.open_stream(file.read_at(0, file.size)).read_all()
    names = (table.schema.metadata[b"run"].decode(), table.schema.metadata[b"producer"].decode())
    return [(*names, row["kind"], row["pseq"]) for row in table.select(["kind", "pseq"]).to_pylist()]
