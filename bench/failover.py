"""A leader or the active controller goes away under load: how long until writes, or changes, go on.

In four ways: `kill -9` of a leader (D9), its clean stop, SIGSTOP, which is what a lost host looks like, and
`kill -9` of the active controller. `--others` shows what an election costs beside so many other partitions.

Back of an envelope: a reset is noticed at once by clients and the controller; the controller needs one
refused connection and one commit (fsync of two voters), the new leader one metadata fetch, the producer one
refresh: some tens of ms. Target: below 1 s at p99; Kafka's default needs 9 s and more. A silent
leader is missed when a timeout ends: seconds.
"""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import MIN_ISR, REPLICATION_FACTOR, BenchCluster, own_cluster
from holdfast.bench.figures import latency, table
from holdfast.bench.machine import describe
from holdfast.bench.report import Answer, finish, folder_option, note
from holdfast.cli.options import output
from holdfast.cli.progress import Progress
from holdfast.cli.report_option import report_option
from holdfast.client.admin import Admin
from holdfast.client.core.batch import Batch
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Producer
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

TOPIC = "bench-failover"
#: {way: what is done}
WAYS = {
    "kill": "kill -9 of a leader",
    "stop": "clean stop of a leader",
    "pause": "SIGSTOP of a leader",
    "controller": "kill -9 of the active controller",
}
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM, "pause": signal.SIGSTOP}
_OTHERS = "bench-others"
_GIVE_UP_S = 30.0


class _Acks:
    """Which leader epochs of each partition have acknowledged, and how long it had to wait for one."""

    def __init__(self) -> None:
        #: (partition, leader epoch)
        self.epochs: set[tuple[int, int]] = set()
        #: {partition: longest time between two acknowledgements}, since it was cleared
        self.longest_ns: dict[int, int] = {}
        self.failed = 0
        self._last_ns: dict[int, int] = {}

    def __call__(self, batch: Batch) -> None:
        if batch.outcome is not DeliveryOutcome.OK:
            self.failed += batch.count
            return
        partition, now_ns = batch.partition, time.monotonic_ns()
        self.epochs.add((partition, batch.leader_epoch))
        gap_ns = now_ns - self._last_ns.get(partition, now_ns)
        self.longest_ns[partition] = max(gap_ns, self.longest_ns.get(partition, 0))
        self._last_ns[partition] = now_ns

    def is_later(self, partition: int, epoch: int) -> bool:
        """A leader after that of `epoch` has acknowledged."""
        return any((partition, later) in self.epochs for later in range(epoch + 1, epoch + 4))


class FailoverLoad:
    """A producer that writes to every partition all the time, while a node goes away again and again."""

    def __init__(
        self,
        cluster: BenchCluster,
        local: LocalCluster,
        times: int,
        pause_ms: float,
        way: str = "kill",
        progress: Progress | None = None,
    ) -> None:
        self._cluster = cluster
        self._local = local
        self._times = times
        self._pause_ms = pause_ms
        self._way = way
        self._progress = progress
        self.acks = _Acks()
        #: longest time between two acknowledgements of each partition of the leader, from the signal until
        #: the next leader has acknowledged; of a controller, from the signal to the answer to a change
        self.waits_ms: list[float] = []
        self.never = 0
        self._is_over = False

    async def main(self, runtime: Runtime) -> int:
        """The whole benchmark."""
        servers = self._cluster.bootstrap_servers
        producer = Producer(servers, linger_ms=0, on_batch=self.acks, runtime=runtime)
        admin = Admin(servers, runtime=runtime)
        await producer.start()
        load = asyncio.create_task(self._write(producer, await producer.partition_count(TOPIC)))
        try:
            for number in range(self._times):
                await asyncio.sleep(0.5)
                await (self._end_controller(admin) if self._way == "controller" else self._end_leader())
                if self._progress is not None:
                    self._progress.at(number + 1)
        finally:
            self._is_over = True
            await load
            await admin.close()
            await producer.close()
        return 0

    async def _write(self, producer: Producer, partitions: int) -> None:
        while not self._is_over:
            for partition in range(partitions):
                await producer.submit(TOPIC, b"x" * 100, partition=partition)
            await asyncio.sleep(self._pause_ms / 1000)

    async def _end_leader(self) -> None:
        led = await asyncio.to_thread(self._led)
        victim = max(sorted(led), key=lambda broker_id: len(led[broker_id]))
        node = self._local.broker(victim)
        began_ns = time.monotonic_ns()
        self.acks.longest_ns.clear()
        self._local.signal(node, _SIGNALS[self._way])
        # One that another broker leads by now loses nothing.
        waiting = {one: epoch for one, epoch in led[victim].items() if not self.acks.is_later(one, epoch)}
        count = len(waiting)
        found: list[float] = []
        while waiting and time.monotonic_ns() - began_ns < _GIVE_UP_S * 1e9:
            await asyncio.sleep(0.001)
            for partition, epoch in list(waiting.items()):
                if self.acks.is_later(partition, epoch):
                    found.append(self.acks.longest_ns[partition] / 1e6)
                    del waiting[partition]
        self.waits_ms += found
        self.never += len(waiting)
        worst = max(found, default=0.0)
        note(f"{WAYS[self._way]}: broker {victim} led {count}, slowest back after {worst:.0f} ms")
        await asyncio.to_thread(self._bring_back, node)

    async def _end_controller(self, admin: Admin) -> None:
        node = await self._active(admin)
        began_ns = time.monotonic_ns()
        self._local.signal(node, signal.SIGKILL)
        await admin.create_topic(f"{TOPIC}-{len(self.waits_ms)}", 1, 1, timeout_ms=_GIVE_UP_S * 1000)
        self.waits_ms.append((time.monotonic_ns() - began_ns) / 1e6)
        note(f"{WAYS[self._way]}: a change was answered after {self.waits_ms[-1]:.0f} ms")
        await asyncio.to_thread(self._bring_back, node)

    async def _active(self, admin: Admin) -> Node:
        """The active controller; there may be none for a moment."""
        give_up_s = time.monotonic() + _GIVE_UP_S
        while time.monotonic() < give_up_s:
            active = (await admin.describe_quorum()).leader_id
            for node in self._local.controllers:
                if node.node_id == active:
                    return node
            await asyncio.sleep(0.05)
        raise click.ClickException(f"no controller was active for {_GIVE_UP_S:.0f} s")

    def _led(self) -> dict[int, dict[int, int]]:
        (described,) = self._cluster.ask(lambda admin: admin.describe_topics([TOPIC]))
        led: dict[int, dict[int, int]] = {}
        for row in described.partitions:
            led.setdefault(row.leader_id, {})[row.partition_index] = row.leader_epoch
        return led

    def _bring_back(self, node: Node) -> None:
        if self._way == "pause":
            self._local.resume(node)
        else:
            while self._local.pid(node) is not None:
                time.sleep(0.01)
            self._local.start(node)
        self._local.wait_ready([node])
        self._cluster.wait_full_isr(TOPIC)


