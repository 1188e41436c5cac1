"""Options that all benchmarks share, and how they print: text for people, one JSON object with `--json`."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from holdfast.cli.progress import is_shown

F = TypeVar("F", bound=Callable[..., Any])


def folder_option(what: str) -> Callable[[F], F]:
    """`--dir`; `what` says what lives there."""
    return click.option(
        "--dir",
        "folder",
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        help=f"{what}; the system's temporary folder by default.",
    )


def common(function: F) -> F:
    """`--bootstrap-server`, `--dir`, `--runs`, `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of tables."),
        click.option(
            "--runs", type=click.IntRange(1), default=5, show_default=True, help="Runs of each scenario."
        ),
        folder_option("Where the cluster and the raw files live"),
        click.option(
            "--bootstrap-server",
            metavar="HOST:PORT[,HOST:PORT]",
            help="Use this cluster; without it three brokers and three controllers are started.",
        ),
    ):
        function = option(function)
    return function


def note(text: str) -> None:
    """Progress: a line on stderr, when there is a terminal that a person looks at."""
    if is_shown():
        click.echo(text, err=True)


class Answer(NamedTuple):
    """What a benchmark found: with plain values only, and as it is printed for people."""

    data: dict[str, Any]
    text: str


def finish(command: str, data: dict[str, Any], text: str, *, as_json: bool) -> Answer:
    """Print the answer, and hand it to a caller that makes a page of several."""
    plain = json.loads(json.dumps(data, default=_plain))
    if as_json:
        json.dump({"schema": f"holdfast.{command}/1", "ok": True, "data": plain, "errors": []}, sys.stdout)
        click.echo()
    else:
        click.echo(text)
    return Answer(plain, text)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot print {type(value).__name__}")
