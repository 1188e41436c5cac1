"""Consume: everything of a topic from its beginning, decoded or as raw batches; one and four processes.

Back of an envelope: a byte is read from the page cache, copied through loopback once and decoded; Python pays
about two microseconds a record for decoding, so one process ends near 400 MB/s at 1 KiB. Floor of the issue:
120 MB/s.
"""

from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import PARTITIONS, BenchCluster, bench_cluster
from holdfast.bench.figures import spread, table
from holdfast.bench.machine import Limits, describe, measure
from holdfast.bench.report import Answer, common, finish, note
from holdfast.bench.rounds import figures, run_round


@click.command()
@common
@click.option("--record-sizes", default="1024,100", show_default=True, help="Bytes of a value.")
@click.option("--consumers", default="1,4", show_default=True, help="Consumer processes.")
@click.option("--megabytes", type=click.IntRange(1), default=400, show_default=True, help="Of each run.")
@click.option("--batch-size", type=click.IntRange(1), default=256 << 10, show_default=True, help="Bytes.")
@click.option("--compression", default="none", show_default=True, help="none, gzip, lz4 or zstd.")
def main(
    bootstrap_server: str | None,
    folder: Path | None,
    runs: int,
    as_json: bool,
    record_sizes: str,
    consumers: str,
    **given: Any,
) -> Answer:
    """Throughput of reading what is there."""
    data: dict[str, Any] = {"machine": describe(), "runs": runs, "settings": given, "sizes": {}}
    with bench_cluster(bootstrap_server, folder) as cluster:
        for size in map(int, record_sizes.split(",")):
            data["sizes"][size] = _measure_size(
                cluster, runs, size, list(map(int, consumers.split(","))), given
            )
    return finish("bench-consume", data, _text(data), as_json=as_json)


def _measure_size(
    cluster: BenchCluster, runs: int, size: int, counts: list[int], given: dict[str, Any]
) -> dict[str, Any]:
    note(f"{size} B: the machine's own limits")
    total_bytes = given["megabytes"] * 1_000_000
    limits = [
        measure(
            cluster.folder,
            total_bytes=total_bytes,
            chunk_bytes=given["batch_size"],
            files=PARTITIONS,
            record_bytes=size,
        )
        for _ in range(runs)
    ]
    block: dict[str, Any] = {
        "limits": {key: spread([getattr(one, key) for one in limits]) for key in Limits.__slots__},
        "consumers": {},
    }
    topic = f"bench-consume-{size}"
    note(f"{size} B: writing {given['megabytes']} MB")
    cluster.create_topic(topic)
    order = {
        "work": "produce",
        "topic": topic,
        "record_bytes": size,
        "records": total_bytes // size,
        "linger_ms": 5,
        "batch_size_bytes": given["batch_size"],
        "compression": given["compression"],
    }
    run_round(cluster, [order])
    for count in counts:
        for raw in (False, True):
            note(f"{size} B, {count} consumers, {'raw batches' if raw else 'records'}")
            orders = [
                {
                    "work": "consume",
                    "topic": topic,
                    "raw": raw,
                    "partitions": list(range(index, PARTITIONS, count)),
                }
                for index in range(min(count, PARTITIONS))
            ]
            rounds = [run_round(cluster, orders) for _ in range(runs)]
            found: dict[str, Any] = dict(figures(rounds))
            found["share_of_echo"] = found["mb_s"].median / block["limits"]["echo_mb_s"].median
            block["consumers"][f"{count} {'raw' if raw else 'records'}"] = found
    cluster.delete_topic(topic)
    return block


def _text(data: dict[str, Any]) -> str:
    machine = data["machine"]
    rows = []
    for size, block in data["sizes"].items():
        rows.append([f"{size} B raw echo", str(block["limits"]["echo_mb_s"]), *[""] * 5])
        for name, found in block["consumers"].items():
            rows.append(
                [
                    f"{size} B, {name}",
                    str(found["mb_s"]),
                    f"{found['records_per_s'].median:,.0f}",
                    f"{found['share_of_echo']:.2f}",
                    f"{found['client_cpu_s'].median:.2f} / {found['broker_cpu_s'].median:.2f}",
                    f"{found['client_rss_mb'].high:.0f}",
                    f"{found['broker_rss_mb'].high:.0f}",
                ]
            )
    heads = (
        "CONSUME",
        "MB/s",
        "records/s",
        "of echo",
        "CPU s clients/brokers",
        "client RSS MB",
        "broker RSS MB",
    )
    head = (
        f"{machine['cpus']} x {machine['cpu_model']}, {machine['system']}, Python {machine['python']}, "
        f"load {machine['load_average']:.1f}; median (lowest to highest) of {data['runs']} runs"
    )
    return f"{head}\n\n{table(heads, rows)}"


if __name__ == "__main__":
    main()