@click.command()
@click.option(
    "--way", "ways", type=click.Choice(list(WAYS)), multiple=True, help="Again for another; without it, all."
)
@click.option("--times", type=click.IntRange(1), default=50, show_default=True, help="Of each way.")
@click.option(
    "--others",
    type=click.IntRange(0),
    multiple=True,
    default=(0,),
    show_default=True,
    help="Partitions beside those that are written to; again for another number.",
)
@click.option("--pause-ms", type=float, default=2.0, show_default=True, help="Between writes to a partition.")
@folder_option("Where the clusters live")
@report_option
@output
def main(
    ways: tuple[str, ...],
    times: int,
    others: tuple[int, ...],
    pause_ms: float,
    folder: Path | None,
    report_file: Path | None,
    output: str,
) -> Answer:
    """The longest time between two acknowledgements of each partition whose leader ends, and the time from
    the end of the active controller to the next change. Each way has a cluster of its own: one that fails
    says so, and the others are measured all the same."""
    cells = []
    began = time.monotonic()
    with Progress() as progress:
        for way, count in product(ways or WAYS, others):
            cells.append(_measured(way, count, times, pause_ms, folder, progress))
    data = {"machine": describe(), "times": times, "seconds": time.monotonic() - began, "cells": cells}
    answer = finish("bench-failover", data, _text(cells), as_json=output == "json")
    if report_file is not None:
        from holdfast.bench.page import page_of_failover

        report_file.write_text(page_of_failover(answer), encoding="utf-8")
        click.echo(f"report: {report_file}", err=output == "json")
    if failed := [
        f"{name_of(cell['way'], cell['others'])}: {cell['error']}" for cell in cells if cell["error"]
    ]:
        raise click.ClickException("\n".join(failed))
    return answer


def _measured(
    way: str, others: int, times: int, pause_ms: float, folder: Path | None, progress: Progress
) -> dict[str, Any]:
    """One way beside so many other partitions; what was measured before a failure counts."""
    load, error = None, None
    try:
        with own_cluster(folder) as cluster:
            assert cluster.local is not None
            cluster.create_topic(TOPIC)
            if others:
                configs = {"min.insync.replicas": str(MIN_ISR)}
                cluster.ask(lambda a: a.create_topic(_OTHERS, others, REPLICATION_FACTOR, configs=configs))
                cluster.wait_full_isr(_OTHERS)
            load = FailoverLoad(cluster, cluster.local, times, pause_ms, way, progress)
            progress.phase(name_of(way, others), times, "times")  # the start of the cluster was one, too
            run(load.main)
    except (click.ClickException, OSError) as problem:
        error = problem.message if isinstance(problem, click.ClickException) else str(problem)
    if error is None and load is not None and load.never:
        error = f"{load.never} partitions never came back"
    waits_ms = [] if load is None else load.waits_ms
    return {
        "way": way,
        "others": others,
        "wait": latency(waits_ms) if waits_ms else None,
        "waits_ms": waits_ms,
        "never_within_30_s": 0 if load is None else load.never,
        "records_failed": 0 if load is None else load.acks.failed,
        "error": error,
    }


def name_of(way: str, others: int) -> str:
    """What is done, in words."""
    return f"{WAYS[way]} beside {others:,} partitions" if others else WAYS[way]


def _text(cells: Sequence[Mapping[str, Any]]) -> str:
    """A table for people."""
    rows = []
    for cell in cells:
        found = cell["wait"]
        figures = (found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms) if found is not None else ()
        row = [f"{x:.0f}" for x in figures] or ["-"] * 4
        counts = (len(cell["waits_ms"]), cell["never_within_30_s"], cell["records_failed"])
        rows.append((name_of(cell["way"], cell["others"]), str(counts[0]), *row, *map(str, counts[1:])))
    return table(("FAILOVER ms", "waits", "p50", "p90", "p99", "max", "never", "records failed"), rows)


if __name__ == "__main__":
    main()
