"""`holdfast sim`: whole clusters out of a seed, on simulated time, network and disks.

`run` plays one seed and prints a page; equal seeds and shapes give equal traces on every machine. Nothing is
decided here.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import click

from cli.sim_model_command import command as model


@click.group()
def command() -> None:
    """Run the real broker, controller and client code in a simulated world."""


command.add_command(model, "model")


@command.command()
@click.option("--seed", required=True, metavar="N", help="Decides everything that happens; any text.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Simulated seconds of load and faults, before everything is healed.",
)
@click.option("--brokers", type=click.IntRange(1, 9), default=3, show_default=True, help="Machines.")
@click.option(
    "--voters", type=click.Choice(["1", "3", "5"]), default="3", show_default=True, help="Machines."
)
@click.option("--partitions", type=click.IntRange(1, 50), default=4, show_default=True, help="Of the topic.")
@click.option("--producers", type=click.IntRange(1, 20), default=4, show_default=True, help="Machines.")
@click.option("--fault-gap-ms", type=click.IntRange(10), default=1500, show_default=True, help="Mean gap.")
@click.option("--transcript", type=click.Path(dir_okay=False), help="Write every event to this file.")
def run(
    seed: str,
    seconds: float,
    brokers: int,
    voters: str,
    partitions: int,
    producers: int,
    fault_gap_ms: int,
    transcript: str | None,
) -> None:
    """Play one seed: boot, load and faults, heal, quiesce, judge.

    Exit 0 when every property held, 1 when one did not; the page then shows the replicas, who waits for what
    and the last events.
    """
    from sim.choices import Choices
    from sim.faults import Plan
    from sim.run import run as run_seed
    from sim.run import shape_of
    from sim.world import Shape

    replicas = min(3, brokers)
    base = Shape(
        brokers=brokers,
        voters=int(voters),
        partitions=partitions,
        replicas=replicas,
        min_isr=min(2, replicas),
        producers=producers,
    )
    with ExitStack() as files:
        sink: Callable[[str], object] | None = None
        if transcript is not None:
            sink = files.enter_context(open(transcript, "w", encoding="utf-8")).write
        started, cpu_started = time.monotonic(), time.process_time()
        shape, plan = shape_of(seed, base), Plan(gap_ms=fault_gap_ms)
        result = run_seed(Choices(seed), shape, seconds, plan=plan, sink=sink)
        wall, cpu = time.monotonic() - started, time.process_time() - cpu_started
    click.echo(result.as_text())
    # Beside the page, which is the same whenever the seed is.
    click.echo(
        f"{wall:.2f} s of wall time, {cpu:.2f} s of CPU: "
        f"{result.simulated_seconds / cpu:.0f} simulated seconds per CPU second",
        err=True,
    )
    sys.exit(1 if result.violation else 0)
