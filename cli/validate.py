"""`holdfast validate`: was anything that was acknowledged lost? Ledgers against the cluster, judged by Spark.

Exit codes: 0 all well; 4 lost; 5 any other class that must not occur; 6 inconclusive; 2 usage.
"""

import json
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.cli.extras import require
from holdfast.cli.options import (
    INT32_MAX,
    SERVERS_VARIABLE,
    checked_servers,
    read_properties,
    take_servers,
    whole_number,
)
from holdfast.cli.progress import Progress

if TYPE_CHECKING:
    from holdfast.durability.follow_query import FollowOptions
    from holdfast.durability.loss_story import RunHistory
    from holdfast.durability.micro_batches import Step
    from holdfast.durability.verdict import Verdict

#: A follower that gets one of them ends with its verdict.
_ENDS = (signal.SIGINT, signal.SIGTERM)
#: Spark does not start with less.
MEMORY_MIN_MB = 512
#: {parameter: setting of Spark under which it finds its Kafka source}
_FOUND_BY = {"packages": "spark.jars.packages", "jars": "spark.jars"}
#: Of Maven, as Spark takes them.
_COORDINATES = re.compile(r"[\w.-]+[:/][\w.-]+[:/][\w.+-]+")
#: Parameters that do not go with that source: (option, why not).
_OF_HOLDFAST = {
    "ledger": ("--ledger", "values are told apart by --foreign alone"),
    "state": ("--follow", "only Holdfast's own source is followed"),
    "log_dirs": ("--log-dirs", "only Holdfast's own files are compared"),
    "one_clock": ("--one-clock", "lines of --foreign tell no times"),
    "history": ("--history", "it tells what was done to a cluster of Holdfast's"),
}


@click.command()
@click.option("--ledger", type=click.Path(exists=True), help="Ledger file, or folder with ledger files.")
@click.option(
    "--foreign",
    type=click.Path(exists=True),
    help="The same of any Kafka client, which knows records by the SHA-256 of their values.",
)
@click.option(
    "--source",
    type=click.Choice(["holdfast", "kafka"]),
    default="holdfast",
    show_default=True,
    help="What reads the log: kafka is Spark's own Kafka source, for --foreign on any cluster that speaks "
    "Kafka's protocol.",
)
@click.option(
    "--packages",
    metavar="GROUP:NAME:VERSION[,...]",
    help="With --source kafka: Maven coordinates of that source, which Spark does not bring along.",
)
@click.option(
    "--jars", metavar="FILE[,FILE]", help="With --source kafka: the same as jars that are here already."
)
@click.option(
    "--command-config",
    is_eager=True,
    callback=take_servers,
    metavar="FILE",
    help="With --source kafka: properties of Kafka's clients (login, TLS), as Kafka's own tools take them.",
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
    "--memory",
    metavar="SIZE",
    callback=lambda context, option, value: _checked_memory(value),
    help="Heap of Spark's Java, and with spark:// of each executor, e.g. 4g or 800m; without it 2g, and what "
    "Spark gives executors. What does not fit goes to disk.",
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
    "--tables",
    type=click.Path(file_okay=False),
    help="Folder for what was judged, as Parquet: sends, final, replicas, meta, events, anomalies.",
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
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="history.jsonl of the run: stories of lost records say which faults were near.",
)
@click.option(
    "--follow",
    "state",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Follow ledgers and topics while they grow, with the rules that can be sure early, until Ctrl-C; "
    "the folder keeps where it stands, and a later run goes on there.",
)
@click.option(
    "--follow-seconds", type=click.FloatRange(min=0, min_open=True), help="End --follow after so long."
)
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False),
    help="With --follow: a file for Prometheus' text-file collector, written anew after each micro-batch.",
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
    source: str,
    packages: str | None,  # these two are looked at together, see _spark_settings
    jars: str | None,
    command_config: str | None,
    bootstrap_server: str,
    master: str,
    memory: str | None,
    log_dirs: tuple[str, ...],
    report: str | None,
    tables: str | None,
    timeout_ms: int,
    acked_min: int,
    one_clock: bool,
    history: Path | None,
    state: str | None,
    follow_seconds: float | None,
    metrics: str | None,
    output: str,
) -> None:
    """Compare ledgers with what the cluster serves: was anything lost?"""
    given = ledger or foreign
    if given is None or (ledger and foreign):
        raise click.UsageError("give --ledger or --foreign")
    spark_settings = _spark_settings(click.get_current_context().params)
    if state is None and (follow_seconds is not None or metrics is not None):
        raise click.UsageError("--follow-seconds and --metrics go with --follow")
    if state is not None and (foreign or log_dirs or report or tables or one_clock or history):
        raise click.UsageError(
            "--follow goes with --ledger alone, without --log-dirs, --report, --tables, --one-clock and "
            "--history"
        )
    for option, written in (("--follow", state), ("--metrics", metrics)):
        if written is not None and Path(written).resolve().is_relative_to(Path(given).resolve()):
            raise click.UsageError(f"{option} {written} is within the ledger: what is written is no ledger")
    folders = parse_log_dirs(log_dirs)
    _check_folders(folders, master)
    require("spark")
    if state is not None:
        from holdfast.durability.follow_query import FollowOptions

        following = FollowOptions(
            ledger=given,
            bootstrap_servers=bootstrap_server,
            state=state,
            master=master,
            memory=memory,
            seconds=follow_seconds,
            acked_min=acked_min,
            timeout_ms=timeout_ms,
        )
        _end(_followed(following, metrics), output)
    from holdfast.durability.validate import ValidateOptions, run

    options = ValidateOptions(
        ledger=given,
        is_foreign=foreign is not None,
        is_kafka=source == "kafka",
        spark_settings=spark_settings,
        kafka_properties=read_properties(command_config) if command_config else {},
        bootstrap_servers=bootstrap_server,
        log_dirs=folders,
        master=master,
        memory=memory,
        report=report,
        tables=tables,
        timeout_ms=timeout_ms,
        acked_min=acked_min,
        one_clock=one_clock,
        history=_faults(history),
    )
    with Progress() as progress:
        verdict = run(options, progress.phase, *_past(source, bootstrap_server, timeout_ms))
    _end(verdict, output)


