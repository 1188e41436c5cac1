"""`holdfast cluster kill|power-loss|stop|start|pause|resume`: what may happen to nodes of a local cluster.

The kinds of stop are never mixed up (D10): `stop` is clean, `kill` takes the process and leaves the page
cache, `power-loss` takes what was not synced too, `pause` makes a node silent, as if its network had gone.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from holdfast.cli.options import INT32_MAX, CommandAnswer, output
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.power.disks import PowerLoss
from holdfast.localcluster.processes import LocalCluster

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where the cluster lives.",
)
timeout_option = click.option(
    "--timeout-ms", type=click.IntRange(1, INT32_MAX), default=60_000, show_default=True
)


def fail(command: str, form: str, error: ClusterError | OSError, hint: str = "") -> NoReturn:
    """Print why a cluster could not do what was asked, and exit 1."""
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    CommandAnswer(command, None, [{"code": "CLUSTER_ERROR", "message": text + hint}]).finish(form, "")
    raise AssertionError("finish exits")


def chosen_nodes(
    cluster: LocalCluster, brokers: str | None, controllers: str | None, everything: bool
) -> list[Node]:
    """The nodes that the options name, in the cluster's order.

    Raises: click.UsageError without any option or with all and some, ClusterError for one that is not there.
    """
    if everything == bool(brokers or controllers):
        raise click.UsageError("say which nodes: --broker N[,M], --controller N[,M], or --all")
    if everything:
        return list(cluster.nodes)
    named = {
        cluster.node(f"{role}-{number}").name
        for role, numbers in (("broker", brokers), ("controller", controllers))
        for number in _numbers(role, numbers)
    }
    return [node for node in cluster.nodes if node.name in named]


def _numbers(role: str, text: str | None) -> list[int]:
    try:
        return [int(number) for number in text.split(",")] if text else []
    except ValueError:
        raise click.UsageError(f"--{role} {text}: expected ids with commas between") from None


def node_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that name nodes, for `chosen_nodes`."""
    for option in (
        click.option("--all", "everything", is_flag=True, help="Every node."),
        click.option("--controller", "controllers", metavar="N[,M]", help="Ids of controllers."),
        click.option("--broker", "brokers", metavar="N[,M]", help="Ids of brokers."),
        folder_option,
    ):
        command = option(command)
    return command


def _command(
    name: str, done: str, about: str, act: Callable[[LocalCluster, Sequence[Node], float], None]
) -> click.Command:
    """`holdfast cluster NAME` for chosen nodes."""

    @click.command(name, help=about, short_help=about)
    @node_options
    @timeout_option
    @output
    def command(
        folder: Path,
        brokers: str | None,
        controllers: str | None,
        everything: bool,
        timeout_ms: int,
        output: str,
    ) -> None:
        try:
            cluster = LocalCluster.load(folder.absolute())
            nodes = chosen_nodes(cluster, brokers, controllers, everything)
            act(cluster, nodes, timeout_ms / 1000)
        except (ClusterError, OSError) as error:
            fail(f"cluster-{name}", output, error)
        names = [node.name for node in nodes]
        data: dict[str, Any] = {"nodes": names}
        CommandAnswer(f"cluster-{name}", data).finish(output, f"{done}: {', '.join(names)}")

    return command


def _stop(cluster: LocalCluster, nodes: Sequence[Node], timeout_s: float) -> None:
    for node in nodes:
        cluster.resume(node)
    # brokers first: their controlled shutdown needs the controllers
    cluster.stop([node for node in nodes if node.role == "broker"], timeout_s)
    cluster.stop([node for node in nodes if node.role == "controller"], timeout_s)


def _start(cluster: LocalCluster, nodes: Sequence[Node], timeout_s: float) -> None:
    for node in nodes:
        cluster.start(node)
    cluster.wait_ready(nodes, timeout_s)


def _pause(cluster: LocalCluster, nodes: Sequence[Node], timeout_s: float) -> None:
    for node in nodes:
        if cluster.pid(node) is None:
            raise ClusterError(f"{node.name} is not running: there is nothing to pause")
    for node in nodes:
        cluster.pause(node)


def _resume(cluster: LocalCluster, nodes: Sequence[Node], timeout_s: float) -> None:
    for node in nodes:
        cluster.resume(node)


@click.command("power-loss", short_help="Cut the power of nodes: what was not synced is gone.")
@node_options
@click.option("--seed", type=int, help="What a tracked disk loses is drawn from it; told at the end.")
@output
def power_loss(
    folder: Path,
    brokers: str | None,
    controllers: str | None,
    everything: bool,
    seed: int | None,
    output: str,
) -> None:
    """Cut the power of nodes, of all at the same moment: what was not synced is gone. They are down then."""
    try:
        cluster = LocalCluster.load(folder.absolute())
        nodes = chosen_nodes(cluster, brokers, controllers, everything)
        losses = cluster.power_loss(nodes, seed=seed)
    except (ClusterError, OSError) as error:
        fail("cluster-power-loss", output, error)
    rows = [{"log_bytes_lost": loss.log_bytes_lost, **asdict(loss)} for loss in losses]
    data = {"driver": cluster.power_loss_driver, "nodes": rows}
    CommandAnswer("cluster-power-loss", data).finish(output, "\n".join(_told(loss) for loss in losses))


def _told(loss: PowerLoss) -> str:
    back = f", {len(loss.names_back)} old names are back" if loss.names_back else ""
    return (
        f"power lost: {loss.node} (seed {loss.seed}): {loss.log_bytes_lost} log bytes lost, "
        f"{len(loss.files)} files touched{back}"
    )


NODE_COMMANDS = (
    power_loss,
    _command(
        "kill", "killed", "Kill nodes at once (SIGKILL): the page cache lives on.", lambda c, n, t: c.kill(n)
    ),
    _command("stop", "stopped", "Stop nodes cleanly: controlled shutdown, flush, marker.", _stop),
    _command("start", "started", "Start nodes that do not run, and wait until they are ready.", _start),
    _command("pause", "paused", "Make nodes silent (SIGSTOP), as if their network had gone.", _pause),
    _command("resume", "resumed", "Let paused nodes go on (SIGCONT).", _resume),
)
