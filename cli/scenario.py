"""`holdfast scenario`: runs scenario files against the real cores.

No sockets, no disk, a clock that only the file moves. The grammar is in `scenario.grammar`. There is a table
of commands for each core; the first command of a file tells which one it speaks.
"""

import sys
from pathlib import Path

import click

from holdfast.cli.options import CommandAnswer, output
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import Command, ParseError, parse_file, run_file
from holdfast.scenario.partition_commands import PartitionScenario
from holdfast.scenario.raft_commands import RaftScenario


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--rewrite", is_flag=True, help="Write the answers into the files; review the difference.")
@output
def command(paths: tuple[Path, ...], rewrite: bool, output: str) -> None:
    """Compare what the cores decide with what scenario files expect; PATH is a file or a folder.

    A file is about a raft node when it begins with `node`, about a broker's partition when it begins with
    `registration`, `brokers` or `every_write_is_flushed`, else about the controller (docs/scenarios.md).
    Exit 0 when every answer matches, 1 with a difference per block when not, 2 when a file cannot be parsed.
    """
    files = [file for path in paths for file in (sorted(path.rglob("*.txt")) if path.is_dir() else [path])]
    differing: list[dict[str, str]] = []
    answer = CommandAnswer("scenario")
    for file in files:
        try:
            difference = run_file(file, speaker(file).execute, rewrite=rewrite)
        except (ParseError, UnicodeDecodeError) as error:
            answer.errors.append({"code": "UNREADABLE", "message": f"{file}: {error}"})
            continue
        if difference:
            differing.append({"file": str(file), "difference": difference})
    unreadable = len(answer.errors)
    answer.data = {"scenarios": len(files), "differing": differing, "unreadable": unreadable}
    lines = [row["difference"] for row in differing]
    lines.append(f"{len(files)} scenarios, {len(differing)} differ, {unreadable} cannot be parsed")
    answer.show(output, "\n".join(lines))
    sys.exit(2 if unreadable else 1 if differing else 0)


def speaker(file: Path) -> Scenario | PartitionScenario | RaftScenario:
    """The core and the table of commands that a file speaks of, fresh. Raises: ParseError."""
    first = next((block.commands[0] for block in parse_file(file)), None)
    return Scenario() if first is None else _speaker_of(first)


def _speaker_of(first: Command) -> Scenario | PartitionScenario | RaftScenario:
    if first.name in RaftScenario.OPENINGS:
        return RaftScenario()
    if first.name in PartitionScenario.OPENINGS:
        return PartitionScenario()
    return Scenario()
