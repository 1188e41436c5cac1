"""`holdfast sim model`: walks of the model, one a seed; a broken property comes with its shortest story."""

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping

import click

from holdfast.sim.model.bands import BANDS, is_expected_loss
from holdfast.sim.model.mutants import MUTANTS, ModelMutant
from holdfast.sim.model.seeded import walk_seed
from holdfast.sim.model.walk import WalkResult, replay_trace, shrink

#: steps of a story that are printed
STORY_STEPS_MAX = 60


def parse_seeds(text: str) -> range:
    """`A..B`, both inclusive, or one seed. Raises: click.BadParameter."""
    first, separator, last = text.partition("..")
    try:
        seeds = range(int(first), int(last if separator else first) + 1)
    except ValueError as error:
        raise click.BadParameter(f"{text}: expected A..B or one number", param_hint="--seeds") from error
    if not seeds:
        raise click.BadParameter(f"{text} holds no seed", param_hint="--seeds")
    return seeds


@click.command()
@click.option("--seeds", default="0..99", show_default=True, help="Seeds A..B, both inclusive, or one seed.")
@click.option("--steps", default=2000, show_default=True, type=click.IntRange(1), help="Steps of a walk.")
@click.option(
    "--band", default="mixed", show_default=True, type=click.Choice(list(BANDS)), help="Fault budget."
)
@click.option("--mutant", type=click.Choice(list(MUTANTS)), help="Break this rule; a property must notice.")
@click.option("--mutants", is_flag=True, help="Walk each mutant until it is caught; print a table.")
@click.option("--marks", is_flag=True, help="Count the rare states that were met.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    seeds: str, steps: int, band: str, mutant: str | None, mutants: bool, marks: bool, output: str
) -> None:
    """Walk the model of the protocol at random and check every property after each step.

    A property that does not hold is printed with its seed and a shrunk story. Exit 0 when all is as it should
    be: nothing broken without a mutant, every mutant caught; 1 otherwise.
    """
    chosen = parse_seeds(seeds)
    if mutants:
        sys.exit(_mutant_table(chosen, steps, output))
    if mutant:
        click.get_current_context().with_resource(MUTANTS[mutant].applied())
    began, counts = time.process_time(), Counter[str]()
    walked, lost, reported, states = 0, 0, 0, Counter[str]()
    for seed in chosen:
        verdict = walk_seed(seed, steps, band)
        walked += verdict.steps
        lost += bool(verdict.lost) or is_expected_loss(band, verdict.property_name)
        reported += bool(verdict.reported)
        states.update(verdict.marks)
        if verdict.property_name is None or is_expected_loss(band, verdict.property_name):
            continue
        counts[verdict.property_name] += 1
        if output == "text":
            _tell(seed, steps, band, mutant, verdict)
        if mutant:
            break
    seconds = time.process_time() - began
    row = {
        "seeds": seeds,
        "band": band,
        "mutant": mutant,
        "steps": walked,
        "steps_per_second": round(walked / max(seconds, 1e-9)),
        "violations": dict(counts),
        "walks_with_loss": lost,
        "walks_with_reported_loss": reported,
        "marks": dict(states.most_common()) if marks else {},
    }
    click.echo(json.dumps(row) if output == "json" else _summary(row))
    sys.exit(0 if bool(counts) == bool(mutant) else 1)


def _summary(row: Mapping[str, object]) -> str:
    lines = [
        f"{row['steps']} steps of seeds {row['seeds']} ({row['band']}), {row['steps_per_second']} steps/s; "
        f"violations: {row['violations'] or 'none'}; walks that lost acknowledged records: "
        f"{row['walks_with_loss']}, that reported a possible loss: {row['walks_with_reported_loss']}"
    ]
    marks = row["marks"]
    assert isinstance(marks, dict)
    return "\n".join(lines + [f"{count:8d}  {name}" for name, count in marks.items()])


def _tell(seed: int, steps: int, band: str, mutant: str | None, verdict: WalkResult) -> None:
    """One page about a broken property: how to see it again, and the shortest way to it that was found."""
    again = f"holdfast sim model --seeds {seed} --steps {steps} --band {band}"
    click.echo(f"seed {seed}: {verdict.problem}\n  {verdict.setup}\n  again: {again}", nl=False)
    click.echo(f" --mutant {mutant}" if mutant else "")
    shortest = shrink(verdict)
    story: list[str] = []
    replay_trace(verdict.setup, shortest.trace, story)
    click.echo(f"  {len(shortest.trace)} of {verdict.steps} steps are enough:")
    for line in story[-STORY_STEPS_MAX:]:
        click.echo(f"    {line}")


def killing_seeds(
    mutant: ModelMutant, seeds: range, steps: int, wanted: int
) -> tuple[list[int], Counter[str]]:
    """How many seeds it took each time, `wanted` times, and by which property."""
    distances: list[int] = []
    properties = Counter[str]()
    last = seeds.start - 1
    for seed in seeds:
        with mutant.applied():
            verdict = walk_seed(seed, steps, mutant.band)
        if verdict.property_name is not None:
            distances.append(seed - last)
            properties[verdict.property_name] += 1
            last = seed
            if len(distances) == wanted:
                break
    return distances, properties


def _mutant_table(seeds: range, steps: int, output: str) -> int:
    """Walk every mutant until it was caught five times; 1 when one was never."""
    survivors = 0
    for name, mutant in MUTANTS.items():
        distances, properties = killing_seeds(mutant, seeds, steps, 5)
        survivors += not distances and bool(mutant.killed_by)
        median = statistics.median(distances) if distances else None
        row = {"mutant": name, "median_seeds": median, "properties": dict(properties)}
        if output == "json":
            click.echo(json.dumps(row))
        else:
            found = ", ".join(properties) or ("NOT CAUGHT" if mutant.killed_by else "only in its story")
            click.echo(f"{name:36s} {median or '-':>6} {found}")
    return 1 if survivors else 0
