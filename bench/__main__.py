"""`python -m holdfast.bench`: all benchmarks, or with `--quick` a short look at everything."""

import json
import sys
from pathlib import Path

import click

from holdfast.bench import consume, failover, produce, recovery
from holdfast.bench.cluster import own_cluster
from holdfast.bench.quick import QuickBench, Size
from holdfast.bench.report import Answer, folder_option
from holdfast.cli.options import output
from holdfast.cli.progress import Progress
from holdfast.cli.report_option import report_option

_ANY = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}
#: for tests: a second of everything
_TINY = Size(2, 1024, (0.05,), 0.5, 50, 1, (5,))


@click.command(context_settings=_ANY)
@click.option("--quick", is_flag=True, help="Everything once, in less than two minutes.")
@click.option("--tiny", is_flag=True, hidden=True)
@report_option
@folder_option("Where the clusters live")
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
        _all(folder, report_file, output, list(rest))
        return
    if rest:
        raise click.UsageError(f"--quick takes no {rest[0]}")
    _quick(_TINY if tiny else Size(), folder, report_file, output)


def _all(folder: Path | None, report_file: Path | None, output: str, rest: list[str]) -> None:
    place = [] if folder is None else ["--dir", str(folder)]
    form = (["--json"], ["--output", "json"]) if output == "json" else ([], [])
    answers: dict[str, Answer] = {}
    for name, command, words in (
        ("produce", produce.main, rest),
        ("consume", consume.main, rest),
        ("failover", failover.main, ["--way", "kill", "--times", "20"]),
        ("recovery", recovery.main, []),
    ):
        given = [*form[name == "failover"], *place, *words]
        answers[name] = command.main(given, standalone_mode=False)
        if output == "text":
            click.echo()
    if report_file is not None:
        from holdfast.bench.page import page_of_all

        report_file.write_text(page_of_all(answers), encoding="utf-8")
        click.echo(f"report: {report_file}", err=output == "json")


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
