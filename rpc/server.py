"""The serving side: starts requests in order of arrival, sends answers when they are ready.

Owns connections, their limits and their back pressure (D3); never decides what an answer is. A parked request
holds nothing back; past `in_flight_max` unanswered requests, or when the peer does not read its answers, the
server stops reading from that connection and from no other. ApiVersions is the one API it answers by itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import (
    MalformedRequest,
    RequestParts,
    encode_refusal,
    encode_response,
    parse_request,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FRAME_MAX_BYTES, FrameDecoder, FrameError, FrameTooLarge
from holdfast.protocol.messages import APIS, Api
from holdfast.protocol.messages.api_versions import ApiVersionRange, ApiVersionsResponse
from holdfast.protocol.schema.fields import Buffer, SchemaError, decode_message
from holdfast.rpc.core.request_stats import RequestStats, families
from holdfast.runtime.api import Connection, Listener, NetworkError, Runtime, Timer
from holdfast.runtime.stats import MetricFamily, MetricKind, Sample
from holdfast.runtime.tasks import fail_node

_log = logging.getLogger("holdfast.rpc")

#: Requests of one connection that are started in one turn of the event loop; then others have theirs.
STARTS_A_TURN = 128
#: Answers are handed to the connection once so many bytes are queued, so that back pressure is felt in time.
FLUSH_BYTES = 256 << 10

Handler: TypeAlias = "Callable[[Exchange], None]"


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


class Exchange:
    """One request and the duty to answer it exactly once: `respond`, `fail` or `drop`."""

    __slots__ = (
        "_arrived_ns",
        "_connection",
        "_correlation_id",
        "_handled_ns",
        "_is_answered",
        "_started_ns",
        "api",
        "api_version",
        "client_id",
        "message",
    )

    def __init__(
        self,
        connection: "ServerConnection",
        api: Api,
        parts: RequestParts,
        message: Any,
        arrived_ns: int,
        started_ns: int,
    ) -> None:
        self._connection = connection
        self._correlation_id = parts.correlation_id
        self._is_answered = False
        self._arrived_ns = arrived_ns
        self._started_ns = started_ns
        #: when the handler returned without an answer, 0 before
        self._handled_ns = 0
        self.api = api
        self.api_version = parts.api_version
        #: what the peer calls itself; proves nothing
        self.client_id = parts.client_id
        self.message = message

    @property
    def api_key(self) -> ApiKey:
        return self.api.key

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""
        return self._connection.peer

    @property
    def listener_name(self) -> str:
        """The listener that the request came through."""
        return self._connection.server.listener_name

    @property
    def connection_id(self) -> int:
        """Unique among the connections of this server, those that have ended included."""
        return self._connection.connection_id

    @property
    def is_answered(self) -> bool:
        """No answer is due any more."""
        return self._is_answered

    @property
    def is_open(self) -> bool:
        """True while an answer is still due and could still arrive."""
        return not self._is_answered and self._connection.is_open

    def respond(self, message: Any) -> None:
        """Answer. Does nothing when the peer has gone."""
        assert type(message) is self.api.response, f"{self.api.key.name}: {type(message).__name__}"
        answered_ns = self._finish(getattr(message, "error_code", ErrorCode.NONE))
        if self._connection.is_open:
            self._connection.send(self._encode(message), self.api.key, self._arrived_ns, answered_ns)

    def fail(self, error_code: ErrorCode, text: str) -> None:
        """Refuse the request as a whole, for answers that have no place for it. `text` says what to do."""
        answered_ns = self._finish(error_code)
        if self._connection.is_open:
            refusal = encode_refusal(self._correlation_id, error_code, text)
            self._connection.send(refusal, self.api.key, self._arrived_ns, answered_ns)

    def drop(self) -> None:
        """Finish without any answer (required_acks 0)."""
        self._finish(ErrorCode.NONE)
        self._connection.go_on_soon()

    def hang_up(self, reason: str) -> None:
        """Finish without any answer and end the connection: the sender, who waits for none, hears by that.
        Does nothing when the peer has gone."""
        self._finish(ErrorCode.NONE)
        if self._connection.is_open:
            self._connection.hang_up(reason)

    def handled(self, now_ns: int) -> None:
        """The handler has returned: from here on others are waited for."""
        self._handled_ns = now_ns

    def _encode(self, message: Any) -> list[Buffer]:
        try:
            return encode_response(self.api_version, self._correlation_id, message)
        except FrameTooLarge as error:
            return encode_refusal(
                self._correlation_id, ErrorCode.MESSAGE_TOO_LARGE, f"the answer would be {error}"
            )

    def _finish(self, error_code: int) -> int:
        """Needs no answer any more; returns the time, ns."""
        assert not self._is_answered, f"{self.api.key.name} was answered twice"
        self._is_answered = True
        answered_ns = self._connection.finished()
        self._connection.server.request_stats[self.api.key].answered(
            error_code, self._arrived_ns, self._started_ns, self._handled_ns, answered_ns
        )
        return answered_ns


class Server:
    """One listener of a node."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        listener_name: str,
        handlers: Mapping[ApiKey, Handler],
        limits: ServerLimits = ServerLimits(),
    ) -> None:
        self.runtime = runtime
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
        if self._connection_max < self.limits.connection_max:
            _log.warning(
                "listener %s takes %d connections at most instead of %d: "
                "this process may only open %d files; raise its limit (ulimit -n)",
                self.listener_name,
                self._connection_max,
                self.limits.connection_max,
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

    def new_connection(self) -> "ServerConnection":
        """What serves the next accepted connection; a listener of another protocol has its own."""
        return ServerConnection(self)

    # --- called by connections ----------------------------------------------------------------------------

    def admit(self, connection: "ServerConnection") -> str | None:
        """Take the connection in, or say why not."""
        if self._is_closing:
            return "the node is stopping"
        if len(self._connections) >= self._connection_max:
            return f"{self._connection_max} connections are open; close some or raise the limit"
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
        if self._connections.pop(connection_id, None) is None:
            return
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


class ServerConnection:
    """One accepted connection: cuts frames, starts requests, sends answers. A `ConnectionHandler`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection_id = server.number_connection()
        self.peer = "?"
        #: answers can be sent
        self.is_open = False
        #: requests started and not answered
        self.in_flight = 0
        self._clock = server.runtime.clock
        self._connection: Connection | None = None
        self._decoder = self.new_decoder()
        #: whole frames that may not be started yet, still packed, with when they arrived
        self._waiting: deque[tuple[Any, int]] = deque()
        self._out: list[Buffer] = []
        #: (API, when the request arrived, when it was answered) of the answers in `_out`
        self._out_times: list[tuple[IntEnum, int, int]] = []
        self._out_bytes = 0
        self._is_turn_due = False
        self._is_starting = False
        self._is_write_paused = False
        #: since when the peer has left too much unread, if it does now
        self._write_paused_ms = 0
        #: bytes that were queued since then
        self._unread_bytes = 0
        self._is_read_paused = False
        self._has_asked = False
        self._heard_ms = 0
        #: when the frame that is now incomplete was begun
        self._frame_begun_ms = 0
        self._closed_ms: int | None = None

    def new_decoder(self) -> Any:
        """What cuts this connection's bytes into frames: `feed` and `held_bytes` of a FrameDecoder."""
        return FrameDecoder(self.server.limits.frame_max_bytes, self.server.limits.body_max_bytes)

    # --- ConnectionHandler --------------------------------------------------------------------------------

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self.peer = connection.peer
        self._heard_ms = self._frame_begun_ms = self._clock.now_ms()
        refusal = self.server.admit(self)
        if refusal is not None:
            _log.warning("refused connection %d of %s: %s", self.connection_id, self.peer, refusal)
            connection.abort()
            return
        self.is_open = True

    def bytes_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self._heard_ms = self._clock.now_ms()
        had_begun = self._decoder.held_bytes > 0
        broken: FrameError | None = None
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            frames, broken = error.frames, error
        if frames or not had_begun:
            self._frame_begun_ms = self._heard_ms
        if frames:
            self._has_asked = True
            arrived_ns = self._clock.now_ns()
            self._waiting.extend((frame, arrived_ns) for frame in frames)
            self.go_on()
        if broken is not None and self.is_open:
            self.hang_up(str(broken))

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._write_paused_ms = self._clock.now_ms()
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._unread_bytes = 0
        self.go_on()

    def connection_lost(self, error: NetworkError | None) -> None:
        self.is_open = False
        self._waiting.clear()
        self._out.clear()
        self._out_times.clear()
        self.server.lost(self.connection_id)

    # --- called by exchanges and the server ---------------------------------------------------------------

    def finished(self) -> int:
        """An exchange needs no answer any more; returns the time, ns."""
        self.in_flight -= 1
        assert self.in_flight >= 0
        return self._clock.now_ns()

    def send(self, buffers: list[Buffer], api_key: IntEnum, arrived_ns: int, answered_ns: int) -> None:
        """Queue an answer. Answers of one turn of the event loop leave in one write."""
        self._out += buffers
        self._out_times.append((api_key, arrived_ns, answered_ns))
        self._out_bytes += sum(map(len, buffers))
        if self._out_bytes >= FLUSH_BYTES:
            self._flush()
        self.go_on_soon()

    def go_on_soon(self) -> None:
        """Go on in the next turn of the event loop: a handler that answers is never called back from
        inside."""
        if not self._is_starting and not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        self.go_on()

    def go_on(self) -> None:
        """Start what waits, as far as limits allow, and send what is queued."""
        if self._waiting:
            self._is_starting = True
            for _ in range(STARTS_A_TURN):
                if not self._may_start():
                    break
                self._start(*self._waiting.popleft())
            self._is_starting = False
            if self._may_start():
                self.go_on_soon()
        self._flush()
        self._adjust_reading()

    def check_times(self, now_ms: int) -> None:
        """Close when the peer takes too long over a frame or over reading, or is idle."""
        limits = self.server.limits
        if self._closed_ms is not None:
            if now_ms - self._closed_ms >= limits.close_timeout_ms:
                self.abort()
        elif (
            self.is_open and self._is_write_paused and now_ms - self._write_paused_ms >= limits.unread_max_ms
        ):
            # What is queued will not leave: there is nothing to wait for.
            self._cut_off(f"its answers have not been read for {limits.unread_max_ms} ms")
        elif self._is_read_paused:
            return
        elif not self._has_asked or self._decoder.held_bytes:
            if now_ms - self._frame_begun_ms >= limits.frame_timeout_ms:
                self.hang_up(f"no whole request within {limits.frame_timeout_ms} ms")
        elif not self.in_flight and now_ms - self._heard_ms >= limits.idle_max_ms:
            _log.info("closing connection %d of %s: idle", self.connection_id, self.peer)
            self.close()

    def close(self) -> None:
        """Send what is queued, then end the connection."""
        if self._closed_ms is not None or self._connection is None:
            return
        self._flush()
        self.is_open = False
        self._closed_ms = self._clock.now_ms()
        self._waiting.clear()
        self._connection.close()

    def fall_silent(self) -> None:
        """Send nothing more and read nothing more; the connection stays open."""
        self.is_open = False
        self._waiting.clear()

    def abort(self) -> None:
        """End the connection now."""
        self.is_open = False
        if self._connection is not None:
            self._connection.abort()

    # --- inside -------------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        return (
            bool(self._waiting)
            and self.in_flight < self.server.limits.in_flight_max
            and not self._is_write_paused
            and self.is_open
        )

    def _start(self, frame: Any, arrived_ns: int) -> None:
        try:
            parts = parse_request(frame.body)
        except FrameError as error:
            self.hang_up(str(error))
            return
        except MalformedRequest as error:
            self._refuse_and_hang_up(error.correlation_id, str(error))
            return
        route = self.server.routes.get(parts.api_key)
        if route is None:
            text = f"api key {parts.api_key} is not served by listener {self.server.listener_name}"
            self._out += encode_refusal(parts.correlation_id, ErrorCode.UNSUPPORTED_VERSION, text)
            return
        api, handler = route
        if not api.min_version <= parts.api_version <= api.max_version:
            text = (
                f"{api.key.name} is served in versions {api.min_version} to {api.max_version}, "
                f"not {parts.api_version}; ask ApiVersions first"
            )
            self._out += encode_refusal(parts.correlation_id, ErrorCode.UNSUPPORTED_VERSION, text)
            return
        try:
            message: Any = decode_message(api.request, parts.message, parts.api_version, frame.attachment)
        except SchemaError as error:
            self._refuse_and_hang_up(parts.correlation_id, str(error))
            return
        self.in_flight += 1
        exchange = Exchange(self, api, parts, message, arrived_ns, self._clock.now_ns())
        try:
            handler(exchange)
        except Exception as error:  # noqa: BLE001  not swallowed: it ends the node, with its own traceback
            self.server.stop_node(api.key.name, error)
            self.abort()
            return
        if not exchange.is_answered:
            exchange.handled(self._clock.now_ns())

    def _refuse_and_hang_up(self, correlation_id: int | None, text: str) -> None:
        if correlation_id is not None:
            self._out += encode_refusal(correlation_id, ErrorCode.MALFORMED_FRAME, text)
        self.hang_up(text)

    def hang_up(self, reason: str) -> None:
        """Send what is queued, then end the connection, and say why."""
        _log.warning("closing connection %d of %s: %s", self.connection_id, self.peer, reason)
        self.close()

    def _cut_off(self, reason: str) -> None:
        _log.warning("ending connection %d of %s: %s", self.connection_id, self.peer, reason)
        self.abort()

    def _flush(self) -> None:
        if self._out and self.is_open:
            assert self._connection is not None
            out, self._out = self._out, []
            self._out_bytes = 0
            if self._is_write_paused:
                # What was started before must be answered, but not kept for ever more.
                self._unread_bytes += sum(map(len, out))
                if self._unread_bytes > self.server.limits.unread_max_bytes:
                    self._out_times.clear()
                    self._cut_off(
                        f"more than {self.server.limits.unread_max_bytes} bytes wait for it to read"
                    )
                    return
            self._connection.write(out)
            if self._out_times:
                times, self._out_times = self._out_times, []
                sent_ns, stats = self._clock.now_ns(), self.server.request_stats
                for api_key, request_ns, answered_ns in times:
                    stats[api_key].sent(request_ns, answered_ns, sent_ns)

    def _adjust_reading(self) -> None:
        should_pause = (
            self._is_write_paused or bool(self._waiting) or self.in_flight >= self.server.limits.in_flight_max
        )
        if should_pause == self._is_read_paused or not self.is_open:
            return
        assert self._connection is not None
        self._is_read_paused = should_pause
        if should_pause:
            self._connection.pause_reading()
        else:
            # Time that passed while we did not read is not the peer's.
            self._heard_ms = self._frame_begun_ms = self._clock.now_ms()
            self._connection.resume_reading()
