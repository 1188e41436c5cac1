"""`python -m holdfast.bench`: all benchmarks, or with `--quick` a short look at everything."""

import json
import sys
from pathlib import Path

import click

from holdfast.bench import consume, failover, produce, recovery
from holdfast.bench.cluster import own_cluster
from holdfast.bench.quick import QuickBench, Size
from holdfast.cli.extras import require
from holdfast.cli.options import output
from holdfast.cli.progress import Progress

_ANY = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
#: for tests: a second of everything
_TINY = Size(2, 1024, (0.05,), 0.5, 50, 1, (5,))


@click.command(context_settings=_ANY)
@click.option("--quick", is_flag=True, help="Everything once, in less than two minutes.")
@click.option("--tiny", is_flag=True, hidden=True)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="--quick: write a page with pictures (extra `report`).",
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@output
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def main(
    quick: bool,
    tiny: bool,
    report_file: Path | None,
    folder: Path | None,
    output: str,
    rest: tuple[str, ...],
) -> None:
    """Measure next to the machine's own limits. Without --quick: produce, consume, failover and recovery,
    each with several runs; further options go to the first two."""
    if not quick and not tiny:
        if report_file is not None:
            raise click.UsageError("--report belongs to --quick")
        _all(folder, output, list(rest))
        return
    if rest:
        raise click.UsageError(f"--quick takes no {rest[0]}")
    if report_file is not None:
        require("report")
        if not report_file.absolute().parent.is_dir():
            raise click.UsageError(f"--report {report_file}: {report_file.parent} is no folder")
    _quick(_TINY if tiny else Size(), folder, report_file, output)


def _all(folder: Path | None, output: str, rest: list[str]) -> None:
    common = [
        *(["--dir", str(folder)] if folder is not None else []),
        *(["--json"] if output == "json" else []),
    ]
    for command, words in (
        (produce.main, rest),
        (consume.main, rest),
        (failover.main, []),
        (recovery.main, []),
    ):
        command.main([*common, *words], standalone_mode=False)


def _quick(size: Size, folder: Path | None, report_file: Path | None, output: str) -> None:
    results: list[tuple[str, str]] = []

    def say(name: str, text: str) -> None:
        results.append((name, text))
        if output == "text":
            click.echo(f"{name + ':':<28}{text}")

    with Progress() as progress, own_cluster(folder) as cluster:
        bench = QuickBench(cluster, size, say, progress)
        bench.run()
    if report_file is not None:
        from holdfast.bench.page import page

        report_file.write_text(page(bench.data, results), encoding="utf-8")
    if output == "json":
        body = {"schema": "holdfast.bench-quick/1", "ok": True, "data": bench.data, "errors": []}
        json.dump(body, sys.stdout)
        click.echo()
    else:
        click.echo(f"{bench.data['seconds']:.0f} s in all; one run of each, so take the figures for hints")
        if report_file is not None:
            click.echo(f"report: {report_file}")


if __name__ == "__main__":
    main()
