"""A short look at everything on one cluster, in less than two minutes: each figure is one run, a hint.

Rates and latencies of producing, reading, failover, and what grows with the number of partitions, next to the
machine's own limits. `bench.produce`, `bench.consume` and `bench.failover` take medians of several runs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.bench.cluster import MIN_ISR, PARTITIONS, REPLICATION_FACTOR, BenchCluster
from holdfast.bench.failover import TOPIC, FailoverLoad
from holdfast.bench.figures import Latency, latency
from holdfast.bench.machine import Limits, describe, measure
from holdfast.bench.rounds import Round, run_round
from holdfast.cli.progress import Progress
from holdfast.client.producer import Producer
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

_BATCH_BYTES = 256 << 10


class Size(NamedTuple):
    """How much of everything is done."""

    megabytes: int = 60
    record_bytes: int = 1024
    #: of the highest rate
    shares: Sequence[float] = (0.05, 0.2, 0.4, 0.6, 0.8)
    paced_seconds: float = 3.0
    one_by_one: int = 1_000
    kills: int = 4
    partitions: Sequence[int] = (10, 50, 200, 500)


#: Hears of each result: what it is of, and the figures in words.
Say = Callable[[str, str], None]


class QuickBench:
    """One run; `data` has what was measured so far."""

    def __init__(self, cluster: BenchCluster, size: Size, say: Say, progress: Progress) -> None:
        self._cluster = cluster
        self._size = size
        self._say = say
        self._progress = progress
        self._limits = Limits(0, 0, 0, 0)
        self.data: dict[str, Any] = {"machine": describe(), "settings": size._asdict()}

    def run(self) -> None:
        """Everything, in order of how much it tells."""
        began = time.monotonic()
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("The machine's own limits", self._take_limits),
            ("Producing and reading", self._throughput),
            ("One record at a time", self._one_by_one),
            ("Latency under load", self._latency_over_load),
            ("Failover", self._failover),
            ("Growth with partitions", self._growth),
        )
        for number, (name, step) in enumerate(steps):
            self._progress.phase(name, len(steps), "steps")
            self._progress.at(number)
            step()
        self.data["seconds"] = time.monotonic() - began

    # --- steps ----------------------------------------------------------------------------------------

    def _take_limits(self) -> None:
        size = self._size
        self._limits = measure(
            self._cluster.folder,
            total_bytes=size.megabytes * 1_000_000,
            chunk_bytes=_BATCH_BYTES,
            files=PARTITIONS,
            record_bytes=size.record_bytes,
        )
        self.data["limits"] = asdict(self._limits)
        self._say(
            "the machine alone",
            f"appends each byte three times at {self._limits.append_mb_s:.0f} MB/s, echoes "
            f"{self._limits.echo_mb_s:.0f} MB/s over loopback; one record there and back takes "
            f"{self._limits.echo_p50_ms:.2f} ms",
        )

    def _throughput(self) -> None:
        records = self._size.megabytes * 1_000_000 // self._size.record_bytes
        topic = "quick-rate"
        self._cluster.create_topic(topic)
        self._round(self._order("produce", topic, records=records // 10))  # warm: files, connections, pages
        produced = self._round(self._order("produce", topic, records=records))
        self.data["produce"] = _rates(produced)
        self._say_rate("produced, one producer", produced)
        consumed = self._round(
            {"work": "consume", "topic": topic, "raw": False, "partitions": list(range(PARTITIONS))}
        )
        self.data["consume"] = _rates(consumed)
        self._say_rate("read, one consumer", consumed)
        self._cluster.delete_topic(topic)

    def _one_by_one(self) -> None:
        topic = "quick-one"
        self._cluster.create_topic(topic)
        (report,) = self._round(self._order("one_by_one", topic, records=self._size.one_by_one)).reports
        self._cluster.delete_topic(topic)
        found = latency(report["samples_ms"])
        self.data["one_by_one"] = asdict(found)
        times = found.p50_ms / self._limits.echo_p50_ms
        self._say("one record at a time", f"{_words(found)}; {times:.0f} times the machine's own echo")

    def _latency_over_load(self) -> None:
        topic = "quick-load"
        self._cluster.create_topic(topic)
        highest = self.data["produce"]["records_per_s"]
        self.data["load"] = []
        for share in self._size.shares:
            rate = max(1.0, highest * share)
            records = max(1, int(rate * self._size.paced_seconds))
            order = self._order("paced", topic, records=records, records_per_s=rate)
            (report,) = self._round(order).reports
            found = Latency(*report["latency"])
            self.data["load"].append({"share": share, "records_per_s": rate, **asdict(found)})
            self._say(f"at {share:.0%} of that rate", f"{rate:,.0f} records/s: {_words(found)}")
        self._cluster.delete_topic(topic)

    def _failover(self) -> None:
        assert self._cluster.local is not None
        self._cluster.create_topic(TOPIC)
        load = FailoverLoad(self._cluster, self._cluster.local, self._size.kills, 2.0)
        run(load.main)
        self._cluster.delete_topic(TOPIC)
        found = latency(load.waits_ms)
        self.data["failover"] = {
            "kills": self._size.kills,
            "partitions": found.count,
            "never_within_30_s": load.never,
            "records_failed": load.acks.failed,
            "waits_ms": load.waits_ms,
            **asdict(found),
        }
        self._say(
            f"kill -9 of a leader, {self._size.kills}x",
            f"{found.count} partitions acknowledged again after {_words(found)}; "
            f"{load.acks.failed} records failed",
        )

    def _growth(self) -> None:
        self.data["partitions"] = []
        for count in self._size.partitions:
            found = self._grow(count)
            self.data["partitions"].append(found)
            self._say(
                f"{count} partitions",
                f"created in the metadata after {found['created_s']:.2f} s, logs made and a record in each "
                f"after {found['written_s']:.2f} s more, brokers below {found['broker_rss_mb']:.0f} MB",
            )

    def _grow(self, count: int) -> dict[str, float]:
        topic, configs = f"quick-{count}-partitions", {"min.insync.replicas": str(MIN_ISR)}
        began = time.monotonic()
        self._cluster.ask(lambda admin: admin.create_topic(topic, count, REPLICATION_FACTOR, configs=configs))
        self._cluster.wait_full_isr(topic)
        created = time.monotonic()
        run(lambda runtime: _write_each(runtime, self._cluster, topic, count))
        written = time.monotonic()
        usage = self._cluster.usage()
        self._cluster.delete_topic(topic)
        return {
            "partitions": count,
            "created_s": created - began,
            "written_s": written - created,
            "broker_rss_mb": max(
                (used.rss_mb for name, used in usage.items() if name.startswith("broker")), default=0.0
            ),
        }

    # --- small things ---------------------------------------------------------------------------------

    def _order(self, work: str, topic: str, **more: Any) -> dict[str, Any]:
        return {
            "work": work, "topic": topic, "record_bytes": self._size.record_bytes, "linger_ms": 5,
            "batch_size_bytes": _BATCH_BYTES, "compression": "none", **more,
        }  # fmt: skip

    def _round(self, order: dict[str, Any]) -> Round:
        return run_round(self._cluster, [order])

    def _say_rate(self, name: str, found: Round) -> None:
        self._say(
            name,
            f"{found.mb_s:.0f} MB/s, {found.records_per_s:,.0f} records/s; "
            f"{found.mb_s / self._limits.echo_mb_s:.2f} of the machine's echo",
        )


def _rates(found: Round) -> dict[str, float]:
    return {
        "mb_s": found.mb_s,
        "records_per_s": found.records_per_s,
        "client_cpu_s": found.client_cpu_s,
        "broker_cpu_s": found.cpu_s("broker"),
        "broker_rss_mb": found.rss_mb("broker"),
    }


def _words(found: Latency) -> str:
    return f"p50 {found.p50_ms:.2f}, p99 {found.p99_ms:.1f}, max {found.max_ms:.1f} ms"


async def _write_each(runtime: Runtime, cluster: BenchCluster, topic: str, partitions: int) -> int:
    async with Producer(cluster.bootstrap_servers, runtime=runtime) as producer:
        sent = [await producer.submit(topic, b"x" * 100, partition=number) for number in range(partitions)]
        for delivery in sent:
            await delivery
    return 0
