"""What every Network, Listener and Connection promises."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.runtime.api import Buffer, Connection, ConnectionRefused, ConnectTimeout, Listener, NetworkError
from tests.contract.conftest import World

LOST = "lost"


class Recorder:
    """A ConnectionHandler that writes down what it hears and lets a test wait for it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.received = bytearray()
        self.errors: list[NetworkError | None] = []
        self.connection: Connection | None = None
        self._changed = asyncio.Event()

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection
        self._note("made")

    def bytes_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.received += data
        self._note("bytes")

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, error: NetworkError | None) -> None:
        self.errors.append(error)
        self._note(LOST)

    def _note(self, what: str) -> None:
        self.heard.append(what)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def until_lost(self) -> None:
        await self.until(lambda: LOST in self.heard)


class Pair:
    """A connection with a recorder at either end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = Recorder()
        self.servers: list[Recorder] = []
        self._accepted = asyncio.Event()

    def accept(self) -> Recorder:
        self.servers.append(Recorder())
        self._accepted.set()
        return self.servers[-1]

    async def close(self) -> None:
        """Leave nothing open: uvloop's transports warn about it when the loop is closed."""
        for end in (self.client, *self.servers):
            if end.connection is not None:
                end.connection.abort()
                await end.until_lost()

    async def until_accepted(self, count: int) -> None:
        """Until `count` connections have come and are established."""
        while len(self.servers) < count:
            self._accepted.clear()
            await self._accepted.wait()
        for server in self.servers:
            await server.until(lambda server=server: server.connection is not None)  # type: ignore[misc]

    async def listen(self) -> Listener:
        return await self.world.runtime.network.listen("127.0.0.1", 0, self.accept)

    async def connect(self) -> tuple[Connection, Connection]:
        """(client's end, server's end)."""
        listener = await self.listen()
        near = await self.world.runtime.network.connect("127.0.0.1", listener.port, self.client, 5000)
        await self.until_accepted(1)
        await listener.close()
        assert self.server.connection is not None
        return near, self.server.connection

    @property
    def server(self) -> Recorder:
        return self.servers[0]


@pytest.fixture
async def pair(world: World) -> AsyncIterator[Pair]:
    pair = Pair(world)
    yield pair
    await pair.close()


async def test_bytes_arrive_in_order_in_both_directions(pair: Pair) -> None:
    near, far = await pair.connect()
    assert pair.client.heard == ["made"]
    near.write([b"a", bytearray(b"bc"), memoryview(b"xdex")[1:3]])
    near.write([])
    near.write([b"f"])
    far.write([b"answer"])
    await pair.server.until(lambda: len(pair.server.received) == 6)
    await pair.client.until(lambda: len(pair.client.received) == 6)
    assert pair.server.received == b"abcdef"
    assert pair.client.received == b"answer"


async def test_large_writes_arrive_whole(pair: Pair) -> None:
    near, far = await pair.connect()
    pieces: list[Buffer] = [bytes([number]) * 100_000 for number in range(100)]
    near.write(pieces)
    far.write(pieces)
    await pair.server.until(lambda: len(pair.server.received) == 10_000_000)
    await pair.client.until(lambda: len(pair.client.received) == 10_000_000)
    assert pair.server.received == pair.client.received == b"".join(pieces)


async def test_each_connection_gets_a_handler_of_its_own_and_knows_its_peer(pair: Pair) -> None:
    listener = await pair.listen()
    others = [Recorder(), Recorder()]
    for number, recorder in enumerate(others):
        end = await pair.world.runtime.network.connect("127.0.0.1", listener.port, recorder, 5000)
        assert end.peer == f"127.0.0.1:{listener.port}"
        end.write([b"%d" % number])
    await pair.until_accepted(2)
    for number, server in enumerate(pair.servers):
        await server.until(lambda server=server: bool(server.received))  # type: ignore[misc]
        assert server.received == b"%d" % number
        assert server.connection is not None
        assert server.connection.peer.startswith("127.0.0.1:")
        server.connection.close()
        await others[number].until_lost()
    await listener.close()


