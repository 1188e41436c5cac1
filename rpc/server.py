"""The serving side: one listener of a node, its connections and its limits.

Owns which connections are taken in and who serves which API; never decides what an answer is. What happens in
a connection is in `rpc.server_connection`. Memory and time are shared with the node's other listeners
(`rpc.shares`). ApiVersions is the one API it answers by itself.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FRAME_MAX_BYTES
from holdfast.protocol.messages import APIS, Api
from holdfast.protocol.messages.api_versions import ApiVersionRange, ApiVersionsResponse
from holdfast.rpc.core.request_stats import RequestStats, families
from holdfast.rpc.exchange import Exchange as Exchange
from holdfast.rpc.exchange import Handler as Handler
from holdfast.rpc.server_connection import ServerConnection
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Listener, Runtime, Timer
from holdfast.runtime.stats import MetricFamily, MetricKind, Sample
from holdfast.runtime.tasks import fail_node

_log = logging.getLogger("holdfast.rpc")


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What peers may take of us. All per server or per connection of it."""

    connection_max: int = 10_000
    #: listeners of the node: together they take at most half of the files that it may have open
    listeners: int = 1
    #: most bytes of one frame behind its length
    frame_max_bytes: int = FRAME_MAX_BYTES
    #: most bytes of a request's msgpack body; unpacked it may take sixty times as much for a moment
    body_max_bytes: int = 2 << 20
    #: unanswered requests of one connection; at the limit the server stops reading from it
    in_flight_max: int = 256
    #: a frame that was begun, and the first one of a connection, must be complete after this
    frame_timeout_ms: int = 30_000
    #: a connection without unanswered requests that says nothing for so long is closed
    idle_max_ms: int = 600_000
    #: a peer that leaves so much unread for so long that no more can be sent is cut off. Long enough for the
    #: largest answer on a slow line.
    unread_max_ms: int = 600_000
    #: most bytes of answers that are queued for a peer while it leaves so much unread that none can be sent.
    #: A few of the largest: an honest reader has one of them under way, or two.
    unread_max_bytes: int = 4 * FRAME_MAX_BYTES
    #: how long queued answers may take to leave once the server has decided to close
    close_timeout_ms: int = 2_000


