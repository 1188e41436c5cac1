"""What the cluster's metadata says of topics: their ids, how many partitions, which replicas and which are in
sync. One question, asked after the ledger was read."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.id_text import encode_id
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import new_event_loop, real_runtime

_CLIENT_ID = "holdfast-validate"


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


def look(bootstrap_servers: str, topics: Iterable[str], timeout_ms: int) -> dict[str, TopicLook]:
    """Topic -> what is known of it. Raises: ClientError (also for a topic that there is not)."""
    runtime = real_runtime()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(_look(runtime, bootstrap_servers, sorted(set(topics)), timeout_ms))
        finally:
            runner.run(runtime.tasks.cancel_all())


async def _look(runtime: Runtime, servers: str, topics: list[str], timeout_ms: int) -> dict[str, TopicLook]:
    admin = Admin(servers, client_id=_CLIENT_ID, runtime=runtime)
    try:
        found = {}
        for topic in await admin.describe_topics(topics, timeout_ms=timeout_ms):
            if topic.error_code != ErrorCode.NONE:
                code = ErrorCode(topic.error_code)
                raise ClientError(f"topic {topic.name}: {code.name}", code)
            rows = {row.partition_index: PartitionLook(row.replicas, row.isr) for row in topic.partitions}
            found[topic.name] = TopicLook(encode_id(topic.topic_id), rows)
        return found
    finally:
        await admin.close()
