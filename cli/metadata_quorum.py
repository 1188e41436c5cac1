"""`holdfast metadata-quorum`: show the quorum; let its leader resign (K6); let the log name the voters, and
change them (K30); or, before, take in a voter's new directory after its disk was lost (K8).
"""

from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import (
    INT32_MAX,
    CommandAnswer,
    as_with_the_commands,
    before_the_command,
    bootstrap,
    output,
)
from holdfast.cli.tables import table_lines
from holdfast.protocol.messages.quorum import DescribeQuorumResponse, QuorumReplica

_ID_BYTES = 16
_HEADS = ("NodeId", "LogEndOffset", "Lag", "LastFetchMsAgo", "LastCaughtUpMsAgo", "Status")
#: Shown once the metadata log names the voters.
_NAMED_HEADS = ("DirectoryId", "Endpoint")


@click.group()
@before_the_command
def command(**given: Any) -> None:
    """Look after the voters of the metadata quorum."""
    as_with_the_commands(given)


def _directory_id(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    try:
        raw = None if value is None else bytes.fromhex(value)
    except ValueError:
        raw = b""
    if raw is not None and len(raw) != _ID_BYTES:
        raise click.BadParameter("expected the 32 hexadecimal digits that the voter's log shows")
    return raw


@command.command(short_help="Show leader, voters and observers.")
@bootstrap
@click.option("--status", is_flag=True, help="Leader, high watermark, and how far voters are behind.")
@click.option("--replication", is_flag=True, help="Every voter and observer. Without an option: both.")
@output
def describe(status: bool, replication: bool, **given: Any) -> None:
    """Show the quorum as its leader sees it. Brokers are observers."""
    answer = CommandAnswer("metadata-quorum-describe")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        cluster = await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
        quorum = await session.admin.describe_quorum(timeout_ms=session.timeout_ms)
        now_ms = session.clock.wall_ms()
        replicas = [*(_replica(quorum, row, now_ms) for row in (*quorum.voters, *quorum.observers))]
        followers = [row for row in replicas if row["status"] == "Follower"]
        answer.data = {
            "cluster_id": cluster.cluster_id,
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.raft_epoch,
            "high_watermark": quorum.high_watermark,
            "max_follower_lag": max((row["lag"] for row in followers), default=0),
            "replicas": replicas,
        }
        if status or not replication:
            text.append(_status(answer.data))
        if replication or not status:
            is_named = any(row["endpoint"] is not None for row in replicas)
            heads = (*_HEADS, *(_NAMED_HEADS if is_named else ()))
            text.append("\n".join(table_lines(heads, [_cells(row)[: len(heads)] for row in replicas])))

    ask(given, answer, act)
    answer.finish(given["output"], "\n\n".join(text))


def _replica(quorum: DescribeQuorumResponse, row: QuorumReplica, now_ms: int) -> dict[str, Any]:
    is_leader = row.replica_id == quorum.leader_id
    end = next((one.log_end_offset for one in quorum.voters if one.replica_id == quorum.leader_id), -1)
    is_known = row.log_end_offset >= 0 and end >= 0
    return {
        "node_id": row.replica_id,
        "log_end_offset": row.log_end_offset,
        #: records of the leader's log that it lacks; all of them while its end is not known
        "lag": max(0, end - row.log_end_offset) if is_known else max(0, end),
        "last_fetch_ms": _age(row.last_fetch_timestamp_ms, now_ms),
        "last_caught_up_ms": _age(row.last_caught_up_timestamp_ms, now_ms),
        "status": "Leader" if is_leader else "Follower" if row in quorum.voters else "Observer",
        "directory_id": None if row.directory_id is None else row.directory_id.hex(),
        "endpoint": row.endpoint,
    }


def _age(timestamp_ms: int, now_ms: int) -> int | None:
    """By this machine's clock; None for never."""
    return None if timestamp_ms < 0 else max(0, now_ms - timestamp_ms)


def _status(found: dict[str, Any]) -> str:
    def ids(*statuses: str) -> str:
        return ",".join(str(row["node_id"]) for row in found["replicas"] if row["status"] in statuses)

    lines = {
        "ClusterId": found["cluster_id"],
        "LeaderId": found["leader_id"],
        "LeaderEpoch": found["leader_epoch"],
        "HighWatermark": found["high_watermark"],
        "MaxFollowerLag": found["max_follower_lag"],
        "CurrentVoters": f"[{ids('Leader', 'Follower')}]",
        "CurrentObservers": f"[{ids('Observer')}]",
    }
    return "\n".join(f"{name + ':':<18}{value}" for name, value in lines.items())


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple("-" if value is None else str(value) for value in row.values())


@command.command(short_help="Take in the new, empty disk of a voter.")
@bootstrap
@click.option("--voter", "voter_id", type=click.IntRange(0, INT32_MAX), required=True, help="Its node.id.")
@click.option(
    "--directory-id",
    metavar="ID",
    callback=_directory_id,
    help="Its new directory; without it the one that asks and is refused.",
)
@output
def readmit(voter_id: int, directory_id: bytes | None, **given: Any) -> None:
    """Take in the new directory of a voter that lost its disk. Its old one never counts again."""
    answer = CommandAnswer("metadata-quorum-readmit")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        taken = await session.admin.add_raft_voter(voter_id, directory_id, timeout_ms=session.timeout_ms)
        answer.data = {"voter_id": voter_id, "directory_id": taken.hex()}
        text.append(f"Voter {voter_id} counts with directory {taken.hex()} from now on.")

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _controller(_: click.Context, __: click.Parameter, value: str) -> tuple[int, str]:
    node_id, _at, endpoint = value.partition("@")
    if not (node_id.isascii() and node_id.isdigit() and int(node_id) <= INT32_MAX and ":" in endpoint):
        raise click.BadParameter("expected ID@HOST:PORT, as in controller.quorum.voters")
    return int(node_id), endpoint


@command.command(short_help="Let the metadata log name the voters.")
@bootstrap
@output
def upgrade(**given: Any) -> None:
    """Let the metadata log name the voters from now on, so that they can be changed (kraft.version 1).

    All voters must run, and no node may be of an earlier build. There is no way back to one.
    """
    answer = CommandAnswer("metadata-quorum-upgrade")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        await session.admin.upgrade_quorum(timeout_ms=session.timeout_ms)
        answer.data = {"kraft_version": 1}
        text.append("The metadata log names the voters from now on.")

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


@command.command(short_help="Make a controller a voter.")
@bootstrap
@click.option(
    "--controller",
    "controller",
    metavar="ID@HOST:PORT",
    callback=_controller,
    required=True,
    help="Its node.id, and where the other nodes reach it.",
)
@output
def add_controller(controller: tuple[int, str], **given: Any) -> None:
    """Make a controller that runs with holdfast.quorum.joins=true a voter, once it has caught up.

    One with controller.quorum.auto.join.enable=true does that by itself.
    """
    answer = CommandAnswer("metadata-quorum-add-controller")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        node_id, endpoint = controller
        taken = await session.admin.add_controller(node_id, endpoint, timeout_ms=session.timeout_ms)
        answer.data = {"node_id": node_id, "endpoint": endpoint, "directory_id": taken.hex()}
        text.append(f"Controller {node_id} is a voter from now on.")

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


@command.command(short_help="Take a controller out of the voters.")
@bootstrap
@click.option(
    "--controller", "node_id", type=click.IntRange(0, INT32_MAX), required=True, help="Its node.id."
)
@output
def remove_controller(node_id: int, **given: Any) -> None:
    """Take a controller out of the voters, running or lost. Where it runs, it goes on reading the log."""
    answer = CommandAnswer("metadata-quorum-remove-controller")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        await session.admin.remove_controller(node_id, timeout_ms=session.timeout_ms)
        answer.data = {"node_id": node_id}
        text.append(f"Controller {node_id} is no voter any more.")

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


@command.command(short_help="Let the leader hand over to another voter.")
@bootstrap
@output
def resign(**given: Any) -> None:
    """End the epoch of the quorum's leader: a voter that has its log is the next active controller.

    Of use before a controller is taken away for long; one that is stopped cleanly does so by itself.
    """
    answer = CommandAnswer("metadata-quorum-resign")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        former, quorum = await session.admin.resign_quorum_leader(timeout_ms=session.timeout_ms)
        answer.data = {
            "former_leader_id": former.leader_id,
            "former_epoch": former.raft_epoch,
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.raft_epoch,
        }
        text.append(
            f"Controller {former.leader_id} has resigned from epoch {former.raft_epoch}; "
            f"controller {quorum.leader_id} leads epoch {quorum.raft_epoch}."
        )

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))
