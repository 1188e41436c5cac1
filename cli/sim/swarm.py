"""`holdfast sim swarm`, `replay`, `shrink` and `report`: many seeds, and what to do with one that fails.

Owns progress, files and exit codes; what is played and checked is in `sim`.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.extras import require
from holdfast.cli.options import output
from holdfast.cli.progress import Progress, shown
from holdfast.cli.sim.model import parse_seeds
from holdfast.cli.sim.options import run_options, template_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from holdfast.sim.campaign.artifact import Artifact
    from holdfast.sim.campaign.rows import SeedRow
    from holdfast.sim.campaign.run_spec import RunTemplate

#: of the folder that `report --write` names: what swarms amounted to, and the same as a table
RUNS = "runs.json"
RUNS_PAGE = "runs.md"
#: pages about failing seeds that are written or printed; the rows name the others
_PAGES_MAX = 10


@click.command()
@click.option("--seeds", required=True, metavar="A..B", help="Both inclusive.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes; one a core.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Begin no seed after so long.")
@click.option("--dir", "folder", type=click.Path(file_okay=False), help="Keep rows and failing seeds here.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option("--master", default="local[*]", show_default=True, help="Of Spark.")
@run_options
@output
def swarm(
    seeds: str,
    jobs: int,
    minutes: float | None,
    folder: str | None,
    engine: str,
    master: str,
    output: str,
    **given: Any,
) -> None:
    """Play many seeds. Exit 1 when a property was violated, or when two plays of a seed differ.

    With --dir: `rows-A-B.jsonl` (.parquet, with Spark) has a row for each seed, `summary.json` the sums of
    all rows there; the first failing seeds their tape (`seed-N.json`, for replay and shrink), their page and
    their events. Seeds that have a row there already are left out, so a long swarm may be stopped, and goes
    on when it is started again.
    """
    if engine == "spark":
        require("spark")
    from holdfast.sim.campaign.artifact import commit
    from holdfast.sim.campaign.rows import BadRows, read_rows, sums
    from holdfast.sim.campaign.runs import Origin, begin

    template, chosen = template_of(given), parse_seeds(seeds)
    origin = Origin(commit(), template.command("N"))
    target = None if folder is None else Path(folder)
    played: frozenset[int] = frozenset()
    if target is not None:
        try:
            played = begin(target, origin)
        except BadRows as error:
            raise click.UsageError(str(error)) from error
    left: Sequence[int] = [seed for seed in chosen if seed not in played] if played else chosen
    until = None if minutes is None else time.monotonic() + 60 * minutes
    name = f"rows-{chosen.start}-{chosen.stop - 1}"
    if not left:
        rows = []
    elif engine == "spark":
        if target is None or minutes is not None:
            raise click.UsageError("--engine spark needs --dir, and knows no --minutes")
        rows = _play_on_spark(template, left, master, target / f"{name}.parquet")
    else:
        from holdfast.sim.campaign.swarm import play_seeds

        watched = _watched(play_seeds(template, left, jobs, until), len(left))
        rows = list(watched if target is None else _written(watched, target / f"{name}.jsonl"))
    _keep_failing(template, rows, target, is_told=output == "text")
    if target is not None and played:
        rows = read_rows(target)
    total = {**asdict(origin), "engine": engine, **sums(rows)}
    if target is not None:
        (target / "summary.json").write_text(json.dumps(total, indent=1) + "\n", encoding="utf-8")
    _tell(total, output)


def _play_on_spark(
    template: "RunTemplate", seeds: Sequence[int], master: str, target: Path
) -> "list[SeedRow]":
    from holdfast.sim.campaign.spark_engine import play_seeds

    with shown(f"Spark plays {len(seeds):,} seeds"):
        return play_seeds(template, seeds, master, target)


def _watched(rows: "Iterable[SeedRow]", count: int) -> "Iterator[SeedRow]":
    """The rows; on a terminal it is shown how far they are."""
    done = failed = 0
    simulated = cpu = 0.0
    with Progress() as progress:
        progress.phase("Playing", count, "seeds")
        for row in rows:
            done += 1
            failed += row.is_failing
            simulated += row.simulated_seconds
            cpu += row.cpu_seconds
            rate = simulated / max(cpu, 0.001)
            progress.at(done, f"{failed} failed, {rate:.0f} simulated s per CPU s")
            yield row


def _written(rows: "Iterable[SeedRow]", path: Path) -> "Iterator[SeedRow]":
    """The rows, each written as it comes, behind those that are there."""
    from holdfast.sim.campaign.rows import to_line

    with path.open("a", encoding="utf-8", buffering=1) as file:
        for row in rows:
            file.write(to_line(row) + "\n")
            yield row


def _keep_failing(
    template: "RunTemplate", rows: "list[SeedRow]", folder: Path | None, *, is_told: bool
) -> None:
    """Pages of the first failing seeds: the first one is printed, all are kept when there is a folder."""
    from holdfast.sim.campaign.swarm import keep_seed

    for row in rows:
        if row.is_broken:
            click.echo(f"seed {row.seed}: {row.defect}", err=True)
    failing = sorted(row.seed for row in rows if row.is_failing and not row.is_broken)
    for number, seed in enumerate(failing[: _PAGES_MAX if folder is not None else 1]):
        page = keep_seed(template, str(seed), folder)
        if is_told and number == 0:
            click.echo(page + "\n")


def _tell(total: dict[str, Any], output: str) -> None:
    from holdfast.sim.campaign.report import summary

    click.echo(json.dumps(total) if output == "json" else summary(total))
    sys.exit(1 if total["violations"] or total["defects"] else 0)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False), metavar="DIR")
@click.option("--rows", "with_rows", is_flag=True, help="Print every seed, not only those that fail.")
@click.option(
    "--write",
    "record",
    type=click.Path(file_okay=False),
    metavar="TO",
    help=f"Add the sums to the record in the folder TO: {RUNS}, and {RUNS_PAGE} as a table.",
)
@output
def report(folder: str, with_rows: bool, record: str | None, output: str) -> None:
    """Sum up the rows of swarms in a folder, JSON lines and Parquet alike.

    Exit 1 when a property was violated.
    """
    from holdfast.cli.tables import table_lines
    from holdfast.sim.campaign.report import HEADS, cells
    from holdfast.sim.campaign.rows import BadRows, read_rows, sums
    from holdfast.sim.campaign.runs import Origin, origin_of

    try:
        rows = read_rows(Path(folder))
        origin = origin_of(Path(folder)) or Origin("unknown", "unknown")
    except BadRows as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    shown = [row for row in rows if with_rows or row.is_failing]
    if output == "text" and shown:
        click.echo("\n".join(table_lines(HEADS, [cells(row) for row in shown])))
    total = {**asdict(origin), **sums(rows)}
    if record is not None:
        try:
            _add_to(Path(record), total)
        except BadRows as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(1)
    _tell(total, output)


def _add_to(folder: Path, total: dict[str, Any]) -> None:
    """Into the record that is kept there. Raises: BadRows."""
    from holdfast.sim.campaign.runs import page, with_run

    path = folder / RUNS
    runs = with_run(json.loads(path.read_text(encoding="utf-8")) if path.exists() else [], total)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    (folder / RUNS_PAGE).write_text(page(runs), encoding="utf-8")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
def replay(file: str) -> None:
    """Play a kept run again from its tape. Exit 1 when a property is violated."""
    from holdfast.sim.campaign.artifact import BadArtifact, commit
    from holdfast.sim.campaign.recording import record
    from holdfast.sim.campaign.swarm import page_of

    try:
        kept, as_it_was = _kept(Path(file))
    except BadArtifact as error:
        raise click.UsageError(str(error)) from error
    with as_it_was:
        recording = record(kept.spec, kept.tape)
        result = recording.result
        if result.violation is None:
            click.echo(result.as_text())
        else:
            click.echo(page_of(recording, f"holdfast sim replay {file}", kept.mutant))
    if result.trace_hash == kept.trace_hash:
        click.echo("the same run as the one that was kept", err=True)
    else:
        now = commit()
        click.echo(
            f"another run than the one that was kept (trace {kept.trace_hash}): "
            + (
                "a defect of the simulator, for the code is the same"
                if now == kept.commit and not now.endswith("-dirty")
                else f"that was commit {kept.commit}, this is {now}"
            ),
            err=True,
        )
    sys.exit(1 if result.violation else 0)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
@click.option("--replays", type=click.IntRange(1), default=300, show_default=True, help="At most.")
@click.option(
    "--to", type=click.Path(dir_okay=False), help="Where to write it.  [default: FILE's name with .small]"
)
def shrink(file: str, replays: int, to: str | None) -> None:
    """Make a failing run smaller: fewer faults, shorter, fewer clients, least delays, first come first run.

    Exit 1 when it does not fail any more.
    """
    from holdfast.sim.campaign.artifact import BadArtifact, save
    from holdfast.sim.campaign.recording import record
    from holdfast.sim.campaign.shrink import NotFailing
    from holdfast.sim.campaign.shrink import shrink as make_smaller
    from holdfast.sim.campaign.swarm import page_of

    path = Path(file)
    target = path.with_suffix(".small.json") if to is None else Path(to)
    try:
        kept, as_it_was = _kept(path)
        if kept.violation is None:
            raise BadArtifact(f"{file} is a run in which every property held")
    except BadArtifact as error:
        raise click.UsageError(str(error)) from error
    with as_it_was:
        try:
            small = make_smaller(kept, replays, lambda line: click.echo(line, err=True))
        except NotFailing as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(1)
        save(small, target)
        page = page_of(record(small.spec, small.tape), f"holdfast sim replay {target}", small.mutant)
    click.echo(page)


def _kept(path: Path) -> "tuple[Artifact, AbstractContextManager[None]]":
    """A kept run, and the code that it was a run of: with its mutant. Raises: BadArtifact."""
    from holdfast.sim.campaign.artifact import BadArtifact, load
    from holdfast.sim.mutants.table import MUTANTS, broken_by

    kept = load(path)
    if kept.mutant and kept.mutant not in MUTANTS:
        raise BadArtifact(f"{path} is a run with the mutant {kept.mutant}, which this version does not have")
    return kept, broken_by(kept.mutant)
