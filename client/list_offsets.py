"""Asks leaders for offsets by timestamp."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.client.ask_leaders import Question, ask_leaders
from holdfast.client.cluster_client import ClusterClient
from holdfast.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Clock


class FoundOffset(NamedTuple):
    """`offset` is -1 when no record is that young; `timestamp` -1 when none was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


OFFSETS: Question[FoundOffset] = Question(
    "ListOffsets",
    "offsets",
    lambda rows: ListOffsetsRequest(tuple(ListOffsetsPartition(*row) for row in rows)),
    lambda row: FoundOffset(row.offset, row.timestamp, row.leader_epoch),
)


async def list_offsets(
    cluster: ClusterClient, clock: Clock, wanted: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, FoundOffset]:
    """The offset for each partition's timestamp: ms, -1 latest, -2 earliest, -3 newest. Raises: ClientError,
    TimedOut."""
    return await ask_leaders(cluster, clock, OFFSETS, wanted, timeout_ms)
