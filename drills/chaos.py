"""`holdfast chaos`: break a running cluster on purpose, and heal it again; or soak a cluster of its own.

Owns the commands; what a fault does and how it is undone is `localcluster.faults`', and for containers
`localcluster.compose_faults`'. A fault lasts for --seconds, until Ctrl-C, or until `holdfast chaos heal`.
"""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import click

from holdfast.cli.options import CommandAnswer, output
from holdfast.cli.tables import table_lines
from holdfast.drills.soak import command as soak
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_faults import CONTAINER_FAULTS, heal_containers
from holdfast.localcluster.faults import clients, damage, disks, limits, network, processes
from holdfast.localcluster.faults.catalogue import FAULTS
from holdfast.localcluster.faults.fault import Fault, heal_all
from holdfast.localcluster.faults.places import Part, Place
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster

#: Faults that are connections of this process: they end with it.
_OF_THIS_PROCESS = (
    clients.IdleConnections,
    clients.HalfFrames,
    clients.UnreadFetches,
    clients.MetadataFlood,
    clients.Garbage,
)
#: How two sides can be parted, for --how.
_WAYS: dict[str, Callable[[LocalCluster, Node], Fault]] = {
    "isolate": network.Partition.isolate,
    "from-controllers": network.Partition.isolate_from_controllers,
    "from-brokers": network.Partition.isolate_from_brokers,
    "bridge": network.Partition.bridge,
}
_TARGETS = (
    "3, broker-3, `leader of t-0`, `follower of t-0`, `replicas of t-0`, `active controller`, "
    "`most leaders`, `random broker`, `random controller`, `all brokers`"
)


class Undoable(Protocol):
    """A fault of processes or of containers."""

    def apply(self) -> str: ...
    def heal(self) -> None: ...


@click.group()
def command() -> None:
    """Break a running cluster on purpose, heal it, or soak a cluster of its own."""


command.add_command(soak, "soak")


def _cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--dir",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            help="Where a local cluster lives, as for `holdfast cluster`.",
        ),
        click.option(
            "--driver",
            type=click.Choice(["local", "compose"]),
            default="local",
            show_default=True,
            help="compose: the containers of docker-compose.yml in the working folder.",
        ),
        click.option("--project", help="Compose project, when it is not the default of the working folder."),
    ):
        function = option(function)
    return function


def _local(folder: Path | None) -> LocalCluster:
    if folder is None:
        raise click.UsageError("--dir says which local cluster; or give --driver compose")
    return LocalCluster.load(folder.absolute())


def _containers(project: str | None) -> ComposeCluster:
    return ComposeCluster(Path.cwd(), project)


# --- heal, list ----------------------------------------------------------------------------------------


@command.command(short_help="Undo what earlier commands have left behind.")
@_cluster_options
@output
def heal(folder: Path | None, driver: str, project: str | None, output: str) -> None:
    """Undo every fault that is still there, also those of a command that was killed. May be repeated."""
    answer = CommandAnswer("chaos-heal")
    try:
        if driver == "local":
            _local(folder)
            healed = heal_all(folder.absolute() if folder else Path())
        else:
            healed = heal_containers(_containers(project))
    except (ClusterError, OSError) as error:
        answer.errors.append({"code": "CLUSTER_ERROR", "message": str(error)})
        answer.finish(output, "")
        return
    answer.data = {"healed": healed}
    answer.finish(output, "\n".join(f"healed: {text}" for text in healed) or "nothing was left to heal")


@command.command("list", short_help="Show all faults.")
@output
def list_faults(output: str) -> None:
    """Show every fault and what it does; docs/faults.md says what each needs."""
    rows = [(name, _summary(fault)) for name, fault in FAULTS.items() if name in _MAKERS]
    data = [{"name": name, "text": text, "on_containers": name in CONTAINER_FAULTS} for name, text in rows]
    CommandAnswer("chaos-list", data).finish(output, "\n".join(table_lines(("FAULT", "WHAT HAPPENS"), rows)))


def _summary(fault: type[Fault]) -> str:
    return " ".join((fault.__doc__ or "").split("\n\n")[0].split()).rstrip(".")


# --- faults --------------------------------------------------------------------------------------------

Make = Callable[[LocalCluster, Sequence[Node], dict[str, Any]], Sequence[Fault]]


def _on_each(fault: Callable[..., Fault]) -> Make:
    return lambda cluster, nodes, given: [fault(cluster, node) for node in nodes]


def _on_file(fault: Callable[[LocalCluster, Node, Place, int], Fault]) -> Make:
    """A node that runs is stopped before, and runs again when its damage is left for it to find."""

    def make(cluster: LocalCluster, nodes: Sequence[Node], given: dict[str, Any]) -> Sequence[Fault]:
        place = Place(Part(given["part"]), given["partition"] or "")
        return [
            step
            for node in nodes
            for step in (processes.Kill(cluster, node), fault(cluster, node, place, given["seed"]))
        ]

    return make


def _parted(cluster: LocalCluster, nodes: Sequence[Node], given: dict[str, Any]) -> Sequence[Fault]:
    other = given["other_nodes"]
    if other:
        way = network.Partition.one_way if given["one_way"] else network.Partition.symmetric
        return [way(cluster, nodes, other)]
    return [_WAYS[given["how"]](cluster, node) for node in nodes]


def _slowed(cluster: LocalCluster, nodes: Sequence[Node], given: dict[str, Any]) -> Sequence[Fault]:
    rest = [node for node in cluster.nodes if node not in nodes]
    return [network.SlowLinks(cluster, nodes, given["other_nodes"] or rest, given["delay_ms"])]


