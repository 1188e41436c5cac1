"""`holdfast e2e-latency`: one record after the other, each read back before the next is sent."""

import random
import sys
from typing import Any

import click

from holdfast.cli.options import ACKS, CommandAnswer, bootstrap, client_properties, output, run_client
from holdfast.cli.perf.latencies import Latencies
from holdfast.cli.progress import Progress
from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.client.producer import Producer
from holdfast.runtime.api import Runtime

_LINE_EVERY = 1_000
_SHARES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


@click.command()
@bootstrap
@click.option("--topic", required=True, help="An existing topic that no other client writes to.")
@click.option("--num-records", type=click.IntRange(1), default=10_000, show_default=True)
@click.option(
    "--producer-acks", "--acks", "acks", type=click.Choice(list(ACKS)), default="all", show_default=True
)
@click.option(
    "--record-size", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="Bytes."
)
@output
def command(**given: Any) -> None:
    """Measure how long a record takes from `send` until a consumer has it. Exit 0: all came."""
    client_properties(given["command_config"], given["command_property"], frozenset())
    answer = CommandAnswer("e2e-latency")
    seen = Latencies(given["num_records"])

    async def work(runtime: Runtime) -> int:
        await _measure(runtime, given, seen)
        return 0

    code = 0
    try:
        code = run_client(work)
    except ClientError as error:
        answer.refused(error, given["topic"])
    shares = dict(zip(_SHARES, seen.percentiles(*_SHARES.values()), strict=True))
    answer.data = {"records": seen.count, "avg_ms": seen.average_ms, "max_ms": seen.max_ms, **shares}
    text = (
        f"Avg latency: {seen.average_ms:.4f} ms\n"
        f"Percentiles: 50th = {shares['p50_ms']:.2f}, 99th = {shares['p99_ms']:.2f}, "
        f"99.9th = {shares['p999_ms']:.2f}"
    )
    answer.show(given["output"], text if seen.count else "")
    sys.exit(code or (1 if answer.errors else 0))


async def _measure(runtime: Runtime, given: dict[str, Any], seen: Latencies) -> None:
    """Raises: ClientError; TimedOut when a record does not come."""
    topic, clock = given["topic"], runtime.clock
    chance = random.Random(0)
    producer = Producer(given["bootstrap_server"], acks=ACKS[given["acks"]], linger_ms=0, runtime=runtime)
    consumer = Consumer(given["bootstrap_server"], auto_offset_reset="none", runtime=runtime)
    async with producer, consumer:
        partitions = await consumer.partitions(topic, given["timeout_ms"])
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition, offset in ends.items():
            consumer.seek(partition, offset)
        with Progress() as progress:
            progress.phase("Records there and back", given["num_records"], "records", lambda: seen.count)
            for number in range(given["num_records"]):
                value = chance.randbytes(given["record_size"])
                began_ns = clock.now_ns()
                await producer.send(topic, value, partition=number % len(partitions))
                records = await consumer.poll(2, given["timeout_ms"])
                took_ms = (clock.now_ns() - began_ns) / 1e6
                if not records:
                    raise TimedOut(
                        f"record {number} is acknowledged and was not read in {given['timeout_ms']} ms"
                    )
                if len(records) > 1 or records[0].value != value:
                    raise ClientError(f"another client writes to {topic}: what came is not what was sent")
                seen.add([took_ms])
                if number % _LINE_EVERY == 0 and given["output"] == "text":
                    click.echo(f"{number}\t{took_ms:.4f}")
