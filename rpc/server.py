"""The serving side: starts requests in order of arrival, sends answers when they are ready.

Owns connections, their limits and their back pressure (D3); never decides what an answer is. A parked request
holds nothing back; past `in_flight_max` unanswered requests, or when the peer does not read its answers, the
server stops reading from that connection and from no other. Memory and time are shared with the node's other
listeners (`rpc.shares`). ApiVersions is the one API it answers by itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import (
    MalformedRequest,
    encode_refusal,
    parse_request,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FRAME_MAX_BYTES, Frame, FrameDecoder, FrameError
from holdfast.protocol.messages import APIS, Api
from holdfast.protocol.messages.api_versions import ApiVersionRange, ApiVersionsResponse
from holdfast.protocol.schema.fields import Buffer, SchemaError, decode_message
from holdfast.rpc.core.memory import Charge, cost_of
from holdfast.rpc.core.question_share import QUESTIONS
from holdfast.rpc.core.request_size import UNCOUNTED_BYTES, too_much
from holdfast.rpc.core.request_stats import RequestStats, families
from holdfast.rpc.exchange import Exchange as Exchange
from holdfast.rpc.exchange import Handler as Handler
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Connection, Listener, NetworkError, Runtime, Timer
from holdfast.runtime.stats import MetricFamily, MetricKind, Sample
from holdfast.runtime.tasks import fail_node

_log = logging.getLogger("holdfast.rpc")

#: Requests of one connection that are started in one turn of the event loop; then others have theirs.
STARTS_A_TURN = 128
#: Answers are handed to the connection once so many bytes are queued, so that back pressure is felt in time.
FLUSH_BYTES = 256 << 10

#: Answers of these are small in any case: no room is looked for before they are made.
SMALL_ANSWERS = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
    )
)


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

    def new_connection(self) -> "ServerConnection":
        """What serves the next accepted connection; a listener of another protocol has its own."""
        return ServerConnection(self)

    # --- called by connections ----------------------------------------------------------------------------

    def admit(self, connection: "ServerConnection") -> str | None:
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


class ServerConnection:
    """One accepted connection: cuts frames, starts requests, sends answers. A `ConnectionHandler`, and a
    `Peer` of the node's shares."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection_id = server.number_connection()
        self.peer = "?"
        #: the peer's host
        self.host = ""
        #: answers can be sent
        self.is_open = False
        #: requests started and not answered
        self.in_flight = 0
        #: see `Peer`
        self.is_asking = False
        self._clock = server.runtime.clock
        self._connection: Connection | None = None
        self._decoder = self.new_decoder()
        self._shares = server.shares
        self.account = server.shares.memory.open()
        #: gives back room that a request had
        self.release: Callable[[Charge], None] = partial(server.shares.release, self.account)
        #: whole frames that may not be started yet, still packed, with their bytes on the wire, when they
        #: arrived, and their room if they have it
        self._waiting: deque[tuple[Frame, int, int, Charge | None]] = deque()
        #: bytes of those without room
        self._waiting_bytes = 0
        self._out: list[Buffer] = []
        #: (API, when the request arrived, when it was answered) of the answers in `_out`
        self._out_times: list[tuple[IntEnum, int, int]] = []
        self._out_bytes = 0
        self._is_turn_due = False
        self._is_starting = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_flight_max = server.limits.in_flight_max
        #: set while the connection rests, until then
        self._rest_timer: Timer | None = None
        self._rest_until_ms = 0
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

    def new_decoder(self) -> FrameDecoder:
        """What cuts this connection's bytes into frames; of another protocol, too."""
        return FrameDecoder(self.server.limits.frame_max_bytes, self.server.limits.body_max_bytes)

    # --- ConnectionHandler --------------------------------------------------------------------------------

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection
        self.peer = connection.peer
        self.host = self.peer.rpartition(":")[0]
        self._heard_ms = self._frame_begun_ms = self._clock.now_ms()
        refusal = self.server.admit(self)
        if refusal is not None:
            _log.warning("refused connection %d of %s: %s", self.connection_id, self.peer, refusal)
            self._shares.leave(self, self.host)
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
        self.account.heard_ms = self._heard_ms
        if frames or not had_begun:
            self._frame_begun_ms = self._heard_ms
        if frames:
            self._has_asked = True
            self._take_in(frames)
            self.go_on()
        elif self._decoder.pending_bytes and self.account.arriving is None:
            self._adjust_reading()
        if self._decoder.held_bytes or self._waiting or self.account.backlog_bytes:
            self._note_backlog()
        if broken is not None and self.is_open:
            self.hang_up(str(broken))

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._write_paused_ms = self._clock.now_ms()
        self._adjust_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._unread_bytes = 0
        self._shares.note_unread(self.account, self.unsent_bytes)
        self.go_on()

    def connection_lost(self, error: NetworkError | None) -> None:
        self.is_open = False
        self._forget_waiting()
        self._out.clear()
        self._out_times.clear()
        self.server.lost(self.connection_id)

    # --- called by exchanges and the server ---------------------------------------------------------------

    def finished(self) -> int:
        """An exchange needs no answer any more; returns the time, ns."""
        self.in_flight -= 1
        assert self.in_flight >= 0
        return self._clock.now_ns()

    def vouch(self) -> None:
        """The peer is a node of the cluster."""
        if not self.account.is_member:
            self._shares.memory.vouch(self.account)

    def rest(self, rest_ms: int) -> None:
        """See `OfConnection.throttle`; a longer rest that was said before counts."""
        until_ms = self._clock.now_ms() + rest_ms
        if self._rest_timer is not None:
            if until_ms <= self._rest_until_ms:
                return
            self._rest_timer.cancel()
        self._rest_until_ms = until_ms
        self._rest_timer = self._clock.call_later(rest_ms, self._rested)

    def _rested(self) -> None:
        self._rest_timer = None
        self.go_on()

    @property
    def room_for_answer(self) -> int:
        """See `Exchange`."""
        return self._shares.room_for_answer(self.account)

    def send(self, buffers: list[Buffer], api_key: IntEnum, arrived_ns: int, answered_ns: int) -> None:
        """Queue an answer. Answers of one turn of the event loop leave in one write."""
        self._out += buffers
        self._out_times.append((api_key, arrived_ns, answered_ns))
        self._out_bytes += sum(map(len, buffers))
        if self._out_bytes >= FLUSH_BYTES:
            self._flush()
        if not self._is_starting and not self._is_turn_due:
            self.go_on_soon()

    def go_on_soon(self) -> None:
        """Go on in the next turn of the event loop: a handler that answers is never called back from
        inside."""
        if not self._is_starting and not self._is_turn_due:
            self._is_turn_due = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        self.go_on()

    def go_on(self) -> None:
        """Start what waits, as far as limits allow, and send what is queued."""
        if not self._waiting or not self._may_start() or not self._shares.want_turn(self):
            self._flush()
            self._adjust_reading()

    # --- Peer of the node's shares --------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the peer has not taken, as far as this machine knows."""
        return 0 if self._connection is None else self._connection.unsent_bytes

    def start_waiting(self, until_ns: int) -> bool:
        """Start requests that wait, none after `until_ns`; True when more of them could be started."""
        self._is_starting = True
        has_more = False
        for number in range(STARTS_A_TURN + 1):
            has_more = bool(self._waiting) and self._may_start()
            if not has_more or number == STARTS_A_TURN or (number and self._clock.now_ns() >= until_ns):
                break
            if not self._start_next():
                has_more = False
                break
        self._is_starting = False
        self._flush()
        self._adjust_reading()
        if self._waiting or self._decoder.held_bytes or self.account.backlog_bytes:
            self._note_backlog()
        return has_more

    def cut_off(self, reason: str) -> None:
        """End the connection now: what it takes is needed by others."""
        _log.warning("ending connection %d of %s: %s", self.connection_id, self.peer, reason)
        self.abort()

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
            self.cut_off(f"its answers have not been read for {limits.unread_max_ms} ms")
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
        self._forget_waiting()
        self._connection.close()

    def fall_silent(self) -> None:
        """Send nothing more and read nothing more; the connection stays open."""
        self.is_open = False
        self._forget_waiting()

    def abort(self) -> None:
        """End the connection now."""
        self.is_open = False
        if self._connection is not None:
            self._connection.abort()

    # --- inside -------------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        return (
            bool(self._waiting)
            and self.in_flight < self._in_flight_max
            and not self._is_write_paused
            and self._rest_timer is None
            and self.is_open
        )

    def _take_in(self, frames: list[Frame]) -> None:
        arrived_ns = self._clock.now_ns()
        charge = None
        if self.account.arriving is not None:
            charge = self._shares.memory.arrived(self.account)
        for frame in frames:
            size = 8 + len(frame.packed_body) + len(frame.attachment)
            self._waiting.append((frame, size, arrived_ns, charge))
            if charge is None:
                self._waiting_bytes += size
            charge = None

    def _start_next(self) -> bool:
        """Start the first request that waits; False when it must wait on."""
        frame, size, arrived_ns, charge = self._waiting[0]
        if charge is None:
            charge = self._shares.admit(self.account, cost_of(size, len(frame.packed_body)))
            if charge is None:
                return False
            self._waiting_bytes -= size
            self._waiting[0] = frame, size, arrived_ns, charge
        parts = self._parse(frame)
        if parts is not None:
            self.is_asking = parts.api_key in QUESTIONS and not self.account.is_member
            if parts.api_key not in SMALL_ANSWERS and not self._may_be_answered():
                return False
        if self._waiting:  # a request that could not be parsed has ended the connection
            self._waiting.popleft()
            if parts is None or not self._start(parts, frame, arrived_ns, charge):
                self.release(charge)
        return True

    def _may_be_answered(self) -> bool:
        return self.account.is_member or self._shares.may_be_answered(self.account)

    def _parse(self, frame: Frame) -> Any:
        """What `_start` needs, with its `api_key`; None when the connection has been ended instead."""
        try:
            return parse_request(frame.body)
        except FrameError as error:
            self.hang_up(str(error))
        except MalformedRequest as error:
            self._refuse_and_hang_up(error.correlation_id, str(error))
        return None

    def _start(self, parts: Any, frame: Frame, arrived_ns: int, charge: Charge) -> bool:
        """Hand the request to its handler; False when it was refused, and its room is free."""
        route = self.server.routes.get(parts.api_key)
        if route is None:
            text = f"api key {parts.api_key} is not served by listener {self.server.listener_name}"
            self._out += encode_refusal(parts.correlation_id, ErrorCode.UNSUPPORTED_VERSION, text)
            return False
        api, handler = route
        if not api.min_version <= parts.api_version <= api.max_version:
            text = (
                f"{api.key.name} is served in versions {api.min_version} to {api.max_version}, "
                f"not {parts.api_version}; ask ApiVersions first"
            )
            self._out += encode_refusal(parts.correlation_id, ErrorCode.UNSUPPORTED_VERSION, text)
            return False
        body_bytes = len(frame.packed_body)
        if body_bytes > UNCOUNTED_BYTES and (problem := too_much(api.key, parts.message, body_bytes)):
            self._out += encode_refusal(parts.correlation_id, ErrorCode.INVALID_REQUEST, problem)
            return False
        try:
            message: Any = decode_message(api.request, parts.message, parts.api_version, frame.attachment)
        except SchemaError as error:
            self._refuse_and_hang_up(parts.correlation_id, str(error))
            return False
        if not self.account.is_member and api.key in self.server.member_apis:
            self.vouch()
        self.in_flight += 1
        exchange = Exchange(self, api, parts, message, arrived_ns, self._clock.now_ns(), charge)
        try:
            handler(exchange)
        except Exception as error:  # noqa: BLE001  not swallowed: it ends the node, with its own traceback
            self.server.stop_node(api.key.name, error)
            self.abort()
            return True
        if not exchange.is_answered:
            exchange.handled(self._clock.now_ns())
        return True

    def _refuse_and_hang_up(self, correlation_id: int | None, text: str) -> None:
        if correlation_id is not None:
            self._out += encode_refusal(correlation_id, ErrorCode.MALFORMED_FRAME, text)
        self.hang_up(text)

    def hang_up(self, reason: str) -> None:
        """Send what is queued, then end the connection, and say why."""
        _log.warning("closing connection %d of %s: %s", self.connection_id, self.peer, reason)
        self.close()

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
                    self.cut_off(f"more than {self.server.limits.unread_max_bytes} bytes wait for it to read")
                    return
            if self.account.unread_bytes:  # what was taken before counts as taken, however much comes now
                self._shares.note_unread(self.account, self._connection.unsent_bytes)
            self._connection.write(out)
            unsent_bytes = self._connection.unsent_bytes
            if unsent_bytes or self.account.unread_bytes:
                self._shares.note_unread(self.account, unsent_bytes)
            if self._out_times:
                times, self._out_times = self._out_times, []
                sent_ns, stats = self._clock.now_ns(), self.server.request_stats
                for api_key, request_ns, answered_ns in times:
                    stats[api_key].sent(request_ns, answered_ns, sent_ns)

    def _has_room(self) -> bool:
        """There is room for the frame that is arriving and whose length is known."""
        decoder, account = self._decoder, self.account
        if account.arriving is not None:
            return True
        charge = self._shares.admit(account, cost_of(decoder.pending_bytes, decoder.pending_body_bytes))
        if charge is None:
            return False
        self._shares.memory.arriving(account, charge, self._clock.now_ms())
        return True

    def _note_backlog(self) -> None:
        backlog_bytes = self._waiting_bytes
        if self.account.arriving is None:
            backlog_bytes += self._decoder.held_bytes
        if backlog_bytes != self.account.backlog_bytes and self.is_open:
            self._shares.note_backlog(self.account, backlog_bytes)

    def _forget_waiting(self) -> None:
        # Also what has arrived of a request: the garbage collector finds this connection only much later.
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        self._decoder = FrameDecoder()
        waiting, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for _, _, _, charge in waiting:
            if charge is not None:
                self.release(charge)

    def _adjust_reading(self) -> None:
        if not self.is_open:
            return
        should_pause = (
            self._is_write_paused
            or self._rest_timer is not None
            or bool(self._waiting)
            or self.in_flight >= self._in_flight_max
            or (self._decoder.pending_bytes > 0 and not self._has_room())
        )
        if should_pause == self._is_read_paused:
            return
        assert self._connection is not None
        self._is_read_paused = should_pause
        if should_pause:
            self._connection.pause_reading()
        else:
            # Time that passed while we did not read is not the peer's.
            now_ms = self._heard_ms = self._frame_begun_ms = self._clock.now_ms()
            self.account.heard_ms = self.account.begun_ms = now_ms
            self._connection.resume_reading()
