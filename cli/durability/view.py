"""What `holdfast topics --describe --durability` must ask for: the cluster, its switches, where logs end.

Owns the questions and how long they may take; `report` makes the view out of the answers. Who does not
answer is left out: one dead broker must not hide the rest.
"""

import click

from holdfast.cli.admin_session import AdminSession
from holdfast.cli.durability.report import ClusterContext
from holdfast.cli.topic_view import Moves
from holdfast.client.admin_configs import Resource
from holdfast.client.core.errors import ClientError, RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.messages.list_offsets import LATEST_TIMESTAMP
from holdfast.protocol.messages.metadata import DescribeClusterBroker, DescribeClusterResponse
from holdfast.protocol.messages.topics import DescribedTopic
from holdfast.protocol.topic_names import TopicPartition

#: Longest wait for high watermarks, and for the logs of single replicas.
_OFFSETS_TIMEOUT_MS = 3_000
_MANAGER = "unclean.recovery.manager.enabled"


async def surroundings(session: AdminSession, topics: list[DescribedTopic], moves: Moves) -> ClusterContext:
    """What the outlook of these topics needs to know of the cluster."""
    cluster = await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
    resources = [Resource.topic(topic.name) for topic in topics]
    unclean: frozenset[str] = frozenset()
    if resources:
        values = await session.admin.describe_configs(
            resources, ["unclean.leader.election.enable"], timeout_ms=session.timeout_ms
        )
        unclean = frozenset(
            resource.name
            for resource, rows in values.items()
            if isinstance(rows, list) and any(row.value == "true" for row in rows)
        )
    return ClusterContext(
        cluster,
        await _high_watermarks(session, topics),
        moves,
        unclean_topics=unclean,
        compares_logs=await compares_logs(session),
        replica_logs=await _replica_logs(session, cluster, topics),
    )


async def compares_logs(session: AdminSession) -> bool:
    """Is the recovery manager on?"""
    manager = Resource.cluster()
    values = await session.admin.describe_configs([manager], [_MANAGER], timeout_ms=session.timeout_ms)
    rows = values[manager]
    return isinstance(rows, list) and any(row.value == "true" for row in rows)


async def _high_watermarks(session: AdminSession, topics: list[DescribedTopic]) -> dict[TopicPartition, int]:
    led: dict[tuple[str, int], int] = {
        TopicPartition(topic.name, partition.partition_index): LATEST_TIMESTAMP
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    try:
        ends = await session.admin.list_offsets(led, timeout_ms=min(session.timeout_ms, _OFFSETS_TIMEOUT_MS))
    except ClientError as error:
        click.echo(f"warning: high watermarks of leaders are not shown: {error}", err=True)
        return {}
    return {partition: found.offset for partition, found in ends.items()}


async def _replica_logs(
    session: AdminSession, cluster: DescribeClusterResponse, topics: list[DescribedTopic]
) -> dict[TopicPartition, dict[int, ReplicaLog]]:
    """Where the logs of the replicas end, by broker, of those that say it; all are asked at once."""
    wanted: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for row in topic.partitions:
            for replica in row.replicas:
                wanted.setdefault(replica, []).append(TopicPartition(topic.name, row.partition_index))
    topic_ids = {topic.name: topic.topic_id for topic in topics}
    answers: dict[int, dict[TopicPartition, ReplicaLog | RowError] | ClientError] = {}

    async def ask(broker: DescribeClusterBroker) -> None:
        try:
            answers[broker.broker_id] = await session.admin.ask_broker_for_logs(
                broker.broker_id,
                (broker.host, broker.port),
                topic_ids,
                wanted[broker.broker_id],
                timeout_ms=min(session.timeout_ms, _OFFSETS_TIMEOUT_MS),
            )
        except ClientError as error:
            answers[broker.broker_id] = error

    asked = [broker for broker in cluster.brokers if broker.broker_id in wanted]
    for task in [session.tasks.start(f"logs of broker {one.broker_id}", ask(one)) for one in asked]:
        await task.wait()
    found: dict[TopicPartition, dict[int, ReplicaLog]] = {}
    for broker in asked:
        answer = answers[broker.broker_id]
        if isinstance(answer, ClientError):
            if not broker.is_fenced:
                click.echo(
                    f"warning: the logs of broker {broker.broker_id} are not known: {answer}", err=True
                )
            continue
        for partition, log in answer.items():
            if isinstance(log, ReplicaLog):
                found.setdefault(partition, {})[broker.broker_id] = log
    return found