class Server:
    """One listener of a node."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        listener_name: str,
        handlers: Mapping[ApiKey, Handler],
        limits: ServerLimits = ServerLimits(),
        shares: NodeShares | None = None,
        member_apis: Container[ApiKey] = (),
    ) -> None:
        """`shares` is the node's, None for a server of its own without limits. Who sends a request of
        `member_apis` is taken for a node of the cluster, with its own share of the memory."""
        self.runtime = runtime
        self.shares = shares or NodeShares(runtime.clock)
        self.member_apis = member_apis
        self.node_id = node_id
        self.listener_name = listener_name
        self.limits = limits
        #: called with the connection id once a connection has ended, by either side
        self.on_disconnect: Callable[[int], None] | None = None
        own: dict[ApiKey, Handler] = {ApiKey.API_VERSIONS: self._answer_versions}
        assert ApiKey.API_VERSIONS not in handlers, "ApiVersions is answered by the server"
        #: {api_key: (api, handler)}
        self.routes: dict[int, tuple[Api, Handler]] = {
            int(key): (APIS[key], handler) for key, handler in sorted({**own, **handlers}.items())
        }
        self.request_stats: dict[Any, RequestStats] = {
            api.key: RequestStats() for api, _ in self.routes.values()
        }
        self._versions = ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            node_id=node_id,
            apis=tuple(
                ApiVersionRange(int(api.key), api.min_version, api.max_version)
                for api, _ in self.routes.values()
            ),
        )
        self._connection_max = limits.connection_max
        if runtime.open_files_max is not None:
            # The other half is for the logs: one that finds no file handle is taken for a dead disk.
            half = runtime.open_files_max // 2
            self._connection_max = min(self._connection_max, max(1, half // limits.listeners))
        self._connections: dict[int, ServerConnection] = {}
        self._connections_made = 0
        self._listener: Listener | None = None
        self._sweep_timer: Timer | None = None
        self._is_closing = False
        self._all_lost: asyncio.Future[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port. Raises: NetworkError."""
        assert self._listener is None, "a server starts once"
        asked = self.shares.connection_max
        wanted = self.limits.connection_max if asked is None else min(asked, self.limits.connection_max)
        if self._connection_max < wanted:
            _log.log(
                logging.INFO if asked is None else logging.WARNING,
                "listener %s takes %d connections at most instead of %d: "
                "this process may only open %d files; raise its limit (ulimit -n)",
                self.listener_name,
                self._connection_max,
                wanted,
                self.runtime.open_files_max,
            )
        self._listener = await self.runtime.network.listen(host, port, self.new_connection)
        return self._listener.port

    async def close(self) -> None:
        """Stop accepting, send the answers that are queued, end all connections. Unanswered requests are
        dropped. Takes at most `close_timeout_ms`."""
        self._is_closing = True
        if self._listener is not None:
            await self._listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if not self._connections:
            return
        self._all_lost = asyncio.get_running_loop().create_future()
        for connection in list(self._connections.values()):
            connection.close()
        timer = self.runtime.clock.call_later(self.limits.close_timeout_ms, self._abort_all)
        await self._all_lost
        timer.cancel()

    def fall_silent(self) -> None:
        """Send no answer and start no request from now on: an error is ending the node."""
        self._is_closing = True
        for connection in self._connections.values():
            connection.fall_silent()

    @property
    def connection_count(self) -> int:
        """Connections that are open or still sending their last answers."""
        return len(self._connections)

    @property
    def in_flight_count(self) -> int:
        """Requests that wait for an answer, over all connections."""
        return sum(connection.in_flight for connection in self._connections.values())

    def stats(self) -> list[MetricFamily]:
        """Connections and, by API, how many requests were answered, how, and how fast."""
        connections = Sample(len(self._connections), (("listener", self.listener_name),))
        return [
            MetricFamily("kafka_server_connections", MetricKind.GAUGE, "Open connections.", (connections,)),
            *families(self.request_stats, self.listener_name),
        ]

    def new_connection(self) -> ServerConnection:
        """What serves the next accepted connection; a listener of another protocol has its own."""
        return ServerConnection(self)

    # --- called by connections ----------------------------------------------------------------------------

    def admit(self, connection: ServerConnection) -> str | None:
        """Take the connection in, or say why not."""
        if self._is_closing:
            return "the node is stopping"
        if len(self._connections) >= self._connection_max:
            self.shares.refused_count += 1
            return f"{self._connection_max} connections are open; close some or raise the limit"
        refusal = self.shares.refusal(connection.host)
        if refusal is not None:
            return refusal
        self.shares.join(connection, connection.host)
        self._connections[connection.connection_id] = connection
        if self._sweep_timer is None:
            self._sweep_later()
        return None

    def number_connection(self) -> int:
        """An id that no other connection of this server has or had."""
        self._connections_made += 1
        return self._connections_made

    def lost(self, connection_id: int) -> None:
        """The connection has ended."""
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        self.shares.leave(connection, connection.host)
        if not self._connections and self._all_lost is not None and not self._all_lost.done():
            self._all_lost.set_result(None)
        if self.on_disconnect is not None:
            self.on_disconnect(connection_id)

    def stop_node(self, name: str, error: BaseException) -> None:
        """A handler has met our own bug or a dead disk. The entry point hears of it as of a failed task."""
        fail_node(self.runtime.tasks, f"rpc handler of {name}", error)

    # --- inside -------------------------------------------------------------------------------------------

    def _answer_versions(self, exchange: Exchange) -> None:
        exchange.respond(self._versions)

    def _sweep_later(self) -> None:
        # One timer for all connections, while there are any. What is over its time is closed at most half a
        # `frame_timeout_ms` late.
        self._sweep_timer = self.runtime.clock.call_later(self.limits.frame_timeout_ms / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_ms = self.runtime.clock.now_ms()
        for connection in list(self._connections.values()):
            connection.check_times(now_ms)
        if self._connections and not self._is_closing:
            self._sweep_later()

    def _abort_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.abort()
