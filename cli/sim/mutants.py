"""`holdfast sim mutants`: does the simulator notice when the code is wrong?

Owns the output, the files and the exit code; mutants and what kills them are in `sim.mutants`.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import output

if TYPE_CHECKING:
    from holdfast.sim.mutants.find_kill import MutantResult

#: of the folder that `--write` names: what became of each mutant
RESULTS = "mutants.json"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Just this one; may be given several times.")
@click.option(
    "--seeds", type=click.IntRange(1), default=30, show_default=True, help="Tried with each mutant."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--recorded",
    is_flag=True,
    help="Just those whose declaration names a killing seed, each first by that one.",
)
@click.option(
    "--write",
    "folder",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help=f"Keep what was found in DIR/{RESULTS}, with the first line of each violation.",
)
@click.option(
    "--declare",
    is_flag=True,
    help="Write the killing seeds into the declarations of this checkout; then run `make fmt docs`.",
)
@output
def mutants(
    only: tuple[str, ...],
    seeds: int,
    jobs: int,
    recorded: bool,
    folder: str | None,
    declare: bool,
    output: str,
) -> None:
    """Break one rule at a time and play seeds until a property notices.

    Exit 1 when no property notices one, a defect of the simulator.
    """
    from holdfast.sim.mutants import declarations, find_kill
    from holdfast.sim.mutants.table import MUTANTS

    unknown = sorted(set(only).difference(MUTANTS))
    if unknown:
        raise click.UsageError(f"no mutant {unknown[0]}; there are: {', '.join(MUTANTS)}")
    names = [name for name in MUTANTS if not only or name in only]
    if recorded:
        names = [name for name in names if MUTANTS[name].killing_seed is not None]
        if not names:
            raise click.UsageError("none of these is declared with a killing seed: leave out --recorded")
    results: list[MutantResult] = []
    tried = [str(seed) for seed in range(1, seeds + 1)]
    for result in find_kill.find_kills(names, tried, jobs, declared_first=recorded):
        results.append(result)
        _tell(result, output)
        if folder is not None:
            _keep(results, Path(folder))
    if declare:
        kills = {result.mutant: result.killed_by for result in results if result.is_killed}
        declarations.declare(kills, Path(declarations.__file__).parent)
    sys.exit(not all(result.is_killed for result in results))


def _keep(results: "list[MutantResult]", folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(result) for result in results], indent=1)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")


def _tell(result: "MutantResult", output: str) -> None:
    if output == "json":
        click.echo(json.dumps(asdict(result)))
    elif result.is_killed:
        click.echo(f"{result.mutant:36} killed by seed {result.seed} ({result.tried} tried): {result.text}")
    else:
        click.echo(f"{result.mutant:36} NOT KILLED ({result.tried} tried)")
