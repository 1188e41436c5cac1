"""Produce: RF 3, acks=all, min ISR 2, page-cache flush; 1 KiB and 100 B records, one and four processes.

Back of an envelope: each byte is copied by loopback three times (producer to leader, leader to two followers)
and appended three times, so on two cores that move 2 GB/s each about 300 MB/s is the ceiling. A record that
travels alone needs two round trips one after the other (produce, the follower's fetch): twice the raw echo
and the work of three Python processes. Floors of the issue: 60 MB/s at 1 KiB with one producer; one at a
time p50 1.5 ms, p99 5 ms; brokers below 150 MB.
"""

from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import PARTITIONS, BenchCluster, bench_cluster
from holdfast.bench.figures import Latency, Spread, corrected, latency, latency_spreads, spread, table
from holdfast.bench.machine import Limits, describe, measure
from holdfast.bench.report import Answer, common, finish, note
from holdfast.bench.rounds import Round, figures, run_round

#: Share of the fastest rate at which latency under load is taken.
PACED_SHARE = 0.3
PACED_SECONDS = 3.0


@click.command()
@common
@click.option("--record-sizes", default="1024,100", show_default=True, help="Bytes of a value.")
@click.option("--producers", default="1,4", show_default=True, help="Producer processes.")
@click.option("--megabytes", type=click.IntRange(1), default=200, show_default=True, help="Of each run.")
@click.option("--linger-ms", type=click.IntRange(0), default=5, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=256 << 10, show_default=True, help="Bytes.")
@click.option("--compression", default="none", show_default=True, help="none, gzip, lz4 or zstd.")
@click.option("--one-by-one", type=click.IntRange(0), default=3_000, show_default=True, help="Records a run.")
def main(
    bootstrap_server: str | None,
    folder: Path | None,
    runs: int,
    as_json: bool,
    record_sizes: str,
    producers: str,
    one_by_one: int,
    **given: Any,
) -> Answer:
    """Throughput, latency under load, and one record at a time."""
    with bench_cluster(bootstrap_server, folder) as cluster:
        bench = _Bench(cluster, runs, given)
        for size in map(int, record_sizes.split(",")):
            bench.take_limits(size)
            for count in map(int, producers.split(",")):
                bench.throughput(size, count)
            if one_by_one:
                bench.one_by_one(size, one_by_one)
    return finish("bench-produce", bench.data, bench.text(), as_json=as_json)


