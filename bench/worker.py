"""One client process of a benchmark: `python -m holdfast.bench.worker`, JSON order on stdin, JSON report on
stdout.

It says `ready` once everything is connected, waits for a line, then measures. Orders are dicts with `work`
(produce, paced, one_by_one, consume) and what that takes.
"""

import asyncio
import gc
import json
import os
import sys
import time
from typing import Any

import aiofiles

from holdfast.bench.cluster import process_usage
from holdfast.bench.figures import latency
from holdfast.cli.options import run_client
from holdfast.client.consumer import Consumer
from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import BufferFull
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Producer
from holdfast.runtime.api import Runtime


async def _go() -> None:
    """Tell that we are ready and wait until all are."""
    print("ready", flush=True)
    gc.collect()
    gc.freeze()
    await aiofiles.stdin.readline()


def _value(size_bytes: int) -> bytes:
    return os.urandom(size_bytes)


class _Acks:
    """Counts what was acknowledged; any other outcome ends the benchmark."""

    def __init__(self) -> None:
        self.samples_ms: list[float] = []
        #: tags are the ns at which records should have left
        self.is_timed = False

    def __call__(self, batch: Batch) -> None:
        if batch.outcome is not DeliveryOutcome.OK:
            raise RuntimeError(f"{batch.count} records were not acknowledged: {batch.error_text}")
        if self.is_timed:
            now_ns = time.monotonic_ns()
            self.samples_ms.extend([(now_ns - intended_ns) / 1e6 for intended_ns in batch.tags])


async def _producer(
    runtime: Runtime, order: dict[str, Any], acks: _Acks, linger_ms: int, value: bytes
) -> Producer:
    """A producer that is connected to all leaders and proven to all partitions."""
    producer = Producer(
        order["bootstrap_servers"],
        linger_ms=linger_ms,
        batch_size_bytes=order["batch_size_bytes"],
        compression=order["compression"],
        on_batch=acks,
        runtime=runtime,
    )
    await producer.start()
    for partition in range(await producer.partition_count(order["topic"])):
        await producer.submit(order["topic"], value, partition=partition)
    await producer.flush()
    return producer


async def _produce(runtime: Runtime, order: dict[str, Any]) -> dict[str, Any]:
    """As fast as possible."""
    topic, count, value = order["topic"], order["records"], _value(order["record_bytes"])
    producer = await _producer(runtime, order, _Acks(), order["linger_ms"], value)
    await _go()
    send = producer.send_nowait
    start = time.perf_counter()
    for _ in range(count):
        try:
            send(topic, value)
        except BufferFull:
            await producer.room()
            send(topic, value)
    await producer.flush()
    elapsed_s = time.perf_counter() - start
    await producer.close()
    return {"records": count, "bytes": count * len(value), "elapsed_s": elapsed_s}


async def _paced(runtime: Runtime, order: dict[str, Any]) -> dict[str, Any]:
    """At a fixed rate. Latency counts from when a record should have left, so a stall hides nothing."""
    topic, count, value = order["topic"], order["records"], _value(order["record_bytes"])
    acks = _Acks()
    producer = await _producer(runtime, order, acks, order["linger_ms"], value)
    await _go()
    acks.is_timed = True
    interval_ns = 1e9 / order["records_per_s"]
    start_ns = time.monotonic_ns()
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic_ns() - start_ns) / interval_ns) + 1)
        for number in range(sent, due):
            intended_ns = start_ns + int(number * interval_ns)
            try:
                producer.send_nowait(topic, value, tag=intended_ns)
            except BufferFull:
                await producer.room()
                producer.send_nowait(topic, value, tag=intended_ns)
        sent = due
        await asyncio.sleep(0.001)
    await producer.flush()
    elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
    await producer.close()
    found = latency(acks.samples_ms)
    return {
        "records": count,
        "bytes": count * len(value),
        "elapsed_s": elapsed_s,
        "latency": [
            found.count,
            found.p50_ms,
            found.p90_ms,
            found.p99_ms,
            found.p999_ms,
            found.max_ms,
        ],
    }


