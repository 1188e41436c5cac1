"""What only a controller can show on the board: who would lead next, and why partitions changed.

Owns the shapes. The answers are those of `brokers.what_if` and of the decisions that were made.
"""

from itertools import islice
from typing import Any

from holdfast.controller.core.brokers.what_if import next_leader
from holdfast.controller.core.decisions import DecisionEntry
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration


def next_leader_body(
    core: QuorumController, topic_name: str, key: PartitionId, partition: PartitionRegistration
) -> dict[str, Any]:
    """Who leads when the present leader fails; without a leader, who leads or is waited for."""
    following = next_leader(partition, core.election_context(topic_name, key))
    return {
        "leader": following.leader,
        "reason": None if following.reason is None else following.reason.value,
        "waits_for": list(following.waits_for),
    }


def decision_bodies(core: QuorumController, limit: int) -> list[dict[str, Any]]:
    """The latest `limit` decisions, newest first; none where the controller is not active."""
    return [_decision(entry) for entry in islice(reversed(core.decisions), limit)]


def _decision(entry: DecisionEntry) -> dict[str, Any]:
    before, after = entry.before, entry.after
    return {
        "metadata_offset": entry.offset,
        "topic": entry.topic_name,
        "partition": entry.partition_index,
        "cause": str(entry.decision.cause),
        "elected_by": None if entry.decision.reason is None else entry.decision.reason.value,
        "leader": [before.leader, after.leader],
        "isr": [list(before.isr), list(after.isr)],
        "elr": [list(before.elr), list(after.elr)],
    }
