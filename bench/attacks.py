"""Rude clients: plain sockets that send what no honest client does, and come back when they are cut off.

Owns the bytes and the patience of each kind of attack; knows nothing of what it does to others. An attack
runs until it is cancelled and counts what it sent and how often it was shown the door.
"""

import asyncio
import contextlib
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.api_versions import ApiVersionsRequest
from holdfast.protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.metadata import MetadataRequest

MIB = 1 << 20
#: Before a client that was cut off comes back.
RETURN_S = 0.5


@dataclass(slots=True)
class Target:
    """The node that is attacked, and a partition that it leads with more records than one answer holds."""

    host: str
    port: int
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class Counts:
    """What an attack did."""

    connections: int = 0
    requests: int = 0
    sent_bytes: int = 0
    #: connections that the node ended or refused
    cut: int = 0


class Attack(ABC):
    """One kind, with so many connections."""

    def __init__(self, target: Target, connections: int) -> None:
        self.target = target
        self.counts = Counts()
        self._connections = connections

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.gather(*(self._come_back() for _ in range(self._connections)))

    async def _come_back(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    self.target.host, self.target.port, limit=self.read_limit
                )
            except OSError:
                self.counts.cut += 1
            else:
                self.counts.connections += 1
                try:
                    await self.client(reader, writer)
                except (OSError, asyncio.IncompleteReadError):
                    self.counts.cut += 1
                finally:
                    writer.transport.abort()
            await asyncio.sleep(RETURN_S)

    #: bytes that asyncio reads ahead
    read_limit = 64 << 10

    @abstractmethod
    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What one connection does, until it is cut off."""

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.counts.sent_bytes += len(data)


class PartialFrames(Attack):
    """20 MiB of a request of 21, and no more."""

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._send(writer, struct.pack(">II", 21 * MIB, 100))
        chunk = bytes(MIB)
        for _ in range(20):
            await self._send(writer, chunk)
        self.counts.requests += 1
        await reader.readexactly(1)


class UnreadFetches(Attack):
    """Fetches of 64 MiB, whose answers are never read."""

    read_limit = 1

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Without a byte of answer: the kernel's buffers fill up, and then the node's.
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport reads too
        fetch = FetchRequest(
            cluster_id=None,
            replica_id=CONSUMER_REPLICA_ID,
            broker_epoch=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=64 * MIB,
            partitions=(
                FetchPartition(
                    topic_id=self.target.topic_id,
                    partition_index=self.target.partition,
                    current_leader_epoch=-1,
                    fetch_offset=0,
                    last_fetched_epoch=-1,
                    flushed_offset=-1,
                    max_bytes=64 * MIB,
                ),
            ),
        )
        await self._send(writer, _request(ApiKey.FETCH, 1, fetch))
        self.counts.requests += 1
        while True:
            # Only a write hears that the node has hung up, as long as nothing is read.
            await asyncio.sleep(1)
            await self._send(writer, _request(ApiKey.API_VERSIONS, 2, ApiVersionsRequest(software="rude")))


class UnknownNames(Attack):
    """Metadata of 100 000 topics that do not exist, one question after the other."""

    names = 100_000

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = _request(ApiKey.METADATA, 1, _names(self.names))
        while True:
            await self._send(writer, question)
            self.counts.requests += 1
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            await reader.readexactly(length)


class PipelinedFlood(Attack):
    """As many questions as the connection takes, without waiting for an answer."""

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        questions = b"".join(_request(ApiKey.METADATA, number, _names(100)) for number in range(100))
        reading = asyncio.ensure_future(_read_all(reader))
        try:
            while not reading.done():
                await self._send(writer, questions)
                self.counts.requests += 100
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


class ManyConnections(Attack):
    """Connections that say nothing."""

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)


async def _read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(MIB):
        pass


def _names(count: int) -> MetadataRequest:
    return MetadataRequest(topics=tuple(f"no-topic-{number}" for number in range(count)))


def _request(key: ApiKey, correlation_id: int, message: Any) -> bytes:
    return b"".join(encode_request(APIS[key], 0, correlation_id, "rude", message))


#: {name: (its class, connections)}
ATTACKS: dict[str, tuple[type[Attack], int]] = {
    "partial-frames": (PartialFrames, 100),
    "unread-fetches": (UnreadFetches, 100),
    "unknown-names": (UnknownNames, 1),
    "pipelined-flood": (PipelinedFlood, 40),
    "many-connections": (ManyConnections, 2_000),
}
