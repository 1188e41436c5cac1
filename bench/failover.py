"""kill -9 of leaders under load: how long until each of their partitions acknowledges again (D9).

Back of an envelope: the reset is noticed at once by clients and the controller; the controller needs one
refused connection and one commit (fsync of two voters), the new leader one metadata fetch, the producer one
refresh: some tens of ms. Target: below 1 s at p99; Kafka's default needs 9 s and more.
"""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import BenchCluster, bench_cluster
from holdfast.bench.figures import latency, table
from holdfast.bench.machine import describe
from holdfast.bench.report import Answer, common, finish, note
from holdfast.client.core.batch import Batch
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Producer
from holdfast.localcluster.processes import LocalCluster
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

TOPIC = "bench-failover"
_GIVE_UP_S = 30.0


class _Acks:
    """When each partition was first acknowledged in each leader epoch."""

    def __init__(self) -> None:
        self.first_ns: dict[tuple[int, int], int] = {}
        self.failed = 0

    def __call__(self, batch: Batch) -> None:
        if batch.outcome is DeliveryOutcome.OK:
            self.first_ns.setdefault((batch.partition, batch.leader_epoch), time.monotonic_ns())
        else:
            self.failed += batch.count


class FailoverLoad:
    """A producer that writes to every partition all the time, while a leader is killed."""

    def __init__(self, cluster: BenchCluster, local: LocalCluster, kills: int, pause_ms: float) -> None:
        self._cluster = cluster
        self._local = local
        self._kills = kills
        self._pause_ms = pause_ms
        self.acks = _Acks()
        self.waits_ms: list[float] = []
        self.never = 0
        self._is_over = False

    async def main(self, runtime: Runtime) -> int:
        """The whole benchmark."""
        servers = self._cluster.bootstrap_servers
        producer = Producer(servers, linger_ms=0, on_batch=self.acks, runtime=runtime)
        await producer.start()
        partitions = await producer.partition_count(TOPIC)
        load = asyncio.create_task(self._write(producer, partitions))
        for number in range(self._kills):
            await asyncio.sleep(0.5)
            await self._kill(number)
        self._is_over = True
        await load
        await producer.close()
        return 0

    async def _write(self, producer: Producer, partitions: int) -> None:
        while not self._is_over:
            for partition in range(partitions):
                await producer.submit(TOPIC, b"x" * 100, partition=partition)
            await asyncio.sleep(self._pause_ms / 1000)

    async def _kill(self, number: int) -> None:
        led = await asyncio.to_thread(self._led)
        victim = max(sorted(led), key=lambda broker_id: len(led[broker_id]))
        node = self._local.broker(victim)
        killed_ns = time.monotonic_ns()
        self._local.signal(node, signal.SIGKILL)
        waiting = dict(led[victim])
        while waiting and time.monotonic_ns() - killed_ns < _GIVE_UP_S * 1e9:
            await asyncio.sleep(0.001)
            for partition, epoch in list(waiting.items()):
                for later in range(epoch + 1, epoch + 4):
                    if (at_ns := self.acks.first_ns.get((partition, later))) is not None:
                        self.waits_ms.append((at_ns - killed_ns) / 1e6)
                        del waiting[partition]
                        break
        self.never += len(waiting)
        worst = max(self.waits_ms[-(len(led[victim]) - len(waiting)) :], default=0.0)
        note(f"kill {number + 1}: broker {victim} led {len(led[victim])}, slowest back after {worst:.0f} ms")
        await asyncio.to_thread(self._restart, victim)

    def _led(self) -> dict[int, dict[int, int]]:
        (described,) = self._cluster.ask(lambda admin: admin.describe_topics([TOPIC]))
        led: dict[int, dict[int, int]] = {}
        for row in described.partitions:
            led.setdefault(row.leader_id, {})[row.partition_index] = row.leader_epoch
        return led

    def _restart(self, broker_id: int) -> None:
        node = self._local.broker(broker_id)
        while self._local.pid(node) is not None:
            time.sleep(0.01)
        self._local.start(node)
        self._local.wait_ready([node])
        self._cluster.wait_full_isr(TOPIC)


@click.command()
@common
@click.option("--kills", type=click.IntRange(1), default=20, show_default=True)
@click.option("--pause-ms", type=float, default=2.0, show_default=True, help="Between writes to a partition.")
def main(
    bootstrap_server: str | None, folder: Path | None, runs: int, as_json: bool, kills: int, pause_ms: float
) -> Answer:
    """Time from kill -9 of a leader to the next acknowledged write of each of its partitions."""
    del runs
    if bootstrap_server is not None:
        raise click.UsageError("failover kills processes, so it starts a cluster of its own")
    with bench_cluster(None, folder) as cluster:
        assert cluster.local is not None
        cluster.create_topic(TOPIC)
        load = FailoverLoad(cluster, cluster.local, kills, pause_ms)
        run(load.main)
    found = latency(load.waits_ms)
    data: dict[str, Any] = {
        "machine": describe(),
        "kills": kills,
        "partitions_failed_over": found.count,
        "never_within_30_s": load.never,
        "records_failed": load.acks.failed,
        "wait": found,
        "waits_ms": load.waits_ms,
    }
    row = [f"{x:.0f}" for x in (found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms)]
    text = table(
        ("FAILOVER ms", "partitions", "p50", "p90", "p99", "max", "never", "records failed"),
        [(f"{kills} kills", str(found.count), *row, str(load.never), str(load.acks.failed))],
    )
    return finish("bench-failover", data, text, as_json=as_json)


if __name__ == "__main__":
    main()
