"""How fast replicas that move are copied: what `holdfast reassign-partitions` sets, and removes afterwards.

Kafka's keys: the topics name the replicas that are throttled, the brokers the rate.
"""

from collections.abc import Collection, Mapping

from holdfast.cli.admin_session import AdminSession
from holdfast.cli.configs import resource_refused
from holdfast.cli.reassignment_plan import Assignment
from holdfast.client.admin_configs import Resource
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.errors import RowError
from holdfast.metadata.config_keys import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)
from holdfast.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from holdfast.protocol.schema.types import STRING_MAX
from holdfast.protocol.topic_names import TopicPartition

_KEYS = (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)


def throttled_moves(
    wanted: Assignment, before: Assignment, moving: Mapping[TopicPartition, Reassignment]
) -> dict[Resource, dict[str, str]]:
    """What the topics get: the replicas that send while they lead, and those that are added. Of `before`
    nothing is added yet. Moves that are under way are throttled, too, as by Kafka's tool."""
    moves = {
        partition: (tuple(r for r in move.replicas if r not in move.adding), move.adding)
        for partition, move in moving.items()
    }
    for partition, target in wanted.items():
        moves[partition] = before[partition], tuple(r for r in target if r not in before[partition])
    changes: dict[Resource, dict[str, str]] = {}
    for partition, (sources, added) in sorted(moves.items()):
        keys = changes.setdefault(Resource.topic(partition.topic), {})
        for key, replicas in ((LEADER_THROTTLED_REPLICAS, sources), (FOLLOWER_THROTTLED_REPLICAS, added)):
            names = [keys[key]] if keys.get(key) else []
            keys[key] = ",".join(names + [f"{partition.partition}:{replica}" for replica in sorted(replicas)])
    return changes


async def throttle_moves(session: AdminSession, topics: Mapping[Resource, dict[str, str]], rate: int) -> None:
    """Set the rate in bytes a second at all brokers with a replica of these moves, and the replicas of the
    topics: all of a topic where the list is longer than a value can be, those in sync wait for nothing. What
    is refused becomes an error."""
    pairs = ",".join(text for keys in topics.values() for text in keys.values() if text).split(",")
    brokers = {pair.partition(":")[2] for pair in pairs}
    rates = {LEADER_THROTTLED_RATE: str(rate), FOLLOWER_THROTTLED_RATE: str(rate)}
    changes: dict[Resource, Mapping[str, str | None]] = {
        topic: {key: text if len(text) <= STRING_MAX else "*" for key, text in keys.items()}
        for topic, keys in topics.items()
    }
    for broker_id in await _registered(session):
        if str(broker_id) in brokers:
            changes[Resource.broker(broker_id)] = rates
    await _alter(session, changes)


async def remove_throttles(session: AdminSession, topics: Collection[str], text: list[str]) -> None:
    """Take the rates of all brokers and the throttled replicas of these topics away, and tell where there
    were some. As with Kafka's tool that is so for those that were set in another way, too."""
    resources = [Resource.broker(broker_id) for broker_id in await _registered(session)]
    resources += [Resource.topic(topic) for topic in sorted(topics)]
    found = await session.admin.describe_configs(resources, timeout_ms=session.timeout_ms)
    changes: dict[Resource, Mapping[str, str | None]] = {}
    for resource in resources:
        rows = found[resource]
        if not isinstance(rows, RowError):  # a topic that is gone, or brokers of an earlier build: none
            names = [row.name for row in rows if row.name in _KEYS and row.source in ("BROKER", "TOPIC")]
            if names:
                changes[resource] = dict.fromkeys(names)
    granted = await _alter(session, changes) if changes else []
    brokers = [int(one.name) for one in granted if one.kind == RESOURCE_BROKER]
    named = [one.name for one in granted if one.kind == RESOURCE_TOPIC]
    session.answer.data["throttles_removed"] = {"brokers": brokers, "topics": named}
    for kind, names in (("broker", [*map(str, brokers)]), ("topic", named)):
        if names:
            text.append(f"Clearing {kind}-level throttles on {kind}{'s'[: len(names) - 1]} {','.join(names)}")


async def _alter(
    session: AdminSession, changes: Mapping[Resource, Mapping[str, str | None]]
) -> list[Resource]:
    """What was granted; the others become errors."""
    rows = await session.admin.alter_configs(changes, timeout_ms=session.timeout_ms)
    for resource, error in rows.items():
        if error is not None:
            resource_refused(session.answer, resource, error)
    return [resource for resource in changes if rows[resource] is None]


async def _registered(session: AdminSession) -> list[int]:
    cluster = await session.admin.describe_cluster(timeout_ms=session.timeout_ms)
    return [row.broker_id for row in cluster.brokers]