async def test_a_port_without_a_listener_is_refused(world: World, pair: Pair) -> None:
    listener = await pair.listen()
    await listener.close()
    with pytest.raises(ConnectionRefused, match=f"127.0.0.1:{listener.port}"):
        await world.runtime.network.connect("127.0.0.1", listener.port, pair.client, 5000)
    with pytest.raises(ConnectionRefused):
        await world.runtime.network.connect("localhost", listener.port, pair.client, 5000)
    assert pair.client.heard == []


async def test_silence_is_a_timeout_and_no_evidence(world: World, pair: Pair) -> None:
    port = await world.silent_port()
    errors: list[NetworkError] = []

    async def attempt() -> None:
        try:
            await world.runtime.network.connect("127.0.0.1", port, pair.client, 50)
        except NetworkError as error:
            errors.append(error)

    task = world.runtime.tasks.start("attempt", attempt())
    await world.pass_time(50)
    await task.wait()
    assert [type(error) for error in errors] == [ConnectTimeout]


async def test_a_taken_port_is_an_error(world: World, pair: Pair) -> None:
    listener = await pair.listen()
    with pytest.raises(NetworkError, match=str(listener.port)):
        await world.runtime.network.listen("127.0.0.1", listener.port, pair.accept)
    await listener.close()
    again = await world.runtime.network.listen("127.0.0.1", listener.port, pair.accept)
    assert again.port == listener.port
    await again.close()


async def test_closing_a_listener_leaves_its_connections_open(pair: Pair) -> None:
    near, far = await pair.connect()  # closes the listener
    near.write([b"still here"])
    await pair.server.until(lambda: pair.server.received == b"still here")
    assert not far.is_closing


async def test_close_sends_what_is_queued_first_and_is_orderly_for_both(pair: Pair) -> None:
    near, _ = await pair.connect()
    near.write([bytes(3_000_000)])
    near.close()
    assert near.is_closing
    near.write([b"dropped"])
    near.close()
    await pair.server.until_lost()
    await pair.client.until_lost()
    assert len(pair.server.received) == 3_000_000
    assert pair.server.errors == [None]
    assert pair.client.errors == [None]
    assert pair.server.heard[-1] == pair.client.heard[-1] == LOST


async def test_abort_ends_both_sides_once(pair: Pair) -> None:
    near, far = await pair.connect()
    near.abort()
    near.abort()
    near.close()
    near.write([b"dropped"])
    await pair.client.until_lost()
    await pair.server.until_lost()
    far.write([b"dropped"])
    far.close()
    assert near.is_closing
    assert far.is_closing
    assert pair.client.heard.count(LOST) == pair.server.heard.count(LOST) == 1
    assert pair.client.errors == [None]


async def test_paused_reader_hears_nothing_until_it_resumes(pair: Pair) -> None:
    near, far = await pair.connect()
    far.pause_reading()
    far.pause_reading()
    near.write([b"held"])
    # A second connection's round trip is enough for the bytes above to have come, if they could.
    other = Pair(pair.world)
    end, _ = await other.connect()
    end.write([b"ping"])
    await other.server.until(lambda: other.server.received == b"ping")
    await other.close()
    assert pair.server.received == b""
    far.resume_reading()
    far.resume_reading()
    await pair.server.until(lambda: pair.server.received == b"held")


async def test_writer_is_paused_while_too_much_is_queued(pair: Pair) -> None:
    near, far = await pair.connect()
    far.pause_reading()
    sent = 0
    while "pause" not in pair.client.heard:
        near.write([bytes(1_000_000)])
        sent += 1_000_000
        await asyncio.sleep(0)
        assert sent < 100_000_000
    assert "resume" not in pair.client.heard
    far.resume_reading()
    await pair.client.until(lambda: "resume" in pair.client.heard)
    await pair.server.until(lambda: len(pair.server.received) == sent)
    assert pair.client.heard == ["made", "pause", "resume"]
