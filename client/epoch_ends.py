"""Asks leaders where leader epochs end in their logs, again and elsewhere until all have answered (R80)."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, TimedOut, code_of
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import Clock, NetworkError

_BACKOFF = Backoff(first_ms=20, max_ms=250)
_CALL_TIMEOUT_MS = 3_000
_CLIENT = -1


class EpochEnd(NamedTuple):
    """The largest leader epoch not above the one asked for, and the first offset after it; -1 for none."""

    leader_epoch: int
    end_offset: int


async def epoch_ends(
    cluster: ClusterClient, clock: Clock, wanted: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, EpochEnd]:
    """The end of each partition's leader epoch in its leader's log. Raises: ClientError, TimedOut."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    found: dict[TopicPartition, EpochEnd] = {}
    repetitions = 0
    while True:
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await cluster.topic(topic, max(0, deadline_ms - clock.now_ms()))
        problem, code = "no leader", ErrorCode.LEADER_NOT_AVAILABLE
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            if partition not in found:
                by_leader.setdefault(cluster.cache.leader(*partition).broker_id, []).append(partition)
        for broker_id in sorted(broker_id for broker_id in by_leader if broker_id >= 0):
            asked = {partition: wanted[partition] for partition in by_leader[broker_id]}
            try:
                problem, code = await _ask_leader(cluster, clock, broker_id, asked, deadline_ms, found)
            except (NetworkError, CallRefused, ClientError) as error:
                problem, code = str(error), _code_of_failure(error)
                cluster.suspect(broker_id)
            if code is not ErrorCode.NONE and not code.is_retriable:
                raise ClientError(problem, code)
        if len(found) == len(wanted):
            return found
        pause_ms = _BACKOFF.pause_ms(repetitions)
        repetitions += 1
        if clock.now_ms() + pause_ms >= deadline_ms:
            raise TimedOut(
                f"ends of leader epochs were not to be had within {timeout_ms:g} ms: {problem}", code
            )
        await clock.sleep(pause_ms)
        await cluster.refreshed(deadline_ms)


def _code_of_failure(error: Exception) -> ErrorCode:
    return error.error_code if isinstance(error, CallRefused) else ErrorCode.NETWORK_EXCEPTION


async def _ask_leader(
    cluster: ClusterClient,
    clock: Clock,
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    deadline_ms: int,
    found: dict[TopicPartition, EpochEnd],
) -> tuple[str, ErrorCode]:
    """Ask this broker once; its answers go to `found`. The last problem, NONE for none."""
    channel = await cluster.connect(broker_id)
    rows, asked = [], []
    # Only now: connecting takes time, in which topics are deleted.
    for partition, epoch in wanted.items():
        view = cluster.cache.topic(partition.topic)
        if view is not None:
            believed = cluster.cache.leader(*partition).leader_epoch
            rows.append(EpochPartition(view.topic_id, partition.partition, believed, epoch))
            asked.append(partition)
    if not asked:
        return "the topics were deleted meanwhile", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    left_ms = min(_CALL_TIMEOUT_MS, max(1, deadline_ms - clock.now_ms()))
    answer: OffsetForLeaderEpochResponse = await channel.call(
        OffsetForLeaderEpochRequest(_CLIENT, tuple(rows)), left_ms
    )
    problem, code = str(answer.error_message), code_of(answer.error_code)
    if code is not ErrorCode.NONE:
        return problem, code
    for partition, row in zip(asked, answer.partitions, strict=True):
        row_code = code_of(row.error_code)
        if row_code is ErrorCode.NONE:
            found[partition] = EpochEnd(row.leader_epoch, row.end_offset)
        else:
            problem, code = f"{partition.topic}-{partition.partition}: {row_code.name}", row_code
    return problem, code
