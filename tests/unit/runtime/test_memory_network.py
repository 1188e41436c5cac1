"""What a test can do to the network in memory. That it is a Network is checked in tests/contract."""

import pytest

from holdfast.runtime.api import Connection, ConnectionRefused, NetworkError
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle


class End:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: list[NetworkError | None] = []

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def bytes_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None:
        self.lost.append(error)


@pytest.fixture
async def ends() -> tuple[MemoryWorld, End, End]:
    """The world, the end that connected to port 9092, the end that listens there."""
    runtime, world = memory_runtime()
    near, far = End(), End()
    await runtime.network.listen("0.0.0.0", 9092, lambda: far)
    await runtime.network.connect("broker-1", 9092, near, 1000)
    return world, near, far


async def test_killed_port_resets_its_connections_and_refuses_new_ones(
    ends: tuple[MemoryWorld, End, End],
) -> None:
    world, near, far = ends
    near.connection.write([b"in flight"])
    world.network.kill(9092)
    await settle()
    assert far.received == b""
    assert [type(error) for error in near.lost] == [NetworkError]
    assert len(far.lost) == 1
    with pytest.raises(ConnectionRefused):
        await world.network.connect("broker-1", 9092, End(), 1000)


async def test_reset_leaves_the_listener(ends: tuple[MemoryWorld, End, End]) -> None:
    world, near, far = ends
    world.network.reset_connections(9092)
    await settle()
    assert len(near.lost) == len(far.lost) == 1
    await world.network.connect("broker-1", 9092, near, 1000)


async def test_bytes_for_a_port_that_is_cut_off_wait_until_it_is_mended(
    ends: tuple[MemoryWorld, End, End],
) -> None:
    world, near, far = ends
    world.network.cut_off(9092)
    near.connection.write([b"request"])
    far.connection.write([b"answer"])
    await settle()
    assert near.received == far.received == b""
    world.network.mend(9092)
    await settle()
    assert far.received == b"request"
    assert near.received == b"answer"


async def test_end_of_a_connection_waits_behind_the_cut_too(ends: tuple[MemoryWorld, End, End]) -> None:
    world, near, far = ends
    world.network.cut_off(9092)
    near.connection.write([b"last words"])
    near.connection.close()
    await settle()
    assert near.lost == [None]
    assert far.lost == []
    world.network.mend(9092)
    await settle()
    assert far.received == b"last words"
    assert far.lost == [None]
