"""Runs client processes side by side and adds up what they and the cluster used."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.bench.cluster import BenchCluster, Usage
from holdfast.bench.figures import Spread, spread


@dataclass(frozen=True, slots=True)
class Round:
    """One run: all clients together, and by node what it used meanwhile (its RSS is the peak so far)."""

    mb_s: float
    records_per_s: float
    elapsed_s: float
    client_cpu_s: float
    client_rss_mb: float
    nodes: dict[str, Usage]
    reports: list[dict[str, Any]]

    def cpu_s(self, role: str) -> float:
        """CPU seconds of all nodes of a role (`broker`, `controller`)."""
        return sum(used.cpu_s for name, used in self.nodes.items() if name.startswith(role))

    def rss_mb(self, role: str) -> float:
        """Peak RSS of the largest node of a role."""
        return max((used.rss_mb for name, used in self.nodes.items() if name.startswith(role)), default=0.0)


def run_round(cluster: BenchCluster, orders: Sequence[dict[str, Any]]) -> Round:
    """Start one process for each order, let them begin together, wait for all."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "holdfast.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in orders
    ]
    try:
        return _measured(cluster, workers, orders)
    finally:
        for worker in workers:  # one that failed, or that a signal has cut short, does not stay
            worker.kill()
            worker.communicate()


def _measured(
    cluster: BenchCluster, workers: "Sequence[subprocess.Popen[str]]", orders: Sequence[dict[str, Any]]
) -> Round:
    for worker, order in zip(workers, orders, strict=True):
        _say(worker, json.dumps({"bootstrap_servers": cluster.bootstrap_servers, **order}))
    for worker in workers:
        if _hear(worker) != "ready":
            raise RuntimeError("a client process could not get ready; its error is above")
    before = cluster.usage()
    for worker in workers:
        _say(worker, "go")
    reports = [json.loads(_hear(worker) or "null") for worker in workers]
    after = cluster.usage()
    for worker in workers:
        worker.wait()
    if None in reports:
        raise RuntimeError("a client process failed; its error is above")
    elapsed_s = max(report["elapsed_s"] for report in reports)
    return Round(
        mb_s=sum(report["bytes"] for report in reports) / elapsed_s / 1e6,
        records_per_s=sum(report["records"] for report in reports) / elapsed_s,
        elapsed_s=elapsed_s,
        client_cpu_s=sum(report["cpu_s"] for report in reports),
        client_rss_mb=max(report["rss_mb"] for report in reports),
        nodes={
            name: Usage(after[name].cpu_s - before[name].cpu_s, after[name].rss_mb)
            for name in after
            if name in before
        },
        reports=reports,
    )


def figures(rounds: Sequence[Round]) -> dict[str, Spread]:
    """What every scenario reports."""
    return {
        "mb_s": spread([r.mb_s for r in rounds]),
        "records_per_s": spread([r.records_per_s for r in rounds]),
        "client_cpu_s": spread([r.client_cpu_s for r in rounds]),
        "client_rss_mb": spread([r.client_rss_mb for r in rounds]),
        "broker_cpu_s": spread([r.cpu_s("broker") for r in rounds]),
        "broker_rss_mb": spread([r.rss_mb("broker") for r in rounds]),
        "controller_cpu_s": spread([r.cpu_s("controller") for r in rounds]),
        "controller_rss_mb": spread([r.rss_mb("controller") for r in rounds]),
    }


def _say(worker: "subprocess.Popen[str]", line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def _hear(worker: "subprocess.Popen[str]") -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()
