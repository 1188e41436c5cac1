"""`holdfast validate`: was anything that was acknowledged lost? Ledgers against the cluster, judged by Spark.

Exit codes: 0 all well; 4 lost; 5 any other class that must not occur; 6 inconclusive; 2 usage.
"""

import json
import sys
import time
from pathlib import Path

import click

from holdfast.cli.extras import require
from holdfast.cli.options import INT32_MAX, SERVERS_VARIABLE, checked_servers, whole_number
from holdfast.cli.progress import Progress


@click.command()
@click.option("--ledger", type=click.Path(exists=True), help="Ledger file, or folder with ledger files.")
@click.option(
    "--foreign",
    type=click.Path(exists=True),
    help="The same of any Kafka client, which knows records by the SHA-256 of their values.",
)
@click.option(
    "--bootstrap-server",
    "bootstrap_server",
    required=True,
    envvar=SERVERS_VARIABLE,
    show_envvar=True,
    callback=checked_servers,
    metavar="HOST:PORT[,HOST:PORT]",
    help="Brokers whose log is read.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark master; workers of spark://host:7077 need this environment and the ledger at the same path.",
)
@click.option(
    "--log-dirs",
    "log_dirs",
    multiple=True,
    metavar="ID=DIR[,DIR]",
    help="Log dirs of a broker, to compare replicas byte for byte; once for each broker.",
)
@click.option(
    "--report",
    type=click.Path(file_okay=False),
    help="Folder for verdict.json, verdict.txt and all violations as Parquet.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, INT32_MAX),
    default=60_000,
    show_default=True,
    help="Longest read without progress.",
)
@click.option(
    "--min-acked",
    "acked_min",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Fewer sends acknowledged with acks=all are inconclusive.",
)
@click.option(
    "--one-clock",
    is_flag=True,
    help="All producers ran on one machine that was not started again: compare their times, too.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "json", "prometheus"]),
    default="text",
    show_default=True,
    help="Form of the answer; prometheus is for the text-file collector.",
)
def command(
    ledger: str | None,
    foreign: str | None,
    bootstrap_server: str,
    master: str,
    log_dirs: tuple[str, ...],
    report: str | None,
    timeout_ms: int,
    acked_min: int,
    one_clock: bool,
    output: str,
) -> None:
    """Compare ledgers with what the cluster serves: was anything lost?"""
    given = ledger or foreign
    if given is None or (ledger and foreign):
        raise click.UsageError("give --ledger or --foreign")
    folders = parse_log_dirs(log_dirs)
    for folder in ",".join(folders.values()).split(",") if folders and master.startswith("local") else ():
        if not Path(folder).is_dir():
            raise click.UsageError(f"--log-dirs: {folder} is no folder")
    require("spark")
    from holdfast.cli.inspect.partition_elections import PartitionElections
    from holdfast.durability.validate import ValidateOptions, run

    options = ValidateOptions(
        ledger=given,
        is_foreign=foreign is not None,
        bootstrap_servers=bootstrap_server,
        log_dirs=folders,
        master=master,
        report=report,
        timeout_ms=timeout_ms,
        acked_min=acked_min,
        one_clock=one_clock,
    )
    with Progress() as progress:
        verdict = run(options, progress.phase, PartitionElections(bootstrap_server, timeout_ms))
    if output == "prometheus":
        click.echo(verdict.as_prometheus(int(time.time())))
    else:
        click.echo(json.dumps(verdict.as_json()) if output == "json" else verdict.as_text())
    sys.exit(verdict.exit_code)


def parse_log_dirs(items: tuple[str, ...]) -> dict[int, str]:
    """`("1=/a", "2=/b,/c")` as {broker id: dirs separated by commas}. Raises: click.UsageError."""
    found: dict[int, str] = {}
    for item in items:
        broker, equals, folders = item.removeprefix("replica:").partition("=")
        broker_id = whole_number(broker, INT32_MAX)
        if not equals or broker_id is None or not folders:
            raise click.UsageError(f"--log-dirs {item}: expected ID=DIR[,DIR]")
        if broker_id in found:
            raise click.UsageError(
                f"--log-dirs {item}: broker {broker} is named twice; separate its dirs by commas"
            )
        found[broker_id] = folders
    return found
