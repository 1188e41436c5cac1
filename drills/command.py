"""`holdfast drill NAME`: a named failure on a real cluster, and Spark's verdict on what survived it.

Exit codes are those of `drills.outcome.DrillResult` (docs/drills.md), of several runs the exit code of the
worst.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click

from holdfast.cli.extras import require
from holdfast.cli.options import output
from holdfast.cli.progress import Progress
from holdfast.cli.sim.model import parse_seeds
from holdfast.drills.catalogue import DRILLS
from holdfast.drills.drill import Drill
from holdfast.drills.outcome import DrillResult, Run, worst
from holdfast.drills.report import compare_lines, list_lines, run_lines, run_row, seeds_lines, totals
from holdfast.drills.run import play, verdicts
from holdfast.drills.settings import Axis, Settings, expectation_of
from holdfast.drills.spark_judge import SparkJudge
from holdfast.drills.story import verdict_row, write_report
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.power import drivers
from holdfast.report.history import HISTORY_FILE, append_rows

#: the name that stands for all drills
ALL = "all"
_ON_OFF = click.Choice(["on", "off"])


class Planned(NamedTuple):
    """A run to be made."""

    drill: Drill
    settings: Settings


@click.command()
@click.argument("name", required=False, metavar="NAME")
@click.option("--list", "is_list", is_flag=True, help="Show all drills.")
@click.option("--manager", type=_ON_OFF, default="on", show_default=True, help="Unclean recovery manager.")
@click.option("--elr", type=_ON_OFF, default="on", show_default=True, help="Eligible leader replicas.")
@click.option(
    "--strategy",
    type=click.Choice(["Balanced", "Aggressive", "None"], case_sensitive=False),
    default="Balanced",
    show_default=True,
    help="unclean.recovery.strategy of the topic.",
)
@click.option(
    "--seed", type=click.IntRange(0), help="Fixes what a drill draws at random; printed at the start."
)
@click.option("--seeds", metavar="A..B", help="Run every seed from A to B and print a table.")
@click.option(
    "--power-loss",
    type=click.Choice(["auto", *drivers.NAMES]),
    default="auto",
    show_default=True,
    help="How power is cut: real file systems (root), or tracked by the storage layer.",
)
@click.option(
    "--client",
    type=click.Choice(["holdfast", "librdkafka"]),
    default="holdfast",
    show_default=True,
    help="What sends the records: librdkafka through the listener for Kafka clients.",
)
@click.option("--compare", is_flag=True, help="Run with the decisive setting off and on, side by side.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep data, logs and ledgers here."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all runs here: FILE.html as a page with pictures, any other name as JSON.",
)
@output
def command(name: str | None, is_list: bool, output: str, **given: Any) -> None:
    """Run a named failure under load on a real cluster, then prove what survived. Exit 0: as expected."""
    if is_list:
        _list(output)
        return
    if given["seed"] is not None and given["seeds"]:
        raise click.UsageError("--seed and --seeds exclude each other")
    plan = _plan(_drills(name), given)
    keep: Path | None = given["keep"]
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"--keep {keep}: the folder is not empty; choose a new one")
    report: Path | None = given["report"]
    if report is not None and not report.absolute().parent.is_dir():
        raise click.UsageError(f"--report {report}: {report.parent} is no folder")
    require("spark")
    if given["client"] == "librdkafka" and find_spec("confluent_kafka") is None:
        raise click.UsageError("--client librdkafka: pip install confluent-kafka")
    is_page = report is not None and report.suffix == ".html"
    if is_page:
        require("report")
    folder = (keep or Path(tempfile.mkdtemp(prefix="holdfast-drill-"))).absolute()
    runs: list[Run] = []
    failure = ""
    try:
        runs = _play_all(plan, folder, is_quiet=output == "json", keeps=keep is not None)
        result = worst(runs, forgives_void=bool(given["seeds"]))
    except ClusterError as error:
        result, failure = DrillResult.INCONCLUSIVE, str(error)
        click.echo(f"error: {failure}", err=True)
    found = _as_json(runs, result, failure)
    if output == "json":
        click.echo(json.dumps(found))
    elif runs:
        click.echo("\n".join(_lines(runs, plan[0].drill, given)))
    if report is not None:
        try:
            if is_page:
                write_report(
                    report,
                    [folder / f"run-{number}" / HISTORY_FILE for number in range(len(runs))],
                    [_label(plan, number) for number in range(len(runs))],
                )
            else:
                report.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            click.echo(f"error: --report {report}: {error.strerror}", err=True)
    if keep is None and result is DrillResult.EXPECTED:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        click.echo(f"kept: {folder}", err=True)
    sys.exit(result.exit_code)


def _list(form: str) -> None:
    if form == "json":
        rows = [
            {
                "name": drill.name,
                "title": drill.title,
                "source": drill.source,
                "compares": None if drill.compares is None else drill.compares.value,
            }
            for drill in DRILLS.values()
        ]
        click.echo(json.dumps({"schema": "holdfast.drill-list/1", "ok": True, "data": rows, "errors": []}))
    else:
        click.echo("\n".join(list_lines(list(DRILLS.values()))))


def _drills(name: str | None) -> list[Drill]:
    if name is None:
        raise click.UsageError("which drill? `holdfast drill --list` shows all")
    if name == ALL:
        return list(DRILLS.values())
    if name not in DRILLS:
        raise click.UsageError(f"no drill {name}; there are {', '.join(DRILLS)}, and {ALL}")
    return [DRILLS[name]]


def _plan(drills: Sequence[Drill], given: dict[str, Any]) -> list[Planned]:
    """Every run, in order. Raises: click.UsageError."""
    try:
        driver = drivers.choose(given["power_loss"]) if any(drill.cuts_power for drill in drills) else "none"
    except ClusterError as error:
        raise click.UsageError(str(error)) from error
    if given["seeds"]:
        seeds = list(parse_seeds(given["seeds"]))
    else:
        seeds = [random.SystemRandom().randrange(1 << 16) if given["seed"] is None else given["seed"]]
    strategy = {"balanced": "Balanced", "aggressive": "Aggressive", "none": "None"}[given["strategy"].lower()]
    base = Settings(given["manager"] == "on", given["elr"] == "on", strategy, driver, client=given["client"])
    plan: list[Planned] = []
    for drill in drills:
        sides = _sides(drill, base, compares=given["compare"], is_alone=len(drills) == 1)
        plan += [Planned(drill, replace(side, seed=seed)) for seed in seeds for side in sides]
    return plan


def _sides(drill: Drill, base: Settings, *, compares: bool, is_alone: bool) -> Sequence[Settings]:
    """The settings of a run. Raises: click.UsageError when the drill expects nothing for them."""
    if not drill.cuts_power:
        base = replace(base, power_loss="none")
    sides: Sequence[Settings] = (base,)
    if compares and drill.compares is not None:
        sides = tuple(base.with_axis(drill.compares, is_on) for is_on in (False, True))
    elif compares and is_alone:
        raise click.UsageError(f"{drill.name} has nothing to compare: run it without --compare")
    for side in sides:
        if expectation_of(drill.expectations, side) is None:
            raise click.UsageError(
                f"{drill.name} cannot be run with {side.text}; docs/drills.md says what it shows"
            )
    return sides


def _play_all(plan: Sequence[Planned], folder: Path, *, is_quiet: bool, keeps: bool) -> list[Run]:
    """Run all drills one after the other, then judge all. Raises: ClusterError without Spark."""
    ledger = folder / "ledger"
    with closing(SparkJudge(starts_now=not is_quiet)) as judge, Progress() as progress:
        played = []
        for number, (drill, settings) in enumerate(plan):
            progress.phase("Runs", len(plan), "runs" if len(plan) > 1 else "")
            progress.at(number, f"{drill.name}, seed {settings.seed}")
            home, say = folder / f"run-{number}", _explanation(_label(plan, number), is_quiet)
            one = play(drill, settings, f"{drill.name}-{number}", home, ledger, say)
            if one.snapshot is not None and not keeps:
                shutil.rmtree(home / "cluster", ignore_errors=True)
            played.append(one)
        _explanation("", is_quiet)("Spark compares the ledgers with what was served")
        progress.phase("Spark compares")
        runs = verdicts(played, ledger, judge)
    for number, run in enumerate(runs):
        if run.evidence is not None and run.verdict is not None:
            file = folder / f"run-{number}" / HISTORY_FILE
            row = verdict_row(run.verdict, file, run.evidence.lost)
            append_rows(file, [{"t_ms": run.seconds * 1000, **row}])
    return runs


def _label(plan: Sequence[Planned], number: int) -> str:
    """The label before the lines of a run, when there are several runs."""
    drill, settings = plan[number]
    parts = []
    if len({planned.drill.name for planned in plan}) > 1:
        parts.append(drill.name)
    if len({planned.settings.seed for planned in plan}) > 1:
        parts.append(f"seed {settings.seed}")
    if drill.compares is not None and len({planned.settings.text for planned in plan}) > 1:
        is_on = settings.manager if drill.compares is Axis.MANAGER else settings.elr
        parts.append(f"{drill.compares.value} {'on' if is_on else 'off'}")
    return ", ".join(parts)


def _explanation(label: str, is_quiet: bool) -> Callable[[str], None]:
    """Takes lines and prints them with the seconds since the first of the run."""
    began: list[float] = []

    def say(text: str) -> None:
        began.append(time.monotonic())
        click.echo(f"[{began[-1] - began[0]:6.1f}s] {label}{': ' if label else ''}{text}", err=is_quiet)

    return say


def _lines(runs: Sequence[Run], drill: Drill, given: dict[str, Any]) -> list[str]:
    if given["seeds"] or len({run.drill for run in runs}) > 1:
        return seeds_lines(runs)
    if given["compare"]:
        assert drill.compares is not None, "checked before any run"
        return compare_lines(runs, drill.compares)
    return run_lines(runs[0])


def _as_json(runs: Sequence[Run], result: DrillResult, failure: str) -> dict[str, Any]:
    """`result` is the result of all runs; `failure` says why there is no verdict."""
    errors: list[dict[str, Any]] = [{"code": result.name, "message": failure}] if failure else []
    if result is not DrillResult.EXPECTED:  # else what did not pass is forgiven
        errors += [
            {"code": run.result.name, "seed": run.settings.seed, "message": run.reason or run.result.value}
            for run in runs
            if run.result is not DrillResult.EXPECTED
        ]
    return {
        "schema": "holdfast.drill/1",
        "ok": result is DrillResult.EXPECTED,
        "data": {"totals": totals(runs), "runs": [run_row(run) for run in runs]},
        "errors": errors,
    }