def _faults(history: Path | None) -> "RunHistory | None":
    """Raises: click.UsageError."""
    from holdfast.cli.inspect.run_history import faults_in

    try:
        return None if history is None else faults_in(history)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--history: {error}") from error


def _past(source: str, servers: str, timeout_ms: int) -> tuple[Any, ...]:
    """Who is asked about elections and about compaction: the metadata log, where there is Holdfast's."""
    from holdfast.cli.inspect.partition_elections import PartitionElections

    if source == "kafka":
        return ()
    past = PartitionElections(servers, timeout_ms)
    return past, past.was_compacted


def _spark_settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Under which settings Spark finds its Kafka source; `given`: the command's parameters. Raises:
    click.UsageError for what does not go with the source that is named."""
    found = {option: _words(given[option]) for option in _FOUND_BY if given[option] is not None}
    settings = {_FOUND_BY[option]: ",".join(words) for option, words in found.items()}
    if given["source"] == "holdfast":
        if settings or given["command_config"]:
            raise click.UsageError("--packages, --jars and --command-config go with --source kafka")
        return {}
    for option, (name, why) in _OF_HOLDFAST.items():
        if given[option]:
            raise click.UsageError(f"{name} does not go with --source kafka: {why}")
    for package in found.get("packages", ()):
        if not _COORDINATES.fullmatch(package):
            raise click.UsageError(f"--packages: {package} is not GROUP:NAME:VERSION")
    for jar in found.get("jars", ()):
        if not re.match(r"\w+:/", jar) and not Path(jar).is_file():
            raise click.UsageError(f"--jars: {jar} is no file")
    return settings


def _words(text: str) -> list[str]:
    """What stands between commas."""
    return [word for part in text.split(",") if (word := part.strip())]


def _followed(options: "FollowOptions", metrics: str | None) -> "Verdict":
    """Follow until the time is over or a signal comes; findings go to stderr as they come. What is under
    way then is finished first, unless another signal comes."""
    from holdfast.durability.follow import run

    signals: list[int] = []

    def end(got: int, _: object) -> None:
        signals.append(got)
        signal.signal(got, signal.SIG_DFL)

    before = {number: signal.signal(number, end) for number in _ENDS}

    def on_step(step: "Step", verdict: "Verdict") -> None:
        for name, count in sorted(step.counts.items()):
            row = step.samples[name][0]
            place = f"{row['topic']}-{row['partition']} offset {row['offset']}"
            click.echo(f"{name}: {count} more, first {place}: {row['detail']}", err=True)
        facts = verdict.facts
        progress.phase(f"Following: {facts['acked']:,} acknowledged, {facts['ok']:,} seen in their place")
        if metrics is not None:
            _write_whole(Path(metrics), verdict.as_prometheus(int(time.time())) + "\n")

    try:
        with Progress() as progress:
            return run(options, on_step, lambda: bool(signals), progress.phase)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_whole(path: Path, text: str) -> None:
    """A collector that reads meanwhile sees the old text or the new one."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _end(verdict: "Verdict", output: str) -> NoReturn:
    if output == "prometheus":
        click.echo(verdict.as_prometheus(int(time.time())))
    else:
        click.echo(json.dumps(verdict.as_json()) if output == "json" else verdict.as_text())
    sys.exit(verdict.exit_code)


def _check_folders(log_dirs: Mapping[int, str], master: str) -> None:
    """Those that this machine reads have to be there. Raises: click.UsageError."""
    for folder in ",".join(log_dirs.values()).split(",") if log_dirs and master.startswith("local") else ():
        if not Path(folder).is_dir():
            raise click.UsageError(f"--log-dirs: {folder} is no folder")


def _checked_memory(text: str | None) -> str | None:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mg])", text or "")
    if text is None:
        return None
    if match is None or int(match[1]) << (10 if match[2] == "g" else 0) < MEMORY_MIN_MB:
        raise click.BadParameter(f"{text}: expected a size like 800m or 4g, at least {MEMORY_MIN_MB}m")
    return text


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
