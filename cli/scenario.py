"""`holdfast scenario`: runs files of controller scenarios against the real controller core.

No sockets, no disk, a clock that only `advance` moves. The grammar is in `cli.datadriven`, the commands in
`cli.scenario_commands`.
"""

import sys
from pathlib import Path

import click

from cli.datadriven import ParseError, run_file
from cli.scenario_commands import Scenario


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--rewrite", is_flag=True, help="Write the answers into the files; review the difference.")
def command(paths: tuple[Path, ...], rewrite: bool) -> None:
    """Compare what the controller decides with what scenario files expect; PATH is a file or a folder.

    Exit 0 when every answer matches, 1 with a difference per block when not, 2 when a file cannot be parsed.
    """
    files = [file for path in paths for file in (sorted(path.rglob("*.txt")) if path.is_dir() else [path])]
    differing, unreadable = 0, 0
    for file in files:
        try:
            difference = run_file(file, Scenario().execute, rewrite=rewrite)
        except (ParseError, UnicodeDecodeError) as error:
            unreadable += 1
            click.echo(f"{file}: {error}", err=True)
            continue
        if difference:
            differing += 1
            click.echo(difference)
    click.echo(f"{len(files)} scenarios, {differing} differ, {unreadable} cannot be parsed")
    sys.exit(2 if unreadable else 1 if differing else 0)
