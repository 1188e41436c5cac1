"""`holdfast cluster up|down|status`: a cluster on this machine, without containers."""

import shutil
from pathlib import Path
from typing import Any, NoReturn

import click

from cli.local_cluster import LocalCluster
from cli.nodes import ClusterError
from cli.options import Answer, output, pairs, run_client

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where the cluster lives.",
)


@click.group()
def cluster() -> None:
    """Run a whole cluster as local processes."""


@cluster.command()
@folder_option
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--controllers", type=click.Choice(["1", "3", "5"]), default="3", show_default=True)
@click.option(
    "--base-port", type=click.IntRange(1024, 65_000), help="Consecutive ports from here; else any free ones."
)
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE", help="Put into every server.properties."
)
@click.option("--timeout-ms", type=click.IntRange(1), default=60_000, show_default=True)
@output
def up(
    folder: Path,
    brokers: int,
    controllers: str,
    base_port: int | None,
    properties: tuple[str, ...],
    timeout_ms: int,
    output: str,
) -> None:
    """Start a cluster, or resume the one in --dir; returns when every node is ready."""
    folder = folder.absolute()
    try:
        if (folder / "cluster.json").exists():
            made = LocalCluster.load(folder)
            if properties or base_port:
                click.echo(
                    f"warning: {folder} holds a cluster already; --property and --base-port have no effect",
                    err=True,
                )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            made = LocalCluster.create(
                folder,
                brokers,
                int(controllers),
                base_port=base_port,
                properties=pairs(properties, "--property"),
            )
        made.up(timeout_ms / 1000)
    except ClusterError as error:
        _fail("cluster-up", output, error)
    sizes = f"{len(made.brokers)} brokers, {len(made.controllers)} controllers"
    text = f"up: {sizes}\nbootstrap servers: {made.bootstrap_servers}"
    Answer("cluster-up", {"bootstrap_servers": made.bootstrap_servers}).finish(output, text)


@cluster.command()
@folder_option
@click.option("--delete", is_flag=True, help="Delete the folder afterwards, with all data.")
@click.option("--timeout-ms", type=click.IntRange(1), default=60_000, show_default=True)
@output
def down(folder: Path, delete: bool, timeout_ms: int, output: str) -> None:
    """Stop all nodes cleanly: controlled shutdown, flush, clean-shutdown file."""
    try:
        made = LocalCluster.load(folder.absolute())
        made.down(timeout_ms / 1000)
    except ClusterError as error:
        _fail("cluster-down", output, error)
    if delete:
        shutil.rmtree(made.folder)
    Answer("cluster-down", {}).finish(output, "down")


@cluster.command()
@folder_option
@output
def status(folder: Path, output: str) -> None:
    """Show every process and, when the cluster answers, its registrations and the active controller."""
    try:
        made = LocalCluster.load(folder.absolute())
    except ClusterError as error:
        _fail("cluster-status", output, error)
    seen, problem = _registrations(made)
    rows = [_row(made, node.name, seen) for node in made.nodes]
    answer = Answer("cluster-status", {"nodes": rows, "bootstrap_servers": made.bootstrap_servers})
    if problem:
        answer.errors.append({"code": "CLUSTER_NOT_AVAILABLE", "message": problem})
    elif any(row["process"] != "running" for row in rows):
        answer.errors.append(
            {"code": "NODE_DOWN", "message": "start what is missing with `holdfast cluster up`"}
        )
    answer.finish(output, _table(rows))


def _row(made: LocalCluster, name: str, seen: dict[int, dict[str, Any]]) -> dict[str, Any]:
    node = made.node(name)
    pid = made.pid(node)
    row: dict[str, Any] = {"node": name, "pid": pid, "port": node.port, "http_port": node.http_port}
    row["process"] = "running" if pid is not None else "down"
    row["ready"] = pid is not None and made.is_ready(node)
    row.update(seen.get(node.node_id, {}))
    return row


def _registrations(made: LocalCluster) -> tuple[dict[int, dict[str, Any]], str]:
    """What the cluster says of its nodes, by id, or why it does not answer."""
    from client.admin import Admin
    from client.errors import ClientError
    from runtime.api import NetworkError, Runtime

    seen: dict[int, dict[str, Any]] = {}
    problem = ""

    async def ask(runtime: Runtime) -> int:
        nonlocal problem
        admin = Admin(runtime, made.bootstrap_servers)
        try:
            found = await admin.describe_cluster(timeout_ms=5_000)
        except (ClientError, NetworkError) as error:
            problem = f"no broker answers: {error}"
            return 1
        finally:
            admin.close()
        for broker in found.brokers:
            seen[broker.broker_id] = {
                "state": "fenced"
                if broker.is_fenced
                else "stopping"
                if broker.in_controlled_shutdown
                else "online",
                "registered": "clean" if broker.clean_shutdown else "unclean",
                "broker_epoch": broker.broker_epoch,
            }
        seen[found.controller_id] = {"state": "active controller", "raft_epoch": found.controller_epoch}
        return 0

    if any(made.pid(node) is not None for node in made.brokers):
        run_client(ask)
    else:
        problem = "no broker is running"
    return seen, problem


def _table(rows: list[dict[str, Any]]) -> str:
    heads = ("NODE", "PROCESS", "PID", "PORT", "HTTP", "READY", "STATE", "REGISTERED", "EPOCH")
    cells = [
        (
            row["node"],
            row["process"],
            str(row["pid"] or "-"),
            str(row["port"]),
            str(row["http_port"]),
            "yes" if row["ready"] else "no",
            row.get("state", "standby" if row["node"].startswith("controller") and row["pid"] else "-"),
            row.get("registered", "-"),
            str(row.get("broker_epoch", row.get("raft_epoch", "-"))),
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in (heads, *cells)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *cells)
    )


def _fail(command: str, form: str, error: ClusterError) -> NoReturn:
    Answer(command, None, [{"code": "CLUSTER_ERROR", "message": str(error)}]).finish(form, "")
    raise AssertionError("finish exits")
