"""Many partitions on few file handles: created, written, one broker killed, all restarted.

Back of an envelope: a replica is three files, so 10 000 partitions of RF 3 on three brokers are 30 000 files
a broker, of which 4096 handles let 1536 be open. Creating one costs some four syncs and 20 system calls on
each broker, a few ms of Python: a minute for all of them. Nothing may end but the broker that is killed.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import MIN_ISR, REPLICATION_FACTOR, BenchCluster, own_cluster, process_usage
from holdfast.bench.figures import table
from holdfast.bench.machine import describe
from holdfast.bench.report import finish, folder_option, note
from holdfast.client.core.errors import ClientError
from holdfast.client.producer import Producer
from holdfast.localcluster.launch import CommandLauncher
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.list_offsets import LATEST_TIMESTAMP
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

TOPIC = "bench-many"
PROPERTIES = {
    # series of partitions would make looking on as dear as what is looked at
    "holdfast.metrics.partition.level": "false",
}
_LOOK_S = 1.0
_GIVE_UP_S = 1800.0


@click.command()
@click.option("--partitions", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--nofile", type=click.IntRange(64), default=4096, show_default=True, help="Of each node.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of tables.")
@folder_option("Where the cluster lives")
def main(partitions: int, nofile: int, as_json: bool, folder: Path | None) -> None:
    """How long each step takes, seconds, with what each broker has open and uses of memory afterwards."""
    launcher = CommandLauncher(open_files_max=nofile)
    with own_cluster(folder, properties=PROPERTIES, launcher=launcher) as cluster:
        assert cluster.local is not None
        steps = _Steps(cluster, cluster.local, partitions)
        steps.run()
    data = {"machine": describe(), "partitions": partitions, "nofile": nofile, "steps": steps.rows}
    finish("bench-many-partitions", data, steps.text(), as_json=as_json)


class _Steps:
    """What is done with one topic, and what was seen."""

    def __init__(self, cluster: BenchCluster, local: LocalCluster, partitions: int) -> None:
        self._cluster = cluster
        self._local = local
        self._partitions = partitions
        self._pids = {node: local.pid(node) for node in local.nodes}
        self.rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """All steps in order."""
        local, victim = self._local, self._local.brokers[0]
        self._step("created, in the metadata", self._create)
        self._step("logs there, a record in each", self._write)
        self._step("another one", self._write)

        def kill() -> None:
            local.kill([victim])
            self._pids[victim] = None
            self._wait(lambda row: row.leader_id not in (-1, victim.node_id))

        def start() -> None:
            self._start([victim])
            self._wait(lambda row: len(row.isr) == REPLICATION_FACTOR)

        def restart() -> None:
            local.stop(local.nodes, timeout_s=_GIVE_UP_S)
            self._start(local.nodes)
            self._wait(lambda row: len(row.isr) == REPLICATION_FACTOR)

        self._step("one broker killed, leaders elsewhere", kill)
        self._step("a record in each, two brokers", self._write)
        self._step("it is back, every replica in sync", start)
        self._step("all stopped and started, in sync", restart)
        self._step("a record in each, afterwards", self._write)
        end_offsets = self._cluster.ask(
            lambda admin: admin.list_offsets(
                {(TOPIC, number): LATEST_TIMESTAMP for number in range(self._partitions)}
            )
        )
        assert {row.offset for row in end_offsets.values()} == {4}, "an acknowledged record is missing"

    def _step(self, name: str, work: Callable[[], None]) -> None:
        started_s = time.monotonic()
        work()
        took_s = time.monotonic() - started_s
        for node, pid in self._pids.items():
            if self._local.pid(node) != pid:
                raise click.ClickException(f"{node.name} has ended: {self._local.last_words(node)}")
        pids = [pid for node in self._local.brokers if (pid := self._pids[node]) is not None]
        row = {
            "step": name,
            "took_s": took_s,
            "open_files": [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids],
            "rss_mb": [process_usage(pid).rss_mb for pid in pids],
        }
        note(f"{name}: {took_s:.1f} s, open files {row['open_files']}, RSS {row['rss_mb']}")
        self.rows.append(row)

    def _create(self) -> None:
        configs = {"min.insync.replicas": str(MIN_ISR)}
        self._cluster.ask(
            lambda admin: admin.create_topic(
                TOPIC, self._partitions, REPLICATION_FACTOR, configs=configs, timeout_ms=_GIVE_UP_S * 1000
            )
        )
        self._wait(lambda row: len(row.isr) == REPLICATION_FACTOR and row.leader_id >= 0)

    def _write(self) -> None:
        run(lambda runtime: _write(runtime, self._cluster.bootstrap_servers, self._partitions))

    def _start(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._local.start(node)
        self._local.wait_ready(nodes, _GIVE_UP_S)
        for node in nodes:
            self._pids[node] = self._local.pid(node)

    def _wait(self, is_right: Callable[[DescribedPartition], bool]) -> None:
        """Until all partitions are right."""
        deadline_s = time.monotonic() + _GIVE_UP_S
        wrong = self._partitions
        while wrong:
            if time.monotonic() > deadline_s:
                raise click.ClickException(f"{wrong} partitions are not right after {_GIVE_UP_S:.0f} s")
            try:
                (described,) = self._cluster.ask(lambda admin: admin.describe_topics([TOPIC]))
            except ClientError as error:
                note(f"not described: {error}")
            else:
                right = sum(map(is_right, described.partitions))
                if self._partitions - right != wrong:
                    note(f"{right} of {self._partitions} partitions are right")
                wrong = self._partitions - right
            if wrong:
                time.sleep(_LOOK_S)

    def text(self) -> str:
        """A table for people."""
        rows = [
            (
                row["step"],
                f"{row['took_s']:.1f}",
                f"{max(row['open_files'])}",
                f"{max(row['rss_mb']):.0f}",
            )
            for row in self.rows
        ]
        return table((f"{self._partitions} PARTITIONS", "s", "open files of a broker", "RSS MB"), rows)


async def _write(runtime: Runtime, bootstrap_servers: str, partitions: int) -> int:
    producer = Producer(bootstrap_servers, runtime=runtime, delivery_timeout_ms=int(_GIVE_UP_S * 1000))
    await producer.start()
    sent = [await producer.submit(TOPIC, b"x" * 100, partition=number) for number in range(partitions)]
    for future in sent:
        await future
    await producer.close()
    return 0


if __name__ == "__main__":
    main()
