"""`holdfast chaos`: break a running cluster on purpose, and heal it again; or break one of its own.

Owns the commands; what a fault does and how it is undone is `localcluster.faults`', and for containers
`localcluster.compose_faults`'. A fault lasts for --seconds, until Ctrl-C, or until `holdfast chaos heal`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from holdfast.cli.options import CommandAnswer, output
from holdfast.cli.tables import table_lines
from holdfast.drills.chaos_scenarios.command import command as run_scenario
from holdfast.drills.fault_kinds import KINDS, Given, Undoable
from holdfast.drills.soak import command as soak
from holdfast.localcluster.clocks import OFF_S_MAX
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_faults import heal_containers
from holdfast.localcluster.endings import ended_by_sigterm, undisturbed
from holdfast.localcluster.faults.catalogue import FAULTS
from holdfast.localcluster.faults.fault import Fault, heal_all
from holdfast.localcluster.faults.places import Part
from holdfast.localcluster.faults.shapes import WAYS
from holdfast.localcluster.faults.targets import POSSIBLE, Targets
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster


@click.group()
def command() -> None:
    """Break a running cluster on purpose and heal it; soak, and play scenarios, on a cluster of their own."""


command.add_command(soak, "soak")
command.add_command(run_scenario, "run")


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
    rows = [(name, _summary(fault)) for name, fault in FAULTS.items() if name in KINDS]
    data = [
        {"name": name, "text": text, "on_containers": KINDS[name].on_containers is not None}
        for name, text in rows
    ]
    CommandAnswer("chaos-list", data).finish(output, "\n".join(table_lines(("FAULT", "WHAT HAPPENS"), rows)))


def _summary(fault: type[Fault]) -> str:
    return " ".join((fault.__doc__ or "").split("\n\n")[0].split()).rstrip(".")


# --- faults --------------------------------------------------------------------------------------------

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
        click.option("--how", type=click.Choice(list(WAYS)), default="isolate", show_default=True),
    ),
    "unread-fetches": (click.option("--topic", required=True, help="One that the target leads."),),
    "clock-jump": (
        click.option(
            "--by-s",
            type=click.IntRange(-OFF_S_MAX, OFF_S_MAX),
            default=7_200,
            show_default=True,
            help="Seconds, below 0 into the past.",
        ),
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
            lasts = seconds if seconds is not None else (0.0 if KINDS[name].ends_with_us(driver) else None)
            answer.data = {"fault": name, "target": target, "did": _done(faults, lasts, is_quiet)}
        except (ClusterError, OSError) as error:
            answer.errors.append({"code": "CLUSTER_ERROR", "message": str(error)})
        answer.finish(output, "")

    function: Callable[..., Any] = run
    for option in (
        *_OPTIONS.get(name, ()),
        click.option("--target", required=True, metavar="TARGET", help=f"Which node: {POSSIBLE}."),
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


#: So long when no end is given.
_FOR_EVER_S = 1e9


def _made(
    name: str, driver: str, folder: Path | None, project: str | None, target: str, given: dict[str, Any]
) -> Sequence[Undoable]:
    words = {
        key: value for key, value in given.items() if key not in ("other", "topic") and value is not None
    }
    if driver == "compose":
        make = KINDS[name].on_containers
        if make is None:
            possible = ", ".join(fault for fault, kind in KINDS.items() if kind.on_containers is not None)
            raise ClusterError(f"{name} is not possible with containers here; possible: {possible}")
        containers = _containers(project)
        with closing(Targets(containers, given["seed"])) as targets:
            return make(containers, targets.find(target), Given(**words, other=_other(targets, given)))
    cluster = _local(folder)
    with closing(Targets(cluster, given["seed"])) as targets:
        topic_id = targets.topic_id(given["topic"]) if given.get("topic") else b""
        all_words = Given(**words, other=_other(targets, given), topic_id=topic_id)
        return KINDS[name].make(cluster, targets.find(target), all_words)


def _other(targets: Targets, given: dict[str, Any]) -> Sequence[Node]:
    return targets.find(given["other"]) if given.get("other") else ()


def _done(faults: Sequence[Undoable], seconds: float | None, is_quiet: bool) -> list[str]:
    """Apply the faults; heal them after so many seconds, at Ctrl-C and at SIGTERM; with None leave them.

    Raises: ClusterError for one that could not be applied; those before it are healed.
    """
    done: list[str] = []
    stays = False
    with ended_by_sigterm():
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
    failure: Exception | None = None
    with undisturbed():
        for fault in reversed(faults):
            try:
                fault.heal()
            except (ClusterError, OSError) as error:
                failure = failure or error
    if failure is not None:
        raise failure


for _name in KINDS:
    command.add_command(_fault_command(_name))
