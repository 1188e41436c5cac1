"""`holdfast chaos run FILE`: a scenario on a cluster of its own, and Spark's verdict."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from holdfast.cli.tables import table_lines
from holdfast.drills.chaos_report import ChaosReport
from holdfast.drills.chaos_scenarios.model import Scenario
from holdfast.drills.chaos_scenarios.parse import BadScenario, FaultKeys, parse
from holdfast.drills.chaos_scenarios.plan import NothingExpected, expected, plan_lines
from holdfast.drills.chaos_scenarios.player import Player
from holdfast.drills.fault_kinds import KINDS
from holdfast.drills.ground import ground_for, not_possible
from holdfast.drills.outcome import DrillResult
from holdfast.drills.playing import Wishes, end, new_folder, options, perform
from holdfast.drills.settings import Axis, Settings
from holdfast.drills.story import write_report
from holdfast.report.history import HISTORY_FILE

READY = Path(__file__).parent / "ready"
KEYS: FaultKeys = {name: kind.keys for name, kind in KINDS.items()}
_ON_OFF = click.Choice(["on", "off"])


def ready_files() -> Mapping[str, Path]:
    """The scenarios that come with Holdfast, by name."""
    return {file.stem: file for file in sorted(READY.glob("*.toml"))}


def load(words: str) -> Scenario:
    """A file, or the name of a ready scenario. Raises: click.BadParameter, BadScenario."""
    file = Path(words)
    if not file.is_file():
        ready = ready_files()
        if words not in ready:
            raise click.BadParameter(
                f"there is no file {words!r}, and no ready scenario of this name: {', '.join(ready)}",
                param_hint="FILE",
            )
        file = ready[words]
    try:
        return parse(file.read_text(encoding="utf-8"), KEYS)
    except BadScenario as error:
        raise click.UsageError(f"{file}: {error}") from error


def _list(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if not is_wanted:
        return
    rows = [(name, load(name).says) for name in ready_files()]
    click.echo("\n".join(table_lines(("SCENARIO", "WHAT HAPPENS"), rows)))
    context.exit()


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Ready scenarios."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, in words, and do nothing.")
@click.option("--seed", type=click.IntRange(0), help="Instead of the file's.")
@click.option("--manager", type=_ON_OFF, help="unclean.recovery.manager.enabled, instead of the file's.")
@click.option("--elr", type=_ON_OFF, help="eligible.leader.replicas.version, instead of the file's.")
@click.option(
    "--compare",
    type=click.Choice([axis.value for axis in Axis]),
    help="Two runs with the same seed, this setting off and on, in one report.",
)
@options
def command(
    file: str,
    dry_run: bool,
    seed: int | None,
    manager: str | None,
    elr: str | None,
    compare: str | None,
    **given: Any,
) -> None:
    """Play a scenario: a TOML file, or the name of one that comes with Holdfast (--list)."""
    wishes = Wishes(**given)
    scenario = load(file)
    settings = Settings(
        manager=scenario.manager if manager is None else manager == "on",
        elr=scenario.elr if elr is None else elr == "on",
        strategy=scenario.strategy,
        seed=scenario.seed if seed is None else seed,
    )
    runs = {"": settings}
    if compare is not None:
        runs = {
            f"{compare} {word}": settings.with_axis(Axis(compare), word == "on") for word in ("off", "on")
        }
    try:
        plans = [line for one in runs.values() for line in plan_lines(scenario, one, wishes.driver)]
    except NothingExpected as error:
        raise click.UsageError(str(error)) from error
    refusals = not_possible(wishes.driver, sorted(scenario.faults))
    if dry_run:
        click.echo("\n".join([*plans, *(f"NOT POSSIBLE HERE: {text}" for text in refusals)]))
        return
    if refusals:
        raise click.UsageError("; ".join(refusals))
    end(partial(_play if compare is None else _play_both, wishes, scenario, runs))


def _play_both(wishes: Wishes, scenario: Scenario, runs: Mapping[str, Settings]) -> DrillResult:
    """One after the other, in folders of their own; the worse result."""
    folder = new_folder(wishes.keep)
    homes = {title: folder / title.replace(" ", "-") for title in runs}
    results = [
        _play(replace(wishes, keep=homes[title], report_file=None), scenario, {title: settings})
        for title, settings in runs.items()
    ]
    if wishes.report_file is not None:
        write_report(wishes.report_file, [home / HISTORY_FILE for home in homes.values()], list(homes))
        click.echo(f"report: {wishes.report_file}", err=True)
    if wishes.keep is None and set(results) == {DrillResult.EXPECTED}:
        shutil.rmtree(folder, ignore_errors=True)
    return next(result for result in DrillResult if result in results)


def _play(wishes: Wishes, scenario: Scenario, runs: Mapping[str, Settings]) -> DrillResult:
    (settings,) = runs.values()
    expectation = expected(scenario, settings)
    report = ChaosReport(
        settings.seed, f"holdfast chaos run {scenario.name}", "holdfast.chaos-run/1", expectation
    )
    return perform(
        wishes,
        report,
        {"settings": settings.text},
        lambda folder: ground_for(
            wishes.driver,
            folder,
            scenario.cluster.properties,
            scenario.cluster.of_brokers,
            scenario.faults,
        ),
        lambda session: Player(session, scenario, settings).run(),
    )
