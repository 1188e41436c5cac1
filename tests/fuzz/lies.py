"""Requests that nodes send one another, well formed, in a node's name and with values that may be true.

`lies(...)` makes them from a seed; `tell(...)` sends them to listeners and reads no answer.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.messages import APIS
from holdfast.protocol.schema.fields import FieldType, Kind, SchemaError, schema_of

#: what nodes ask one another, and the operator's word on a voter's disk
TOLD = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.ALTER_PARTITION,
    ApiKey.GET_REPLICA_LOG_INFO,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ADD_RAFT_VOTER,
)
NODE_IDS = (1, 2, 3, 101, 102, 103)
PER_CONNECTION = 20


def lies(seed: int, cluster_id: str, topic_ids: Sequence[bytes]) -> Iterator[bytes]:
    """Frames, without end."""
    chance = random.Random(seed)
    while True:
        api = APIS[chance.choice(TOLD)]
        message = _message(chance, api.request, cluster_id, topic_ids)
        try:
            yield b"".join(encode_request(api, api.max_version, 1, "liar", message))
        except SchemaError:
            continue  # a value that this schema does not let out


async def tell(ports: Sequence[int], frames: Iterator[bytes], count: int) -> None:
    """Send so many to each, some on a connection. One that is hung up on goes on with the next."""
    await asyncio.gather(*(_tell(port, frames, count) for port in ports))


async def _tell(port: int, frames: Iterator[bytes], count: int) -> None:
    for _ in range(count // PER_CONNECTION):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in range(PER_CONNECTION):
                writer.write(next(frames))
                await writer.drain()
        except OSError:
            continue
        finally:
            writer.close()


def _message(chance: random.Random, cls: type, cluster_id: str, topic_ids: Sequence[bytes]) -> Any:
    def value(type_: FieldType, name: str) -> Any:
        if type_.kind is Kind.STRUCT:
            assert type_.cls is not None
            return _message(chance, type_.cls, cluster_id, topic_ids)
        if type_.kind is Kind.ARRAY:
            assert type_.of is not None
            return tuple(value(type_.of, name) for _ in range(chance.choice((0, 1, 1, 2, 3))))
        if type_.kind is Kind.NULLABLE:
            assert type_.of is not None
            return None if chance.random() < 0.3 else value(type_.of, name)
        if type_.name.startswith("int"):
            of_nodes = NODE_IDS * 2 if name.endswith(("id", "ids", "successors")) else ()
            known = (type_.low, type_.high, 0, -1, *range(1, 11), *of_nodes)
            return chance.choice([number for number in known if type_.low <= number <= type_.high])
        choices: dict[str, Sequence[Any]] = {
            "boolean": (False, True),
            "uuid": (*topic_ids, *topic_ids, bytes(16), chance.randbytes(16)),
            "string": (cluster_id, cluster_id, "", "127.0.0.1", "INTERNAL"),
            "bytes": (b"", bytes(100)),
        }
        return chance.choice(choices[type_.name])

    return cls(**{spec.name: value(spec.type, spec.name) for spec in schema_of(cls)})
