"""`holdfast cluster`: a cluster on this machine, without containers: up, down, status, and single nodes."""

from pathlib import Path
from typing import Any

import click

from holdfast.cli.cluster_nodes import NODE_COMMANDS, fail, folder_option, timeout_option
from holdfast.cli.options import (
    INT32_MAX,
    SERVERS_VARIABLE,
    CommandAnswer,
    bootstrap,
    checked_servers,
    output,
    pairs,
    run_client,
    servers_of_environment,
)
from holdfast.cli.progress import shown
from holdfast.cli.tables import table_lines
from holdfast.localcluster.health import cluster_health
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.power import drivers
from holdfast.localcluster.processes import STATE_FILE, LocalCluster


@click.group()
def cluster() -> None:
    """Run a whole cluster as local processes."""


for node_command in NODE_COMMANDS:
    cluster.add_command(node_command)


@cluster.command(short_help="Start a cluster, or resume it.")
@folder_option
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--controllers", type=click.Choice(["1", "3", "5"]), default="3", show_default=True)
@click.option(
    "--base-port", type=click.IntRange(1024, 65_000), help="Consecutive ports from here; else any free ones."
)
@click.option(
    "--property", "properties", multiple=True, metavar="KEY=VALUE", help="Put into every server.properties."
)
@click.option(
    "--power-loss",
    type=click.Choice(["auto", *drivers.NAMES]),
    help="Keep data where `cluster power-loss` can cut its power: file systems of their own (root only), or "
    "files whose unsynced part is remembered; auto is the first that works.",
)
@click.option(
    "--links",
    "has_links",
    is_flag=True,
    help="Connections run through a process that `holdfast chaos partition` can hold them in (Linux).",
)
@click.option(
    "--clocks",
    "has_clocks",
    is_flag=True,
    help="Each node's wall clock can be put wrong by `holdfast chaos clock-jump` (needs libfaketime).",
)
@timeout_option
@output
def up(
    folder: Path,
    brokers: int,
    controllers: str,
    base_port: int | None,
    properties: tuple[str, ...],
    power_loss: str | None,
    has_links: bool,
    has_clocks: bool,
    timeout_ms: int,
    output: str,
) -> None:
    """Start a cluster, or resume the one in --dir; returns when every node is ready."""
    folder = folder.absolute()
    extra = pairs(properties, "--property")
    made: LocalCluster | None = None
    try:
        with LocalCluster.making(folder):
            if (folder / STATE_FILE).exists():
                made = LocalCluster.load(folder)
                _warn_of_ignored(folder)
            else:
                made = LocalCluster.create(
                    folder,
                    brokers,
                    int(controllers),
                    base_port=base_port,
                    properties=extra,
                    power_loss=power_loss,
                    has_links=has_links,
                    has_clocks=has_clocks,
                )
        for warning in sorted({text for texts in made.warnings.values() for text in texts}):
            click.echo(f"warning: {warning}", err=True)
        with shown(f"{len(made.nodes)} nodes start"):
            made.up(timeout_ms / 1000)
    except (ClusterError, OSError) as error:
        hint = ""
        if made is not None and any(made.pid(node) is not None for node in made.nodes):
            hint = f"; the others run: `holdfast cluster down --dir {folder}` stops them"
        fail("cluster-up", output, error, hint)
    sizes = f"{len(made.brokers)} brokers, {len(made.controllers)} controllers"
    data = {"bootstrap_servers": made.bootstrap_servers, "bootstrap_controllers": made.bootstrap_controllers}
    if made.kafka_bootstrap:
        data["kafka_bootstrap_servers"] = made.kafka_bootstrap
    if made.power_loss_driver is not None:
        data["power_loss"] = made.power_loss_driver
    text = f"up: {sizes}\n" + "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in data.items())
    CommandAnswer("cluster-up", data).finish(output, text)


@cluster.command(short_help="Stop all nodes cleanly.")
@folder_option
@click.option(
    "--delete",
    is_flag=True,
    help="Delete the nodes' folders afterwards, with all data; not what else is in --dir.",
)
@timeout_option
@output
def down(folder: Path, delete: bool, timeout_ms: int, output: str) -> None:
    """Stop all nodes cleanly: controlled shutdown, flush, clean-shutdown file."""
    try:
        made = LocalCluster.load(folder.absolute())
        with shown(f"{len(made.nodes)} nodes stop"):
            made.down(timeout_ms / 1000)
        if delete:
            made.delete()
    except (ClusterError, OSError) as error:
        fail("cluster-down", output, error)
    CommandAnswer("cluster-down", {}).finish(output, "down")


@cluster.command(short_help="Forget a broker for good.")
@bootstrap
@click.option(
    "--id", "broker_id", type=click.IntRange(0, INT32_MAX), required=True, help="Broker that will not return."
)
@output
def unregister(broker_id: int, **given: Any) -> None:
    """Take a broker out of the metadata (R28): move its replicas away first, and stop it."""
    from holdfast.cli.admin_session import AdminSession, ask

    answer = CommandAnswer("cluster-unregister", {"broker": broker_id})
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        await session.admin.unregister_broker(broker_id, timeout_ms=session.timeout_ms)
        text.append(f"Broker {broker_id} is no longer registered.")

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


