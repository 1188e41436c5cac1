"""Asks leaders for offsets by timestamp, again and elsewhere until all have answered."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, TimedOut, code_of
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import Clock, NetworkError

_BACKOFF = Backoff(first_ms=20, max_ms=250)
_CALL_TIMEOUT_MS = 3_000


class FoundOffset(NamedTuple):
    """`offset` is -1 when no record is that young; `timestamp` -1 when none was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class Answers(NamedTuple):
    """What one broker said: each partition that it was asked for is in one of the two."""

    found: dict[TopicPartition, FoundOffset]
    #: each with its code
    errors: dict[TopicPartition, ClientError]


async def list_offsets(
    cluster: ClusterClient, clock: Clock, wanted: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, FoundOffset]:
    """The offset for each partition's timestamp: ms, -1 latest, -2 earliest, -3 newest. Raises: ClientError,
    TimedOut."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    found: dict[TopicPartition, FoundOffset] = {}
    repetitions = 0
    while True:
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await cluster.topic(topic, max(0, deadline_ms - clock.now_ms()))
        problem, code = "no leader", ErrorCode.LEADER_NOT_AVAILABLE
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in wanted.items():
            if partition not in found:
                leader = cluster.cache.leader(*partition)
                by_leader.setdefault(leader.broker_id, {})[partition] = timestamp
        for broker_id in sorted(by_leader):
            if broker_id < 0:
                continue
            answers = await ask_leader(cluster, clock, broker_id, by_leader[broker_id], deadline_ms)
            found |= answers.found
            for error in answers.errors.values():
                assert error.code is not None
                if not error.code.is_retriable:
                    raise error
                problem, code = str(error), error.code
        if len(found) == len(wanted):
            return found
        pause_ms = _BACKOFF.pause_ms(repetitions)
        repetitions += 1
        if clock.now_ms() + pause_ms >= deadline_ms:
            raise TimedOut(f"offsets were not to be had within {timeout_ms:g} ms: {problem}", code)
        await clock.sleep(pause_ms)
        if code is not ErrorCode.OFFSET_NOT_AVAILABLE:
            await cluster.refreshed(deadline_ms)


async def ask_leader(
    cluster: ClusterClient,
    clock: Clock,
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    deadline_ms: int,
) -> Answers:
    """Ask this broker once. Raises nothing: one partition's trouble is not that of the others."""
    try:
        channel = await cluster.connect(broker_id)
        # Only now: connecting takes time, in which topics are deleted.
        asked = [partition for partition in wanted if cluster.cache.topic(partition.topic) is not None]
        answers = Answers({}, {p: _deleted(p.topic) for p in wanted if p not in asked})
        if not asked:
            return answers
        left_ms = min(_CALL_TIMEOUT_MS, max(1, deadline_ms - clock.now_ms()))
        response = await channel.call(_request(cluster, asked, wanted), left_ms)
    except (NetworkError, ClientError) as error:
        cluster.suspect(broker_id)
        problem = ClientError(str(error), ErrorCode.NETWORK_EXCEPTION)
        return Answers({}, dict.fromkeys(wanted, problem))
    except CallRefused as error:
        if error.error_code.is_retriable:
            cluster.suspect(broker_id)  # it starts, stops or is overloaded: others know who leads
        problem = ClientError(f"ListOffsets was refused: {error}", error.error_code)
        return Answers({}, dict.fromkeys(wanted, problem))
    _sort_out(response, asked, answers)
    return answers


def _deleted(topic: str) -> ClientError:
    return ClientError(f"topic {topic} was deleted meanwhile", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


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


def _sort_out(response: ListOffsetsResponse, asked: list[TopicPartition], answers: Answers) -> None:
    whole = code_of(response.error_code)
    if whole is not ErrorCode.NONE:
        problem = ClientError(f"{whole.name}: {response.error_message}", whole)
        answers.errors.update(dict.fromkeys(asked, problem))
        return
    for partition, row in zip(asked, response.partitions, strict=True):
        code = code_of(row.error_code)
        if code is ErrorCode.NONE:
            answers.found[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
        else:
            text = f"{partition.topic}-{partition.partition}: {code.name}"
            answers.errors[partition] = ClientError(text, code)
