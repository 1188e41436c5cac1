"""A member of a group in a process of its own, which a test may kill: reads, commits, and prints what it did.

Foreign clients, and our own, which is told our own addresses.

    python member.py CLIENT BOOTSTRAP TOPIC GROUP

One JSON object a line: {"assigned": [partitions]}, {"read": [[partition, offset], ...]}, and when a commit
was acknowledged {"committed": {partition: next offset}}. A commit that failed is tried again.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

SESSION_MS = 3_000
HEARTBEAT_MS = 500
#: Most records between two commits, and the work that they are.
RECORDS_MAX = 20
WORK_S = 0.05


def tell(kind: str, value: Any) -> None:
    print(json.dumps({kind: value}), flush=True)


def work(rows: Iterable[tuple[int, int]], ends: dict[int, int]) -> None:
    """What was read is done: `ends` has the next offset of each partition."""
    found = list(rows)
    tell("read", found)
    for partition, offset in found:
        ends[partition] = max(ends.get(partition, 0), offset + 1)


def confluent(bootstrap: str, topic: str, group: str) -> None:
    import confluent_kafka

    library: Any = confluent_kafka
    consumer = library.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "log_level": 0,
        }
    )

    ends: dict[int, int] = {}

    def assigned(_: Any, partitions: Any) -> None:
        ends.clear()  # others may have these partitions now
        tell("assigned", [one.partition for one in partitions])

    consumer.subscribe([topic], on_assign=assigned)
    while True:
        messages = [one for one in consumer.consume(RECORDS_MAX, 0.2) if one.error() is None]
        if messages:
            work(((one.partition(), one.offset()) for one in messages), ends)
            time.sleep(WORK_S)
        if not ends:
            continue
        offsets = [library.TopicPartition(topic, partition, end) for partition, end in ends.items()]
        try:
            rows = consumer.commit(offsets=offsets, asynchronous=False)
        except library.KafkaException:
            continue
        if all(row.error is None for row in rows):
            tell("committed", ends)
            ends.clear()


def kafka_python(bootstrap: str, topic: str, group: str) -> None:
    import kafka

    library: Any = kafka
    ends: dict[int, int] = {}

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_revoked(self, revoked: Any) -> None: ...

        def on_partitions_assigned(self, assigned: Any) -> None:
            ends.clear()
            tell("assigned", [one.partition for one in assigned])

    consumer = library.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=RECORDS_MAX,
    )
    consumer.subscribe([topic], listener=Listener())
    while True:
        batches = consumer.poll(200)
        if batches:
            work(((one.partition, one.offset) for rows in batches.values() for one in rows), ends)
            time.sleep(WORK_S)
        if not ends:
            continue
        try:
            consumer.commit()
        except library.errors.KafkaError:
            continue
        tell("committed", ends)
        ends.clear()


async def _aiokafka(bootstrap: str, topic: str, group: str) -> None:
    import aiokafka

    library: Any = aiokafka
    ends: dict[int, int] = {}

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_revoked(self, revoked: Any) -> None: ...

        def on_partitions_assigned(self, assigned: Any) -> None:
            ends.clear()
            tell("assigned", [one.partition for one in assigned])

    consumer = library.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while True:
        batches = await consumer.getmany(timeout_ms=200, max_records=RECORDS_MAX)
        if batches:
            work(((one.partition, one.offset) for rows in batches.values() for one in rows), ends)
            await asyncio.sleep(WORK_S)
        if not ends:
            continue
        try:
            await consumer.commit()
        except library.errors.KafkaError:
            continue
        tell("committed", ends)
        ends.clear()


def aiokafka_member(bootstrap: str, topic: str, group: str) -> None:
    asyncio.run(_aiokafka(bootstrap, topic, group))


async def _holdfast(bootstrap: str, topic: str, group: str) -> None:
    from holdfast import CommitFailed, Consumer, RebalanceListener, TopicPartition

    ends: dict[int, int] = {}
    reads: dict[int, None] = {}

    class Listener(RebalanceListener):
        async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
            reads.update(dict.fromkeys(index for _, index in partitions))
            tell("assigned", sorted(reads))

        async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
            for _, index in partitions:
                ends.pop(index, None)
                del reads[index]

    async with Consumer(
        bootstrap,
        group_id=group,
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    ) as consumer:
        consumer.subscribe(topic, Listener())
        while True:
            records = await consumer.poll(RECORDS_MAX, 200)
            if records:
                work(((one.partition, one.offset) for one in records), ends)
                await asyncio.sleep(WORK_S)
            if not ends:
                continue
            try:
                await consumer.commit()
            except CommitFailed:
                continue
            tell("committed", ends)
            ends.clear()


def holdfast_member(bootstrap: str, topic: str, group: str) -> None:
    asyncio.run(_holdfast(bootstrap, topic, group))


MEMBERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_member,
    "holdfast": holdfast_member,
}

if __name__ == "__main__":
    MEMBERS[sys.argv[1]](*sys.argv[2:])
