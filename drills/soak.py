"""`holdfast chaos soak --minutes M --seed S`: random faults within the budget, Spark's verdict.

The budget is f = min ISR - 1 = 1: at any moment at most one broker is down, silent, cut off or damaged,
beside at most one of three controllers; the next fault waits until every replica is in sync again. Everything
acknowledged with acks=all must be there in the end, and no node may end that was not asked to.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from holdfast.cli.extras import require
from holdfast.cli.options import output
from holdfast.cli.progress import Progress
from holdfast.client.core.errors import ClientError
from holdfast.drills.demo.watch import ClusterWatch
from holdfast.drills.drill import QUICK
from holdfast.drills.load import DrillLoad
from holdfast.drills.outcome import DrillResult
from holdfast.drills.soak_faults import MENU, OF_CONTROLLERS, Course, Entry
from holdfast.drills.spark_judge import SparkJudge
from holdfast.durability.verdict import EXIT_GOOD, EXIT_INCONCLUSIVE, EXIT_LOST, Verdict
from holdfast.localcluster.faults.fault import Fault, FaultRefused, healing
from holdfast.localcluster.faults.places import NoSuchFile
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.power import drivers
from holdfast.localcluster.processes import LocalCluster

MIN_ISR = 2
TOPICS = ("soak-1", "soak-2", "soak-3")
_CONFIGS = {"min.insync.replicas": str(MIN_ISR), "segment.bytes": str(64 << 10)}
_RECORDS_PER_SECOND = 200
_CONTROLLER_SHARE = 0.3
_PATIENCE_S = 60.0
#: how long a fault lasts at most while the load gets no answers
_FAULT_S = 4.0
_RESULTS = {
    EXIT_GOOD: DrillResult.EXPECTED,
    EXIT_LOST: DrillResult.LOST,
    EXIT_INCONCLUSIVE: DrillResult.INCONCLUSIVE,
}

Say = Callable[[str], None]


@dataclass
class SoakReport:
    """What a soak did and found."""

    seed: int
    seconds: float = 0.0
    #: how often each fault was made
    faults: Counter[str] = field(default_factory=Counter)
    #: faults that this machine refuses, with the reason
    refused: dict[str, str] = field(default_factory=dict)
    #: what was not as it must be, beside the verdict
    complaints: list[str] = field(default_factory=list)
    acked: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def result(self) -> DrillResult:
        """The verdict of Spark first, then the complaints."""
        found = {_RESULTS.get(verdict.exit_code, DrillResult.ANOMALY) for verdict in self.verdicts.values()}
        for result in (DrillResult.LOST, DrillResult.ANOMALY):
            if result in found:
                return result
        if self.complaints:
            return DrillResult.BROKEN
        return DrillResult.EXPECTED if found == {DrillResult.EXPECTED} else DrillResult.INCONCLUSIVE

    @property
    def lost(self) -> int:
        """Acknowledged records (acks=all) that are gone."""
        return sum(verdict.counts.get("lost", 0) for verdict in self.verdicts.values())

    def lines(self) -> list[str]:
        """For people."""
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        lines = [f"{sum(self.faults.values())} faults in {self.seconds:.0f} s: {counts or 'none'}"]
        lines += [f"refused: {name}: {reason}" for name, reason in sorted(self.refused.items())]
        lines += [f"not as it must be: {complaint}" for complaint in self.complaints]
        lines.append(f"{self.acked:,} records were acknowledged, {self.lost:,} of them are lost")
        why = (
            "a node ended unasked, or not all came back"
            if self.result is DrillResult.BROKEN
            else self.result.value
        )
        lines.append(f"RESULT: {self.result.name}: {why}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "schema": "holdfast.soak/1",
            "ok": self.result is DrillResult.EXPECTED,
            "data": {
                "result": self.result.name,
                "seed": self.seed,
                "seconds": round(self.seconds, 1),
                "faults": dict(sorted(self.faults.items())),
                "refused": self.refused,
                "acked": self.acked,
                "lost": self.lost,
                "counts": {topic: dict(verdict.counts) for topic, verdict in self.verdicts.items()},
            },
            "errors": [{"code": "COMPLAINT", "message": text} for text in self.complaints],
        }


class Soak:
    """One run on one cluster: faults until the time is over."""

    def __init__(self, cluster: LocalCluster, ledger: Path, report: SoakReport, say: Say) -> None:
        self._cluster = cluster
        self._report = report
        self._say = say
        self._look = ClusterWatch(cluster.bootstrap_servers, _PATIENCE_S)
        self._chance = random.Random(f"{report.seed}:soak")
        self._loads = [
            DrillLoad(
                cluster.bootstrap_servers,
                ledger,
                topic,
                name=f"all-{topic}",
                records_per_second=_RECORDS_PER_SECOND,
            )
            for topic in TOPICS
        ]

    def run(self, minutes: float) -> None:
        """Raises: ClusterError when the cluster does not recover."""
        for topic in TOPICS:
            self._look.ask(
                lambda admin, topic=topic: admin.create_topic(topic, 1, 3, configs=_CONFIGS)  # type: ignore[misc]
            )
        began = time.monotonic()
        try:
            for load in self._loads:
                load.start()
            with closing(Targets(self._cluster, self._report.seed)) as targets:
                course = Course(self._cluster, targets, self._chance, TOPICS)
                while time.monotonic() - began < minutes * 60:
                    self._round(course)
                    self._report.seconds = time.monotonic() - began
            for load in self._loads:
                load.stop()
        except BaseException:
            for load in self._loads:
                load.abandon()
            raise
        finally:
            self._report.acked = sum(load.acked for load in self._loads)

    def _round(self, course: Course) -> None:
        """One fault on a broker, sometimes beside one on a controller; then everything heals."""
        before = {node: self._cluster.pid(node) for node in self._cluster.nodes}
        faults = self._make(course, MENU)
        if self._chance.random() < _CONTROLLER_SHARE:
            faults += self._make(course, OF_CONTROLLERS)
        try:
            for load in self._loads:  # one may stand still: then the fault just lasts
                self._wait_for_records(load)
            self._check_alive(before, faults)
        finally:
            for fault in faults:  # a node is started before its damage would be put back: it stays damaged
                fault.heal()
        self._come_back()

    def _make(self, course: Course, menu: Mapping[str, Entry]) -> list[Fault]:
        """Draw a fault and make it; those steps of it that were done."""
        name = self._chance.choices(list(menu), [entry.weight for entry in menu.values()])[0]
        made: list[Fault] = []
        try:
            for fault in menu[name].make(course):
                made.append(fault)
                self._say(fault.apply())
        except FaultRefused as error:
            self._report.refused[name] = str(error)
        except NoSuchFile as error:  # the log is too short yet, or has no such file
            self._say(str(error))
        else:
            self._report.faults[name] += 1
        return made

    def _wait_for_records(self, load: DrillLoad) -> None:
        target = load.acked + self._chance.randrange(50, 400)
        deadline = time.monotonic() + _FAULT_S
        while load.acked < target and time.monotonic() < deadline:
            time.sleep(0.02)

    def _check_alive(self, before: Mapping[Node, int | None], faults: Sequence[Fault]) -> None:
        may_end = {node for fault in faults if fault.ends_nodes for node in fault.nodes}
        for node, pid in before.items():
            if node not in may_end and self._cluster.pid(node) != pid:
                words = self._cluster.last_words(node, 3)
                what = ", ".join(fault.name for fault in faults)
                self._complain(f"{node.name} has ended under {what} and was not asked to: {words}")

    def _come_back(self) -> None:
        """Until all nodes are ready and all replicas in sync. Raises: ClusterError."""
        try:
            self._cluster.up(_PATIENCE_S)
        except ClusterError as error:
            self._complain(str(error))
            self._cluster.up(_PATIENCE_S)
        for topic in TOPICS:
            self._look.wait_full_isr(topic)

    def _complain(self, text: str) -> None:
        self._say(f"NOT AS IT MUST BE: {text}")
        self._report.complaints.append(text)


def soak(minutes: float, seed: int, folder: Path, say: Say) -> SoakReport:
    """A cluster in a new folder, faults, Spark's verdict; the cluster is gone afterwards, its files stay.

    Raises: ClusterError when there is no verdict.
    """
    report = SoakReport(seed)
    ledger = folder / "ledger"
    cluster = LocalCluster.create(
        folder / "cluster",
        3,
        3,
        properties={**QUICK, "replica.lag.time.max.ms": "3000"},
        power_loss=drivers.choose("auto"),
        has_links=True,
    )
    with closing(SparkJudge(starts_now=False)) as judge, Progress() as progress:
        try:
            progress.phase("The cluster starts")
            cluster.up()
            began = time.monotonic()
            progress.phase("Faults", minutes * 60, "s", lambda: time.monotonic() - began)
            say(f"{len(cluster.nodes)} nodes run, seed {seed}, power loss by {cluster.power_loss_driver}")
            try:
                with healing(cluster):
                    Soak(cluster, ledger, report, say).run(minutes)
            except (ClusterError, ClientError) as error:
                report.complaints.append(f"the soak ended early: {error}")
                cluster.up()
            snapshots = _snapshots(cluster, folder)
        finally:
            cluster.destroy()
        say("Spark compares the ledgers with what was served")
        progress.phase("Spark compares")
        found, lost = judge.verdicts(ledger, snapshots)
    report.verdicts = found
    report.complaints += [f"lost: {record}" for records in lost.values() for record in records[:3]]
    return report


def _snapshots(cluster: LocalCluster, folder: Path) -> list[Path]:
    from holdfast.durability.snapshots import take

    log_dirs = {node.node_id: str(cluster.data_folder(node)) for node in cluster.brokers}
    made = []
    for topic in TOPICS:
        made.append(folder / f"snapshot-{topic}")
        take(cluster.bootstrap_servers, topic, log_dirs, made[-1])
    return made


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=5.0, show_default=True)
@click.option("--seed", type=click.IntRange(0), help="Fixes which faults are drawn; printed at the start.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep data, logs and ledgers here."
)
@output
def command(minutes: float, seed: int | None, keep: Path | None, output: str) -> None:
    """Random faults within the budget on a real cluster, then Spark's verdict. Exit 0: all is there."""
    require("spark")
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 16)
    folder = (keep or Path(tempfile.mkdtemp(prefix="holdfast-soak-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:6.1f}s] {text}", err=output == "json")

    try:
        report = soak(minutes, seed, folder, say)
    except ClusterError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(DrillResult.INCONCLUSIVE.exit_code)
    click.echo(json.dumps(report.as_json()) if output == "json" else "\n".join(report.lines()))
    if keep is None and report.result is DrillResult.EXPECTED:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        click.echo(f"kept: {folder}", err=True)
    sys.exit(report.result.exit_code)