async def _one_by_one(runtime: Runtime, order: dict[str, Any]) -> dict[str, Any]:
    """The next record leaves when the one before it is acknowledged."""
    topic, count, value = order["topic"], order["records"], _value(order["record_bytes"])
    producer = await _producer(runtime, order, _Acks(), 0, value)
    await _go()
    samples_ms: list[float] = []
    start = time.perf_counter()
    for _ in range(count):
        before = time.perf_counter()
        await producer.send(topic, value)
        samples_ms.append((time.perf_counter() - before) * 1000)
    elapsed_s = time.perf_counter() - start
    await producer.close()
    return {
        "records": count,
        "bytes": count * len(value),
        "elapsed_s": elapsed_s,
        "samples_ms": samples_ms,
    }


async def _consume(runtime: Runtime, order: dict[str, Any]) -> dict[str, Any]:
    """Everything that is there, from the beginning."""
    consumer = Consumer(order["bootstrap_servers"], runtime=runtime)
    partitions = [(order["topic"], index) for index in order["partitions"]]
    ends = await consumer.end_offsets(partitions)
    total = sum(ends.values())
    consumer.assign([])
    await _go()
    start = time.perf_counter()
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    records = size = 0
    while records < total:
        if order["raw"]:
            for batch in await consumer.poll_batches():
                records += batch.header.next_offset - batch.start_offset
                size += len(batch.data)
        else:
            for record in await consumer.poll(10_000):
                records += 1
                size += len(record.value or b"")
    elapsed_s = time.perf_counter() - start
    await consumer.close()
    return {"records": records, "bytes": size, "elapsed_s": elapsed_s}


async def _neighbour(runtime: Runtime, order: dict[str, Any]) -> dict[str, Any]:
    """Writes with so many records unacknowledged, until a line says `end`. Each other line ends a phase,
    whose figures are printed."""
    topic, value, window = order["topic"], _value(order["record_bytes"]), order["window"]
    acks = _Window()
    producer = await _producer(runtime, order, acks, order["linger_ms"], value)
    await _go()
    acks.is_timed = True
    runtime.tasks.start("phases", acks.follow_phases())
    total = 0
    while not acks.is_over:
        if total - acks.count >= window:
            await acks.room()
        producer.send_nowait(topic, value, tag=time.monotonic_ns())
        total += 1
    await producer.close()
    return {"records": total, "bytes": total * len(value)}


class _Window(_Acks):
    """Acknowledgements of a neighbour, by phase."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False
        #: acknowledged so far
        self.count = 0
        self._phase_ns = time.monotonic_ns()
        self._woken: asyncio.Future[None] | None = None

    def __call__(self, batch: Batch) -> None:
        super().__call__(batch)
        if self.is_timed:  # the warm-up is over
            self.count += batch.count
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def room(self) -> None:
        """Until some were acknowledged."""
        self._woken = asyncio.get_running_loop().create_future()
        await self._woken

    async def follow_phases(self) -> None:
        """Print a phase's figures at each line."""
        self._begin()
        while (await aiofiles.stdin.readline()).strip() not in ("", "end"):
            elapsed_s = (time.monotonic_ns() - self._phase_ns) / 1e9
            found = latency(self.samples_ms) if self.samples_ms else None
            report = {
                "records_per_s": len(self.samples_ms) / elapsed_s,
                "p50_ms": None if found is None else found.p50_ms,
                "p99_ms": None if found is None else found.p99_ms,
                "max_ms": None if found is None else found.max_ms,
            }
            print(json.dumps(report), flush=True)
            self._begin()
        self.is_over = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _begin(self) -> None:
        self.samples_ms = []
        self._phase_ns = time.monotonic_ns()


_WORK = {
    "produce": _produce,
    "paced": _paced,
    "one_by_one": _one_by_one,
    "consume": _consume,
    "neighbour": _neighbour,
}


async def _main(runtime: Runtime) -> int:
    order = json.loads(sys.stdin.readline())
    before = process_usage(os.getpid())
    report = await _WORK[order["work"]](runtime, order)
    after = process_usage(os.getpid())
    report["cpu_s"] = after.cpu_s - before.cpu_s
    report["rss_mb"] = after.rss_mb
    print(json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_client(_main))  # ends with the first batch that is not acknowledged
