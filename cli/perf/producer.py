"""`holdfast producer-perf-test`: so many records at such a rate; how fast, and how long each one waited.

Owns the pace and the lines, which are Kafka's. The latency of a record counts from `send` to its
acknowledgement, the time in the batch included.
"""

import random
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.cli.options import INT32_MAX, CommandAnswer, connection, output
from holdfast.cli.perf.latencies import Latencies
from holdfast.cli.perf.properties import PRODUCER, settings
from holdfast.cli.perf.running import run_test
from holdfast.cli.progress import Progress
from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import TimedOut
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Producer
from holdfast.runtime.api import Runtime

_PACE_MS = 5
_PORTION = 1_000
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_GOOD = (DeliveryOutcome.OK, DeliveryOutcome.OK1)
_SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
_MIB = 1 << 20


class _PropertiesInARow(click.Command):
    """Takes Kafka's `--producer-props acks=1 linger.ms=0` for what it says."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        is_row = False
        for word in args:
            is_row = word == "--producer-props" or (is_row and not word.startswith("-"))
            if is_row and word != "--producer-props":
                spread.append("--producer-property")
            if word != "--producer-props":
                spread.append(word)
        return super().parse_args(ctx, spread)


@click.command(cls=_PropertiesInARow)
@connection
@click.option("--topic", required=True, help="An existing topic.")
@click.option("--num-records", type=click.IntRange(1), required=True, help="How many.")
@click.option("--record-size", type=click.IntRange(0), help="Bytes of each value, random letters.")
@click.option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Values are its lines, drawn at random.",
)
@click.option("--payload-delimiter", default="\\n", show_default=True, help="What ends a value in the file.")
@click.option(
    "--throughput",
    type=float,
    default=-1,
    show_default=True,
    help="Records a second; below 0 as fast as they are taken.",
)
@click.option(
    "--producer-property",
    "producer_props",
    multiple=True,
    metavar="KEY=VALUE",
    help="Kafka's older spelling of --command-property; so is --producer-props KEY=VALUE KEY=VALUE ...",
)
@click.option("--warmup-records", type=click.IntRange(0), default=0, help="Sent first, and not counted.")
@click.option(
    "--reporting-interval",
    type=click.IntRange(1, INT32_MAX),
    default=5_000,
    show_default=True,
    help="ms between two lines.",
)
@click.option("--print-metrics", is_flag=True, help="Print the producer's own counters at the end.")
@output
def command(**given: Any) -> None:
    """Measure how fast records are acknowledged. Exit 0: all were."""
    if (given["record_size"] is None) == (given["payload_file"] is None):
        raise click.UsageError("exactly one of --record-size and --payload-file is needed")
    options = settings(given, PRODUCER, given["producer_props"])
    payloads = _payloads(given)
    answer = CommandAnswer("producer-perf-test")
    tests: list[_Test] = []

    async def work(runtime: Runtime) -> int:
        tests.append(_Test(runtime, given, options, payloads))
        await tests[0].work()
        return 0

    code = run_test(work, answer, given["topic"])
    text = ""
    if tests:
        answer.data = tests[0].report()
        text = "\n".join(tests[0].lines()) if tests[0].answered else ""
        answer.errors += tests[0].errors()
    answer.show(given["output"], text)
    sys.exit(code or (1 if answer.errors else 0))


def _payloads(given: dict[str, Any]) -> list[bytes]:
    """The values that are drawn from. Raises: click.UsageError."""
    if given["payload_file"] is None:
        return [bytes(random.Random(0).choices(_LETTERS, k=given["record_size"]))]
    delimiter = given["payload_delimiter"].encode().decode("unicode_escape").encode()
    try:
        lines = given["payload_file"].read_bytes().split(delimiter or b"\n")
    except OSError as error:
        raise click.UsageError(f"--payload-file {given['payload_file']}: {error.strerror}") from error
    found = [line for line in lines if line]
    if not found:
        raise click.UsageError(f"--payload-file {given['payload_file']} has no lines")
    return found


class _Window:
    """What came in a stretch of time."""

    def __init__(self, start_ms: int, expected: int = 0) -> None:
        self.start_ms = start_ms
        self.bytes = 0
        self.latencies = Latencies(expected)

    def rates(self, now_ms: int) -> tuple[float, float]:
        """(records, MiB) a second."""
        seconds = max(1, now_ms - self.start_ms) / 1000
        return self.latencies.count / seconds, self.bytes / seconds / _MIB


class _Test:
    """One run."""

    def __init__(
        self, runtime: Runtime, given: dict[str, Any], options: dict[str, Any], payloads: list[bytes]
    ) -> None:
        self._clock = runtime.clock
        self._given = given
        self._payloads = payloads
        self._chance = random.Random(0)
        self._sent = 0
        self._failed: dict[str, tuple[int, str]] = {}
        self._producer = Producer(
            given["bootstrap_server"], **{"client_id": "perf-producer-client"} | options,
            on_batch=self._on_batch, runtime=runtime,
        )  # fmt: skip
        now_ms = runtime.clock.now_ms()
        self._total = _Window(now_ms, given["num_records"])
        self._window = _Window(now_ms)
        self._warm_ns = 0
        self._end_ms = now_ms

    @property
    def answered(self) -> int:
        """Acknowledged records that count."""
        return self._total.latencies.count

    async def work(self) -> None:
        """Send everything and wait for every outcome. Raises: ClientError."""
        given = self._given
        async with self._producer as producer:
            await producer.partition_count(given["topic"])
            await self._send(given["warmup_records"])
            await producer.flush()
            self._sent = 0
            self._warm_ns = self._clock.now_ns()
            self._total.start_ms = self._window.start_ms = self._clock.now_ms()
            with Progress() as progress:
                progress.phase("Sending", given["num_records"], "records", lambda: self.answered)
                try:
                    await self._send(given["num_records"])
                    await self._wait_for_the_rest()
                finally:
                    self._end_ms = self._clock.now_ms()

    async def _send(self, count: int) -> None:
        given, producer, clock = self._given, self._producer, self._clock
        topic, rate, start_ms = given["topic"], given["throughput"], self._clock.now_ms()
        sent, payloads = 0, self._payloads
        while sent < count:
            portion = min(count, sent + _PORTION)
            if rate >= 0:
                portion = min(portion, int((clock.now_ms() - start_ms + _PACE_MS) * rate / 1000) + 1)
            now_ns = clock.now_ns()
            for _ in range(portion - sent):
                if producer.buffered_bytes >= producer.config.buffer_memory_bytes:
                    await producer.room()
                    now_ns = clock.now_ns()
                payload = payloads[0] if len(payloads) == 1 else self._chance.choice(payloads)
                producer.send_nowait(topic, payload, tag=now_ns)
            sent = self._sent = max(sent, portion)
            self._show_window()
            await clock.sleep(_PACE_MS if rate >= 0 else 0)

    async def _wait_for_the_rest(self) -> None:
        while True:
            try:
                return await self._producer.flush(_PACE_MS * 20)
            except TimedOut:
                self._show_window()

    def _on_batch(self, batch: Batch) -> None:
        if batch.outcome not in _GOOD:
            name = batch.error.name if batch.error is not None else batch.outcome.name  # type: ignore[union-attr]
            self._failed[name] = self._failed.get(name, (0, ""))[0] + batch.count, batch.error_text or name
            return
        if batch.tags[0] < self._warm_ns or not self._warm_ns:
            return
        now_ns = self._clock.now_ns()
        samples_ms = [(now_ns - sent_ns) / 1e6 for sent_ns in batch.tags]
        for window in (self._total, self._window):
            window.latencies.add(samples_ms)
            window.bytes += batch.size_bytes

    def _show_window(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._window.start_ms < self._given["reporting_interval"]:
            return
        records, mib = self._window.rates(now_ms)
        seen = self._window.latencies
        click.echo(
            f"{seen.count} records sent, {records:.1f} records/sec ({mib:.2f} MB/sec), "
            f"{seen.average_ms:.1f} ms avg latency, {seen.max_ms:.1f} ms max latency.",
            err=self._given["output"] == "json",
        )
        self._window = _Window(now_ms)

    # --- the end --------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """For scripts. MB are MiB, as in Kafka's lines."""
        records, mib = self._total.rates(self._end_ms)
        seen = self._total.latencies
        found = dict(zip(_SHARES, seen.percentiles(*_SHARES.values()), strict=True))
        data: dict[str, Any] = {
            "records_sent": self._sent,
            "records_acknowledged": seen.count,
            "records_per_s": records,
            "mb_per_s": mib,
            "latency_avg_ms": seen.average_ms,
            "latency_max_ms": seen.max_ms,
            **{f"latency_{key}": value for key, value in found.items()},
        }
        if self._given["print_metrics"]:
            metrics = self._producer.metrics()
            data["metrics"] = {name: getattr(metrics, name) for name in metrics.__slots__}
        return data

    def lines(self) -> list[str]:
        """Kafka's last line, and the producer's counters when they are wanted."""
        data = self.report()
        line = (
            f"{data['records_acknowledged']} records sent, {data['records_per_s']:.6f} records/sec "
            f"({data['mb_per_s']:.2f} MB/sec), {data['latency_avg_ms']:.2f} ms avg latency, "
            f"{data['latency_max_ms']:.2f} ms max latency, {data['latency_p50_ms']:.0f} ms 50th, "
            f"{data['latency_p95_ms']:.0f} ms 95th, {data['latency_p99_ms']:.0f} ms 99th, "
            f"{data['latency_p999_ms']:.0f} ms 99.9th."
        )
        return [line, *(f"{name}: {value}" for name, value in data.get("metrics", {}).items())]

    def errors(self) -> list[dict[str, Any]]:
        """Records that were not acknowledged, by reason."""
        return [
            {"code": code, "topic": self._given["topic"], "message": f"{count} records: {text}"}
            for code, (count, text) in self._failed.items()
        ]
