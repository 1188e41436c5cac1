"""Programs of a simulated cluster's clients: the real producer, consumer and admin under a drawn load.

Owns what they do and what they write down: producers keep a ledger on their own disk (D11), consumers what
they were given. Judges nothing.
"""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from client.admin import Admin
from client.batch import Batch
from client.consumer import Consumer, ConsumerConfig
from client.errors import ClientError
from client.ledger import Ledger
from client.outcomes import Outcome
from client.producer import Producer, ProducerConfig
from protocol.errors import ErrorCode
from runtime.api import Runtime
from sim.choices import Stream, between

TOPIC = "t"
LEDGER_FOLDER = "/ledger"
_CREATE_ATTEMPT_MS = 2_000


class Polled(NamedTuple):
    """A record as a consumer got it."""

    partition: int
    offset: int
    leader_epoch: int
    value: bytes


@dataclass(slots=True)
class Load:
    """What all clients of a run share."""

    bootstrap: str
    partitions: int
    #: set when producers shall send no more
    is_over: bool = False
    #: set when the consumer shall stop
    is_read: bool = False
    is_created: bool = False
    producers_running: int = 0
    #: of acks=all
    acknowledged_batches: int = 0
    #: by session of the consumer
    polls: list[list[Polled]] = field(default_factory=list)
    #: what a consumer reads from the beginning after everything was healed
    final_polls: list[Polled] = field(default_factory=list)


def creator(load: Load, replicas: int, configs: dict[str, str]) -> Callable[[Runtime], object]:
    """Makes the topic, however long it takes."""

    async def run(runtime: Runtime) -> None:
        admin = Admin(runtime, load.bootstrap)
        while not load.is_created:
            try:
                await admin.create_topic(
                    TOPIC, load.partitions, replicas, configs=configs, timeout_ms=_CREATE_ATTEMPT_MS
                )
                load.is_created = True
            except ClientError as error:
                load.is_created = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
                await runtime.clock.sleep(100)
        admin.close()

    return run


def producer(
    load: Load, name: str, work: Stream, config: ProducerConfig, gap_ms: int
) -> Callable[[Runtime], object]:
    """Sends a few records every now and then until the load is over."""

    async def run(runtime: Runtime) -> None:
        load.producers_running += 1
        ledger = Ledger(runtime, LEDGER_FOLDER, "sim", name)

        def heard(batch: Batch) -> None:
            load.acknowledged_batches += batch.outcome is Outcome.OK

        producer = Producer(runtime, config, ledger, heard)
        await producer.start()
        while not load.is_over:
            await runtime.clock.sleep(gap_ms - work.draw(gap_ms))  # zero, the simplest, is the least load
            try:
                for _ in range(between(work, 1, 3)):
                    pseq, value = ledger.next_value(40 + work.draw(200))
                    await producer.send(TOPIC, value, partition=work.draw(load.partitions), tag=pseq)
            except ClientError:
                continue  # no metadata or no room for long: the record was not written down either
        await producer.close(timeout_ms=config.delivery_timeout_ms + 5_000)
        load.producers_running -= 1

    return run


def consumer(load: Load) -> Callable[[Runtime], object]:
    """Reads all partitions over and over: on an error, and when it has not been told otherwise, goes on."""

    async def run(runtime: Runtime) -> None:
        consumer = Consumer(runtime, ConsumerConfig(load.bootstrap))
        consumer.assign((TOPIC, index) for index in range(load.partitions))
        session: list[Polled] = []
        load.polls.append(session)
        while not load.is_read:
            try:
                records = await consumer.poll(timeout_ms=300)
            except ClientError:
                consumer.seek_to_beginning()
                session = []
                load.polls.append(session)
                continue
            session += [Polled(r.partition, r.offset, r.leader_epoch, r.value or b"") for r in records]
        consumer.close()

    return run


def final_reader(load: Load, ends: dict[int, int]) -> Callable[[Runtime], object]:
    """Reads everything below `ends`, {partition: offset}, from the beginning."""

    async def run(runtime: Runtime) -> None:
        consumer = Consumer(runtime, ConsumerConfig(load.bootstrap))
        missing = {index: end for index, end in ends.items() if end > 0}
        consumer.assign((TOPIC, index) for index in missing)
        while missing:
            for r in await consumer.poll(timeout_ms=1_000):
                load.final_polls.append(Polled(r.partition, r.offset, r.leader_epoch, r.value or b""))
                if r.partition in missing and r.offset + 1 >= missing[r.partition]:
                    del missing[r.partition]
        consumer.close()

    return run


def ledger_path(name: str) -> str:
    """The ledger file `name` on a client's disk."""
    return posixpath.join(LEDGER_FOLDER, name)
