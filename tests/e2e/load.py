"""Load for end-to-end tests: a producer that remembers every answer, and the proof that nothing was lost.

Runs in a thread with a loop and a runtime of its own, so that tests can hurt the cluster meanwhile.
"""

import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.client.consumer import Consumer
from holdfast.client.core.batch import Batch
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.errors import ProduceFailed
from holdfast.client.core.history import make_value, parse_value
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Acks, Producer
from holdfast.drills.demo.watch import ClusterWatch
from holdfast.protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.rpc.channel import CallRefused, Pool
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.real.machine import run

VALUE_SIZE = 256


@dataclass
class Answers:
    """What a producer was told: `{(partition, offset): number}` of the acknowledged, and what failed."""

    acked: dict[tuple[int, int], int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


class Load:
    """A producer in the background. Use as a context manager; leaving it waits for every answer."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        acks: Acks = "all",
        records_per_second: int = 2000,
        name: str = "load",
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._acks: Acks = acks
        self._topic = topic
        self._portion = max(1, records_per_second // 100)
        self._name = name
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.answers = Answers()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Load":
        self._thread.start()
        self.wait_acked(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "the producer does not end"
        if self._error is not None:
            raise self._error

    def wait_acked(self, more: int, timeout_s: float = 30.0) -> None:
        """Until `more` further records are acknowledged."""
        target = len(self.answers.acked) + more
        wait_until(lambda: len(self.answers.acked) >= target or self._error is not None, timeout_s)

    def _run(self) -> None:
        try:
            run(self._work)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self._error = error

    async def _work(self, runtime: Runtime) -> int:
        producer = Producer(
            self._bootstrap_servers,
            acks=self._acks,
            delivery_timeout_ms=60_000,
            on_batch=self._on_batch,
            runtime=runtime,
        )
        await producer.start()
        await producer.partition_count(self._topic)
        number = 0
        while not self._stop.is_set():
            for _ in range(self._portion):
                await producer.submit(self._topic, make_value(self._name, number, VALUE_SIZE), tag=number)
                number += 1
            await runtime.clock.sleep(10)
        await producer.close(60_000)
        return 0

    def _on_batch(self, batch: Batch) -> None:
        if batch.outcome in (DeliveryOutcome.OK, DeliveryOutcome.OK1):
            for index, number in enumerate(batch.tags):
                self.answers.acked[batch.partition, batch.base_offset + index] = number
        else:
            self.answers.failed.append(f"{batch.outcome}: {batch.error_text}")


class HighWatermarks:
    """Reads raw fetch answers in the background: every known high watermark in order of the answers."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._stop = threading.Event()
        self.known: list[int] = []
        self._thread = threading.Thread(target=lambda: run(self._work), daemon=True)

    def __enter__(self) -> "HighWatermarks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    async def _work(self, runtime: Runtime) -> int:
        pool = Pool(runtime, "high-watermarks")
        addresses = [address.rsplit(":", 1) for address in self._bootstrap_servers.split(",")]
        while not self._stop.is_set():
            for host, port in addresses:
                await self._ask(pool, host, int(port))
            await runtime.clock.sleep(2)
        pool.close()
        return 0

    async def _ask(self, pool: Pool, host: str, port: int) -> None:
        """One fetch at the end of the log; a broker that does not lead answers with an error row."""
        try:
            metadata = await pool.call(host, port, MetadataRequest((self._topic,)), 1_000)
            row = FetchPartition(
                metadata.topics[0].topic_id, 0, -1, self.known[-1] if self.known else 0, -1, -1, 1
            )
            request = FetchRequest(None, CONSUMER_REPLICA_ID, -1, 0, 0, 1, (row,))
            answer = await pool.call(host, port, request, 1_000)
        except (NetworkError, CallRefused):
            return
        for found in answer.partitions:
            if found.error_code == 0 and found.high_watermark >= 0:
                self.known.append(found.high_watermark)


def produce(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    acks: Acks = "all",
    name: str = "load",
    first: int = 0,
    delivery_timeout_ms: int = 60_000,
    partitions: int | None = None,
) -> Answers:
    """Send `count` records and wait for every answer; with `partitions`, to each in turn."""
    answers = Answers()

    async def work(runtime: Runtime) -> int:
        producer = Producer(
            bootstrap_servers,
            acks=acks,
            delivery_timeout_ms=delivery_timeout_ms,
            retry_max_ms=100,
            runtime=runtime,
        )
        await producer.start()
        sent = [
            await producer.submit(
                topic,
                make_value(name, n, VALUE_SIZE),
                partition=None if partitions is None else n % partitions,
            )
            for n in range(first, first + count)
        ]
        await producer.flush()
        for number, delivery in enumerate(sent, first):
            try:
                where = delivery.result()
                answers.acked[where.partition, where.offset] = number
            except ProduceFailed as error:
                answers.failed.append(f"{error.code!r}: {error}")
        await producer.close()
        return 0

    run(work)
    return answers


def read_all(bootstrap_servers: str, topic: str, partitions: int) -> dict[tuple[int, int], ConsumerRecord]:
    """Everything that consumers may see now, by (partition, offset)."""
    found: dict[tuple[int, int], ConsumerRecord] = {}

    async def work(runtime: Runtime) -> int:
        consumer = Consumer(bootstrap_servers, runtime=runtime)
        every = [(topic, partition) for partition in range(partitions)]
        ends = await consumer.end_offsets(every)
        consumer.assign(every)
        consumer.seek_to_beginning(*every)
        while any((consumer.position(tp) or 0) < end for tp, end in ends.items()):
            for record in await consumer.poll(10_000, 1_000):
                found[record.partition, record.offset] = record
        await consumer.close()
        return 0

    run(work)
    return found


def assert_nothing_lost(bootstrap_servers: str, topic: str, partitions: int, *all_answers: Answers) -> int:
    """Every acknowledged record is at its offset, no value twice, the numbers of each producer in order."""
    found = read_all(bootstrap_servers, topic, partitions)
    values = [record.value for record in found.values()]
    assert len(set(values)) == len(values), "a value is in the log twice"
    count = 0
    for answers in all_answers:
        for where, number in answers.acked.items():
            assert where in found, f"acknowledged record {number} at {where} is gone"
            said = parse_value(found[where].value or b"")
            assert said is not None
            assert said.pseq == number, f"another record at {where}"
            count += 1
    for partition in range(partitions):
        last: dict[str, int] = {}
        for (p, _), record in sorted(found.items()):
            said = parse_value(record.value or b"") if p == partition else None
            if said is not None:
                assert said.pseq > last.get(said.producer, -1), "records of one producer out of order"
                last[said.producer] = said.pseq
    assert count, "nothing was acknowledged: the test proves nothing"
    return count


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Poll until the condition holds; fails after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {timeout_s:.0f} s"
        time.sleep(0.05)


def crowd_of(wanted: int) -> int:
    """So many connections, or fewer where a process may not have twice as many files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard // 2)


def watch(bootstrap_servers: str) -> ClusterWatch:
    """Questions to the cluster."""
    return ClusterWatch(bootstrap_servers)
