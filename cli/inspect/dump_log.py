"""`holdfast dump-log`: shows and checks the files of a log, in the lines of Kafka's DumpLogSegments."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.inspect.log_files import Depth, LogFileRow, clean_shutdown_rows, rows_of
from holdfast.cli.options import output
from holdfast.storage.core.files import INDEX_SUFFIX, TIME_INDEX_SUFFIX


@click.command()
@click.option(
    "--files",
    "names",
    multiple=True,
    metavar="FILE[,FILE]",
    help="Files, or folders with all that is in them.",
)
@click.option("--print-data-log", is_flag=True, help="Show keys and values of the records too.")
@click.option("--deep-iteration", is_flag=True, help="Show each record, not only each batch.")
@click.option(
    "--verify-index-only", is_flag=True, help="Check indexes against their logs, show nothing else."
)
@click.option("--cluster-metadata-decoder", is_flag=True, help="Show records of the metadata log in words.")
@click.option("--clean-shutdown-file", "clean_files", multiple=True, metavar="FILE", help="Show such a file.")
@click.option("--max-bytes", type=click.IntRange(1), help="Stop in each segment after this many bytes.")
@output
def command(names: tuple[str, ...], clean_files: tuple[str, ...], **given: Any) -> None:
    """Show what is in segment, index, snapshot and checkpoint files; exit 1 when something in them is wrong.

    A line marks where the last checkpoint of the log dir says that flushing had got to.
    """
    paths = [Path(name.strip()) for item in names for name in item.split(",") if name.strip()]
    if not paths and not clean_files:
        raise click.UsageError("give --files FILE[,FILE] or --clean-shutdown-file FILE")
    for path in (*paths, *map(Path, clean_files)):
        if not path.exists():
            raise click.UsageError(f"{path}: no such file")
    depth = Depth(
        is_deep=given["deep_iteration"] or given["print_data_log"] or given["cluster_metadata_decoder"],
        has_data=given["print_data_log"],
        is_metadata=given["cluster_metadata_decoder"],
        max_bytes=given["max_bytes"],
    )
    is_index_only = given["verify_index_only"]
    errors: list[dict[str, Any]] = []
    for path in _expand(paths):
        if is_index_only and path.suffix not in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            continue
        errors += _show(path, rows_of(path, depth), given["output"], is_index_only)
    for name in clean_files:
        errors += _show(Path(name), clean_shutdown_rows(Path(name)), given["output"], False)
    if given["output"] == "json":
        click.echo(json.dumps({"schema": "holdfast.dump-log/1", "ok": not errors, "errors": errors}))
    sys.exit(1 if errors else 0)


def _expand(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (
                found for found in sorted(path.iterdir()) if found.is_file() and found.name != ".lock"
            )
        else:
            yield path


def _show(path: Path, rows: Iterator[LogFileRow], form: str, is_quiet: bool) -> list[dict[str, Any]]:
    """Print rows as they come; returns what was wrong."""
    errors = []
    if form == "text":
        click.echo(f"Dumping {path}")
    for row in rows:
        if row.problem is not None:
            errors.append({"code": "CORRUPT", "file": str(path), "message": row.problem, **row.fields})
        if form == "json":
            if not is_quiet:
                found = {"file": str(path), "kind": row.kind, **row.fields}
                click.echo(json.dumps(found if row.problem is None else {**found, "problem": row.problem}))
        elif row.problem is not None:
            where = " ".join(f"{name}: {value}" for name, value in row.fields.items() if name != "isvalid")
            click.echo(f"INVALID {where + ' ' if where else ''}isvalid: false ({row.problem})")
        elif not is_quiet:
            click.echo(text_of(row))
    if form == "text" and is_quiet and not errors:
        click.echo(f"{path} passed verification")
    return errors


def text_of(row: LogFileRow) -> str:
    """One line, as Kafka's tool prints it."""
    if row.kind == "text":
        return str(row.fields["text"])
    if row.kind == "segment":
        return f"Log starting offset: {row.fields['logStartingOffset']}"
    if row.kind == "boundary":
        return f"-- flushed below offset {row.fields['recoveryPoint']} (recovery point) --"
    line = " ".join(f"{name}: {_word(value)}" for name, value in row.fields.items())
    return f"| {line}" if row.kind == "record" else line


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return "null" if value is None else str(value)
