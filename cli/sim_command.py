"""`holdfast sim`: whole clusters out of a seed, on simulated time, network and disks.

`run` plays one seed and prints a page; equal seeds and shapes give equal traces on every machine. Nothing is
decided here.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.sim_model_command import command as model
from cli.sim_mutants_command import mutants
from cli.sim_options import recipe_of, story_options
from cli.sim_swarm_command import replay, report, shrink, swarm
from cli.sim_sweep_command import sweep

if TYPE_CHECKING:
    from sim.story import Story


@click.group()
def command() -> None:
    """Run the real broker, controller and client code in a simulated world."""


command.add_command(model, "model")
for one in (swarm, replay, shrink, report, mutants, sweep):
    command.add_command(one)


@command.command()
@click.option("--seed", required=True, metavar="N", help="Decides everything that happens; any text.")
@story_options
@click.option(
    "--scenario", type=click.Path(exists=True, dir_okay=False), help="Play this file; docs/simulation.md."
)
@click.option("--transcript", type=click.Path(dir_okay=False), help="Write every event to this file.")
def run(seed: str, scenario: str | None, transcript: str | None, **given: Any) -> None:
    """Play one seed: boot, load and faults, heal, quiesce, judge.

    Exit 0 when every property held, 1 when one did not; the page then shows the replicas, where a run that
    passes parts from it, what befell the cluster, the last events and who waits for what.
    """
    from sim.recording import record
    from sim.swarm import page_of

    recipe = recipe_of(given)
    story, again = recipe.story(seed), recipe.command(seed)
    if scenario is not None:
        story, again = _written(scenario, seed), f"holdfast sim run --seed {seed} --scenario {scenario}"
    started, cpu_started = time.monotonic(), time.process_time()
    recording = record(story)
    result = recording.result
    wall, cpu = time.monotonic() - started, time.process_time() - cpu_started
    if transcript is not None:
        with open(transcript, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in recording.events)
    click.echo(page_of(recording, again) if result.violation else result.as_text())
    # Beside the page, which is the same whenever the seed is.
    click.echo(
        f"{wall:.2f} s of wall time, {cpu:.2f} s of CPU: "
        f"{result.simulated_seconds / cpu:.0f} simulated seconds per CPU second",
        err=True,
    )
    sys.exit(1 if result.violation else 0)


def _written(path: str, seed: str) -> "Story":
    from sim.scenario import BadScenario, read_scenario

    try:
        return read_scenario(Path(path).read_text(encoding="utf-8"), seed)
    except (BadScenario, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