@cluster.command(short_help="Show processes and registrations.")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="Where it lives.")
@click.option(
    "--bootstrap-server",
    callback=lambda context, option, value: (
        None if value is None else checked_servers(context, option, value)
    ),
    metavar="HOST:PORT[,HOST:PORT]",
    help=f"A cluster anywhere, instead of --dir; {SERVERS_VARIABLE} when neither is given.",
)
@click.option("--timeout-ms", type=click.IntRange(1, INT32_MAX), default=30_000, show_default=True)
@output
def status(folder: Path | None, bootstrap_server: str | None, timeout_ms: int, output: str) -> None:
    """Show every process and, when the cluster answers, its registrations and the active controller.

    With --bootstrap-server the cluster is asked alone, wherever its nodes run: brokers, what they lead and
    hold, the active controller, and what is not well.
    """
    if folder is not None and bootstrap_server is not None:
        raise click.UsageError("--dir and --bootstrap-server exclude each other")
    if folder is None:
        servers = bootstrap_server or servers_of_environment()
        if servers is None:
            raise click.UsageError("one of --dir and --bootstrap-server is needed")
        from holdfast.cli.cluster_view import show_cluster

        show_cluster(servers, timeout_ms, output)
        return
    try:
        made = LocalCluster.load(folder.absolute())
    except (ClusterError, OSError) as error:
        fail("cluster-status", output, error)
    seen, problem = _registrations(made)
    rows = [_row(made, node.name, seen) for node in made.nodes]
    health = _health(rows)
    data = {"nodes": rows, "bootstrap_servers": made.bootstrap_servers, "health": health}
    answer = CommandAnswer("cluster-status", data)
    if problem:
        answer.errors.append({"code": "CLUSTER_NOT_AVAILABLE", "message": problem})
    elif all(row.get("state") != "active controller" for row in rows):
        answer.errors.append({"code": "NO_ACTIVE_CONTROLLER", "message": "more than half of them must run"})
    answer.errors += _node_errors(rows)
    text = _table(rows)
    if health is not None:
        text += f"\nhealth: {'; '.join(health['reasons']) or 'all is well'}"
    answer.finish(output, text)


def _health(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What the active controller, else any node that is ready, says of the whole cluster."""
    ready = [row for row in rows if row["ready"]]
    for row in sorted(ready, key=lambda row: row.get("state") != "active controller"):
        is_healthy, reasons = cluster_health("127.0.0.1", row["http_port"], 2.0)
        return {"node": row["node"], "is_healthy": is_healthy, "reasons": reasons}
    return None


def _node_errors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is wrong with single nodes, and what to do about it."""
    hints = {
        "down": ("NODE_DOWN", "start what is missing with `holdfast cluster up`"),
        "paused": ("NODE_PAUSED", "`kill -CONT` or `holdfast cluster up` wakes it"),
        "running": ("NODE_NOT_READY", "it starts, stops or is fenced; see node.log in its folder"),
    }
    errors = []
    for process, (code, message) in hints.items():
        names = [row["node"] for row in rows if row["process"] == process and not row["ready"]]
        if names:
            errors.append({"code": code, "node": ", ".join(names), "message": message})
    return errors


def _warn_of_ignored(folder: Path) -> None:
    """Say which options of a first `up` were given to a later one."""
    context = click.get_current_context()
    names = ("brokers", "controllers", "base_port", "properties", "power_loss", "has_links", "has_clocks")
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        click.echo(f"warning: {folder} holds a cluster already; no effect: {', '.join(given)}", err=True)


def _row(made: LocalCluster, name: str, seen: dict[int, dict[str, Any]]) -> dict[str, Any]:
    node = made.node(name)
    pid = made.pid(node)
    row: dict[str, Any] = {
        "node": name,
        "pid": pid,
        "port": node.port,
        "http_port": node.http_port,
        "kafka_port": node.kafka_port or None,
    }
    row["process"] = "down" if pid is None else "paused" if made.is_paused(node) else "running"
    row["ready"] = row["process"] == "running" and made.is_ready(node)
    # the metadata of a broker may be older than the death of the controller that it names
    if node.role == "broker" or row["process"] == "running":
        row.update(seen.get(node.node_id, {}))
    return row


def _registrations(made: LocalCluster) -> tuple[dict[int, dict[str, Any]], str]:
    """What the cluster says of its nodes, by id, or why it does not answer."""
    from holdfast.client.admin import Admin
    from holdfast.client.core.errors import ClientError
    from holdfast.runtime.api import NetworkError, Runtime

    seen: dict[int, dict[str, Any]] = {}
    problem = ""

    async def ask(runtime: Runtime) -> int:
        nonlocal problem
        admin = Admin(made.bootstrap_servers, runtime=runtime)
        try:
            found = await admin.describe_cluster(timeout_ms=5_000)
        except (ClientError, NetworkError) as error:
            problem = f"no broker answers: {error}"
            return 1
        finally:
            await admin.close()
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
        if (code := run_client(ask)) > 1:
            raise SystemExit(code)
    else:
        problem = "no broker is running"
    return seen, problem


def _table(rows: list[dict[str, Any]]) -> str:
    heads = ("NODE", "PROCESS", "PID", "PORT", "HTTP", "KAFKA", "READY", "STATE", "REGISTERED", "EPOCH")
    cells = [
        (
            row["node"],
            row["process"],
            str(row["pid"] or "-"),
            str(row["port"]),
            str(row["http_port"]),
            str(row["kafka_port"] or "-"),
            "yes" if row["ready"] else "no",
            row.get("state", "standby" if row["node"].startswith("controller") and row["pid"] else "-"),
            row.get("registered", "-"),
            str(row.get("broker_epoch", row.get("raft_epoch", "-"))),
        )
        for row in rows
    ]
    return "\n".join(table_lines(heads, cells))
