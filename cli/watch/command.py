"""`holdfast watch`: what the live page of a node shows, in a terminal.

Owns the terminal: frames follow events, q and Ctrl-C end it. `--once` prints one frame.
"""

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from holdfast.cli.options import INT32_MAX
from holdfast.cli.watch.stream import Address, Following
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster

#: how long a key may wait, and a frame that no event has asked for
_LOOK_S = 0.25
_ONCE_LINES = 60


@click.command()
@click.option(
    "--http",
    "servers",
    metavar="HOST:PORT[,HOST:PORT]",
    help="HTTP addresses of nodes, best of all controllers; the next one is asked when one does not answer.",
)
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="A cluster of `cluster up`."
)
@click.option("--once", is_flag=True, help="Print one frame, without colours when it is no terminal.")
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, INT32_MAX),
    default=10_000,
    show_default=True,
    help="--once: wait so long for a node that answers, and for all to tell of their groups.",
)
def command(servers: str | None, folder: Path | None, once: bool, timeout_ms: int) -> None:
    """Show the cluster, live: what still survives, brokers, partitions, the last decisions. q ends it."""
    if not once and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise click.UsageError("there is no terminal to draw on: --once prints one frame")
    following = Following(_addresses(servers, folder))
    following.start()
    try:
        if once:
            sys.exit(_once(following, timeout_ms))
        _live(following)
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        following.end()


def _addresses(servers: str | None, folder: Path | None) -> list[Address]:
    """Whom to ask, in this order. Raises: click.UsageError."""
    if (servers is None) == (folder is None):
        raise click.UsageError("exactly one of --http and --dir is needed")
    if folder is not None:
        try:
            cluster = LocalCluster.load(folder.absolute())
        except (ClusterError, OSError) as error:
            raise click.UsageError(f"--dir {folder}: {error}") from error
        nodes = (*cluster.controllers, *cluster.brokers)
        return [Address("127.0.0.1", node.http_port, node.node_id) for node in nodes]
    from holdfast.cli.node_health import host_and_port

    assert servers is not None
    return [Address(*host_and_port(item.strip())) for item in servers.split(",") if item.strip()]


def _once(following: Following, timeout_ms: int) -> int:
    """Print one frame; the exit code."""
    from rich.console import Console

    from holdfast.cli.watch.frame import frame

    deadline = time.monotonic() + timeout_ms / 1000
    while not following.is_settled and (left := deadline - time.monotonic()) > 0:
        following.changed.wait(left)  # also when a node does not answer: then the next one is asked
        following.changed.clear()
    if following.is_settled:
        following.knows_groups.wait(max(0.0, deadline - time.monotonic()))
    with following.lock:
        if not following.is_settled:
            click.echo(f"error: {following.source}: {following.trouble or 'no answer'}", err=True)
            return 1
        # a pipe has no width: wide enough for all but the longest reasons
        width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "140"))
        Console(highlight=False, width=width).print(
            frame(following.state, following.source, _ONCE_LINES, groups=following.groups)
        )
    return 0


def _live(following: Following) -> None:
    from rich.console import Console
    from rich.live import Live

    from holdfast.cli.watch.frame import frame

    console = Console(highlight=False)
    with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        height = 0
        following.changed.set()
        while "q" not in keys.pressed(_LOOK_S):
            if following.changed.is_set() or console.size.height != height:
                following.changed.clear()
                height = console.size.height
                with following.lock:
                    live.update(
                        frame(following.state, following.source, height, following.trouble, following.groups),
                        refresh=True,
                    )


class _Keys:
    """Keys that are pressed while the terminal shows frames."""

    def pressed(self, wait_s: float) -> str:
        """What was pressed, after a wait of at most so long."""
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        return os.read(sys.stdin.fileno(), 64).decode(errors="replace") if ready else ""


@contextmanager
def _keys() -> Iterator[_Keys]:
    """The terminal gives each key at once and shows none, until the block ends."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin.fileno())
        yield _Keys()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
