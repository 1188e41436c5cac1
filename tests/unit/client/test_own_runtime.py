"""Clients without a given runtime: they run on the machine's, and leave nothing of it behind."""

import asyncio

import pytest

from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError, ProduceFailed
from holdfast.client.ledger import Ledger
from holdfast.client.own_runtime import ClientRuntime
from holdfast.client.producer import Producer
from holdfast.runtime.memory.machine import memory_runtime

#: nothing listens there
NOWHERE = "127.0.0.1:1"


def others() -> list[str]:
    """Names of the tasks of this loop, without the caller."""
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_clients_are_made_without_an_event_loop() -> None:
    Producer(NOWHERE)
    Consumer(NOWHERE, "t")
    Admin(NOWHERE)
    Ledger("/nowhere", "run", "p0")


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
async def test_a_closed_client_leaves_no_task_behind(kind: str) -> None:
    client = {"producer": Producer, "consumer": Consumer, "admin": Admin}[kind](NOWHERE)
    async with client:
        if isinstance(client, Admin):
            with pytest.raises(ClientError, match="did not succeed"):
                await client.list_topics(timeout_ms=1)
        else:
            assert others() != []
    assert others() == []


async def test_a_cancelled_send_leaves_no_task_behind() -> None:
    async with Producer(NOWHERE) as producer:
        sending = asyncio.ensure_future(producer.send("t", b"never"))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert others() == []


async def test_a_cancelled_async_for_leaves_no_task_behind() -> None:
    async def read() -> None:
        async for _ in Consumer(NOWHERE, "t"):
            raise AssertionError("there is nothing to read")

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert others() == []


def test_a_client_that_is_open_when_the_event_loop_ends_is_told_of() -> None:
    async def forget() -> None:
        await Consumer(NOWHERE).start()
        async with Consumer(NOWHERE):
            pass

    with pytest.warns(ResourceWarning, match="a Holdfast client was not closed: use `async with`") as told:
        asyncio.run(forget())
    assert len(told) == 1


async def test_a_given_runtime_keeps_its_tasks() -> None:
    runtime, world = memory_runtime()
    held = runtime.tasks.start("of the caller", asyncio.Event().wait())  # type: ignore[arg-type]
    owner = ClientRuntime(runtime)
    owner.begin(lambda error: None)
    await owner.end()
    assert not held.is_done
    await world.tasks.cancel_all()


async def test_a_task_that_fails_fails_its_producer_and_all_that_wait(failures_logged: list[str]) -> None:
    """What it was to do would be waited for in vain."""
    async with Producer(NOWHERE) as producer:
        producer._router.learn("t", 1)
        delivery = await producer.submit("t", b"never", partition=0)
        producer._owner.runtime.tasks.start("broken", _break())
        with pytest.raises(ProduceFailed, match=r"this producer has failed.*RuntimeError\('broken'\)"):
            await delivery
        with pytest.raises(ClientError, match="has failed, make another one"):
            await producer.send("t", b"late")
    assert len(failures_logged) == 1


async def test_a_task_that_fails_fails_its_consumer(failures_logged: list[str]) -> None:
    async with Consumer(NOWHERE, "t") as consumer:
        polling = asyncio.ensure_future(consumer.poll(timeout_ms=60_000))
        await asyncio.sleep(0)
        consumer._owner.runtime.tasks.start("broken", _break())
        with pytest.raises(ClientError, match=r"this consumer has failed.*RuntimeError\('broken'\)"):
            await polling
    assert len(failures_logged) == 1


async def _break() -> None:
    raise RuntimeError("broken")
