"""The ends of connections between simulated hosts, and these hosts and their links.

Owns what one end does and what befalls it: bytes under way, held back, read, and how it ends. Who connects to
whom, and the faults of links, are in `sim.machine.network`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import log
from typing import TYPE_CHECKING

from holdfast.runtime.api import Buffer, ConnectionHandler, NetworkError
from holdfast.sim.machine.choices import Stream
from holdfast.sim.machine.loop import Process

if TYPE_CHECKING:
    from holdfast.sim.machine.network import SimNetwork

#: Unread bytes above which a writer is asked to pause, and below which it may go on.
WRITE_HIGH_BYTES = 1 << 20
WRITE_LOW_BYTES = 1 << 18
#: What one read of a socket brings at most.
READ_MAX_BYTES = 256 << 10
_FIRST_PORT = 40_000
_STEPS = 1 << 16


@dataclass(slots=True)
class SimLink:
    """One direction between two hosts. `mean_ns` is added on top of `low_ns` with an exponential tail."""

    low_ns: int = 100_000
    mean_ns: int = 200_000
    bytes_per_ms: int = 100_000
    is_cut: bool = False
    #: nothing that is sent before arrives before
    clogged_until_ns: int = 0

    def delay_ns(self, stream: Stream, size_bytes: int) -> int:
        """How long a write of this size takes."""
        drawn = stream.draw(_STEPS)
        tail = -log(1 - drawn / _STEPS) if drawn else 0.0
        return self.low_ns + int(self.mean_ns * tail) + size_bytes * 1_000_000 // self.bytes_per_ms


class End(Enum):
    """How a direction of a connection ends; the last thing in it."""

    ORDERLY = "fin"
    RESET = "rst"


class Host:
    """A machine on the network: its name, whether it has power, and who listens there."""

    def __init__(self, network: "SimNetwork", name: str, number: int) -> None:
        self.network = network
        self.name = name
        self.number = number
        self.is_up = True
        self.listeners: dict[int, SimListener] = {}
        #: ports whose packets are dropped without a word
        self.silent_ports: set[int] = set()
        self._next_port = _FIRST_PORT

    def take_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimConnection:
    """One end of a connection. `runtime.api.Connection`."""

    __slots__ = (
        "_arrivals_due",
        "_handler",
        "_held",
        "_inbox",
        "_is_read_due",
        "_is_reading_paused",
        "_is_writing_paused",
        "_last_arrival_ns",
        "_other",
        "_peer",
        "_unread_bytes",
        "host",
        "is_closing",
        "is_lost",
        "late_ns",
        "network",
        "number",
        "process",
    )

    def __init__(
        self, network: "SimNetwork", host: Host, process: Process, handler: ConnectionHandler, peer: str
    ) -> None:
        self.network = network
        self.host = host
        self.process = process
        self.number = network.number_connection(self)
        self._handler = handler
        self._peer = peer
        self._other = self
        #: what has arrived and was not read
        self._inbox: deque[bytes | End] = deque()
        self._is_read_due = False
        self._is_reading_paused = False
        #: bytes written here that the other end has not read
        self._unread_bytes = 0
        self._is_writing_paused = False
        #: (arrival, what) under way from here to the other end; a timer is set for the first
        self._arrivals_due: deque[tuple[int, bytes | End]] = deque()
        self._last_arrival_ns = 0
        #: what is written here is under way for so much longer than on other connections of the link
        self.late_ns = 0
        #: what a cut holds back
        self._held: deque[bytes | End] = deque()
        self.is_closing = False
        self.is_lost = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def unsent_bytes(self) -> int:
        return self._unread_bytes

    @property
    def handler(self) -> ConnectionHandler:
        """Who is called on this side."""
        return self._handler

    @property
    def other(self) -> "SimConnection":
        """The other end."""
        return self._other

    def join(self, other: "SimConnection") -> None:
        """Make `other` the other end of this one."""
        self._other = other
        other._other = self

    # --- Connection ------------------------------------------------------------------------------------

    def write(self, buffers: Sequence[Buffer]) -> None:
        if self.is_closing or self.process.is_dead:
            return
        data = b"".join(buffers)
        if not data:
            return
        self._unread_bytes += len(data)
        self._send(data)
        if self._unread_bytes > WRITE_HIGH_BYTES and not self._is_writing_paused:
            self._is_writing_paused = True
            self._handler.pause_writing()

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._read_soon()

    def close(self) -> None:
        if not self.is_closing:
            self._end(End.ORDERLY)

    def abort(self) -> None:
        if not self.is_lost:
            self._end(End.RESET)

    def _end(self, how: End) -> None:
        if self.process.is_dead:
            return
        self.is_closing = True
        self._send(how)
        self.process.call(self._lose, None)

    # --- what the machines on the way do ---------------------------------------------------------------

    def _send(self, what: bytes | End) -> None:
        network = self.network
        now_ns = network.loop.now_ns
        size = len(what) if isinstance(what, bytes) else 0
        link = network.link(self.host, self._other.host)
        arrival_ns = max(now_ns, link.clogged_until_ns) + link.delay_ns(network.stream, size) + self.late_ns
        arrival_ns = self._last_arrival_ns = max(arrival_ns, self._last_arrival_ns)
        due = self._arrivals_due
        due.append((arrival_ns, what))
        if len(due) == 1:
            network.loop.at_ns(arrival_ns, network.loop.kernel, self._arrive)

    def _arrive(self) -> None:
        """In the kernel: everything that is due reaches the other host."""
        network, due, other = self.network, self._arrivals_due, self._other
        now_ns = network.loop.now_ns
        is_cut = network.link(self.host, other.host).is_cut
        while due and due[0][0] <= now_ns:
            what = due.popleft()[1]
            if is_cut or self._held:
                self._held.append(what)
            else:
                other._take(what)
        if due:
            network.loop.at_ns(due[0][0], network.loop.kernel, self._arrive)

    def stall(self, until_ns: int) -> None:
        """Segments were lost: what is under way to the other end, and what follows, arrives no sooner."""
        self.network.trace_fault("stall", self, f"{(until_ns - self.network.loop.now_ns) / 1e6:g} ms")
        self._arrivals_due = deque((max(due_ns, until_ns), what) for due_ns, what in self._arrivals_due)
        self._last_arrival_ns = max(self._last_arrival_ns, until_ns)

    def release(self, delay_ns: int) -> None:
        """The cut is over: what it held arrives after `delay_ns`."""
        if self._held:
            self.network.loop.at_ns(
                self.network.loop.now_ns + delay_ns, self.network.loop.kernel, self._retransmit
            )

    def _retransmit(self) -> None:
        if self.network.link(self.host, self._other.host).is_cut:
            return
        while self._held:
            self._other._take(self._held.popleft())

    def _take(self, what: bytes | End) -> None:
        """In the kernel: bytes or an end have come to this host."""
        if not self.host.is_up:
            return
        if self.process.is_dead or self.is_closing:
            if self.process.is_dead and not isinstance(what, End):
                self._answer_reset()
            return
        self.network.trace_arrival(self, what)
        if what is End.RESET and not (self._inbox and self.network.reads_before_reset()):
            self._inbox.clear()
            self.is_closing = True
            self.process.call(self._lose, NetworkError(f"{self._peer} reset the connection"))
            return
        self._inbox.append(what)
        self._read_soon()

    def _answer_reset(self) -> None:
        """No process has this connection here any more: the host says so."""
        if not self._other.is_closing:
            self._send(End.RESET)

    # --- the other side of the kernel: reading ---------------------------------------------------------

    def _read_soon(self) -> None:
        if self._inbox and not self._is_read_due and not self._is_reading_paused:
            self._is_read_due = True
            self.process.call(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        inbox = self._inbox
        if self.is_closing or self._is_reading_paused or not inbox:
            return
        first = inbox.popleft()
        if isinstance(first, End):
            self.is_closing = True
            reset = NetworkError(f"{self._peer} reset the connection") if first is End.RESET else None
            self._lose(reset)
            return
        pieces, size = [first], len(first)
        while inbox and size < READ_MAX_BYTES and isinstance(inbox[0], bytes):
            piece = inbox.popleft()
            assert isinstance(piece, bytes)
            pieces.append(piece)
            size += len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        limit = self.network.read_limit(size)
        if limit < size:
            inbox.appendleft(data[limit:])
            data = data[:limit]
        self._read_soon()
        self._other._was_read(len(data))
        self._handler.bytes_received(data)

    def _was_read(self, size: int) -> None:
        self._unread_bytes -= size
        if self._is_writing_paused and self._unread_bytes < WRITE_LOW_BYTES and not self.is_closing:
            self._is_writing_paused = False
            self.process.call(self._handler.resume_writing)

    def _lose(self, error: NetworkError | None) -> None:
        if not self.is_lost:
            self.is_lost = self.is_closing = True
            self.network.forget(self)
            self._handler.connection_lost(error)

    # --- what befalls it -------------------------------------------------------------------------------

    def process_ended(self) -> None:
        """In the kernel of a host that goes on: it ends what the process had open, as Linux does."""
        if not self.is_closing:
            self._send(End.RESET if self._inbox else End.ORDERLY)
        self.is_closing = self.is_lost = True
        self.network.forget(self)

    def power_lost(self) -> None:
        """The peer is not told."""
        self.is_closing = self.is_lost = True
        self.network.forget(self)

    def reset(self) -> None:
        """Both ends lose the connection, as when a machine on the way forgot it."""
        self.network.trace_fault("reset", self)
        for end in (self, self._other):
            end._arrivals_due.clear()
            end._held.clear()
            if not end.is_closing and end.host.is_up:
                end._inbox.clear()
                end.is_closing = True
                end.process.call(end._lose, NetworkError(f"{end._peer} reset the connection"))


class SimListener:
    """`runtime.api.Listener`."""

    def __init__(
        self, host: Host, process: Process, port: int, handler: Callable[[], ConnectionHandler]
    ) -> None:
        self._host = host
        self.process = process
        self._port = port
        self.handler = handler

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        """Refuse from now on."""
        if self._host.listeners.get(self._port) is self:
            del self._host.listeners[self._port]
