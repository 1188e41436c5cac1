"""Validate: the verdict over a ledger of N sends, beside reading the same topic alone in the same session;
and the verdict on few sends in a session that is warm.

Back of an envelope: the verdict reads the topic as the bare source does, two ledger lines a record beside it,
and adds both up. The floor: half of the source's own rate at a million sends, and two seconds for few.
What a new session does first is slow in Spark and said beside the runs that count: each is run once before
them. Of source and verdict the one that was second in a run is first in the next. On a machine that does
something else their CPU seconds, of Spark and of this process, tell more than their rates.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import BenchCluster, bench_cluster
from holdfast.bench.figures import spread, table
from holdfast.bench.machine import describe
from holdfast.bench.report import common, finish, note
from holdfast.cli.extras import require

PRODUCERS = 2
#: Of so many sends ledgers of both formats are judged.
BOTH_FORMATS = 1_000_000
VALUE_BYTES = 100
FEW_PARTITIONS = 3
#: --quick: sends, few sends, and runs of each.
QUICK = ("100000", "600", 2)
#: Of the answers, one of so many is missing in a ledger that is looked at closely.
LACKING = 50
#: Within so many seconds brokers have written down their high watermarks, below which replicas are compared.
CHECKPOINT_S = 6.0


@click.command()
@common
@click.option(
    "--records",
    default="1000000,10000000",
    show_default=True,
    help="Sends of each run, in all; e.g. 100000000.",
)
@click.option(
    "--ledger-format",
    "formats",
    type=click.Choice(("json", "arrow")),
    multiple=True,
    help=f"Of the ledgers; by default both of {BOTH_FORMATS:,} sends, and lines of more or fewer.",
)
@click.option(
    "--few",
    default="600,10000",
    show_default=True,
    help="Sends of each verdict on few, replicas included where the cluster is a local one.",
)
@click.option(
    "--quick",
    is_flag=True,
    help=f"A look: {int(QUICK[0]):,} sends, {QUICK[1]} of few, {QUICK[2]} runs of each.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="The cost of a record by phase, drawn (extra `report`).",
)
def main(
    bootstrap_server: str | None,
    folder: Path | None,
    runs: int,
    as_json: bool,
    records: str,
    formats: tuple[str, ...],
    few: str,
    quick: bool,
    report_file: Path | None,
) -> None:
    """Records per second of a verdict and of the bare source; seconds of verdicts on few sends."""
    require("spark")
    require("bench")
    if quick:
        records, few, runs = QUICK
    if report_file is not None:
        require("report")
    data: dict[str, Any] = {"machine": describe(), "runs": runs, "few": {}, "records": []}
    with bench_cluster(bootstrap_server, folder) as cluster:
        if counts := [*map(int, filter(None, few.split(",")))]:
            data["few"] = _measure_few(cluster, runs, counts)
        for count in map(int, filter(None, records.split(","))):
            for ledger_format in formats or (("json", "arrow") if count == BOTH_FORMATS else ("json",)):
                data["records"].append(_measure(cluster, runs, count, ledger_format))
    if report_file is not None:
        report_file.write_text(_page(data), encoding="utf-8")
    finish("bench-validate", data, _text(data), as_json=as_json)


def _measure(cluster: BenchCluster, runs: int, count: int, ledger_format: str) -> dict[str, Any]:
    topic = f"bench-validate-{count}-{ledger_format}"
    ledger = cluster.folder / f"ledger-{count}-{ledger_format}"
    cluster.create_topic(topic)
    note(f"{count:,} records, {ledger_format} ledger: writing")
    _write(cluster, topic, count, ledger, ledger_format)
    from holdfast.durability.ledger_files import ledger_files, text_bytes
    from holdfast.durability.ledger_source import sizes_of
    from holdfast.durability.session import start_session, stop_session
    from holdfast.durability.validate import SHORT_JOB_BYTES

    ledger_bytes = sum(path.stat().st_size for path in ledger.iterdir())
    start = time.monotonic()
    is_short = text_bytes(sizes_of(ledger_files(str(ledger)))) < SHORT_JOB_BYTES
    spark = start_session("local[*]", "bench validate", is_short=is_short)
    spark_start_s = time.monotonic() - start
    found: list[dict[str, Any]] = []
    try:
        for number in range(1 + runs):
            note(
                f"{count:,} records, {ledger_format} ledger: "
                + (f"run {number} of {runs}" if number else "first")
            )
            found.append(_run(spark, cluster, topic, ledger, count, is_source_first=number % 2 == 0))
    finally:
        stop_session(spark)
        cluster.delete_topic(topic)
        shutil.rmtree(ledger)  # of a hundred million sends it is larger than the topic
    first, *later = found
    return {
        "count": count,
        "ledger_format": ledger_format,
        "ledger_bytes": ledger_bytes,
        "spark_start_s": spark_start_s,
        "first": first,
        "seconds": {name: spread([one[name] for one in later]) for name in first},
        "source_records_s": spread([count / one["source_s"] for one in later]),
        "verdict_records_s": spread([count / one["verdict_s"] for one in later]),
        "share": spread([one["source_s"] / one["verdict_s"] for one in later]),
        "cpu_share": spread([one["source_cpu_s"] / one["verdict_cpu_s"] for one in later]),
    }


def _run(
    spark: Any, cluster: BenchCluster, topic: str, ledger: Path, count: int, *, is_source_first: bool
) -> dict[str, float]:
    """Seconds, and CPU seconds, of one read of the source and of one verdict; and of its phases."""
    from holdfast.durability.validate import ValidateOptions, validate

    phases: dict[str, float] = {}

    def source() -> None:
        _read_source(spark, cluster.bootstrap_servers, topic)

    def verdict() -> None:
        found = validate(spark, ValidateOptions(str(ledger), cluster.bootstrap_servers))
        if found.exit_code != 0 or found.facts["acked"] != count:
            raise click.ClickException(found.as_text())
        phases.update(found.seconds)

    seconds: dict[str, float] = {}
    works = {"source": source, "verdict": verdict}
    for name in works if is_source_first else reversed(works):
        start, cpu_s = time.monotonic(), _cpu_s(spark)
        works[name]()
        seconds |= {f"{name}_s": time.monotonic() - start, f"{name}_cpu_s": _cpu_s(spark) - cpu_s}
        spark.catalog.clearCache()
    return {**seconds, **phases, "rest": max(0.0, seconds["verdict_s"] - sum(phases.values()))}


def _cpu_s(spark: Any) -> float:
    """CPU seconds so far of this process, of Java, and of Python workers, also of those that have ended."""
    import psutil

    java = psutil.Process(spark.sparkContext._gateway.proc.pid)
    own = psutil.Process().cpu_times()
    total = own.user + own.system
    for process in [java, *java.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return float(total)


def _measure_few(cluster: BenchCluster, runs: int, counts: Sequence[int]) -> dict[str, Any]:
    """Seconds of verdicts on few sends: of the first in a session that has judged others, and of later ones;
    of a whole ledger, and of one that lacks answers, so that each send is looked at."""
    from holdfast.durability.session import start_session, stop_session

    local = cluster.local
    brokers = local.brokers if local is not None else ()
    log_dirs = {n.node_id: ",".join(map(str, local.log_dirs(n))) for n in brokers if local is not None}
    ledgers: dict[int, list[Path]] = {}
    for count in counts:
        topic, whole = f"bench-validate-few-{count}", cluster.folder / f"ledger-few-{count}"
        cluster.create_topic(topic, FEW_PARTITIONS)
        note(f"{count:,} records: writing")
        _write(cluster, topic, count, whole)
        ledgers[count] = [whole, _without_answers(whole)]
    time.sleep(CHECKPOINT_S)
    start = time.monotonic()
    spark = start_session("local[*]", "bench validate", is_short=True)
    spark_start_s = time.monotonic() - start
    try:
        sends = {
            count: {
                kind: _verdict_seconds(spark, cluster, ledger, log_dirs, runs)
                for kind, ledger in zip(("whole", "lacking"), kinds, strict=True)
            }
            for count, kinds in ledgers.items()
        }
    finally:
        stop_session(spark)
    for count in counts:
        cluster.delete_topic(f"bench-validate-few-{count}")
    return {"spark_start_s": spark_start_s, "with_replicas": bool(log_dirs), "sends": sends}


def _verdict_seconds(
    spark: Any, cluster: BenchCluster, ledger: Path, log_dirs: Mapping[int, str], runs: int
) -> dict[str, Any]:
    from holdfast.durability.validate import ValidateOptions, validate

    seconds = []
    for _ in range(1 + runs):
        start = time.monotonic()
        verdict = validate(spark, ValidateOptions(str(ledger), cluster.bootstrap_servers, log_dirs))
        seconds.append(time.monotonic() - start)
        spark.catalog.clearCache()
        if verdict.exit_code != 0:
            raise click.ClickException(verdict.as_text())
    return {"first_s": seconds[0], "later_s": spread(seconds[1:])}


def _without_answers(ledger: Path) -> Path:
    """A copy of a ledger in which every 50th answer is missing."""
    made = ledger.with_name(f"{ledger.name}-lacking")
    made.mkdir()
    for path in ledger.iterdir():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        answers = [number for number, line in enumerate(lines) if line.startswith('{"kind":"complete"')]
        gone = set(answers[::LACKING])
        kept = [line for number, line in enumerate(lines) if number not in gone]
        (made / path.name).write_text("".join(kept), encoding="utf-8")
    return made


def _write(cluster: BenchCluster, topic: str, count: int, ledger: Path, ledger_format: str = "json") -> None:
    """Processes that write the records, each with its ledger."""
    writers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast.cli", "verifiable-producer", "--quiet"),
                *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
                *("--max-messages", str(count // PRODUCERS), "--value-size", str(VALUE_BYTES)),
                *("--ledger", str(ledger), "--ledger-format", ledger_format),
                *("--producer-name", f"p{number}"),
            ],
            stdout=subprocess.DEVNULL,
        )
        for number in range(PRODUCERS)
    ]
    codes = [writer.wait() for writer in writers]
    if any(codes):
        raise click.ClickException("a producer failed; the topic is not what the ledger says")


def _read_source(spark: Any, servers: str, topic: str) -> None:
    """All columns that the topic has without further options, and nothing done with them."""
    read = spark.read.format("holdfast").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    split = read.option("minPartitions", str(spark.sparkContext.defaultParallelism)).load()
    split.write.format("noop").mode("overwrite").save()


def _text(data: dict[str, Any]) -> str:
    machine = data["machine"]
    rows = [
        [
            f"{found['count']:,}",
            found["ledger_format"],
            f"{found['source_records_s'].median:,.0f}",
            f"{found['verdict_records_s'].median:,.0f}",
            str(found["share"]),
            str(found["cpu_share"]),
            *(str(found["seconds"].get(phase, "")) for phase in ("ledger", "offsets", "compare")),
            f"{found['first']['source_s']:.1f}, {found['first']['verdict_s']:.1f}",
        ]
        for found in data["records"]
    ]
    heads = (
        *(
            "SENDS",
            "ledger",
            "source/s",
            "verdict/s",
            "share",
            "CPU share",
            "ledger s",
            "offsets s",
            "compare s",
        ),
        "first source s, verdict s",
    )
    head = (
        f"{machine['cpus']} x {machine['cpu_model']}, {machine['system']}, Python {machine['python']}, "
        f"load {machine['load_average']:.1f}; median (lowest to highest) of {data['runs']} runs"
    )
    starts = [one["spark_start_s"] for one in (data["few"], *data["records"]) if one]
    parts = [
        head,
        table(heads, rows) if rows else "",
        _few_text(data["few"]) if data["few"] else "",
        f"a start of Spark, in none of these: {', '.join(f'{start:.1f} s' for start in starts)}",
    ]
    return "\n\n".join(filter(None, parts))


def _few_text(found: dict[str, Any]) -> str:
    rows = [
        [f"{count:,}", kind, f"{seen['first_s']:.2f}", str(seen["later_s"])]
        for count, kinds in found["sends"].items()
        for kind, seen in kinds.items()
    ]
    replicas = "replicas compared" if found["with_replicas"] else "without replicas"
    return f"few sends, {replicas}\n\n{table(('SENDS', 'ledger', 'first s', 'later s'), rows)}"


def _page(data: dict[str, Any]) -> str:
    """Microseconds a record: the source alone, and the phases of the verdict on top of each other."""
    from plotly import graph_objects as go

    made = go.Figure()
    names = [f"{one['count']:,} {one['ledger_format']}" for one in data["records"]]
    for name in ("source_s", "ledger", "offsets", "compare", "rest"):
        costs = [1e6 * one["seconds"][name].median / one["count"] for one in data["records"]]
        is_source = name == "source_s"
        made.add_bar(
            x=names,
            y=costs,
            name="source alone" if is_source else name,
            offsetgroup="source" if is_source else "verdict",
        )
    made.update_layout(barmode="stack", yaxis_title="µs a record", xaxis_title="sends")
    text: str = made.to_html(include_plotlyjs=True)
    return text


if __name__ == "__main__":
    main()
