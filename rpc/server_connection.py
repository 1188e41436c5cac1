"""One accepted connection of a server: cuts frames, starts requests in order of arrival, sends answers when
they are ready.

Owns what the connection has under way and its back pressure (D3). A parked request holds nothing back; past
`in_flight_max` unanswered requests, or when the peer does not read its answers, it is not read from any more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import (
    MalformedRequest,
    encode_refusal,
    parse_request,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import Frame, FrameDecoder, FrameError
from holdfast.protocol.schema.fields import Buffer, SchemaError, decode_message
from holdfast.rpc.core.memory import Charge, cost_of
from holdfast.rpc.core.question_share import QUESTIONS
from holdfast.rpc.core.request_size import UNCOUNTED_BYTES, too_much
from holdfast.rpc.exchange import Exchange
from holdfast.runtime.api import Connection, NetworkError, Timer

if TYPE_CHECKING:
    from holdfast.rpc.server import Server

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


class ServerConnection:
    """One accepted connection: cuts frames, starts requests, sends answers. A `ConnectionHandler`, and a
    `Peer` of the node's shares."""

    def __init__(self, server: "Server") -> None:
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
                self._shares.note_unread(self.account, self.unsent_bytes)
            self._connection.write(out)
            unsent_bytes = self.unsent_bytes
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
