"""Programs of a simulated cluster's clients: the real producer, consumer and admin under a drawn load.

Owns what they do and what they write down: producers keep a ledger on their own disk (D11), consumers what
they were given. Judges nothing. Partitions of all topics have one number each, their *place*: that of topic t
is the index, that of t2 is 2000 + the index.
"""

import posixpath
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from holdfast.client.admin import Admin
from holdfast.client.consumer import Consumer
from holdfast.client.core.batch import Batch
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.errors import ClientError
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.delivery import Delivery
from holdfast.client.ledger import Ledger
from holdfast.client.producer import Producer
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.sim.machine.choices import Stream, between, one_in

TOPIC = "t"
PLACES_PER_TOPIC = 1000
#: a topic that is made again and again; each of them has places of its own
REMADE = "d"
_FIRST_REMADE = 900
LEDGER_FOLDER = "/ledger"
#: within which producers hear of each record
DELIVERY_TIMEOUT_MS = 10_000
#: of the batches that a producer hears of, so many are answered with a record
_ECHO_ONE_IN = 20
_CREATE_ATTEMPT_MS = 2_000


def topic_name(number: int) -> str:
    """t, t1, t2, ...; all remade topics have one name."""
    if number >= _FIRST_REMADE:
        return REMADE
    return f"{TOPIC}{number or ''}"


def first_place_of(topic: str, remade_count: int) -> int | None:
    """The place of partition 0 of a new topic, when so many were remade before; None for those without
    load."""
    return (_FIRST_REMADE + remade_count) * PLACES_PER_TOPIC if topic == REMADE else place_of(topic, 0)


def place_of(topic: str, index: int) -> int | None:
    """The number of a partition; None for topics without load."""
    if not topic.startswith(TOPIC):
        return None
    return int(topic[len(TOPIC) :] or 0) * PLACES_PER_TOPIC + index


