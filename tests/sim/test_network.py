"""What faults look like from a connection: refusals, silence, half-open ends, bytes that come late."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast.runtime.api import Connection, ConnectionRefused, ConnectTimeout, NetworkError
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.connections import Host, SimConnection
from holdfast.sim.machine.loop import Process, SimLoop, make_loop
from holdfast.sim.machine.network import ProcessNetwork, SimNetwork
from holdfast.sim.machine.trace import Trace

MS = 1_000_000
PORT = 9


class Recorder:
    """A ConnectionHandler that keeps what it hears."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
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


class Two:
    """A client's host and a server's, with a listener."""

    def __init__(self) -> None:
        self.loop: SimLoop = make_loop(Choices("net").stream("sched"))
        self.network = SimNetwork(self.loop, Choices("net").stream("net"), Trace(lambda: self.loop.now_ns))
        self.client, self.server = self.network.add_host("client"), self.network.add_host("server")
        self.near, self.far = Recorder(), Recorder()
        self.client_process = self.loop.process("client")
        self.server_process = self.boot(self.server)

    def boot(self, host: Host) -> Process:
        """A process that listens."""
        process = self.loop.process(host.name)
        self.run(
            process, lambda: ProcessNetwork(self.network, host, process).listen("", PORT, lambda: self.far)
        )
        return process

    def run(self, process: Process, work: Callable[[], Awaitable[Any]]) -> Any:
        """The result of some work in a process. Raises what it raised."""
        outcome: list[asyncio.Task[Any]] = []

        async def awaited() -> Any:
            return await work()

        process.call(lambda: outcome.append(self.loop.create_task(awaited(), name="work")))
        self.loop.run(lambda: bool(outcome) and outcome[0].done())
        return outcome[0].result()

    def connect(self, timeout_ms: int = 1_000) -> Connection:
        network = ProcessNetwork(self.network, self.client, self.client_process)
        connection: Connection = self.run(
            self.client_process, lambda: network.connect("server", PORT, self.near, timeout_ms)
        )
        self.pass_time(10)
        return connection

    def write(self, data: bytes) -> None:
        connection = self.near.connection
        assert connection is not None
        self.client_process.call(connection.write, [data])

    def pass_time(self, duration_ms: int) -> None:
        over: list[bool] = []
        self.loop.at_ns(self.loop.now_ns + duration_ms * MS, self.loop.kernel, over.append, True)
        self.loop.run(lambda: bool(over))


@pytest.fixture
def two() -> Iterator[Two]:
    two = Two()
    yield two
    two.loop.dispose()


def kill(two: Two) -> None:
    two.server_process.kill()
    two.network.process_ended(two.server_process)


def test_a_killed_process_ends_its_connections_and_its_port_refuses_d9(two: Two) -> None:
    two.connect()
    kill(two)
    two.pass_time(10)
    assert two.near.lost == [None]
    with pytest.raises(ConnectionRefused):
        two.connect()


def test_unread_bytes_make_the_end_of_a_killed_process_a_reset(two: Two) -> None:
    two.connect()
    two.server_process.pause()
    two.write(b"unread")
    two.pass_time(10)
    kill(two)
    two.pass_time(10)
    assert isinstance(two.near.lost[0], NetworkError)


def test_what_a_process_wrote_before_it_died_still_arrives(two: Two) -> None:
    two.connect()
    assert two.far.connection is not None
    two.server_process.call(two.far.connection.write, [b"last words"])
    two.loop.run(lambda: bool(two.near.received) or not two.server_process.ready)
    kill(two)
    two.pass_time(10)
    assert two.near.received == b"last words"
    assert two.near.lost == [None]


def test_a_host_without_power_is_silent_and_its_peers_connection_stays_half_open(two: Two) -> None:
    two.connect()
    two.server_process.kill()
    two.network.power_lost(two.server)
    two.write(b"into the void")
    two.pass_time(60_000)
    assert two.near.lost == []
    with pytest.raises(ConnectTimeout):
        two.connect()


def test_a_host_that_came_back_resets_connections_of_its_former_life(two: Two) -> None:
    two.connect()
    two.server_process.kill()
    two.network.power_lost(two.server)
    two.server.is_up = True
    two.boot(two.server)
    two.pass_time(1_000)
    assert two.near.lost == []
    two.write(b"hello?")
    two.pass_time(10)
    assert isinstance(two.near.lost[0], NetworkError)


def test_a_cut_holds_bytes_back_and_they_arrive_in_order_after_the_heal(two: Two) -> None:
    two.connect()
    two.network.cut([two.client], [two.server])
    two.write(b"a")
    two.pass_time(1_000)
    two.write(b"b")
    two.pass_time(1_000)
    assert two.far.received == b""
    two.network.heal()
    two.write(b"c")
    two.pass_time(1_000)
    assert two.far.received == b"abc"


