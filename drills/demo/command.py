"""`holdfast demo`: producers write while processes are killed; Spark says what survived.

Owns the order of events and what is printed. The cluster is local processes or containers, the producers are
`holdfast verifiable-producer` processes with ledgers, the verdict is `holdfast validate`.
"""

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click

from holdfast.cli.extras import require
from holdfast.cli.inspect.partition_elections import PartitionElections
from holdfast.cli.inspect.run_history import faults_in
from holdfast.cli.options import CommandAnswer, output
from holdfast.cli.progress import Progress
from holdfast.cli.report_option import report_option
from holdfast.drills.demo.producers import Producers
from holdfast.drills.demo.watch import ClusterWatch, describe_wait
from holdfast.drills.story import READ_TIMEOUT_MS, add_load, add_metadata, verdict_row, write_report
from holdfast.durability.verdict import Verdict
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.report.history import HISTORY_FILE, History

TOPIC = "demo"
PRODUCERS = 4
#: Seconds over which the records are spread; a container takes longer to be healthy again than a process.
SECONDS = {"local": 20, "compose": 60}
#: What is killed, in this order; leader: the broker that leads most, follower: the one that leads least.
KILLS = ("leader", "follower", "controller", "leader")


class DemoCluster(Protocol):
    """What the demo needs of a cluster of processes or containers."""

    @property
    def brokers(self) -> tuple[Node, ...]: ...
    @property
    def controllers(self) -> tuple[Node, ...]: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def kafka_bootstrap(self) -> str: ...
    def up(self, timeout_s: float = ...) -> None: ...
    def start(self, node: Node) -> None: ...
    def kill(self, nodes: tuple[Node, ...]) -> None: ...
    def wait_ready(self, nodes: tuple[Node, ...], timeout_s: float = ...) -> None: ...
    def down(self, timeout_s: float = ...) -> None: ...
    def data_folder(self, node: Node) -> Path | None: ...


@dataclass(frozen=True, slots=True)
class DemoLoad:
    """What the producers write."""

    records: int
    record_size: int
    partitions: int
    #: 0: as fast as they can
    seconds: int


