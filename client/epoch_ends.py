"""Asks leaders where leader epochs end in their logs (R80)."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.client.ask_leaders import Question, ask_leaders
from holdfast.client.cluster_client import ClusterClient
from holdfast.protocol.messages.offset_for_leader_epoch import EpochPartition, OffsetForLeaderEpochRequest
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Clock

_CLIENT = -1


class EpochEnd(NamedTuple):
    """The largest leader epoch not above the one asked for, and the first offset after it; -1 for none."""

    leader_epoch: int
    end_offset: int


_ENDS: Question[EpochEnd] = Question(
    "OffsetForLeaderEpoch",
    "ends of leader epochs",
    lambda rows: OffsetForLeaderEpochRequest(_CLIENT, tuple(EpochPartition(*row) for row in rows)),
    lambda row: EpochEnd(row.leader_epoch, row.end_offset),
)


async def epoch_ends(
    cluster: ClusterClient, clock: Clock, wanted: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, EpochEnd]:
    """The end of each partition's leader epoch in its leader's log. Raises: ClientError, TimedOut."""
    return await ask_leaders(cluster, clock, _ENDS, wanted, timeout_ms)
