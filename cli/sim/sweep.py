"""`holdfast sim sweep`: what of production code may be broken without anybody noticing?

Owns the output; changes and verdicts are in `sim.mutants`.
"""

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import output

if TYPE_CHECKING:
    from holdfast.sim.mutants.sweep import Finding


@click.command()
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Changes to try.")
@click.option("--draw", default="1", show_default=True, metavar="N", help="Which ones; any text.")
@click.option(
    "--module",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this one, such as holdfast.broker.core.replicas.partition",
)
@click.option("--seeds", type=click.IntRange(1), default=8, show_default=True, help="Stories for each.")
@click.option("--band", default="budget", show_default=True, help="Which faults may add up to what.")
@click.option("--like", default="", metavar="NAME", help="Play the stories in which this mutant shows.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@output
def sweep(
    count: int,
    draw: str,
    names: tuple[str, ...],
    seeds: int,
    band: str,
    like: str,
    jobs: int,
    output: str,
) -> None:
    """Break one condition, bound or call of production code at a time, drawn from all, in ordinary stories.

    A line for each. What survives needs a reader's eyes: it is an optimisation, is masked by another rule,
    or shows what no property looks at.
    """
    from holdfast.sim.campaign.run_spec import BANDS
    from holdfast.sim.mutants import mechanical
    from holdfast.sim.mutants.sweep import SweepRuns, drawn
    from holdfast.sim.mutants.sweep import sweep as swept
    from holdfast.sim.mutants.table import MUTANTS

    known = mechanical.modules()
    unknown = sorted(set(names).difference(known))
    if unknown:
        raise click.UsageError(f"no module {unknown[0]}; there are: {', '.join(known)}")
    if band not in BANDS:
        raise click.UsageError(f"no band {band}; there are: {', '.join(BANDS)}")
    if like and like not in MUTANTS:
        raise click.UsageError(f"no mutant {like}; docs/mutants.md has them")
    changes = drawn(names or known, count, draw)
    outcomes: Counter[str] = Counter()
    for finding in swept(changes, [str(seed) for seed in range(1, seeds + 1)], SweepRuns(band, like), jobs):
        outcomes[finding.outcome] += 1
        _tell(finding, output)
    if output != "json":
        click.echo(", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items())))


def _tell(finding: "Finding", output: str) -> None:
    if output == "json":
        click.echo(json.dumps(asdict(finding) | {"outcome": finding.outcome}))
        return
    why = f" by seed {finding.seed}: {finding.text}" if finding.seed is not None else ""
    click.echo(f"{finding.outcome:11} {finding.change}{why}")
