"""Plays a drill once: cluster up, story, verdict, cluster gone.

Owns the order of these and what becomes of failures; the story itself is the drill's. Of several runs the
next story is played while Spark looks at the last one's cluster.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from cli.local_cluster import LocalCluster
from cli.nodes import ClusterError
from client.errors import ClientError
from drills.drill import QUICK, Drill
from drills.outcome import Evidence, LostRecord, Result, Run, judge
from drills.settings import Settings, expectation_of
from drills.stage import Said, Stage, Void
from runtime.api import NetworkError


class Verdict(Protocol):
    """What is needed of `durability.verdict.Verdict`."""

    @property
    def exit_code(self) -> int: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def facts(self) -> Mapping[str, object]: ...
    @property
    def inconclusive(self) -> tuple[str, ...]: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...


class Judge(Protocol):
    """Who compares the ledger with the cluster."""

    def verdict(
        self, ledger: Path, bootstrap_servers: str, log_dirs: Mapping[int, str]
    ) -> tuple[Verdict, tuple[LostRecord, ...]]: ...


class Hall:
    """Where runs take place: one story at a time and one verdict at a time, of several runs side by side."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        #: set when nobody wants the runs any more
        self.halt = threading.Event()
        self.story = threading.Lock()
        self.verdict = threading.Lock()


def play(drill: Drill, settings: Settings, folder: Path, hall: Hall, say: Said) -> Run:
    """One run in a new folder. The settings must be ones that the drill can be played with."""
    expectation = expectation_of(drill.expectations, settings)
    assert expectation is not None, f"{drill.name} cannot be played with {settings.text}"
    watch = _Stopwatch()

    def ended(result: Result, reason: str, evidence: Evidence | None = None) -> Run:
        seconds = round(watch.seconds, 1)
        say(f"{result.name}, {result.value}{': ' if reason else ''}{reason}")
        return Run(drill.name, settings, expectation, result, reason, evidence, seconds)

    try:
        with ExitStack() as cleanup:
            with hall.story, watch:
                if hall.halt.is_set():
                    raise ClusterError("interrupted")
                say(f"{drill.name}, seed {settings.seed}: {settings.text}")
                say(f"expected: {expectation.loss.value} ({expectation.rule})")
                stage = cleanup.enter_context(_stage(drill, settings, folder, hall, say))
                _tell(drill, stage)
            with hall.verdict, watch:
                evidence = _evidence(stage, hall.judge)
    except Void as void:
        return ended(Result.VOID, str(void))
    except (ClusterError, ClientError, NetworkError, OSError) as error:
        return ended(Result.BROKEN, str(error))
    result, reason = judge(expectation, evidence, drill.shows)
    return ended(result, reason, evidence)


def _tell(drill: Drill, stage: Stage) -> None:
    """The story from its beginning to the last answer."""
    try:
        drill.play(stage)
    finally:
        stage.stop_loads()


@contextmanager
def _stage(drill: Drill, settings: Settings, folder: Path, hall: Hall, say: Said) -> Iterator[Stage]:
    """A cluster that is up, and that is gone afterwards, whatever state it is in."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = _cluster(drill, settings, folder / "cluster")
    try:
        cluster.up()
        driver = f", power loss by {cluster.power_loss_driver}" if cluster.power_loss_driver else ""
        say(f"{len(cluster.controllers)} controllers and {len(cluster.brokers)} brokers run{driver}")
        yield Stage(cluster, drill, settings, folder / "ledger", say, hall.halt)
    finally:
        cluster.destroy()


class _Stopwatch:
    """Sums the seconds within its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._began


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


def _evidence(stage: Stage, judging: Judge) -> Evidence:
    stage.say("Spark compares the ledger with what the cluster serves")
    cluster = stage.cluster
    folders = {node.node_id: str(cluster.data_folder(node)) for node in cluster.brokers}
    verdict, lost = judging.verdict(stage.ledger, cluster.bootstrap_servers, folders)
    took = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in verdict.seconds.items())
    stage.say(f"  verdict: exit code {verdict.exit_code}; {took}")
    return Evidence(
        verdict_code=verdict.exit_code,
        counts=dict(verdict.counts),
        facts=dict(verdict.facts),
        lost=lost,
        elections=stage.view.unclean_elections(),
        complaints=tuple(stage.complaints),
        notes=verdict.inconclusive,
    )
