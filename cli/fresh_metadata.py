"""Metadata as of now: what is told of a cluster must not be from before the last failure.

Owns the wait for a node that has not heard of everything yet, and what is said when it takes too long.
"""

import click

from holdfast.cli.admin_session import AdminSession
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.protocol.messages.metadata import DescribeClusterResponse

#: Between looks at a node that has not heard of everything yet.
_POLL_MS = 100
#: Longest wait where an old answer, with a warning, is better than none.
_WARN_MS = 3_000


async def fresh_cluster(session: AdminSession) -> DescribeClusterResponse:
    """The cluster as of all that the controllers had committed when this began. Raises: ClientError.

    A node that was paused or cut off answers all the same, and from before it may well be that all is well.
    """
    deadline_ms = session.clock.now_ms() + session.timeout_ms
    committed = (await session.admin.describe_quorum(timeout_ms=session.timeout_ms)).high_watermark
    while True:
        cluster = await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
        if cluster.metadata_offset >= committed:
            return cluster
        if session.clock.now_ms() + _POLL_MS >= deadline_ms:
            raise TimedOut(
                f"the node that was asked knows metadata up to offset {cluster.metadata_offset} only, "
                f"{committed} is committed: ask another one"
            )
        await session.clock.sleep(_POLL_MS)


async def warn_of_old(session: AdminSession) -> None:
    """Wait as `fresh_cluster`, but for a short time only, and warn of what may be old then: there may be no
    quorum, and what one node knows is all there is. Raises: ClientError when no node answers at all."""
    await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
    try:
        await fresh_cluster(session._replace(timeout_ms=min(session.timeout_ms, _WARN_MS)))
    except ClientError as error:
        click.echo(f"warning: what is told here may be old: {error}", err=True)