_MAKERS: dict[str, Make] = {
    "kill": lambda cluster, nodes, given: [processes.Kill(cluster, *nodes)],
    "stop": lambda cluster, nodes, given: [processes.Stop(cluster, *nodes)],
    "pause": lambda cluster, nodes, given: [processes.Pause(cluster, *nodes)],
    "power-loss": lambda cluster, nodes, given: [
        processes.PowerLoss(cluster, *nodes, seed=given["seed"]),
    ],
    "wipe-disk": lambda cluster, nodes, given: [
        processes.Kill(cluster, *nodes),
        damage.WipeDisk(cluster, *nodes),
    ],
    "flip-bit": _on_file(damage.FlipBit),
    "cut-file": _on_file(damage.CutFile),
    "remove-file": _on_file(damage.RemoveFile),
    "few-handles": _on_each(limits.FewHandles),
    "little-memory": _on_each(limits.LittleMemory),
    "no-room-in-files": _on_each(limits.NoRoomInFiles),
    "full-disk": _on_each(disks.FullDisk),
    "frozen-disk": _on_each(disks.FrozenDisk),
    "partition": _parted,
    "slow-links": _slowed,
    **{fault.name: _on_each(fault) for fault in _OF_THIS_PROCESS},
}
_FILE_OPTIONS = (
    click.option(
        "--part",
        type=click.Choice([part.value for part in Part]),
        default=Part.CLOSED_SEGMENT.value,
        show_default=True,
        help="Which file.",
    ),
    click.option("--partition", metavar="TOPIC-INDEX", help="Of which partition, where the part is of one."),
)
_OTHER = click.option("--other", metavar="TARGET", help="The other side; else all other nodes.")
_OPTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    **dict.fromkeys(("flip-bit", "cut-file", "remove-file"), _FILE_OPTIONS),
    "partition": (
        _OTHER,
        click.option("--one-way", is_flag=True, help="Only from the target to --other."),
        click.option("--how", type=click.Choice(list(_WAYS)), default="isolate", show_default=True),
    ),
    "slow-links": (_OTHER, click.option("--delay-ms", type=click.IntRange(1, 60_000), default=200)),
}


def _fault_command(name: str) -> click.Command:
    """`holdfast chaos NAME`."""

    def run(
        folder: Path | None,
        driver: str,
        project: str | None,
        target: str,
        seconds: float | None,
        output: str,
        **given: Any,
    ) -> None:
        answer = CommandAnswer(f"chaos-{name}")
        is_quiet = output == "json"
        try:
            faults = _made(name, driver, folder, project, target, given)
            lasts = seconds if seconds is not None else (0.0 if name in _ENDING else None)
            answer.data = {"fault": name, "target": target, "did": _done(faults, lasts, is_quiet)}
        except (ClusterError, OSError) as error:
            answer.errors.append({"code": "CLUSTER_ERROR", "message": str(error)})
        answer.finish(output, "")

    function: Callable[..., Any] = run
    for option in (
        *_OPTIONS.get(name, ()),
        click.option("--target", required=True, metavar="TARGET", help=f"{_TARGETS}."),
        click.option(
            "--seconds", type=click.FloatRange(0), help="How long; without it until `holdfast chaos heal`."
        ),
        click.option(
            "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random choices."
        ),
        output,
    ):
        function = option(function)
    summary = _summary(FAULTS[name])
    return click.command(name, short_help=summary, help=f"{summary}.")(_cluster_options(function))


#: Connections of this process end with it: without --seconds they last until Ctrl-C.
_ENDING = frozenset(fault.name for fault in _OF_THIS_PROCESS)
#: So long when no end is given.
_FOR_EVER_S = 1e9


def _made(
    name: str, driver: str, folder: Path | None, project: str | None, target: str, given: dict[str, Any]
) -> Sequence[Undoable]:
    if driver == "compose":
        if name not in CONTAINER_FAULTS:
            possible = ", ".join(CONTAINER_FAULTS)
            raise ClusterError(f"{name} is not possible with containers here; possible: {possible}")
        containers = _containers(project)
        with closing(Targets(containers, given["seed"])) as targets:
            return [CONTAINER_FAULTS[name](containers, targets.find(target))]
    cluster = _local(folder)
    with closing(Targets(cluster, given["seed"])) as targets:
        nodes = targets.find(target)
        other = targets.find(given["other"]) if given.get("other") else ()
    return _MAKERS[name](cluster, nodes, {**given, "other_nodes": other})


def _done(faults: Sequence[Undoable], seconds: float | None, is_quiet: bool) -> list[str]:
    """Apply the faults; heal them after so many seconds, at Ctrl-C and at SIGTERM; with None leave them.

    Raises: ClusterError for one that could not be applied; those before it are healed.
    """
    done: list[str] = []
    stays = False
    try:
        for fault in faults:
            done.append(fault.apply())
            click.echo(done[-1], err=is_quiet)
        if seconds is None:
            stays = True
            return done
        time.sleep(seconds or _FOR_EVER_S)
    except KeyboardInterrupt:
        click.echo("ending it", err=True)
    finally:
        if not stays:
            _heal(faults)
            click.echo("healed", err=is_quiet)
    return done


def _heal(faults: Sequence[Undoable]) -> None:
    """All of them, also when one cannot be healed and on a second Ctrl-C. Raises: the first error."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    failure: Exception | None = None
    try:
        for fault in reversed(faults):
            try:
                fault.heal()
            except (ClusterError, OSError) as error:
                failure = failure or error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failure is not None:
        raise failure


for _name in _MAKERS:
    command.add_command(_fault_command(_name))
