"""The network between simulated hosts, with TCP's truth: order within a connection, no loss.

Within a connection nothing is lost, repeated or reordered: trouble is delay, or the end of the connection.
What a cut holds back arrives after the heal, as retransmission would bring it. The kernel of a host outlives
its processes: a killed process's connections end and its port refuses (D9's evidence), while a host without
power or behind a cut is silent, and a connection to it stays half open until a peer writes to the host that
came back. A paused process reads nothing, and its host accepts for it. Draws come from one stream.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import product
from zlib import crc32

from holdfast.runtime.api import (
    Connection,
    ConnectionHandler,
    ConnectionRefused,
    ConnectTimeout,
    NetworkError,
)
from holdfast.sim.machine.choices import Stream
from holdfast.sim.machine.connections import READ_MAX_BYTES, End, Host, SimConnection, SimLink, SimListener
from holdfast.sim.machine.loop import Process, SimLoop
from holdfast.sim.machine.trace import Trace

_LOOPBACK_NS = 20_000
_SYN_RETRY_NS = 200_000_000
_OWN_NAMES = ("localhost", "127.0.0.1", "", "0.0.0.0", "::")


class _Attempt:
    """A process that waits for a connection to be made."""

    __slots__ = (
        "established",
        "handler",
        "host",
        "is_answered",
        "is_over",
        "peer",
        "port",
        "process",
        "target",
    )

    def __init__(
        self, host: Host, process: Process, target: Host, port: int, handler: ConnectionHandler, peer: str
    ) -> None:
        self.host = host
        self.process = process
        self.target = target
        self.port = port
        self.handler = handler
        self.peer = peer
        self.established: asyncio.Future[SimConnection] = asyncio.get_running_loop().create_future()
        #: the host has answered: no further attempts
        self.is_answered = False
        #: the caller waits no more
        self.is_over = False

    def fail(self, error: NetworkError) -> None:
        """In the process."""
        self.is_over = True
        if not self.established.done():
            self.established.set_exception(error)

    def succeed(self, connection: SimConnection) -> None:
        """In the process."""
        if self.is_over or self.established.done():
            connection.abort()
            return
        self.is_over = True
        self.handler.connection_made(connection)
        self.established.set_result(connection)


class SimNetwork:
    """All hosts and what lies between them; the handles by which faults are played."""

    def __init__(self, loop: SimLoop, stream: Stream, trace: Trace) -> None:
        self.loop = loop
        self.stream = stream
        self._trace = trace
        self.hosts: dict[str, Host] = {}
        self._links: dict[int, SimLink] = {}
        self._loopback = SimLink(_LOOPBACK_NS, 0, 1_000_000)
        #: ends that are open, in order of creation
        self.connections: dict[SimConnection, None] = {}
        self._connections_made = 0
        #: now and then a read brings only a part of what has arrived
        self.cuts_reads = False

    def add_host(self, name: str) -> Host:
        assert name not in self.hosts
        host = self.hosts[name] = Host(self, name, len(self.hosts))
        return host

    def link(self, source: Host, target: Host) -> SimLink:
        """The direction from one to the other."""
        if source is target:
            return self._loopback
        key = source.number << 16 | target.number
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = SimLink()
        return found

    def links(self) -> list[tuple[Host, Host, SimLink]]:
        """Every direction between two different hosts."""
        hosts = list(self.hosts.values())
        return [(a, b, self.link(a, b)) for a in hosts for b in hosts if a is not b]

    # --- faults ----------------------------------------------------------------------------------------

    def cut(self, ones: Sequence[Host], others: Sequence[Host], *, one_way: bool = False) -> None:
        """Nothing gets from the ones to the others; with `one_way` the way back stays. Who is on both sides
        reaches itself."""
        for one, other in product(ones, others):
            if one is not other:
                self.link(one, other).is_cut = True
                if not one_way:
                    self.link(other, one).is_cut = True
        if ones and others:
            self._tell_links("cut", ones, "->" if one_way else "<->", others)

    def uncut(self, one: Host, others: Sequence[Host]) -> None:
        """These links work again, both ways. What they hold is for the caller to release."""
        for other in others:
            self.link(one, other).is_cut = self.link(other, one).is_cut = False
        self._tell_links("mended", [one], "<->", others)

    def clog(self, source: Host, target: Host, duration_ns: int) -> None:
        """Nothing that is sent this way arrives before so long has passed."""
        self.link(source, target).clogged_until_ns = self.loop.now_ns + duration_ns
        self._trace.add("clog", f"{source.name} -> {target.name} {duration_ns / 1e6:g} ms")

    def _tell_links(self, kind: str, ones: Sequence[Host], way: str, others: Sequence[Host]) -> None:
        far = [host.name for host in others if list(ones) != [host]]
        self._trace.add(kind, f"{' '.join(host.name for host in ones)} {way} {' '.join(far)}")

    def heal(self) -> None:
        """Undo all cuts and clogs. What was held comes late, each connection after a delay of its own."""
        if any(link.is_cut or link.clogged_until_ns > self.loop.now_ns for _, _, link in self.links()):
            self._trace.add("mended", "all links")
        for _, _, link in self.links():
            link.is_cut = False
            link.clogged_until_ns = 0
        for connection in list(self.connections):
            connection.late_ns = 0
            connection.release(self.stream.draw(200) * 1_000_000)
            if connection.other.is_lost:  # its last words may be held
                connection.other.release(self.stream.draw(200) * 1_000_000)

    def process_ended(self, process: Process) -> None:
        """The process is gone, its host goes on."""
        for host in self.hosts.values():
            for listener in list(host.listeners.values()):
                if listener.process is process:
                    listener.end()
        for connection in list(self.connections):
            if connection.process is process:
                connection.process_ended()

    def power_lost(self, host: Host) -> None:
        """The host falls silent."""
        host.is_up = False
        host.listeners.clear()
        for connection in list(self.connections):
            if connection.host is host:
                connection.power_lost()

    # --- inside ----------------------------------------------------------------------------------------

    def number_connection(self, connection: SimConnection) -> int:
        self.connections[connection] = None
        self._connections_made += 1
        return self._connections_made

    def forget(self, connection: SimConnection) -> None:
        self.connections.pop(connection, None)

    def read_limit(self, size: int) -> int:
        """How much of what has arrived a read brings."""
        if self.cuts_reads and self.stream.draw(4) == 3:
            return 1 + self.stream.draw(size)
        return min(size, READ_MAX_BYTES)

    def reads_before_reset(self) -> bool:
        """What had arrived unread before a reset is read, as Linux lets it be, unless a write fails first."""
        return self.stream.draw(2) == 1

    def trace_fault(self, kind: str, end: SimConnection, *more: str) -> None:
        """Something befalls a connection."""
        self._trace.add(kind, " ".join((f"{end.host.name} -> {end.other.host.name}", *more)))

    def trace_arrival(self, end: SimConnection, what: bytes | End) -> None:
        if isinstance(what, bytes):
            self._trace.add("net", f"{end.number} {end.host.name} {len(what)} {crc32(what)}")
        else:
            self._trace.add("end", f"{end.number} {end.host.name} {what.value}")

    def syn(self, attempt: _Attempt) -> None:
        """In the kernel: an attempt sets out, and again until the host answers or it is given up."""
        if attempt.is_over or attempt.is_answered or attempt.process.is_dead:
            return
        there = self.link(attempt.host, attempt.target)
        delay_ns = there.delay_ns(self.stream, 0)
        if not there.is_cut:
            self.loop.at_ns(self.loop.now_ns + delay_ns, self.loop.kernel, self._syn_arrived, attempt)
        self.loop.at_ns(self.loop.now_ns + _SYN_RETRY_NS, self.loop.kernel, self.syn, attempt)

    def _syn_arrived(self, attempt: _Attempt) -> None:
        target = attempt.target
        back = self.link(target, attempt.host)
        is_silent = not target.is_up or attempt.port in target.silent_ports or back.is_cut
        if attempt.is_over or attempt.is_answered or is_silent:
            return
        attempt.is_answered = True
        answered_ns = self.loop.now_ns + back.delay_ns(self.stream, 0)
        listener = target.listeners.get(attempt.port)
        if listener is None:
            self._refuse(attempt, answered_ns)
        else:
            self.loop.at_ns(answered_ns, self.loop.kernel, self._establish, attempt, listener)

    def _refuse(self, attempt: _Attempt, answered_ns: int) -> None:
        self._trace.add("refused", f"{attempt.host.name} {attempt.peer}")
        error = ConnectionRefused(f"{attempt.peer} refused the connection: no process listens there")
        self.loop.at_ns(answered_ns, attempt.process, attempt.fail, error)

    def _establish(self, attempt: _Attempt, listener: SimListener) -> None:
        """In the kernel: both hosts have the connection, though no process may have seen it yet."""
        target = attempt.target
        if not target.is_up or not attempt.host.is_up or attempt.process.is_dead:
            return
        if listener.process.is_dead:
            self._refuse(attempt, self.loop.now_ns)
            return
        near = SimConnection(self, attempt.host, attempt.process, attempt.handler, attempt.peer)
        name = attempt.host.name if attempt.host is not target else "127.0.0.1"
        far = SimConnection(self, target, listener.process, _NOBODY, f"{name}:{attempt.host.take_port()}")
        near.join(far)
        self._trace.add("connect", f"{near.number} {attempt.host.name} {attempt.peer}")
        listener.process.call(_accept, listener, far)
        attempt.process.call(attempt.succeed, near)


def _accept(listener: SimListener, connection: SimConnection) -> None:
    """In the listening process."""
    handler = listener.handler()
    connection._handler = handler
    handler.connection_made(connection)


class _Nobody:
    """Stands for the handler of a connection that was not accepted yet."""

    def connection_made(self, connection: Connection) -> None: ...

    def bytes_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None: ...


_NOBODY = _Nobody()


class ProcessNetwork:
    """The network as one process sees it. `runtime.api.Network`."""

    def __init__(self, network: SimNetwork, host: Host, process: Process) -> None:
        self._network = network
        self._host = host
        self._process = process

    async def listen(self, host: str, port: int, handler: Callable[[], ConnectionHandler]) -> SimListener:
        self._check_alive()
        if host not in _OWN_NAMES and host != self._host.name:
            raise NetworkError(f"cannot listen at {host}:{port}: not an address of this host")
        if port == 0:
            port = self._host.take_port()
        if port in self._host.listeners:
            raise NetworkError(f"cannot listen at {host}:{port}: the address is in use")
        listener = self._host.listeners[port] = SimListener(self._host, self._process, port, handler)
        return listener

    async def connect(
        self, host: str, port: int, handler: ConnectionHandler, timeout_ms: float
    ) -> SimConnection:
        self._check_alive()
        peer = f"{host}:{port}"
        target = self._host if host in _OWN_NAMES else self._network.hosts.get(host)
        if target is None:
            raise NetworkError(f"cannot connect to {peer}: the name is not known")
        attempt = _Attempt(self._host, self._process, target, port, handler, peer)
        loop = self._network.loop
        self._network.syn(attempt)
        error = ConnectTimeout(f"{peer} did not answer within {timeout_ms:g} ms")
        timer = loop.at_ns(loop.now_ns + int(timeout_ms * 1_000_000), self._process, attempt.fail, error)
        try:
            return await attempt.established
        finally:
            timer.cancel()
            attempt.is_over = True

    def _check_alive(self) -> None:
        if self._process.is_dead:
            raise NetworkError("this process is gone")
