"""Connections to fetch sources: a session that is closed at any moment disturbs no other (N-4)."""

import asyncio

from holdfast.broker.core.events import CloseSource, Event, SendFetch
from holdfast.broker.peers import Peers
from holdfast.protocol.messages.fetch import FetchRequest
from holdfast.runtime.memory.machine import memory_runtime

FIRST = FetchRequest(
    cluster_id=None,
    replica_id=2,
    broker_epoch=7,
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1 << 20,
    partitions=(),
    session_id=1,
    session_epoch=0,
    forgotten=(),
)


async def test_a_session_closed_before_its_connection_was_begun_is_quietly_forgotten() -> None:
    runtime, _ = memory_runtime(1)
    posted: list[Event] = []
    peers = Peers(runtime, 2, {}, posted.append)
    peers.send_fetch(SendFetch(1, "127.0.0.1", 9092, FIRST, 2000, 1000))
    peers.close_source(CloseSource(1))
    await asyncio.sleep(0)
    await runtime.tasks.cancel_all()
    assert posted == []
