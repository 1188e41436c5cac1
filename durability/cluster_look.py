"""What the cluster's metadata says of topics: their ids, how many partitions, which replicas and which are in
sync. One question, asked after the ledger was read, and again before anything is said against a topic."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.client.admin import Admin
from holdfast.client.admin_configs import Resource
from holdfast.client.core.errors import ClientError, RowError
from holdfast.durability.read_options import EARLIEST
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.id_text import encode_id
from holdfast.runtime.real.machine import new_event_loop, real_runtime

_CLIENT_ID = "holdfast-validate"
_POLICY = "cleanup.policy"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """One partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicLook:
    """One topic."""

    #: as Kafka writes it
    topic_id: str
    partitions: dict[int, PartitionLook]


@dataclass(frozen=True, slots=True)
class TopicNow:
    """What a topic is at this moment."""

    #: as Kafka writes it
    topic_id: str
    is_compacted: bool
    partitions: int


def look(bootstrap_servers: str, topics: Iterable[str], timeout_ms: int) -> dict[str, TopicLook]:
    """Topic -> what is known of it. Raises: ClientError (also for a topic that there is not)."""
    return _asked(bootstrap_servers, lambda admin: _look(admin, sorted(set(topics)), timeout_ms))


def check_same(before: Mapping[str, TopicLook], now: Mapping[str, TopicLook]) -> None:
    """Raises: ClientError for a topic that is another one of its name."""
    for name, topic in now.items():
        if name in before and topic.topic_id != before[name].topic_id:
            raise ClientError(
                f"topic {name} was deleted and created again while it was judged: its id was "
                f"{before[name].topic_id} and is {topic.topic_id}"
            )


def why_not_judged(bootstrap_servers: str, topics: Iterable[str], timeout_ms: int) -> str | None:
    """Why no verdict can be given on these topics: some are compacted; None when none is. Raises:
    ClientError."""
    compacted = _asked(bootstrap_servers, lambda admin: _compacted(admin, sorted(set(topics)), timeout_ms))
    return why_compacted(compacted) if compacted else None


def why_compacted(topics: Iterable[str]) -> str:
    """Why nothing is said of these topics."""
    return (
        f"{', '.join(topics)}: cleanup.policy has compact, so records are removed on purpose; "
        "sends to a compacted topic are not judged"
    )


def look_now(bootstrap_servers: str, topics: Iterable[str], timeout_ms: int) -> dict[str, TopicNow]:
    """Topic -> what it is, of those among these that there are. Raises: ClientError."""
    return _asked(bootstrap_servers, lambda admin: _look_now(admin, sorted(set(topics)), timeout_ms))


def id_of_cluster(bootstrap_servers: str, timeout_ms: int) -> str:
    """Raises: ClientError."""
    return _asked(bootstrap_servers, lambda admin: _cluster_id(admin, timeout_ms))


def log_starts(
    bootstrap_servers: str, places: Collection[tuple[str, int]], timeout_ms: int
) -> dict[tuple[str, int], int]:
    """(topic, partition) -> first offset that is kept. Raises: ClientError."""
    asked = dict.fromkeys(places, EARLIEST)
    found = _asked(bootstrap_servers, lambda admin: admin.list_offsets(asked, timeout_ms=timeout_ms))
    return {(place.topic, place.partition): row.offset for place, row in found.items()}


def _asked(servers: str, ask: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    runtime = real_runtime()

    async def asked() -> T:
        admin = Admin(servers, client_id=_CLIENT_ID, runtime=runtime)
        try:
            return await ask(admin)
        finally:
            await admin.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(asked())
        finally:
            runner.run(runtime.tasks.cancel_all())


async def _cluster_id(admin: Admin, timeout_ms: int) -> str:
    return (await admin.describe_cluster(timeout_ms=timeout_ms)).cluster_id


async def _compacted(admin: Admin, topics: list[str], timeout_ms: int) -> list[str]:
    """Those whose records may be removed on purpose. Raises: ClientError, also for one of which the cluster
    does not say so or otherwise."""
    resources = [Resource.topic(topic) for topic in topics]
    found = await admin.describe_configs(resources, [_POLICY], timeout_ms=timeout_ms)
    compacted = []
    for resource in resources:
        rows = found[resource]
        if isinstance(rows, RowError):
            raise ClientError(f"{_POLICY} of topic {resource.name}: {rows}", rows.code)
        policies = [row.value for row in rows if row.name == _POLICY and row.value is not None]
        if not policies:
            raise ClientError(f"{_POLICY} of topic {resource.name}: the cluster does not tell it")
        if any("compact" in policy for policy in policies):
            compacted.append(resource.name)
    return compacted


async def _look_now(admin: Admin, topics: list[str], timeout_ms: int) -> dict[str, TopicNow]:
    ids, partitions = {}, {}
    for topic in await admin.describe_topics(topics, timeout_ms=timeout_ms) if topics else ():
        if topic.error_code == ErrorCode.NONE:
            ids[topic.name] = encode_id(topic.topic_id)
            partitions[topic.name] = len(topic.partitions)
        elif topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = ErrorCode(topic.error_code)
            raise ClientError(f"topic {topic.name}: {code.name}", code)
    compacted = await _compacted(admin, list(ids), timeout_ms) if ids else []
    return {name: TopicNow(topic_id, name in compacted, partitions[name]) for name, topic_id in ids.items()}


async def _look(admin: Admin, topics: list[str], timeout_ms: int) -> dict[str, TopicLook]:
    found = {}
    for topic in await admin.describe_topics(topics, timeout_ms=timeout_ms):
        if topic.error_code != ErrorCode.NONE:
            code = ErrorCode(topic.error_code)
            raise ClientError(f"topic {topic.name}: {code.name}", code)
        rows = {row.partition_index: PartitionLook(row.replicas, row.isr) for row in topic.partitions}
        found[topic.name] = TopicLook(encode_id(topic.topic_id), rows)
    return found