@click.command()
@click.option(
    "--records",
    type=click.IntRange(PRODUCERS),
    default=440_000,
    show_default=True,
    help="Least number of records.",
)
@click.option(
    "--record-size", type=click.IntRange(64, 900_000), default=256, show_default=True, help="Bytes each."
)
@click.option("--partitions", type=click.IntRange(1, 200), default=6, show_default=True)
@click.option(
    "--seconds",
    type=click.IntRange(1),
    help="Seconds over which the records are spread; default 20, with containers 60.",
)
@click.option("--no-kill", is_flag=True, help="Only produce, as fast as possible, and validate.")
@click.option("--seed", type=int, help="Fixes the times of the kills; printed at the start.")
@click.option("--driver", type=click.Choice(["local", "compose"]), default="local", show_default=True)
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep data, logs and ledgers here."
)
@report_option
@output
def command(
    records: int,
    record_size: int,
    partitions: int,
    seconds: int | None,
    no_kill: bool,
    seed: int | None,
    driver: str,
    keep: Path | None,
    report_file: Path | None,
    output: str,
) -> None:
    """Kill brokers and the active controller under load, then prove what survived. Exit 0: nothing lost."""
    require("spark")
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"--keep {keep}: the folder is not empty; choose a new one")
    folder = (keep or Path(tempfile.mkdtemp(prefix="holdfast-demo-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    report = DemoReport(is_for_people=output == "text")
    answer = CommandAnswer("demo", {"seed": seed})
    report.say(f"seed {seed}, data in {folder}")
    code = 1
    try:
        cluster: DemoCluster
        if driver == "compose":
            cluster = ComposeCluster.create(Path.cwd())
        else:
            cluster = LocalCluster.create(folder / "cluster", 3, 3)
        with Progress() as progress, _running(cluster, folder, report, progress):
            settings = {"driver": driver, "partitions": partitions, "record size": record_size}
            history = History(folder / HISTORY_FILE, "holdfast demo", seed, settings)
            demo = Demo(cluster, folder, report, random.Random(seed), history, progress)
            demo.produce(
                DemoLoad(records, record_size, partitions, 0 if no_kill else seconds or SECONDS[driver]),
                kills=() if no_kill else KILLS,
            )
            verdict = demo.verdict()
            answer.data |= verdict_row(verdict, folder / HISTORY_FILE)
            if report_file is not None:
                write_report(report_file, [folder / HISTORY_FILE])
                report.say(f"report: {report_file}")
        code = verdict.exit_code  # not earlier: a cluster that could not be stopped still needs its folder
    except ClusterError as error:
        report.say(f"FAILED: {error}")
        answer.errors.append({"code": "CLUSTER_ERROR", "message": str(error)})
    finally:
        if keep is None and code == 0:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            report.say(f"kept: {folder}")
    if output == "json":
        if code and not answer.errors:
            answer.errors.append({"code": "NOT_GOOD", "message": "the verdict is not good: see data"})
        answer.show(output, "")
    sys.exit(code)


class DemoReport:
    """Lines of what happens, with seconds since the start."""

    def __init__(self, *, is_for_people: bool) -> None:
        """`is_for_people`: on stdout; else on stderr, beside an answer for programs."""
        self._start = time.monotonic()
        self._is_for_people = is_for_people

    def say(self, text: str) -> None:
        """Print one line."""
        self.show(f"[{time.monotonic() - self._start:6.1f}s] {text}")

    def show(self, text: str) -> None:
        """Print lines as they are."""
        click.echo(text, err=not self._is_for_people)


@contextmanager
def _running(cluster: DemoCluster, folder: Path, report: DemoReport, progress: Progress) -> Iterator[None]:
    report.say(f"starting {len(cluster.controllers)} controllers and {len(cluster.brokers)} brokers")
    progress.phase("The cluster starts")
    try:
        cluster.up()
        report.say(
            f"cluster is up: {cluster.bootstrap_servers}; for Kafka clients: {cluster.kafka_bootstrap}"
        )
        yield
    finally:
        report.say("stopping the cluster")
        progress.phase("The cluster stops")
        if isinstance(cluster, ComposeCluster):
            with suppress(ClusterError):  # what is shown is why the demo failed, not that a log is missing
                cluster.save_logs(folder)
        cluster.down()


class Demo:
    """One run: produce, kill, judge."""

    def __init__(
        self,
        cluster: DemoCluster,
        folder: Path,
        report: DemoReport,
        chance: random.Random,
        history: History,
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._cluster = cluster
        self._folder = folder
        self._say = report.say
        self._show = report.show
        self._chance = chance
        self._watch = ClusterWatch(cluster.bootstrap_servers)
        self._history = history

    def produce(self, load: DemoLoad, kills: tuple[str, ...]) -> None:
        """Write the load while nodes are killed. Raises: ClusterError when a producer fails."""
        self._history.write(kind="controller", t_ms=0, controller=self._watch.active_controller())
        self._watch.create_topic(TOPIC, load.partitions, replication_factor=3, min_isr=2)
        self._say(f"topic {TOPIC}: {load.partitions} partitions, replication factor 3, min.insync.replicas 2")
        producers = Producers(
            self._cluster.bootstrap_servers,
            self._folder / "ledger",
            TOPIC,
            count=PRODUCERS,
            records=load.records,
            record_size=load.record_size,
            records_per_second=load.records // load.seconds if load.seconds else 0,
        )
        self._say(
            f"{PRODUCERS} idempotent acks=all producers write {load.records} x {load.record_size} B or more"
        )
        try:
            producers.start()
            self._progress.phase("Producers write", load.records, "records", lambda: producers.acked)
            producers.wait_acked(1)
            for victim in kills:
                time.sleep(self._chance.uniform(0.5, 3.0))
                self._say(producers.progress())
                node = (
                    self._kill_controller(producers)
                    if victim == "controller"
                    else self._kill_broker(producers, victim)
                )
                time.sleep(self._chance.uniform(0.2, 2.0))
                self._cluster.start(node)
                self._cluster.wait_ready((node,))
                self._history.fault_ends(node.name)
                self._say(
                    f"  {node.name} is back; full ISR after {self._watch.wait_full_isr(TOPIC):.1f} s more"
                )
            producers.release()
            while not producers.wait_done(2.0):
                self._say(producers.progress())
            self._say(producers.progress())
            for line in producers.failures():
                raise ClusterError(line)
        finally:
            producers.stop()

    def _kill_controller(self, producers: Producers) -> Node:
        controller_id = self._watch.active_controller()
        node = next(n for n in self._cluster.controllers if n.node_id == controller_id)
        killed_ns = time.monotonic_ns()
        self._history.fault_begins("kill -9", node.name, f"kill -9 {node.name}, the active controller")
        self._cluster.kill((node,))
        self._say(f"kill -9 {node.name} (active controller)")
        waited = self._watch.wait_other_controller(controller_id, killed_ns)
        self._history.write(kind="controller", controller=self._watch.active_controller())
        self._say(f"  new active controller after {waited:.2f} s")
        self._say(f"  longest wait of a record meanwhile {producers.longest_wait_ms(killed_ns)} ms")
        return node

    def _kill_broker(self, producers: Producers, victim: str) -> Node:
        leads = self._watch.led_by_broker(TOPIC)
        order = sorted(self._cluster.brokers, key=lambda n: (-len(leads.get(n.node_id, {})), n.node_id))
        node = order[0] if victim == "leader" else order[-1]
        led = leads.get(node.node_id, {})
        killed_ns = time.monotonic_ns()
        text = f"kill -9 {node.name} (leader of {len(led)} partitions)"
        self._history.fault_begins("kill -9", node.name, text)
        self._cluster.kill((node,))
        self._say(text)
        if led:
            self._say("  " + describe_wait(producers.wait_new_leaders(led, killed_ns)))
        return node

    def verdict(self) -> Verdict:
        """Print Spark's verdict; its exit code is that of `holdfast validate`."""
        from holdfast.durability.validate import ValidateOptions, run

        self._say("Spark compares the ledgers with what the cluster serves")
        folders = {node.node_id: self._cluster.data_folder(node) for node in self._cluster.brokers}
        self._history.close()
        past = PartitionElections(self._cluster.bootstrap_servers, READ_TIMEOUT_MS)
        verdict = run(
            ValidateOptions(
                ledger=str(self._folder / "ledger"),
                bootstrap_servers=self._cluster.bootstrap_servers,
                log_dirs={
                    broker_id: str(folder) for broker_id, folder in folders.items() if folder is not None
                },
                history=faults_in(self._folder / HISTORY_FILE),
            ),
            self._progress.phase,
            past,
            past.was_compacted,
        )
        self._progress.rest()
        self._show(verdict.as_text())
        add_metadata(self._history, self._cluster.bootstrap_servers)
        add_load(self._history, self._folder / "ledger", TOPIC)
        self._history.write(**verdict_row(verdict, self._folder / HISTORY_FILE))
        good = verdict.exit_code == 0
        self._say("nothing acknowledged was lost, duplicated or reordered" if good else "NOT GOOD: see above")
        return verdict
