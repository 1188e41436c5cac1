"""`holdfast consumer-perf-test`: reads so many records; how fast. The table is Kafka's."""

import sys
from typing import Any

import click

from holdfast.cli.options import INT32_MAX, CommandAnswer, connection, output
from holdfast.cli.perf.properties import CONSUMER, settings
from holdfast.cli.perf.running import run_test
from holdfast.cli.progress import Progress
from holdfast.client.consumer import Consumer
from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.runtime.api import Clock, Runtime

_POLL_MS = 200
_POLL_RECORDS = 10_000
_MIB = 1 << 20
_HEADS = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_DETAILED_HEADS = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"


@click.command()
@connection
@click.option("--topic", required=True, help="An existing topic.")
@click.option(
    "--num-records", "--messages", "count", type=click.IntRange(1), required=True, help="How many to read."
)
@click.option(
    "--timeout",
    "--timeout-ms",
    "timeout_ms",
    type=click.IntRange(1, INT32_MAX),
    default=10_000,
    show_default=True,
    help="Give up when nothing has come for so many ms.",
)
@click.option("--from-latest", is_flag=True, help="Begin at the end of the topic, not at its first record.")
@click.option("--fetch-size", type=click.IntRange(1), help="Bytes of an answer, at most.")
@click.option("--group", help="Read as a member of this group, what it leaves to this consumer.")
@click.option("--show-detailed-stats", is_flag=True, help="A line for each --reporting-interval.")
@click.option(
    "--reporting-interval",
    type=click.IntRange(1, INT32_MAX),
    default=5_000,
    show_default=True,
    help="ms between two lines.",
)
@click.option("--hide-header", is_flag=True, help="Without the line that names the columns.")
@click.option("--print-metrics", is_flag=True, help="Print the consumer's own counters at the end.")
@output
def command(**given: Any) -> None:
    """Measure how fast records are read. Exit 0: as many came as were asked for."""
    options = settings(given, CONSUMER)
    if given["fetch_size"] is not None:
        options["request_bytes_max"] = given["fetch_size"]
    answer = CommandAnswer("consumer-perf-test")
    tests: list[_Test] = []

    async def work(runtime: Runtime) -> int:
        consumer = Consumer(
            given["bootstrap_server"],
            **{"client_id": "perf-consumer-client"} | options,
            auto_offset_reset="latest" if given["from_latest"] else "earliest",
            group_id=given["group"],
            runtime=runtime,
        )
        tests.append(_Test(runtime.clock, consumer, given))
        await tests[0].work()
        return 0

    code = run_test(work, answer, given["topic"])
    text = ""
    if tests:
        test, answer.data = tests[0], tests[0].report()
        text = "\n".join(test.lines())
        if not answer.errors and code == 0 and test.count < given["count"]:
            message = (
                f"{test.count} of {given['count']} records came before {given['timeout_ms']} ms without any"
            )
            answer.errors.append({"code": "TIMED_OUT", "topic": given["topic"], "message": message})
    answer.show(given["output"], text)
    sys.exit(code or (1 if answer.errors else 0))


