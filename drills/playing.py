"""One chaos run from the first process to the exit code: cluster, session, healing, Spark, report.

Owns the order of these. What happens in between is given: `drills.soak` and `drills.chaos_scenarios.player`.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from holdfast.cli.extras import EXTRAS
from holdfast.cli.options import output
from holdfast.cli.progress import Progress
from holdfast.cli.report_option import report_option
from holdfast.client.core.errors import ClientError
from holdfast.drills.chaos_report import ChaosReport
from holdfast.drills.ground import Ground
from holdfast.drills.outcome import DrillResult, LostRecord, some_of_each
from holdfast.drills.session import Say, Session
from holdfast.drills.spark_judge import SparkJudge
from holdfast.drills.story import add_load, add_metadata, loss_stories, verdict_row, write_report
from holdfast.localcluster.endings import ended_by_sigterm
from holdfast.localcluster.nodes import ClusterError
from holdfast.report.history import HISTORY_FILE, History
from holdfast.runtime.api import NetworkError

#: Lost records of a topic that are named.
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks of a run beside what is played."""

    driver: str = "local"
    keep: Path | None = None
    #: None: if pyspark is installed
    verdict: bool | None = None
    report_file: Path | None = None
    output: str = "text"


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `Wishes`; the command takes them as keywords and hands them to `wishes`."""
    for option in (
        click.option(
            "--driver",
            type=click.Choice(["local", "compose"]),
            default="local",
            show_default=True,
            help="compose: the containers of docker-compose.yml in the working folder, as their own project.",
        ),
        click.option(
            "--keep",
            type=click.Path(path_type=Path, file_okay=False),
            help="Keep data, logs, ledgers and the history here.",
        ),
        click.option(
            "--verdict/--no-verdict",
            default=None,
            help="Compare everything with Spark in the end; the default if it is installed.",
        ),
        report_option,
        output,
    ):
        function = option(function)
    return function


def perform(
    wishes: Wishes,
    report: ChaosReport,
    settings: Mapping[str, Any],
    make_ground: Callable[[Path], Ground],
    act: Callable[[Session], None],
) -> DrillResult:
    """Make a cluster, act on it, heal it, judge, print, write the report, take the cluster away.

    Ctrl-C and SIGTERM end it after the healing, with nothing left. Raises: ClusterError for no cluster.
    """
    folder = new_folder(wishes.keep)
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - began:6.1f}s] {text}", err=wishes.output == "json")

    is_good = False
    try:
        with ended_by_sigterm():
            _decide_on_verdict(wishes, report, say)
            _play(make_ground, folder, report, settings, act, say)
            _finish(folder, wishes, report, say)
        text = json.dumps(report.as_json()) if wishes.output == "json" else "\n".join(report.lines())
        click.echo(text)
        is_good = report.result is DrillResult.EXPECTED
        return report.result
    finally:
        if wishes.keep is None and is_good:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            click.echo(f"kept: {folder}", err=True)


def end(run: Callable[[], DrillResult]) -> None:
    """Exit with the code of the result."""
    try:
        result = run()
    except (ClusterError, ClientError, NetworkError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(DrillResult.INCONCLUSIVE.exit_code)
    sys.exit(result.exit_code)


def new_folder(keep: Path | None) -> Path:
    """Where a run keeps its files. Raises: click.UsageError when there are others."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"--keep {keep}: the folder is not empty; choose a new one")
    folder = (keep or Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _decide_on_verdict(wishes: Wishes, report: ChaosReport, say: Say) -> None:
    missing = [name for name in EXTRAS["spark"] if find_spec(name) is None]
    if wishes.verdict is False:
        report.unjudged = "--no-verdict"
        report.is_unjudged_on_purpose = True
    elif missing and wishes.verdict:
        raise ClusterError(f"{', '.join(missing)} is missing for --verdict: install the extra `spark`")
    elif missing:
        report.unjudged = f"{', '.join(missing)} is not installed (the extra `spark`)"
        say(f"there will be no verdict: {report.unjudged}")


def _play(
    make_ground: Callable[[Path], Ground],
    folder: Path,
    report: ChaosReport,
    settings: Mapping[str, Any],
    act: Callable[[Session], None],
    say: Say,
) -> None:
    """From the first process to the snapshots; no process, container, mount or rule is there afterwards."""
    ground = make_ground(folder)
    history = History(folder / HISTORY_FILE, report.what, report.seed, {**settings, "driver": ground.driver})
    ledger = folder / "ledger"
    try:
        say("the cluster starts")
        ground.up()
        say(f"it runs: {ground.words()}; seed {report.seed}")
        session = Session(ground, ledger, report, history, say)
        try:
            try:
                with ground.healing():
                    session.note_controller()
                    act(session)
                    session.end()
            except BaseException:
                session.abandon()
                raise
        except (ClusterError, ClientError, NetworkError) as error:
            report.complaints.append(f"it ended early: {error}")
            say(report.complaints[-1])
            session.come_back()
        history.close()
        add_metadata(history, ground.nodes.bootstrap_servers)
        add_load(history, ledger)
        if not report.unjudged:
            _take_snapshots(session, folder, say)
    finally:
        say("the cluster is taken away")
        ground.save_logs()
        ground.destroy()


def _take_snapshots(session: Session, folder: Path, say: Say) -> None:
    from holdfast.durability.snapshots import take

    log_dirs = session.ground.log_dirs()
    if not log_dirs:
        say("the files of the replicas cannot be read from here: only what is served is compared")
    for topic in session.topics:
        count = take(session.ground.nodes.bootstrap_servers, topic, log_dirs, folder / f"snapshot-{topic}")
        say(f"{topic}: {count:,} records are served")


def _compared(snapshot: Path) -> dict[str, int]:
    """How much of a topic was read, for the report."""
    from holdfast.durability.snapshots import sizes

    return dict(zip(("served", "replica_batches"), sizes(snapshot), strict=True)) if snapshot.is_dir() else {}


def _finish(folder: Path, wishes: Wishes, report: ChaosReport, say: Say) -> None:
    """Spark's verdict, and the page."""
    from holdfast.report.history import append_rows

    snapshots = sorted(folder.glob("snapshot-*"))
    lost: Mapping[str, Sequence[LostRecord]] = {}
    if snapshots:
        say("Spark compares the ledgers with what was served")
        with closing(SparkJudge(starts_now=False)) as judge, Progress() as progress:
            progress.phase("Spark compares")
            found, lost = judge.verdicts(folder / "ledger", snapshots)
        report.verdicts = {
            topic: replace(verdict, facts={**verdict.facts, **_compared(folder / f"snapshot-{topic}")})
            for topic, verdict in found.items()
        }
        named = [record for records in lost.values() for record in some_of_each(records, _NAMED_MAX)]
        report.named = [
            f"{record.topic}-{record.partition}, offset {record.offset}, {record.value}: {story}"
            for record, story in zip(named, loss_stories(folder / HISTORY_FILE, named), strict=True)
        ]
    elif not report.unjudged:
        report.unjudged = "the run made no topic"
    verdict = report.verdict
    if verdict is not None:
        all_lost = [record for records in lost.values() for record in records]
        row = verdict_row(verdict, folder / HISTORY_FILE, all_lost)
        append_rows(folder / HISTORY_FILE, [{"t_ms": report.seconds * 1000, **row}])
    if wishes.report_file is not None:
        write_report(wishes.report_file, [folder / HISTORY_FILE])
        say(f"report: {wishes.report_file}")
