"""`holdfast cluster status --bootstrap-server`: what any cluster says of itself, wherever its nodes run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.fresh_metadata import warn_of_old
from holdfast.cli.health import Finding, findings
from holdfast.cli.options import CommandAnswer
from holdfast.cli.tables import table_lines
from holdfast.protocol.messages.metadata import DescribeClusterResponse
from holdfast.protocol.messages.topics import DescribedTopic

_HEADS = ("BROKER", "ADDRESS", "RACK", "STATE", "REGISTERED", "EPOCH", "LEADS", "REPLICAS")


def show_cluster(bootstrap_server: str, timeout_ms: int, form: str) -> None:
    """Print brokers, the active controller and what is not well; exits 1 when the cluster does not answer."""
    answer = CommandAnswer("cluster-status")
    text: list[str] = []
    given = {
        "bootstrap_server": bootstrap_server,
        "timeout_ms": timeout_ms,
        "command_config": None,
        "command_property": (),
    }

    async def act(session: AdminSession) -> None:
        await warn_of_old(session)
        cluster = await session.admin.describe_cluster(timeout_ms=timeout_ms)
        topics = await session.admin.describe_topics(timeout_ms=timeout_ms)
        moving = await session.admin.list_partition_reassignments(timeout_ms=timeout_ms)
        found = findings(cluster, topics, moving)
        rows = _broker_rows(cluster, topics)
        answer.data = {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id if cluster.controller_id >= 0 else None,
            "controller_epoch": cluster.controller_epoch,
            "metadata_offset": cluster.metadata_offset,
            "brokers": rows,
            "topics": len(topics),
            "partitions": sum(len(topic.partitions) for topic in topics),
            "health": [finding._asdict() for finding in found],
        }
        text.extend(_lines(answer.data, rows, found))

    ask(given, answer, act)
    answer.finish(form, "\n".join(text))


def _broker_rows(cluster: DescribeClusterResponse, topics: Sequence[DescribedTopic]) -> list[dict[str, Any]]:
    partitions = [row for topic in topics for row in topic.partitions]
    leads = Counter(row.leader_id for row in partitions)
    holds = Counter(replica for row in partitions for replica in row.replicas)
    return [
        {
            "broker": row.broker_id,
            "address": f"{row.host}:{row.port}",
            "rack": row.rack,
            "state": "fenced" if row.is_fenced else "stopping" if row.in_controlled_shutdown else "online",
            "registered": "clean" if row.clean_shutdown else "unclean",
            "broker_epoch": row.broker_epoch,
            "leads": leads[row.broker_id],
            "replicas": holds[row.broker_id],
        }
        for row in cluster.brokers
    ]


def _lines(data: dict[str, Any], rows: list[dict[str, Any]], found: list[Finding]) -> list[str]:
    table = table_lines(
        _HEADS, [["-" if cell is None else str(cell) for cell in row.values()] for row in rows]
    )
    controller = data["controller"]
    active = "none known" if controller is None else f"{controller}, epoch {data['controller_epoch']}"
    return [
        *table,
        f"cluster {data['cluster_id']}, active controller: {active}; metadata offset "
        f"{data['metadata_offset']}; topics: {data['topics']}, partitions: {data['partitions']}",
        f"health: {'; '.join(finding.sentence for finding in found) or 'all is well'}",
    ]