@cache
def partition_at(place: int) -> TopicPartition:
    """The partition with that number."""
    return TopicPartition(topic_name(place // PLACES_PER_TOPIC), place % PLACES_PER_TOPIC)


def name_at(place: int) -> str:
    """For people, as nodes log it."""
    partition = partition_at(place)
    return f"{partition.topic}-{partition.partition}"


class Polled(NamedTuple):
    """A record as a consumer got it."""

    #: its place
    partition: int
    offset: int
    leader_epoch: int
    value: bytes


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic with load."""

    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]


@dataclass(slots=True)
class Reader:
    """A consumer, and how many of the places it reads."""

    consumer: Consumer
    assigned: int = 0


@dataclass(slots=True)
class Load:
    """What all clients of a run share."""

    bootstrap: str
    #: of the partitions that get records; grows
    places: list[int]
    #: those of them that get none for now
    resting: set[int] = field(default_factory=set)
    #: set when producers shall send no more
    is_over: bool = False
    #: set when the consumer shall stop
    is_read: bool = False
    is_created: bool = False
    producers_running: int = 0
    #: all that were started, those of remade topics too
    producers: list[Producer] = field(default_factory=list)
    #: {(producer, pseq): what the sender of a record was given for it}
    deliveries: dict[tuple[str, int], Delivery] = field(default_factory=dict)
    #: of acks=all
    acknowledged_batches: int = 0
    #: producers that wait for acknowledgements
    writers: set[str] = field(default_factory=set)
    #: (producer, place) of batches that were acknowledged since the run began to count
    acknowledged: set[tuple[str, int]] = field(default_factory=set)
    #: who reads all places until everything is read
    readers: list[Reader] = field(default_factory=list)
    #: by session of a consumer
    polls: list[list[Polled]] = field(default_factory=list)
    #: codes of errors that consumers were told of, by name
    troubles: list[str] = field(default_factory=list)
    #: what consumers got since the observer last looked
    fresh: list[Polled] = field(default_factory=list)
    #: what a consumer reads from the beginning after everything was healed
    final_polls: list[Polled] = field(default_factory=list)


def creator(load: Load, topics: Sequence[NewTopic]) -> Callable[[Runtime], object]:
    """Makes the topics, however long it takes."""

    async def run(runtime: Runtime) -> None:
        admin = Admin(load.bootstrap, runtime=runtime)
        for topic in topics:
            while True:
                try:
                    await admin.create_topic(
                        topic.name,
                        topic.partitions,
                        topic.replicas,
                        configs=topic.configs,
                        timeout_ms=_CREATE_ATTEMPT_MS,
                    )
                    break
                except ClientError as error:
                    if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                        break
                    await runtime.clock.sleep(100)
        load.is_created = True
        await admin.close()

    return run


def producer(
    load: Load,
    name: str,
    work: Stream,
    make: Callable[..., Producer],
    gap_ms: int,
    echo: Stream | None = None,
) -> Callable[[Runtime], object]:
    """Sends a few records every now and then until the load is over; with `echo` also where it is told of
    others, in the middle of what the producer is at."""

    async def run(runtime: Runtime) -> None:
        load.producers_running += 1
        ledger = Ledger(LEDGER_FOLDER, "sim", name, runtime=runtime)

        def heard(batch: Batch) -> None:
            load.acknowledged_batches += batch.outcome is DeliveryOutcome.OK
            place = place_of(batch.topic, batch.partition)
            if (
                name in load.writers
                and batch.outcome in (DeliveryOutcome.OK, DeliveryOutcome.OK1)
                and place is not None
            ):
                load.acknowledged.add((name, place))
            if echo is not None and one_in(echo, _ECHO_ONE_IN) and not load.is_over and place not in busy:
                pseq, value = ledger.next_value(40 + echo.draw(200))
                with suppress(ClientError):  # as below
                    producer.send_nowait(batch.topic, value, partition=batch.partition, tag=pseq)

        #: a record for it has its number and is not sent yet
        busy: set[int | None] = {None}
        producer = make(ledger=ledger, on_batch=heard, runtime=runtime)
        if producer.config.acks != 0:
            load.writers.add(name)
        load.producers.append(producer)
        await producer.start()
        while not load.is_over:
            await runtime.clock.sleep(gap_ms - work.draw(gap_ms))  # zero, the simplest, is the least load
            try:
                for _ in range(between(work, 1, 3)):
                    pseq, value = ledger.next_value(40 + work.draw(200))
                    place = load.places[work.draw_alike(len(load.places))]
                    if place in load.resting:
                        continue
                    topic, index = partition_at(place)
                    busy.add(place)
                    try:
                        delivery = await producer.submit(topic, value, partition=index, tag=pseq)
                        load.deliveries[name, pseq] = delivery
                    finally:
                        busy.discard(place)
            except ClientError:
                continue  # no metadata or no room for long: the record was not written down either
        await producer.close(timeout_ms=producer.config.delivery_timeout_ms + 5_000)
        load.producers_running -= 1

    return run


def consumer(load: Load) -> Callable[[Runtime], object]:
    """Reads all partitions over and over: on an error, and when it has not been told otherwise, goes on."""

    async def run(runtime: Runtime) -> None:
        consumer = Consumer(load.bootstrap, runtime=runtime)
        reader = Reader(consumer)
        load.readers.append(reader)
        session: list[Polled] = []
        load.polls.append(session)
        while not load.is_read:
            if reader.assigned < len(load.places):
                reader.assigned = len(load.places)
                consumer.assign(partition_at(place) for place in load.places)
            try:
                records = await consumer.poll(timeout_ms=300)
            except ClientError as error:
                load.troubles.append("" if error.code is None else error.code.name)
                consumer.seek_to_beginning()
                session = []
                load.polls.append(session)
                continue
            polled = [polled_of(record) for record in records]
            session += polled
            load.fresh += polled
        await consumer.close()

    return run


def final_reader(load: Load, ends: dict[int, int]) -> Callable[[Runtime], object]:
    """Reads everything below `ends`, {place: offset}, from the beginning."""

    async def run(runtime: Runtime) -> None:
        consumer = Consumer(load.bootstrap, runtime=runtime)
        missing = {place: end for place, end in ends.items() if end > 0}
        consumer.assign(partition_at(place) for place in missing)
        while missing:
            for record in await consumer.poll(timeout_ms=1_000):
                polled = polled_of(record)
                load.final_polls.append(polled)
                load.fresh.append(polled)
                if polled.partition in missing and polled.offset + 1 >= missing[polled.partition]:
                    del missing[polled.partition]
        await consumer.close()

    return run


def polled_of(record: ConsumerRecord) -> Polled:
    """The record, by the number of its partition."""
    place = place_of(record.topic, record.partition)
    assert place is not None
    return Polled(place, record.offset, record.leader_epoch, record.value or b"")


def ledger_path(name: str) -> str:
    """The ledger file `name` on a client's disk."""
    return posixpath.join(LEDGER_FOLDER, name)
