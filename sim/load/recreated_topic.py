"""A topic that is deleted and made again while it is written and read (R93, R107): of what its brokers still
do for the one before nothing may touch the next.

Owns the three programs. They keep no ledger, since no rule says what of it must be left: the properties
look at each of these topics as at any other, until it is deleted.
"""

from collections.abc import Awaitable, Callable

from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError
from holdfast.client.producer import Acks, Producer
from holdfast.runtime.api import Runtime
from holdfast.sim.load.clients import REMADE, Load
from holdfast.sim.machine.choices import Stream, evenly, one_in

_PARTITIONS_MAX = 3
_TIMEOUT_MS = 2_500
_PAUSE_MS = 100
#: every write is flushed before it counts, so any power cut is in budget (G-3)
_CONFIGS = {"flush.messages": "1"}


def remaker(load: Load, work: Stream, replicas: int) -> Callable[[Runtime], object]:
    """Makes the topic, lets it be for a while, deletes it."""

    async def run(runtime: Runtime) -> None:
        admin = Admin(load.bootstrap, runtime=runtime)
        while not load.is_over:
            count = 1 + work.draw(_PARTITIONS_MAX)
            await _attempt(
                admin.create_topic(REMADE, count, replicas, configs=_CONFIGS, timeout_ms=_TIMEOUT_MS)
            )
            await runtime.clock.sleep(evenly(work, 300, 5_000))
            await _attempt(admin.delete_topic(REMADE, timeout_ms=_TIMEOUT_MS))
            await runtime.clock.sleep(work.draw(300) if one_in(work, 2) else 0)
        await admin.close()

    return run


def churning_producer(load: Load, work: Stream, acks: Acks) -> Callable[[Runtime], object]:
    """Writes to whichever topic there is."""

    async def run(runtime: Runtime) -> None:
        producer = Producer(
            load.bootstrap,
            acks=acks,
            delivery_timeout_ms=5_000,
            request_timeout_ms=2_000,
            max_block_ms=2_000,
            runtime=runtime,
        )
        load.producers.append(producer)
        await producer.start()
        while not load.is_over:
            await runtime.clock.sleep(evenly(work, 5, 204))
            index = work.draw(_PARTITIONS_MAX)
            await _attempt(producer.submit(REMADE, bytes(20 + work.draw(200)), partition=index))
        await producer.close(timeout_ms=10_000)

    return run


def churning_consumer(load: Load) -> Callable[[Runtime], object]:
    """Reads whichever topic there is."""

    async def run(runtime: Runtime) -> None:
        while not load.is_read:
            consumer = Consumer(load.bootstrap, runtime=runtime)
            consumer.assign((REMADE, index) for index in range(_PARTITIONS_MAX))
            try:
                while not load.is_read:
                    await consumer.poll(timeout_ms=300)
            except ClientError:
                await runtime.clock.sleep(_PAUSE_MS)
            await consumer.close()

    return run


async def _attempt(act: Awaitable[object]) -> None:
    try:
        await act
    except ClientError:
        pass  # who comes next tries again
