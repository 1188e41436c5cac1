"""TCP through the event loop, with callbacks: no stream objects, no copies of ours.

Owns the mapping between the loop's transports and `runtime.api`, and between OSError and NetworkError.
`writelines` is one writev at the end of a loop turn under uvloop, however many frames were queued.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import cast

from holdfast.runtime.api import Buffer, ConnectionHandler, ConnectionRefused, ConnectTimeout, NetworkError

#: queued bytes above which the handler is asked to pause, and below which it may go on
WRITE_HIGH_BYTES = 4 << 20
WRITE_LOW_BYTES = 1 << 20
#: connections the kernel keeps until we accept them: a cluster's clients come back all at once
BACKLOG = 1024
PORT_MAX = 65_535


class RealConnection(asyncio.Protocol):
    """`runtime.api.Connection`, and the loop's protocol behind it."""

    def __init__(self, handler: ConnectionHandler, peer: str = "") -> None:
        self._handler = handler
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._is_plain_asyncio = True
        self._is_reading_paused = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, buffers: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_plain_asyncio:
            # Its writelines forgets to pause the writer in Python 3.12.0 to 3.13.0.
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def pause_reading(self) -> None:
        if not self._is_reading_paused and not self.is_closing:
            assert self._transport is not None
            self._is_reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self.is_closing:
            assert self._transport is not None
            self._is_reading_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods, but not the base class.
        self._is_plain_asyncio = isinstance(transport, asyncio.Transport)
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        # A frame must not wait for the peer's acknowledgement of the one before it.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        if not self._peer:
            self._peer = _address(transport.get_extra_info("peername"))
        self._handler.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self._handler.bytes_received(data)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._handler.connection_lost(None if exc is None else NetworkError(f"{self._peer}: {_reason(exc)}"))


class RealListener:
    """`runtime.api.Listener`."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._port: int = server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        # Without wait_closed: from Python 3.12 on it waits for the connections too.
        self._server.close()


class RealNetwork:
    """`runtime.api.Network`."""

    async def listen(self, host: str, port: int, handler: Callable[[], ConnectionHandler]) -> RealListener:
        try:
            # One address: a name with two of them and port 0 would give two ports.
            address = (await _resolve(host, port))[0]
            server = await asyncio.get_running_loop().create_server(
                lambda: RealConnection(handler()), address, port, backlog=BACKLOG
            )
        except OSError as error:
            raise NetworkError(f"cannot listen at {host}:{port}: {_reason(error)}") from error
        return RealListener(server)

    async def connect(
        self, host: str, port: int, handler: ConnectionHandler, timeout_ms: float
    ) -> RealConnection:
        peer = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await _connect(host, port, RealConnection(handler, peer))
        except ConnectionRefusedError as error:
            raise ConnectionRefused(f"{peer} refused the connection: no process listens there") from error
        except TimeoutError as error:
            raise ConnectTimeout(f"{peer} did not answer within {timeout_ms:g} ms") from error
        except OSError as error:
            raise NetworkError(f"cannot connect to {peer}: {_reason(error)}") from error


async def _connect(host: str, port: int, connection: RealConnection) -> RealConnection:
    """Try each address of the name. The loop's own way would hide what failed behind a general error."""
    errors: list[OSError] = []
    for address in await _resolve(host, port):
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, address, port)
        except OSError as error:
            errors.append(error)
        else:
            return connection
    # Refused counts as evidence (D9) only when every address said so.
    raise next((error for error in errors if not isinstance(error, ConnectionRefusedError)), errors[0])


async def _resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, IPv4 first, without repetitions. Raises: OSError."""
    if not 0 <= port <= PORT_MAX:  # uvloop would connect to another port
        raise OSError(f"there is no port {port}")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"no host name: {error}") from error
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _address(name: object) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
