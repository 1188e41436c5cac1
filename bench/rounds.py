"""Runs client processes side by side and adds up what they and the cluster used."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.bench.clients import ClientProcess
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
    """Start one process for each order, let them begin together, wait for all.

    Raises: click.ClickException, a sentence, when a client or a node ends meanwhile.
    """
    clients = [ClientProcess({"bootstrap_servers": cluster.bootstrap_servers, **order}) for order in orders]
    try:
        return _measured(cluster, clients)
    finally:
        for client in clients:
            client.end()


def _measured(cluster: BenchCluster, clients: Sequence[ClientProcess]) -> Round:
    for client in clients:
        client.give_order()
    for client in clients:
        client.wait_ready()
    before = cluster.usage()
    for client in clients:
        client.begin()
    reports = [client.result() for client in clients]
    cluster.check_nodes()
    after = cluster.usage()
    for client in clients:
        client.wait_ended()
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
