"""Runs a drill once: cluster up, failure, snapshot of what is served, cluster gone. Then judges all runs.

Owns the order of these steps and how failures are reported; the steps of the failure belong to the drill.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.client.core.errors import ClientError
from holdfast.drills.drill import QUICK, Drill
from holdfast.drills.outcome import DrillEvidence, DrillResult, Election, Run, judge
from holdfast.drills.settings import Expectation, Settings, expectation_of
from holdfast.drills.spark_judge import SparkJudge
from holdfast.drills.stage import Said, Stage, Void
from holdfast.drills.story import add_load, add_metadata
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster
from holdfast.report.history import HISTORY_FILE, History
from holdfast.runtime.api import NetworkError


@dataclass(frozen=True, slots=True)
class Played:
    """A finished run whose snapshot Spark has not compared yet."""

    drill: Drill
    settings: Settings
    topic: str
    seconds: float
    #: None when the run failed or is void
    snapshot: Path | None
    elections: tuple[Election, ...] = ()
    complaints: tuple[str, ...] = ()
    #: set when there is no snapshot
    result: DrillResult = DrillResult.BROKEN
    reason: str = ""

    @property
    def expectation(self) -> Expectation:
        """What is expected under these settings."""
        found = expectation_of(self.drill.expectations, self.settings)
        assert found is not None, f"{self.drill.name} cannot be run with {self.settings.text}"
        return found


def play(drill: Drill, settings: Settings, topic: str, home: Path, ledger: Path, say: Said) -> Played:
    """One run in a new folder `home`. The drill must have an expectation for the settings."""
    began = time.monotonic()

    def ended(**found: object) -> Played:
        seconds = round(time.monotonic() - began, 1)
        return Played(drill, settings, topic, seconds, **found)  # type: ignore[arg-type]

    home.mkdir(parents=True, exist_ok=True)
    history = History(home / HISTORY_FILE, f"drill {drill.name}", settings.seed, {"settings": settings.text})
    expectation = ended(snapshot=None).expectation
    say(f"{drill.name}, seed {settings.seed}: {settings.text}")
    say(f"expected: {expectation.loss.value} ({expectation.rule})")
    try:
        with _stage(drill, settings, topic, home, ledger, say, history) as stage:
            try:
                drill.play(stage)
            except BaseException:
                stage.abandon_loads()
                raise
            history.close()
            add_metadata(history, stage.cluster.bootstrap_servers)
            add_load(history, ledger, topic)
            snapshot = _take_snapshot(stage, home / "snapshot")
            elections = stage.view.unclean_elections()
    except Void as void:
        say(f"VOID: {void}")
        return ended(snapshot=None, result=DrillResult.VOID, reason=str(void))
    except (ClusterError, ClientError, NetworkError, OSError) as error:
        say(f"FAILED: {error}")
        return ended(snapshot=None, result=DrillResult.BROKEN, reason=str(error))
    return ended(snapshot=snapshot, elections=elections, complaints=tuple(stage.complaints))


def verdicts(played: Sequence[Played], ledger: Path, judging: SparkJudge) -> list[Run]:
    """Every run with its result, in order. Raises: ClusterError when Spark fails."""
    snapshots = [one.snapshot for one in played if one.snapshot is not None]
    found, lost = judging.verdicts(ledger, snapshots) if snapshots else ({}, {})
    runs = []
    for one in played:
        result, reason, evidence, verdict = one.result, one.reason, None, None
        if one.snapshot is not None:
            # an unreadable ledger gives one verdict for all
            verdict = found.get(one.topic) or found[""]
            evidence = DrillEvidence(
                verdict_code=verdict.exit_code,
                counts=dict(verdict.counts),
                facts=dict(verdict.facts),
                lost=tuple(lost.get(one.topic, ())),
                elections=one.elections,
                complaints=one.complaints,
                doubts=verdict.reasons,
                notes=verdict.notes,
            )
            result, reason = judge(one.expectation, evidence, one.drill.shows)
        runs.append(
            Run(
                *(one.drill.name, one.settings, one.expectation, result, reason, evidence, one.seconds),
                verdict=verdict,
            )
        )
    return runs


@contextmanager
def _stage(
    drill: Drill, settings: Settings, topic: str, home: Path, ledger: Path, say: Said, history: History
) -> Iterator[Stage]:
    """A cluster that is up, and is removed afterwards in any state."""
    cluster = _cluster(drill, settings, home / "cluster")
    try:
        cluster.up()
        driver = f", power loss by {cluster.power_loss_driver}" if cluster.power_loss_driver else ""
        say(f"{len(cluster.controllers)} controllers and {len(cluster.brokers)} brokers run{driver}")
        yield Stage(cluster, drill, settings, topic, ledger, say, history)
    finally:
        cluster.destroy()


def _cluster(drill: Drill, settings: Settings, folder: Path) -> LocalCluster:
    cluster = LocalCluster.create(
        folder,
        drill.brokers,
        drill.controllers,
        properties={**QUICK, **drill.properties},
        power_loss=settings.power_loss if drill.cuts_power else None,
    )
    for broker_id in drill.flushing:
        with cluster.properties_file(cluster.broker(broker_id)).open("a", encoding="utf-8") as file:
            file.write("log.flush.interval.messages=1\n")
    return cluster


def _take_snapshot(stage: Stage, folder: Path) -> Path:
    from holdfast.durability.snapshots import take

    cluster = stage.cluster
    log_dirs = {node.node_id: str(cluster.data_folder(node)) for node in cluster.brokers}
    count = take(cluster.bootstrap_servers, stage.topic, log_dirs, folder)
    load = stage.load
    stage.say(
        f"{load.acked:,} records were acknowledged in all, {load.acked_per_second:,.0f} a second; "
        f"{count:,} are served"
    )
    return folder
