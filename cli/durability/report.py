"""`holdfast topics --describe --durability`: what a partition still survives and who would lead next.

Owns the table and how a partition's state is called. The numbers are those of `metadata.headroom`, the next
leader is what the controller's own rules say (`controller.core.brokers.what_if`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.tables import table_lines
from holdfast.cli.topic_view import Moves, is_under_replicated, topic_as_json
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.controller.core.brokers.what_if import NextLeader, context_of, next_leader, registration_of
from holdfast.metadata.headroom import Headroom, headroom
from holdfast.protocol.messages.metadata import DescribeClusterResponse
from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic
from holdfast.protocol.topic_names import TopicPartition

HEADS = (
    "TOPIC", "PART", "LEADER", "EPOCH", "HWM", "LEO", "MIN", "ISR", "ELR", "LKELR", "NEXT",
    "WRITES", "ONLINE", "LOSSY", "AT-RISK", "STATE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What must be known of the cluster to tell the outlook of its partitions."""

    cluster: DescribeClusterResponse
    #: by partition with a leader that answered
    high_watermarks: Mapping[TopicPartition, int]
    moves: Moves = field(default_factory=dict)
    #: topics that may elect any replica that is there
    unclean_topics: frozenset[str] = frozenset()
    #: the recovery manager is on
    compares_logs: bool = False
    #: where logs end, by partition and broker, of the replicas that said it
    replica_logs: Mapping[TopicPartition, Mapping[int, ReplicaLog]] = field(default_factory=dict)

    def is_unfenced(self, broker_id: int) -> bool:
        """It may hold a seat in an ISR."""
        return any(row.broker_id == broker_id and not row.is_fenced for row in self.cluster.brokers)

    def is_active(self, broker_id: int) -> bool:
        """It may lead: unfenced and not shutting down."""
        return any(
            row.broker_id == broker_id and not row.is_fenced and not row.in_controlled_shutdown
            for row in self.cluster.brokers
        )


@dataclass(frozen=True, slots=True)
class DurabilityReport:
    """One partition: what is and what may come."""

    topic: str
    partition: DescribedPartition
    headroom: Headroom
    next_leader: NextLeader
    #: the leader's, without it the highest that a replica knows of
    high_watermark: int | None
    #: the leader's
    log_end_offset: int | None
    #: acknowledged records that no replica that answered has on disk: gone if power fails everywhere now
    at_risk: int | None
    state: str


def durability_report(topic: str, partition: DescribedPartition, around: ClusterContext) -> DurabilityReport:
    """What the partition survives, and who is next."""
    context = context_of(
        partition,
        around.is_active,
        elects_uncleanly=topic in around.unclean_topics,
        compares_logs=around.compares_logs and partition.eligible_leader_replicas is not None,
    )
    following = next_leader(registration_of(partition), context)
    key = TopicPartition(topic, partition.partition_index)
    logs = around.replica_logs.get(key, {})
    high_watermark = around.high_watermarks.get(key)
    if high_watermark is None:
        known = [log.high_watermark for log in logs.values() if log.high_watermark >= 0]
        high_watermark = max(known, default=None)
    at_risk = None
    if high_watermark is not None and logs:
        at_risk = max(0, high_watermark - max(log.flushed_offset for log in logs.values()))
    return DurabilityReport(
        topic=topic,
        partition=partition,
        headroom=headroom(
            partition.isr, partition.eligible_leader_replicas or (), partition.min_isr, around.is_unfenced
        ),
        next_leader=following,
        high_watermark=high_watermark,
        log_end_offset=logs[partition.leader_id].end_offset if partition.leader_id in logs else None,
        at_risk=at_risk,
        state=_state(partition, following, around.is_unfenced, around.moves.get(key)),
    )


def _state(
    partition: DescribedPartition,
    following: NextLeader,
    is_unfenced: Callable[[int], bool],
    move: Reassignment | None,
) -> str:
    """One word, and for a partition without a leader whom it waits for."""
    if partition.leader_id >= 0:
        if partition.leader_recovery_state == 1:
            return "RECOVERING"
        if len(partition.isr) < partition.min_isr:
            return "UNDER_MIN_ISR"
        if is_under_replicated(partition, move):
            return "UNDER_REPLICATED"
        return "OK" if move is None else "REASSIGNING"
    known = f" LastKnownLeader: {partition.last_known_leader}" if partition.last_known_leader >= 0 else ""
    if following.leader is not None:
        return "ELECTING" + known
    if following.waits_for:
        seats = "ISR" if partition.isr else "ELR"
        return f"WAITING_{seats}({_conditions(following.waits_for, is_unfenced)}){known}"
    seats_lost = partition.last_known_elr or ()
    lost = f"(last known: {_conditions(seats_lost, is_unfenced)})" if seats_lost else ""
    return f"NEEDS_RECOVERY{lost}{known}"


def _conditions(ids: tuple[int, ...], is_unfenced: Callable[[int], bool]) -> str:
    return ", ".join(f"{replica}: {'unfenced' if is_unfenced(replica) else 'fenced'}" for replica in ids)


def report_lines(rows: list[DurabilityReport]) -> list[str]:
    """The table. Lists are never cut; `3*` is who may lead as soon as it is back; `-` is unknown or none."""
    return table_lines(HEADS, [_cells(row) for row in rows], gap=" ")


def _cells(row: DurabilityReport) -> tuple[str, ...]:
    partition = row.partition
    return (
        row.topic,
        str(partition.partition_index),
        str(partition.leader_id) if partition.leader_id >= 0 else "none",
        str(partition.leader_epoch),
        _number(row.high_watermark),
        _number(row.log_end_offset),
        str(partition.min_isr),
        _ids(partition.isr),
        "N/A" if partition.eligible_leader_replicas is None else _ids(partition.eligible_leader_replicas),
        "N/A" if partition.last_known_elr is None else _ids(partition.last_known_elr),
        _next(row.next_leader),
        str(max(0, row.headroom.writes)),
        "-" if row.headroom.is_offline else str(row.headroom.online),
        "-" if row.headroom.lossy < 0 else str(row.headroom.lossy),
        _number(row.at_risk),
        row.state,
    )


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"


def _next(following: NextLeader) -> str:
    if following.leader is not None:
        return str(following.leader)
    return ",".join(f"{replica}*" for replica in following.waits_for) or "-"


def report_as_json(
    topics: list[DescribedTopic], rows: list[DurabilityReport], moves: Moves
) -> list[dict[str, Any]]:
    """`--output json`: the topics, each partition with its outlook. Below 0: it is too late by so many."""
    by_partition = {(row.topic, row.partition.partition_index): row for row in rows}
    shown = [topic_as_json(topic, moves) for topic in topics]
    for topic in shown:
        for partition in topic["partitions"]:
            partition |= _outlook_json(by_partition[topic["topic"], partition["partition"]])
    return shown


def _outlook_json(row: DurabilityReport) -> dict[str, Any]:
    following = row.next_leader
    return {
        "state": row.state,
        "high_watermark": row.high_watermark,
        "log_end_offset": row.log_end_offset,
        "at_risk": row.at_risk,
        "next_leader": following.leader,
        "next_leader_reason": None if following.reason is None else following.reason.value,
        "next_leader_waits_for": following.waits_for,
        "failures_survived": {
            "writes": row.headroom.writes,
            "online": row.headroom.online,
            "lossy": row.headroom.lossy,
        },
    }
