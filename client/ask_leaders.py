"""Asks the leaders of partitions a question, again and elsewhere until all have answered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, code_of
from holdfast.client.core.portions import portions
from holdfast.client.repetitions import Repetitions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import Clock, NetworkError

_BACKOFF = Backoff(first_ms=20, max_ms=250)
#: Partitions that one request asks about: brokers refuse a request that asks for too much at once.
ROWS_MAX = 2_000
_CALL_TIMEOUT_MS = 3_000

Found = TypeVar("Found")


class Answers(NamedTuple, Generic[Found]):
    """What one broker said: each partition that it was asked for is in one of the two."""

    found: dict[TopicPartition, Found]
    #: each with its code
    errors: dict[TopicPartition, ClientError]


@dataclass(frozen=True, slots=True)
class Question(Generic[Found]):
    """What is asked of each leader."""

    #: what Kafka calls the request, and what is asked for
    name: str
    what: str
    #: request(rows): the message. A row: topic id, index, the leader epoch believed in, what is wanted
    request: Callable[[Sequence[tuple[bytes, int, int, int]]], Any]
    #: what a row of the answer without an error says
    found_in: Callable[[Any], Found]


async def ask_leaders(
    cluster: ClusterClient,
    clock: Clock,
    question: Question[Found],
    wanted: Mapping[TopicPartition, int],
    timeout_ms: float,
) -> dict[TopicPartition, Found]:
    """What the leader of each partition has answered. Raises: ClientError, TimedOut."""
    repetitions = Repetitions(clock, timeout_ms, _BACKOFF)
    found: dict[TopicPartition, Found] = {}
    while True:
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await cluster.topic(topic, max(0, repetitions.deadline_ms - clock.now_ms()))
        problem, code = "no leader", ErrorCode.LEADER_NOT_AVAILABLE
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, asked in wanted.items():
            if partition not in found:
                leader = cluster.cache.leader(*partition)
                by_leader.setdefault(leader.broker_id, {})[partition] = asked
        for broker_id in sorted(broker_id for broker_id in by_leader if broker_id >= 0):
            asked_here, deadline_ms = by_leader[broker_id], repetitions.deadline_ms
            answers = await ask_leader(cluster, clock, question, broker_id, asked_here, deadline_ms)
            found |= answers.found
            for error in answers.errors.values():
                assert error.code is not None
                if not error.code.is_retriable:
                    raise error
                problem, code = str(error), error.code
        if len(found) == len(wanted):
            return found
        text = f"{question.what} were not to be had within {timeout_ms:g} ms: {problem}"
        await repetitions.pause(text, code)
        if code is not ErrorCode.OFFSET_NOT_AVAILABLE:
            await cluster.refreshed(repetitions.deadline_ms)


async def ask_leader(
    cluster: ClusterClient,
    clock: Clock,
    question: Question[Found],
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    deadline_ms: int,
) -> Answers[Found]:
    """Ask this broker once about each. Raises nothing: one partition's trouble is not that of the others."""
    answers: Answers[Found] = Answers({}, {})
    for portion in portions(wanted.items(), ROWS_MAX):
        found, errors = await _ask_portion(cluster, clock, question, broker_id, dict(portion), deadline_ms)
        answers.found.update(found)
        answers.errors.update(errors)
    return answers


async def _ask_portion(
    cluster: ClusterClient,
    clock: Clock,
    question: Question[Found],
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    deadline_ms: int,
) -> Answers[Found]:
    try:
        channel = await cluster.connect(broker_id)
        # Only now: connecting takes time, in which topics are deleted.
        asked = [partition for partition in wanted if cluster.cache.topic(partition.topic) is not None]
        answers: Answers[Found] = Answers({}, {p: _deleted(p.topic) for p in wanted if p not in asked})
        if not asked:
            return answers
        left_ms = min(_CALL_TIMEOUT_MS, max(1, deadline_ms - clock.now_ms()))
        response = await channel.call(question.request(_rows(cluster, asked, wanted)), left_ms)
    except (NetworkError, ClientError) as error:
        cluster.suspect(broker_id)
        problem = ClientError(str(error), ErrorCode.NETWORK_EXCEPTION)
        return Answers({}, dict.fromkeys(wanted, problem))
    except CallRefused as error:
        if error.error_code.is_retriable:
            cluster.suspect(broker_id)  # it starts, stops or is overloaded: others know who leads
        problem = ClientError(f"{question.name} was refused: {error}", error.error_code)
        return Answers({}, dict.fromkeys(wanted, problem))
    whole = code_of(response.error_code)
    if whole is not ErrorCode.NONE:
        problem = ClientError(f"{whole.name}: {response.error_message}", whole)
        answers.errors.update(dict.fromkeys(asked, problem))
        return answers
    for partition, row in zip(asked, response.partitions, strict=True):
        code = code_of(row.error_code)
        if code is ErrorCode.NONE:
            answers.found[partition] = question.found_in(row)
        else:
            text = f"{partition.topic}-{partition.partition}: {code.name}"
            answers.errors[partition] = ClientError(text, code)
    return answers


def _rows(
    cluster: ClusterClient, asked: Sequence[TopicPartition], wanted: Mapping[TopicPartition, int]
) -> list[tuple[bytes, int, int, int]]:
    rows = []
    for partition in asked:
        view = cluster.cache.topic(partition.topic)
        assert view is not None
        epoch = cluster.cache.leader(*partition).leader_epoch
        rows.append((view.topic_id, partition.partition, epoch, wanted[partition]))
    return rows


def _deleted(topic: str) -> ClientError:
    return ClientError(f"topic {topic} was deleted meanwhile", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
