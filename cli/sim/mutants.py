"""`holdfast sim mutants`: does the simulator notice when the code is wrong?

Owns the output, the record and the exit code; mutants and hunts are in `sim.mutants`.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

import holdfast
from holdfast.cli.options import output

if TYPE_CHECKING:
    from holdfast.sim.mutants.find_kill import MutantResult

_DOCS = Path(holdfast.__file__).resolve().parent.parent / "docs"
#: killing seeds, and the page that is made of them
RECORD = _DOCS / "mutants.json"
PAGE = _DOCS / "mutants.md"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Just this one; may be given several times.")
@click.option(
    "--seeds", type=click.IntRange(1), default=30, show_default=True, help="Tried with each mutant."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--recorded",
    is_flag=True,
    help="Just those of the record that are not masked, each first by the seed that killed it before.",
)
@click.option("--write", is_flag=True, help="Renew docs/mutants.json and docs/mutants.md of this checkout.")
@output
def mutants(only: tuple[str, ...], seeds: int, jobs: int, recorded: bool, write: bool, output: str) -> None:
    """Break one rule at a time and play seeds until a property notices.

    Exit 1 when nobody notices a mutant that is not known to be masked: that is a defect of the simulator.
    """
    from holdfast.sim.mutants import find_kill, page
    from holdfast.sim.mutants.table import MUTANTS

    unknown = sorted(set(only).difference(MUTANTS))
    if unknown:
        raise click.UsageError(f"no mutant {unknown[0]}; there are: {', '.join(MUTANTS)}")
    names = [name for name in MUTANTS if not only or name in only]
    known: dict[str, MutantResult] = {}
    if recorded:
        known = find_kill.load(RECORD)
        names = [name for name in names if name in known and not (MUTANTS[name].masked or MUTANTS[name].gap)]
        if not names:
            raise click.UsageError("the record has none of these, or they are masked: leave out --recorded")
    found: dict[str, MutantResult] = {}
    for verdict in find_kill.find_kills(names, [str(seed) for seed in range(1, seeds + 1)], jobs, known):
        found[verdict.mutant] = verdict
        _tell(verdict, MUTANTS[verdict.mutant].masked, output)
        if write:
            record = find_kill.load(RECORD) | found
            find_kill.save(RECORD, record)
            PAGE.write_text(page.page(find_kill.load(RECORD)), encoding="utf-8")
    sys.exit(any(not one.is_killed and not MUTANTS[name].masked for name, one in found.items()))


def _tell(verdict: "MutantResult", masked: str, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(asdict(verdict) | {"masked": masked}))
    elif verdict.is_killed:
        click.echo(
            f"{verdict.mutant:36} killed by seed {verdict.seed} ({verdict.tried} tried): {verdict.text}"
        )
    else:
        told = f"masked: {masked}" if masked else "NOT KILLED"
        click.echo(f"{verdict.mutant:36} {told} ({verdict.tried} tried)")