def test_a_one_way_cut_leaves_the_way_back(two: Two) -> None:
    two.connect()
    two.network.cut([two.client], [two.server], one_way=True)
    assert two.far.connection is not None
    two.server_process.call(two.far.connection.write, [b"back"])
    two.pass_time(10)
    assert two.near.received == b"back"
    with pytest.raises(ConnectTimeout):
        two.connect()


def test_the_trace_tells_whom_a_fault_hits(two: Two) -> None:
    two.connect()
    told: list[str] = []
    two.network._trace.listener = lambda kind, text: told.append(f"{kind} {text}")
    two.network.cut([two.client], [two.client, two.server])
    two.network.uncut(two.client, [two.server])
    two.network.cut([two.server], [two.client], one_way=True)
    two.network.heal()
    two.network.heal()
    two.network.clog(two.server, two.client, 250 * MS)
    assert isinstance(two.near.connection, SimConnection)
    two.near.connection.stall(two.loop.now_ns + 30 * MS)
    two.near.connection.reset()
    assert told == [
        "cut client <-> server",
        "mended client <-> server",
        "cut server -> client",
        "mended all links",
        "clog server -> client 250 ms",
        "stall client -> server 30 ms",
        "reset client -> server",
    ]


def test_an_end_that_a_cut_held_back_arrives_after_the_heal(two: Two) -> None:
    two.connect()
    two.network.cut([two.server], [two.client])
    kill(two)
    two.pass_time(1_000)
    assert two.near.lost == []
    two.network.heal()
    two.pass_time(1_000)
    assert two.near.lost == [None]


def test_an_attempt_outlives_a_short_cut(two: Two) -> None:
    two.network.cut([two.client], [two.server])
    two.loop.at_ns(two.loop.now_ns + 300 * MS, two.loop.kernel, two.network.heal)
    assert two.connect().peer == f"server:{PORT}"


def test_a_paused_process_is_connected_to_and_reads_once_it_goes_on(two: Two) -> None:
    two.server_process.pause()
    two.connect()
    two.write(b"waiting")
    two.pass_time(1_000)
    assert two.far.received == b""
    two.server_process.resume()
    two.pass_time(1)
    assert two.far.received == b"waiting"


def test_a_reset_on_the_way_tells_both_ends_and_loses_what_was_under_way(two: Two) -> None:
    two.connect()
    two.write(b"lost")
    two.loop.run(lambda: not two.client_process.ready)
    next(iter(two.network.connections)).reset()
    two.pass_time(10)
    assert [type(lost) for lost in (*two.near.lost, *two.far.lost)] == [NetworkError, NetworkError]
    assert two.far.received == b""


def test_reads_that_are_cut_bring_every_byte_in_order(two: Two) -> None:
    two.network.cuts_reads = True
    two.connect()
    data = bytes(range(256)) * 100
    for start in range(0, len(data), 512):
        two.write(data[start : start + 512])
    two.pass_time(1_000)
    assert two.far.received == data


@pytest.mark.parametrize(("is_read", "expected"), [(True, b"last words"), (False, b"")])
def test_what_arrived_before_a_reset_may_be_read_before_it(
    two: Two, is_read: bool, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux lets a process do, unless it writes first."""
    monkeypatch.setattr(two.network, "reads_before_reset", lambda: is_read)
    connection = two.connect()
    two.pass_time(10)
    two.server_process.pause()
    two.write(b"last words")
    two.pass_time(10)
    two.client_process.call(connection.abort)
    two.pass_time(10)
    two.server_process.resume()
    two.pass_time(10)
    assert two.far.received == expected
    assert [type(lost) for lost in two.far.lost] == [NetworkError]


def test_a_stalled_connection_is_overtaken_and_keeps_its_order(two: Two) -> None:
    two.connect()
    near = next(end for end in two.network.connections if end.host is two.client)
    two.write(b"one")
    near.stall(two.loop.now_ns + 500 * MS)
    two.write(b"two")
    two.pass_time(400)
    assert two.far.received == b""
    two.pass_time(200)
    assert two.far.received == b"onetwo"


def test_a_late_connection_delays_one_way_until_all_is_healed(two: Two) -> None:
    two.connect()
    near = next(end for end in two.network.connections if end.host is two.client)
    near.late_ns = 500 * MS
    two.write(b"one")
    two.pass_time(400)
    assert two.far.received == b""
    two.pass_time(200)
    assert two.far.received == b"one"
    assert near.other.late_ns == 0
    two.network.heal()
    two.write(b"two")
    two.pass_time(400)
    assert two.far.received == b"onetwo"
