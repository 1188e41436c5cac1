"""`holdfast sim`: whole clusters out of a seed, on simulated time, network and disks.

`run` plays one seed and prints a page; equal seeds and shapes give equal traces on every machine. Nothing is
decided here.
"""

import json
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import output
from holdfast.cli.report_option import report_option
from holdfast.cli.sim.model import command as model
from holdfast.cli.sim.mutants import mutants
from holdfast.cli.sim.options import run_options, template_of
from holdfast.cli.sim.swarm import replay, report, shrink, swarm
from holdfast.cli.sim.sweep import sweep

if TYPE_CHECKING:
    from holdfast.sim.campaign.run_spec import RunSpec


@click.group()
def command() -> None:
    """Run the real broker, controller and client code in a simulated world."""


command.add_command(model, "model")
for one in (swarm, replay, shrink, report, mutants, sweep):
    command.add_command(one)


@command.command()
@click.option("--seed", metavar="N", help="Decides everything that happens; any text.")
@run_options
@click.option(
    "--scenario", type=click.Path(exists=True, dir_okay=False), help="Play this file; docs/simulator.md."
)
@click.option(
    "--mutant",
    default="",
    metavar="NAME",
    help="Break this rule (docs/mutants.md) and play a story in which that shows; without --seed, the one "
    "that is known to show it.",
)
@click.option("--transcript", type=click.Path(dir_okay=False), help="Write every event to this file.")
@click.option("--keep", type=click.Path(dir_okay=False), help="Write the run here, for replay and shrink.")
@report_option
@output
def run(
    seed: str | None,
    scenario: str | None,
    mutant: str,
    transcript: str | None,
    keep: str | None,
    report_file: Path | None,
    output: str,
    **given: Any,
) -> None:
    """Play one seed: boot, load and faults, heal, quiesce, judge.

    Exit 0 when every property held, 1 when one did not; the page then shows the replicas, where a run that
    passes parts from it, what befell the cluster, the last events and who waits for what.
    """
    from holdfast.sim.campaign.artifact import artifact_of, save
    from holdfast.sim.campaign.recording import record
    from holdfast.sim.campaign.swarm import page_of
    from holdfast.sim.checks.observe.chronicle import Chronicle
    from holdfast.sim.mutants.table import broken_by

    if mutant:
        seed, spec = _of_mutant(mutant, seed, given)
        again = f"holdfast sim run --seed {shlex.quote(seed)} --mutant {mutant}"
    elif seed is None:
        raise click.UsageError("which --seed?")
    else:
        template = template_of(given)
        spec, again = template.spec(seed), template.command(seed)
    if scenario is not None:
        spec = _written(scenario, seed)
        again = f"holdfast sim run --seed {shlex.quote(seed)} --scenario {shlex.quote(scenario)}"
        again += f" --mutant {mutant}" if mutant else ""
    chronicle = Chronicle()
    with broken_by(mutant):
        started, cpu_started = time.monotonic(), time.process_time()
        recording = record(spec, listeners=[chronicle] if report_file is not None else [])
        wall, cpu = time.monotonic() - started, time.process_time() - cpu_started
        result = recording.result
        told = result.as_text() if result.violation is None else page_of(recording, again, mutant)
    if transcript is not None:
        with open(transcript, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in recording.events)
    if keep is not None:
        save(artifact_of(spec, recording.tape, result, mutant), Path(keep))
    if output == "json":
        told = json.dumps(
            {
                "schema": "holdfast.sim-run/1",
                "ok": result.violation is None,
                "data": asdict(result),
                "errors": [],
            }
        )
    click.echo(told)
    if report_file is not None:
        from holdfast.cli.sim.story import story_of
        from holdfast.report.page import page

        report_file.write_text(page([story_of(recording, chronicle)]), encoding="utf-8")
        click.echo(f"report: {report_file}", err=True)
    # Beside the page, which is the same whenever the seed is.
    click.echo(
        f"{wall:.2f} s of wall time, {cpu:.2f} s of CPU: "
        f"{result.simulated_seconds / cpu:.0f} simulated seconds per CPU second",
        err=True,
    )
    sys.exit(1 if result.violation else 0)


def _of_mutant(name: str, seed: str | None, given: dict[str, Any]) -> tuple[str, "RunSpec"]:
    """The seed, and what a mutant is shown by: its own story, to which no option says anything."""
    from holdfast.sim.mutants.table import MUTANTS

    if name not in MUTANTS:
        raise click.UsageError(f"no mutant {name}; there are: {', '.join(MUTANTS)}")
    context = click.get_current_context()
    for option in given:
        if context.get_parameter_source(option) is not click.core.ParameterSource.DEFAULT:
            word = option.replace("_", "-")
            raise click.UsageError(f"--mutant has a story of its own: leave out --{word}")
    if seed is None:
        seed = MUTANTS[name].killing_seed
    if seed is None:
        raise click.UsageError(f"no seed is known that shows {name}: which --seed?")
    return seed, MUTANTS[name].setting.spec(seed)


def _written(path: str, seed: str) -> "RunSpec":
    from holdfast.sim.campaign.scenario import BadScenario, read_scenario

    try:
        return read_scenario(Path(path).read_text(encoding="utf-8"), seed)
    except (BadScenario, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