class _Test:
    """One run."""

    def __init__(self, clock: Clock, consumer: Consumer, given: dict[str, Any]) -> None:
        self._clock = clock
        self._consumer = consumer
        self._given = given
        self.count = self._bytes = 0
        self._start_wall_ms = clock.wall_ms()
        self._start_ms = self._end_ms = clock.now_ms()
        #: the first records came: what is before was looking for leaders and offsets
        self._first_ms: int | None = None

    async def work(self) -> None:
        """Read. Raises: ClientError."""
        given, clock, consumer = self._given, self._clock, self._consumer
        async with consumer:
            partitions = await consumer.partitions(given["topic"], given["timeout_ms"])
            if given["group"] is None:
                consumer.assign(partitions)
            else:
                consumer.subscribe(given["topic"])
            if given["show_detailed_stats"] and given["output"] == "text" and not given["hide_header"]:
                click.echo(_DETAILED_HEADS)
            heard_ms = told_ms = clock.now_ms()
            told = (0, 0)
            with Progress() as progress:
                progress.phase("Reading", given["count"], "records", lambda: self.count)
                while self.count < given["count"] and clock.now_ms() - heard_ms < given["timeout_ms"]:
                    records = await consumer.poll(min(_POLL_RECORDS, given["count"] - self.count), _POLL_MS)
                    now_ms = clock.now_ms()
                    if records:
                        heard_ms = now_ms
                        self._take(records, now_ms)
                    if given["show_detailed_stats"] and now_ms - told_ms >= given["reporting_interval"]:
                        self._show(now_ms - told_ms, told)
                        told_ms, told = now_ms, (self.count, self._bytes)

    def _take(self, records: list[ConsumerRecord], now_ms: int) -> None:
        if self._first_ms is None:
            self._first_ms = now_ms
        self.count += len(records)
        self._bytes += sum(len(record.value or b"") + len(record.key or b"") for record in records)
        self._end_ms = now_ms

    def _show(self, took_ms: int, before: tuple[int, int]) -> None:
        seconds = took_ms / 1000
        count, size = self.count - before[0], self._bytes - before[1]
        click.echo(
            f"{self._time(self._clock.wall_ms())}, 0, {self._bytes / _MIB:.4f}, {size / seconds / _MIB:.4f}, "
            f"{self.count}, {count / seconds:.4f}",
            err=self._given["output"] == "json",
        )

    def _time(self, wall_ms: int) -> str:
        from datetime import datetime

        at = datetime.fromtimestamp(wall_ms / 1000).astimezone()
        return f"{at:%Y-%m-%d %H:%M:%S}:{wall_ms % 1000:03}"

    def report(self) -> dict[str, Any]:
        """For scripts. MB are MiB, as in Kafka's table; what came before the first records counts as
        rebalancing."""
        took_ms = max(1, self._end_ms - self._start_ms)
        first_ms = self._first_ms if self._first_ms is not None else self._end_ms
        fetch_ms = max(1, self._end_ms - first_ms)
        mib = self._bytes / _MIB
        data: dict[str, Any] = {
            "start_time_ms": self._start_wall_ms,
            "end_time_ms": self._start_wall_ms + took_ms,
            "mb": mib,
            "mb_per_s": mib * 1000 / took_ms,
            "records": self.count,
            "records_per_s": self.count * 1000 / took_ms,
            "until_first_record_ms": first_ms - self._start_ms,
            "fetch_time_ms": fetch_ms,
            "fetch_mb_per_s": mib * 1000 / fetch_ms,
            "fetch_records_per_s": self.count * 1000 / fetch_ms,
        }
        if self._given["print_metrics"]:
            metrics = self._consumer.metrics()
            names = ("records_read", "batches_read", "bytes_read", "requests_sent", "buffered_bytes")
            data["metrics"] = {name: getattr(metrics, name) for name in names}
        return data

    def lines(self) -> list[str]:
        """Kafka's table of one row. What its consumers wait for a group is the way to record one here."""
        data = self.report()
        cells = [
            self._time(data["start_time_ms"]),
            self._time(data["end_time_ms"]),
            f"{data['mb']:.4f}",
            f"{data['mb_per_s']:.4f}",
            f"{data['records']}",
            f"{data['records_per_s']:.4f}",
            f"{data['until_first_record_ms']}",
            f"{data['fetch_time_ms']}",
            f"{data['fetch_mb_per_s']:.4f}",
            f"{data['fetch_records_per_s']:.4f}",
        ]
        heads = [] if self._given["hide_header"] or self._given["show_detailed_stats"] else [_HEADS]
        metrics = [f"{name}: {value}" for name, value in data.get("metrics", {}).items()]
        return [*heads, ", ".join(cells), *metrics]
