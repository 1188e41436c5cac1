"""Asks leaders for offsets by timestamp, again and elsewhere until all have answered."""

from collections.abc import Mapping
from typing import NamedTuple

from client.backoff import Backoff
from client.cluster_client import ClusterClient
from client.errors import ClientError, TimedOut, code_of
from client.metadata_cache import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from rpc.channel import CallRefused
from runtime.api import Clock, NetworkError

_BACKOFF = Backoff(first_ms=20, max_ms=250)
_CALL_TIMEOUT_MS = 3_000


class FoundOffset(NamedTuple):
    """`offset` is -1 when no batch is that young; `timestamp` -1 when none was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: ClusterClient, clock: Clock, wanted: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, FoundOffset]:
    """The offset for each partition's timestamp (-1 latest, -2 earliest). Raises: ClientError, TimedOut."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    found: dict[TopicPartition, FoundOffset] = {}
    repetitions = 0
    while True:
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await cluster.topic(topic, max(0, deadline_ms - clock.now_ms()))
        problem, code = "no leader", ErrorCode.LEADER_NOT_AVAILABLE
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            if partition not in found:
                by_leader.setdefault(cluster.cache.leader(*partition).broker_id, []).append(partition)
        for broker_id in sorted(by_leader):
            if broker_id < 0:
                continue
            try:
                channel = await cluster.connect(broker_id)
                asked = [p for p in by_leader[broker_id] if cluster.cache.topic(p.topic) is not None]
                if len(asked) < len(by_leader[broker_id]):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    problem = "a topic was deleted meanwhile"
                    if not asked:
                        continue
                left_ms = min(_CALL_TIMEOUT_MS, max(1, deadline_ms - clock.now_ms()))
                response = await channel.call(_request(cluster, asked, wanted), left_ms)
            except (NetworkError, ClientError) as error:
                cluster.suspect(broker_id)
                problem, code = str(error), ErrorCode.NETWORK_EXCEPTION
                continue
            except CallRefused as error:
                problem, code = f"ListOffsets was refused: {error}", error.error_code
                if not code.is_retriable:
                    raise ClientError(problem, code) from error
                cluster.suspect(broker_id)  # it starts, stops or is overloaded: others know who leads
                continue
            failure = _sort_out(response, asked, found)
            if failure is not None:
                problem, code = failure
                if not code.is_retriable:
                    raise ClientError(problem, code)
        if len(found) == len(wanted):
            return found
        pause_ms = _BACKOFF.pause_ms(repetitions)
        repetitions += 1
        if clock.now_ms() + pause_ms >= deadline_ms:
            raise TimedOut(f"offsets were not to be had within {timeout_ms:g} ms: {problem}", code)
        await clock.sleep(pause_ms)
        if code is not ErrorCode.OFFSET_NOT_AVAILABLE:
            await cluster.refreshed(deadline_ms)


def _request(
    cluster: ClusterClient, asked: list[TopicPartition], wanted: Mapping[TopicPartition, int]
) -> ListOffsetsRequest:
    rows = []
    for partition in asked:
        view = cluster.cache.topic(partition.topic)
        assert view is not None
        epoch = cluster.cache.leader(*partition).leader_epoch
        rows.append(ListOffsetsPartition(view.topic_id, partition.partition, epoch, wanted[partition]))
    return ListOffsetsRequest(tuple(rows))


def _sort_out(
    response: ListOffsetsResponse, asked: list[TopicPartition], found: dict[TopicPartition, FoundOffset]
) -> tuple[str, ErrorCode] | None:
    """Take over the answers; the first refusal, if any."""
    whole = code_of(response.error_code)
    if whole is not ErrorCode.NONE:
        return f"{whole.name}: {response.error_message}", whole
    failure = None
    for partition, row in zip(asked, response.partitions, strict=True):
        code = code_of(row.error_code)
        if code is ErrorCode.NONE:
            found[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
        elif failure is None or not code.is_retriable:
            failure = f"{partition.topic}-{partition.partition}: {code.name}", code
    return failure
