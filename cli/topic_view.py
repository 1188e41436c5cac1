"""How topics are shown: Kafka's lines, the filters of `--describe`, JSON.

Existing scripts read the lines, so their layout never changes.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from protocol.messages.topics import DescribedPartition, DescribedTopic

#: Options of --describe that choose partitions; {option: whether a partition is meant}. The last is ours.
FILTERS: dict[str, Callable[[DescribedPartition], bool]] = {
    "under_replicated_partitions": lambda partition: len(partition.isr) < len(partition.replicas),
    "under_min_isr_partitions": lambda partition: len(partition.isr) < partition.min_isr,
    "at_min_isr_partitions": lambda partition: len(partition.isr) == partition.min_isr,
    "unavailable_partitions": lambda partition: partition.leader_id < 0,
    "elr_partitions": lambda partition: bool(partition.eligible_leader_replicas),
}


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka prints it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def ids_list(ids: tuple[int, ...] | None) -> str:
    """`1,2,3`; N/A for null, which means that ELR is off."""
    return "N/A" if ids is None else ",".join(map(str, ids))


def describe_lines(topic: DescribedTopic) -> list[str]:
    """The lines of `--describe`."""
    factor = max((len(partition.replicas) for partition in topic.partitions), default=0)
    configs = ",".join(f"{config.name}={config.value}" for config in topic.configs)
    head = (
        f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.topic_id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}\tConfigs: {configs}"
    )
    return [head, *(_partition_line(topic.name, partition) for partition in topic.partitions)]


def chosen_of(
    topics: list[DescribedTopic], given: Mapping[str, Any]
) -> tuple[list[DescribedTopic], list[str]]:
    """What the filters leave, and its lines: partitions without heads, or heads without partitions."""
    if given.get("exclude_internal"):
        topics = [topic for topic in topics if not topic.is_internal]
    if given.get("topics_with_overrides"):
        topics = [topic for topic in topics if topic.configs]
        return topics, [describe_lines(topic)[0] for topic in topics]
    for name, is_meant in FILTERS.items():
        if given.get(name):
            left = [replace(topic, partitions=tuple(filter(is_meant, topic.partitions))) for topic in topics]
            return [topic for topic in left if topic.partitions], [
                line for topic in left for line in describe_lines(topic)[1:]
            ]
    return topics, [line for topic in topics for line in describe_lines(topic)]


def _partition_line(name: str, partition: DescribedPartition) -> str:
    return (
        f"\tTopic: {name}\tPartition: {partition.partition_index}"
        f"\tLeader: {partition.leader_id if partition.leader_id >= 0 else 'none'}"
        f"\tReplicas: {ids_list(partition.replicas)}\tIsr: {ids_list(partition.isr)}"
        f"\tElr: {ids_list(partition.eligible_leader_replicas)}"
        f"\tLastKnownElr: {ids_list(partition.last_known_elr)}"
    )


def partition_as_json(partition: DescribedPartition) -> dict[str, Any]:
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
    }


def topic_as_json(topic: DescribedTopic) -> dict[str, Any]:
    """One topic of `--output json`."""
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "configs": {config.name: config.value for config in topic.configs},
        "partitions": [partition_as_json(partition) for partition in topic.partitions],
    }
