"""How topics are shown: Kafka's lines, the filters of `--describe`, JSON.

Existing scripts read the lines, so their layout never changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.protocol.id_text import encode_id
from holdfast.protocol.topic_names import TopicPartition

if TYPE_CHECKING:
    from holdfast.client.admin_partitions import Reassignment
    from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic

#: Partitions that move, by (topic, index); those that do not are not in it.
Moves: TypeAlias = "Mapping[TopicPartition, Reassignment]"
NO_MOVES: Moves = {}

#: Options of --describe that choose partitions: {option: whether a partition, with its move, is meant}.
#: The last one is ours.
FILTERS: "dict[str, Callable[[DescribedPartition, Reassignment | None], bool]]" = {
    "under_replicated_partitions": lambda partition, move: is_under_replicated(partition, move),
    "under_min_isr_partitions": lambda partition, _: len(partition.isr) < partition.min_isr,
    "at_min_isr_partitions": lambda partition, _: len(partition.isr) == partition.min_isr,
    "unavailable_partitions": lambda partition, _: partition.leader_id < 0,
    "elr_partitions": lambda partition, _: bool(partition.eligible_leader_replicas),
}


def replication_factor(partition: "DescribedPartition", move: "Reassignment | None") -> int:
    """How many replicas it has; those that a move adds do not count yet, as in Kafka."""
    return len(partition.replicas) - (0 if move is None else len(move.adding))


def is_under_replicated(partition: "DescribedPartition", move: "Reassignment | None") -> bool:
    """Replicas are outside the ISR."""
    return len(partition.isr) < replication_factor(partition, move)


def ids_list(ids: tuple[int, ...] | None) -> str:
    """`1,2,3`; N/A for null, which means that ELR is off."""
    return "N/A" if ids is None else ",".join(map(str, ids))


def describe_lines(topic: "DescribedTopic", moves: Moves = NO_MOVES) -> list[str]:
    """The lines of `--describe`."""
    rows = [(partition, _move(topic, partition, moves)) for partition in topic.partitions]
    factor = max((replication_factor(*row) for row in rows), default=0)
    configs = ",".join(f"{config.name}={config.value}" for config in topic.configs)
    head = (
        f"Topic: {topic.name}\tTopicId: {encode_id(topic.topic_id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}\tConfigs: {configs}"
    )
    return [head, *(_partition_line(topic.name, *row) for row in rows)]


def _move(topic: "DescribedTopic", partition: "DescribedPartition", moves: Moves) -> "Reassignment | None":
    return moves.get(TopicPartition(topic.name, partition.partition_index))


def chosen_of(
    topics: "list[DescribedTopic]", given: Mapping[str, Any], moves: Moves = NO_MOVES
) -> "tuple[list[DescribedTopic], list[str]]":
    """What the filters leave, and its lines: partitions without heads, or heads without partitions."""
    if given.get("exclude_internal"):
        topics = [topic for topic in topics if not topic.is_internal]
    if given.get("topics_with_overrides"):
        topics = [topic for topic in topics if topic.configs]
        return topics, [describe_lines(topic, moves)[0] for topic in topics]
    for name, is_meant in FILTERS.items():
        if given.get(name):
            left = [
                replace(
                    topic,
                    partitions=tuple(
                        row for row in topic.partitions if is_meant(row, _move(topic, row, moves))
                    ),
                )
                for topic in topics
            ]
            return [topic for topic in left if topic.partitions], [
                line for topic in left for line in describe_lines(topic, moves)[1:]
            ]
    return topics, [line for topic in topics for line in describe_lines(topic, moves)]


def _partition_line(name: str, partition: "DescribedPartition", move: "Reassignment | None") -> str:
    moving = ""
    if move is not None:
        moving = f"\tAdding Replicas: {ids_list(move.adding)}\tRemoving Replicas: {ids_list(move.removing)}"
    return (
        f"\tTopic: {name}\tPartition: {partition.partition_index}"
        f"\tLeader: {partition.leader_id if partition.leader_id >= 0 else 'none'}"
        f"\tReplicas: {ids_list(partition.replicas)}\tIsr: {ids_list(partition.isr)}{moving}"
        f"\tElr: {ids_list(partition.eligible_leader_replicas)}"
        f"\tLastKnownElr: {ids_list(partition.last_known_elr)}"
    )


def partition_as_json(partition: "DescribedPartition", move: "Reassignment | None") -> dict[str, Any]:
    """One partition of `--output json`."""
    return {
        "partition": partition.partition_index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.eligible_leader_replicas,
        "last_known_elr": partition.last_known_elr,
        "last_known_leader": partition.last_known_leader if partition.last_known_leader >= 0 else None,
        "min_isr": partition.min_isr,
        "recovering": partition.leader_recovery_state == 1,
        "offline_replicas": partition.offline_replicas,
        "adding_replicas": () if move is None else move.adding,
        "removing_replicas": () if move is None else move.removing,
    }


def topic_as_json(topic: "DescribedTopic", moves: Moves = NO_MOVES) -> dict[str, Any]:
    """One topic of `--output json`."""
    return {
        "topic": topic.name,
        "topic_id": encode_id(topic.topic_id),
        "configs": {config.name: config.value for config in topic.configs},
        "partitions": [
            partition_as_json(partition, _move(topic, partition, moves)) for partition in topic.partitions
        ],
    }
