"""`holdfast health`: is all well, as an exit code and a sentence for each kind of trouble.

Owns the sentences, which `holdfast cluster status --bootstrap-server` shows, too.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import CommandAnswer, bootstrap, output
from holdfast.cli.topic_view import NO_MOVES, Moves, is_under_replicated
from holdfast.protocol.topic_names import TopicPartition

if TYPE_CHECKING:
    from holdfast.client.admin_partitions import Reassignment
    from holdfast.protocol.messages.metadata import DescribeClusterResponse
    from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic

#: most names in a sentence; JSON has all of them
_NAMES_MAX = 10


class Finding(NamedTuple):
    """One kind of trouble."""

    code: str
    #: brokers by id, partitions as `topic-0`
    names: tuple[str, ...]
    sentence: str


_Concerns: TypeAlias = "Callable[[DescribedPartition, Reassignment | None], bool]"
#: code, which partitions, and what is said of one and of several; each partition counts for the first
_OF_PARTITIONS: tuple[tuple[str, _Concerns, str, str], ...] = (
    (
        "NEEDS_RECOVERY",
        lambda row, _: row.leader_id < 0 and not row.isr and not row.eligible_leader_replicas,
        "1 partition has no leader, and no replica may lead without loss",
        "{} partitions have no leader, and no replica may lead without loss",
    ),
    (
        "OFFLINE",
        lambda row, _: row.leader_id < 0,
        "1 partition has no leader",
        "{} partitions have no leader",
    ),
    (
        "UNDER_MIN_ISR",
        lambda row, _: len(row.isr) < row.min_isr,
        "1 partition is below min ISR and refuses writes with acks=all",
        "{} partitions are below min ISR and refuse writes with acks=all",
    ),
    (
        "UNDER_REPLICATED",
        is_under_replicated,
        "1 partition lacks a replica in its ISR",
        "{} partitions lack a replica in their ISR",
    ),
)


def findings(
    cluster: "DescribeClusterResponse", topics: "Sequence[DescribedTopic]", moves: Moves = NO_MOVES
) -> list[Finding]:
    """What is not well, worst first; empty when all is."""
    found = []
    left = [
        (
            f"{topic.name}-{row.partition_index}",
            row,
            moves.get(TopicPartition(topic.name, row.partition_index)),
        )
        for topic in topics
        for row in topic.partitions
    ]
    for code, concerns, one, several in _OF_PARTITIONS:
        names = tuple(name for name, row, move in left if concerns(row, move))
        left = [item for item in left if item[0] not in set(names)]
        if names:
            found.append(_finding(code, names, one, several))
    fenced = tuple(str(row.broker_id) for row in cluster.brokers if row.is_fenced)
    if fenced:
        found.append(_finding("FENCED", fenced, "1 broker is fenced", "{} brokers are fenced"))
    if cluster.controller_id < 0:
        found.append(Finding("NO_ACTIVE_CONTROLLER", (), "no active controller is known"))
    return found


def _finding(code: str, names: tuple[str, ...], one: str, several: str) -> Finding:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    text = one if len(names) == 1 else several.format(len(names))
    return Finding(code, names, f"{text}: {', '.join(names[:_NAMES_MAX])}{more}")


async def ask_findings(session: AdminSession) -> "tuple[DescribeClusterResponse, list[Finding]]":
    """The cluster as of now, and what is not well in it. Raises: ClientError."""
    from holdfast.cli.fresh_metadata import fresh_cluster

    cluster = await fresh_cluster(session)
    topics = await session.admin.describe_topics(timeout_ms=session.timeout_ms)
    moving = await session.admin.list_partition_reassignments(timeout_ms=session.timeout_ms)
    return cluster, findings(cluster, topics, moving)


@click.command()
@bootstrap
@output
def command(**given: Any) -> None:
    """Say what is not well in the whole cluster, one sentence for each kind.

    Exit 0: every partition has a leader and all its replicas in sync, and no broker is fenced. Exit 1: not
    so, or the cluster does not answer.
    """
    answer = CommandAnswer("health")
    found: list[Finding] = []

    async def act(session: AdminSession) -> None:
        found.extend((await ask_findings(session))[1])

    ask(given, answer, act)
    if answer.errors:
        answer.finish(given["output"], "")
    if given["output"] == "json":
        rows = [finding._asdict() for finding in found]
        errors = [{"code": finding.code, "message": finding.sentence} for finding in found]
        body = {"is_healthy": not found, "findings": rows}
        click.echo(
            json.dumps({"schema": "holdfast.health/1", "ok": not found, "data": body, "errors": errors})
        )
    else:
        click.echo("\n".join(finding.sentence for finding in found) or "all is well")
    sys.exit(1 if found else 0)
