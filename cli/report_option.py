"""`--report FILE.html`: a page of what happened, of all commands that can make one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.extras import require

F = TypeVar("F", bound=Callable[..., Any])


def report_option(function: F) -> F:
    """`--report FILE`, for commands that play with a cluster."""
    return click.option(
        "--report",
        "report_file",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_checked,
        help="Write what happened as one HTML page that opens without a network.",
    )(function)


def _checked(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    """It must be possible to write it, before the run begins and not after it."""
    if file is None:
        return None
    require("report")
    if not file.absolute().parent.is_dir():
        raise click.BadParameter(f"{file.absolute().parent} is no folder")
    return file
