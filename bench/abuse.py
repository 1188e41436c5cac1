"""Rude clients beside a well-behaved one: what they cost the node's memory and their neighbour's rate.

The neighbour writes all the time, RF 3, acks=all, with a bounded number of records under way. Before, during
and after each attack (`bench.attacks`, against one broker): its rate and latency, and the most memory that
the attacked broker takes. Bounds of the issue: below 400 MB, and the neighbour keeps 70 % of its rate.
"""

import asyncio
import json
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import psutil

from holdfast.bench.attacks import ATTACKS, Attack, Target
from holdfast.bench.clients import ClientProcess
from holdfast.bench.cluster import BenchCluster, bench_cluster, has_ended
from holdfast.bench.figures import table
from holdfast.bench.machine import describe
from holdfast.bench.report import folder_option, note
from holdfast.client.admin import Admin
from holdfast.client.producer import Producer
from holdfast.localcluster.nodes import Node
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

NEIGHBOURS_TOPIC = "abuse-neighbour"
BULK_TOPIC = "abuse-bulk"
#: in each partition of the bulk topic: more than a fetch may hold
BULK_BYTES = 70 << 20
RSS_PERIOD_S = 0.05


@click.command()
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@folder_option("Where the cluster lives")
@click.option("--attacks", default=",".join(ATTACKS), show_default=True, help="Which, in this order.")
@click.option("--connections", type=click.IntRange(1), help="Of each attack; unset: each its own number.")
@click.option("--seconds", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Of a phase.")
@click.option("--record-size", type=click.IntRange(1), default=1024, show_default=True, help="Bytes.")
@click.option("--window", type=click.IntRange(1), default=500, show_default=True, help="Records under way.")
def main(
    output: str,
    folder: Path | None,
    attacks: str,
    connections: int | None,
    seconds: float,
    record_size: int,
    window: int,
) -> None:
    """Memory, and a neighbour's rate and latency, before, during and after attacks."""
    names = attacks.split(",")
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        raise click.UsageError(f"no attack {unknown[0]}; there are {', '.join(ATTACKS)}")
    with bench_cluster(None, folder) as cluster:
        bench = _Bench(cluster, seconds)
        bench.prepare(is_bulk_needed="unread-fetches" in names)
        with _Neighbour(cluster, record_size, window) as neighbour:
            for name in names:
                kind, usual = ATTACKS[name]
                bench.play(name, neighbour, kind(bench.target, connections or usual))
    data = {"machine": describe(), "seconds": seconds, "attacks": bench.found}
    if output == "json":
        click.echo(json.dumps({"schema": "holdfast.bench-abuse/1", "ok": True, "data": data, "errors": []}))
    else:
        click.echo(_text(bench.found))


class _Bench:
    """All attacks of one call."""

    def __init__(self, cluster: BenchCluster, seconds: float) -> None:
        assert cluster.local is not None
        self._cluster = cluster
        self._local = cluster.local
        self._seconds = seconds
        self._node: Node = cluster.local.brokers[0]
        self.target: Target
        #: {attack: {before, during, after, counts}}
        self.found: dict[str, dict[str, Any]] = {}

    def prepare(self, *, is_bulk_needed: bool) -> None:
        """Topics, and records for those who fetch much."""
        self._cluster.create_topic(NEIGHBOURS_TOPIC)
        self._cluster.create_topic(BULK_TOPIC)

        async def describe_bulk(admin: Admin) -> Any:
            (described,) = await admin.describe_topics([BULK_TOPIC])
            return described

        bulk = self._cluster.ask(describe_bulk)
        led = next(row for row in bulk.partitions if row.leader_id == self._node.node_id)
        self.target = Target("127.0.0.1", self._node.port, bulk.topic_id, led.partition_index)
        if is_bulk_needed:
            self._fill(led.partition_index)

    def _fill(self, partition: int) -> None:
        note(f"writing {BULK_BYTES >> 20} MiB to fetch")

        async def work(runtime: Runtime) -> int:
            producer = Producer(self._cluster.bootstrap_servers, runtime=runtime)
            value = bytes(500_000)
            for _ in range(BULK_BYTES // len(value)):
                await producer.send(BULK_TOPIC, value, partition=partition)
            await producer.close()
            return 0

        run(work)

    def play(self, name: str, neighbour: "_Neighbour", attack: Attack) -> None:
        """One attack, with a phase before and one after it."""
        note(f"{name}: before")
        neighbour.end_phase()
        found: dict[str, Any] = {"before": self._phase(neighbour)}
        note(f"{name}: during")
        attacking = _Attacking(attack)
        try:
            found["during"] = self._phase(neighbour)
        finally:
            attacking.end()
        note(f"{name}: after")
        found["after"] = self._phase(neighbour)
        found["counts"] = asdict(attack.counts)
        found["rate_kept"] = found["during"]["records_per_s"] / max(1, found["before"]["records_per_s"])
        self.found[name] = found

    def _phase(self, neighbour: "_Neighbour") -> dict[str, Any]:
        pid = self._local.pid(self._node)
        if pid is None:
            raise click.ClickException(has_ended(self._local, self._node))
        process = psutil.Process(pid)
        peak = 0
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            peak = max(peak, process.memory_info().rss)
            time.sleep(RSS_PERIOD_S)
        return {**neighbour.end_phase(), "broker_rss_mb": peak / 1e6}


class _Attacking:
    """An attack under way, in a thread with an event loop of its own."""

    def __init__(self, attack: Attack) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(attack.run())
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001  told by `end`: an attack that failed has shown nothing
            self._error = error

    def end(self) -> None:
        """Call the rude clients off. Raises: click.ClickException when they had ended by themselves."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()
        if self._error is not None:
            raise click.ClickException(f"the attack has failed: {self._error!r}") from self._error


class _Neighbour:
    """The well-behaved producer, a process of its own (`bench.worker`)."""

    def __init__(self, cluster: BenchCluster, record_bytes: int, window: int) -> None:
        self._order = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "work": "neighbour",
            "topic": NEIGHBOURS_TOPIC,
            "record_bytes": record_bytes,
            "window": window,
            "linger_ms": 1,
            "batch_size_bytes": 256 << 10,
            "compression": "none",
        }

    def __enter__(self) -> "_Neighbour":
        self._client = ClientProcess(self._order)
        self._client.give_order()
        self._client.wait_ready()
        self._client.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._client.end_phase("end")
                self._client.wait_ended()
        finally:
            self._client.end()

    def end_phase(self) -> dict[str, Any]:
        """Its figures since the last call."""
        self._client.end_phase()
        return self._client.result()


def _text(found: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, phases in found.items():
        for phase in ("before", "during", "after"):
            one = phases[phase]
            rows.append(
                [
                    f"{name} {phase}" if phase == "before" else f"  {phase}",
                    f"{one['records_per_s']:,.0f}",
                    _ms(one["p50_ms"]),
                    _ms(one["p99_ms"]),
                    f"{one['broker_rss_mb']:.0f}",
                    f"{phases['rate_kept']:.0%}" if phase == "during" else "",
                    f"{phases['counts']['cut']}" if phase == "during" else "",
                ]
            )
    heads = ("ABUSE", "records/s", "p50 ms", "p99 ms", "broker RSS MB", "rate kept", "cut off")
    return table(heads, rows)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
