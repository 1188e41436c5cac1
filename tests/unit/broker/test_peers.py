"""Connections to fetch sources: a session that is closed at any moment disturbs no other (N-4)."""

import asyncio

import pytest

from holdfast.broker.core.events import CloseSource, Event, SendFetch
from holdfast.broker.peers import Peers
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.messages.fetch import FetchRequest
from holdfast.protocol.messages.quorum import DescribeQuorumRequest
from holdfast.rpc.channel import CallTimedOut, NotConnected
from holdfast.rpc.server import Server
from holdfast.runtime.memory.machine import memory_runtime, settle

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


@pytest.mark.parametrize(
    ("listener", "expected", "missed"),
    [
        pytest.param(None, NotConnected, 1, id="no process"),
        pytest.param(102, NotConnected, 1, id="another node"),
        pytest.param(101, CallTimedOut, 0, id="slow"),
    ],
)
async def test_a_controller_that_is_not_met_where_it_should_be_is_looked_for_elsewhere(
    listener: int | None, expected: type[Exception], missed: int
) -> None:
    """K30. One that is slow is where it should be."""
    runtime, world = memory_runtime(1)
    peers, found = Peers(runtime, 2, {101: ("localhost", 9001)}, lambda event: None), []

    def note(controller_id: int, address: tuple[str, int]) -> bool:
        found.append((controller_id, address))
        return True

    peers.address_missed = note
    if listener is not None:
        handlers = {ApiKey.DESCRIBE_QUORUM: lambda exchange: None}
        await Server(runtime, listener, "CONTROLLER", handlers).start("localhost", 9001)
    asked = asyncio.ensure_future(peers.ask_controller(101, DescribeQuorumRequest(), 500))
    await settle()
    await world.clock.advance(600)
    with pytest.raises(expected):
        await asked
    assert len(found) == missed
    peers.close()
