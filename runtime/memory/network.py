"""Connections inside one process: bytes keep their order, a later turn of the event loop brings them.

TCP's truth holds: within one connection nothing is lost, repeated or reordered; trouble is delay, or the end
of the connection. One network may serve the runtimes of several nodes. A test can kill what
listens at a port, reset its connections, or cut it off.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from holdfast.runtime.api import (
    Buffer,
    Clock,
    ConnectionHandler,
    ConnectionRefused,
    ConnectTimeout,
    NetworkError,
)

#: queued bytes above which a writer is asked to pause, and below which it may go on
WRITE_HIGH_BYTES = 1 << 20
WRITE_LOW_BYTES = 1 << 18
_FIRST_PORT = 40_000
_ANY_HOST = ""
_SAME_HOST = {"localhost": "127.0.0.1", "0.0.0.0": _ANY_HOST, "::": _ANY_HOST}


class _End(Enum):
    ORDERLY = "orderly"
    RESET = "reset"


class MemoryConnection:
    """One end of a connection."""

    def __init__(self, network: "MemoryNetwork", handler: ConnectionHandler, peer: str, port: int) -> None:
        self._network = network
        self._handler = handler
        self._peer = peer
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._other = self
        #: what the other end has not received yet, in order; an `_End` is always the last
        self._outgoing: deque[bytes | _End] = deque()
        self._queued_bytes = 0
        self._is_delivery_due = False
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_closing = False
        self._is_lost = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    @property
    def unsent_bytes(self) -> int:
        return self._queued_bytes

    @property
    def port(self) -> int:
        """The listener's port, the same on both ends."""
        return self._port

    def write(self, buffers: Sequence[Buffer]) -> None:
        if self._is_closing:
            return
        data = b"".join(buffers)
        if not data:
            return
        self._outgoing.append(data)
        self._queued_bytes += len(data)
        self.deliver_soon()
        if self._queued_bytes > WRITE_HIGH_BYTES and not self._is_writing_paused:
            self._is_writing_paused = True
            self._handler.pause_writing()

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._other.deliver_soon()

    def close(self) -> None:
        self._end(_End.ORDERLY)

    def abort(self) -> None:
        self._outgoing.clear()
        self._end(_End.RESET)

    def reset(self) -> None:
        """Both ends lose the connection, as when a machine on the way forgot it."""
        for end in (self, self._other):
            end._outgoing.clear()
            end._is_closing = True
            self._loop.call_soon(end._lose, end._reset_error())

    def join(self, other: "MemoryConnection") -> None:
        """Make `other` the other end of this one."""
        self._other = other

    def deliver_soon(self) -> None:
        """Look at the queue on the next turn."""
        if self._outgoing and not self._is_delivery_due:
            self._is_delivery_due = True
            self._loop.call_soon(self._deliver)

    def deliver_both_ways(self) -> None:
        """Look at both queues: the port is reachable again, and the other end may have closed meanwhile."""
        self.deliver_soon()
        self._other.deliver_soon()

    def _end(self, how: _End) -> None:
        if self._is_lost or (self._is_closing and how is _End.ORDERLY):
            return
        self._is_closing = True
        self._outgoing.append(how)
        self.deliver_soon()
        self._loop.call_soon(self._lose, None)

    def _deliver(self) -> None:
        self._is_delivery_due = False
        other = self._other
        if not self._outgoing or self._network.is_cut_off(self._port):
            return
        if other._is_closing:
            self._outgoing.clear()
            return
        if other._is_reading_paused and self._outgoing[0] is not _End.RESET:
            return
        data = self._outgoing.popleft()
        if isinstance(data, _End):
            other._is_closing = True
            other._outgoing.clear()
            other._lose(None if data is _End.ORDERLY else other._reset_error())
            return
        self._queued_bytes -= len(data)
        self.deliver_soon()
        if self._is_writing_paused and self._queued_bytes < WRITE_LOW_BYTES and not self._is_closing:
            self._is_writing_paused = False
            self._loop.call_soon(self._handler.resume_writing)
        other._handler.bytes_received(data)

    def _lose(self, error: NetworkError | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._network.forget(self)
            self._handler.connection_lost(error)

    def _reset_error(self) -> NetworkError:
        return NetworkError(f"{self._peer} reset the connection")


class MemoryListener:
    """`runtime.api.Listener`."""

    def __init__(
        self, network: "MemoryNetwork", host: str, port: int, handler: Callable[[], ConnectionHandler]
    ) -> None:
        self._network = network
        self._host = host
        self._port = port
        self.handler = handler

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        self._network.stop_listening(self._host, self._port)


class MemoryNetwork:
    """`runtime.api.Network`, and the handles by which a test plays the world."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        #: open ends, in order of creation
        self._connections: dict[MemoryConnection, None] = {}
        self._cut_off: set[int] = set()
        self._next_port = _FIRST_PORT

    # --- what a test does to it -------------------------------------------------------------------------

    def kill(self, port: int) -> None:
        """What listens at `port` died: its connections are reset, new ones are refused."""
        for key in [key for key in self._listeners if key[1] == port]:
            del self._listeners[key]
        self.reset_connections(port)

    def reset_connections(self, port: int) -> None:
        for connection in list(self._connections):
            if connection.port == port:
                connection.reset()

    def cut_off(self, port: int) -> None:
        """From now on nothing gets to or from what listens at `port`: connecting times out, bytes wait."""
        self._cut_off.add(port)

    def mend(self, port: int) -> None:
        """Undo `cut_off`: what waited arrives."""
        self._cut_off.discard(port)
        for connection in self._connections:
            if connection.port == port:
                connection.deliver_both_ways()

    def is_cut_off(self, port: int) -> bool:
        return port in self._cut_off

    # --- Network ----------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, handler: Callable[[], ConnectionHandler]) -> MemoryListener:
        await asyncio.sleep(0)
        host = _SAME_HOST.get(host, host)
        if port == 0:
            port = self._take_port()
        if (host, port) in self._listeners or (_ANY_HOST, port) in self._listeners:
            raise NetworkError(f"{host}:{port} is in use")
        listener = self._listeners[host, port] = MemoryListener(self, host, port, handler)
        return listener

    async def connect(
        self, host: str, port: int, handler: ConnectionHandler, timeout_ms: float
    ) -> MemoryConnection:
        peer = f"{host}:{port}"
        host = _SAME_HOST.get(host, host)
        await asyncio.sleep(0)
        if port in self._cut_off:
            await self._clock.sleep(timeout_ms)
            raise ConnectTimeout(f"{peer} did not answer within {timeout_ms:g} ms")
        listener = self._listeners.get((host, port)) or self._listeners.get((_ANY_HOST, port))
        if listener is None:
            raise ConnectionRefused(f"{peer} refused the connection: no process listens there")
        server_handler = listener.handler()
        client_end = MemoryConnection(self, handler, peer, port)
        server_end = MemoryConnection(self, server_handler, f"127.0.0.1:{self._take_port()}", port)
        client_end.join(server_end)
        server_end.join(client_end)
        self._connections[client_end] = None
        self._connections[server_end] = None
        server_handler.connection_made(server_end)
        handler.connection_made(client_end)
        return client_end

    # --- inside -----------------------------------------------------------------------------------------

    def stop_listening(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)

    def forget(self, connection: MemoryConnection) -> None:
        self._connections.pop(connection, None)

    def _take_port(self) -> int:
        port = self._next_port
        self._next_port += 1
        return port