class _Bench:
    """All scenarios of one call."""

    def __init__(self, cluster: BenchCluster, runs: int, given: dict[str, Any]) -> None:
        self._cluster = cluster
        self._runs = runs
        self._given = given
        self._topics = 0
        self.data: dict[str, Any] = {"machine": describe(), "runs": runs, "settings": given, "sizes": {}}

    def take_limits(self, size: int) -> None:
        """The machine's own limits, as often as everything else."""
        note(f"{size} B: the machine's own limits")
        found: list[Limits] = []
        for _ in range(self._runs):
            limits = measure(
                self._cluster.folder,
                total_bytes=self._given["megabytes"] * 1_000_000,
                chunk_bytes=self._given["batch_size"],
                files=PARTITIONS,
                record_bytes=size,
            )
            found.append(limits)
        self.data["sizes"][size] = {
            "limits": {key: spread([getattr(limits, key) for limits in found]) for key in Limits.__slots__},
            "throughput": {},
        }

    def _order(self, work: str, size: int, **more: Any) -> dict[str, Any]:
        return {
            "work": work,
            "record_bytes": size,
            "linger_ms": self._given["linger_ms"],
            "batch_size_bytes": self._given["batch_size"],
            "compression": self._given["compression"],
            **more,
        }

    def _round(self, order: dict[str, Any], count: int) -> Round:
        # A topic for each run: its disk space is given back at once.
        self._topics += 1
        topic = f"bench-{self._topics}"
        self._cluster.create_topic(topic)
        try:
            return run_round(self._cluster, [{**order, "topic": topic}] * count)
        finally:
            self._cluster.delete_topic(topic)

    def throughput(self, size: int, count: int) -> None:
        """As fast as possible, then latency at a part of that rate."""
        note(f"{size} B, {count} producers")
        records = self._given["megabytes"] * 1_000_000 // size // count
        order = self._order("produce", size, records=records)
        self._round({**order, "records": records // 10}, count)  # warm: files, connections, pages
        rounds = [self._round(order, count) for _ in range(self._runs)]
        found: dict[str, Any] = dict(figures(rounds))
        rate = found["records_per_s"].median * PACED_SHARE / count
        paced_order = self._order(
            "paced", size, records=max(1, int(rate * PACED_SECONDS)), records_per_s=rate
        )
        paced: list[Latency] = []
        for _ in range(self._runs):
            reports = self._round(paced_order, count).reports
            # Percentiles do not add up; the slowest process speaks for all.
            paced.append(max((Latency(*report["latency"]) for report in reports), key=lambda x: x.p99_ms))
        found["paced_mb_s"] = rate * count * size / 1e6
        found["paced_latency"] = latency_spreads(paced)
        limits = self.data["sizes"][size]["limits"]
        found["share_of_append"] = found["mb_s"].median / limits["append_mb_s"].median
        found["share_of_echo"] = found["mb_s"].median / limits["echo_mb_s"].median
        self.data["sizes"][size]["throughput"][count] = found

    def one_by_one(self, size: int, records: int) -> None:
        """linger 0, the next record after the acknowledgement of the last."""
        note(f"{size} B, one record at a time")
        plain, full = [], []
        for _ in range(self._runs):
            (report,) = self._round(self._order("one_by_one", size, records=records), 1).reports
            samples_ms = report["samples_ms"]
            plain.append(latency(samples_ms))
            full.append(latency(corrected(samples_ms, plain[-1].p50_ms)))
        echo: Spread = self.data["sizes"][size]["limits"]["echo_p50_ms"]
        found = {"latency": latency_spreads(plain), "corrected": latency_spreads(full)}
        self.data["sizes"][size]["one_by_one"] = {
            **found,
            "times_the_echo": found["latency"]["p50_ms"].median / echo.median,
        }

    # --- printing -------------------------------------------------------------------------------------

    def text(self) -> str:
        """Tables for people."""
        machine = self.data["machine"]
        parts = [
            f"{machine['cpus']} x {machine['cpu_model']}, {machine['system']}, Python {machine['python']}, "
            f"load {machine['load_average']:.1f}; median (lowest to highest) of {self._runs} runs",
            self._throughput_table(),
            self._latency_table(),
        ]
        return "\n\n".join(parts)

    def _throughput_table(self) -> str:
        rows = []
        for size, block in self.data["sizes"].items():
            limits = block["limits"]
            rows.append([f"{size} B raw append x3", str(limits["append_mb_s"]), *[""] * 6])
            rows.append([f"{size} B raw echo", str(limits["echo_mb_s"]), *[""] * 6])
            for count, found in block["throughput"].items():
                rows.append(
                    [
                        f"{size} B, {count} producer{'s' if count > 1 else ''}",
                        str(found["mb_s"]),
                        f"{found['records_per_s'].median:,.0f}",
                        f"{found['share_of_append']:.2f}",
                        f"{found['share_of_echo']:.2f}",
                        f"{found['client_cpu_s'].median:.2f} / {found['broker_cpu_s'].median:.2f}",
                        f"{found['client_rss_mb'].high:.0f}",
                        f"{found['broker_rss_mb'].high:.0f} / {found['controller_rss_mb'].high:.0f}",
                    ]
                )
        heads = (
            "PRODUCE",
            "MB/s",
            "records/s",
            "of append",
            "of echo",
            "CPU s client/brokers",
            "client RSS MB",
        )
        return table((*heads, "broker/controller RSS MB"), rows)

    def _latency_table(self) -> str:
        rows = []
        for size, block in self.data["sizes"].items():
            echo = block["limits"]
            rows.append(
                [f"{size} B raw echo", str(echo["echo_p50_ms"]), "", str(echo["echo_p99_ms"]), "", ""]
            )
            if "one_by_one" in block:
                one = block["one_by_one"]
                rows.append([f"{size} B one at a time", *_percentiles(one["latency"])])
                rows.append(["  corrected for omission", *_percentiles(one["corrected"])])
            for count, found in block["throughput"].items():
                name = f"{size} B, {count} at {found['paced_mb_s']:.0f} MB/s"
                rows.append([name, *_percentiles(found["paced_latency"])])
        return table(("LATENCY ms", "p50", "p90", "p99", "p99.9", "max"), rows)


def _percentiles(found: dict[str, Spread]) -> list[str]:
    return [str(found[key]) for key in ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")]


if __name__ == "__main__":
    main()
