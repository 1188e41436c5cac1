"""Random and mutated frames against the rpc server: no crash, no leak, others served (D3)."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.messages import APIS
from holdfast.rpc.server import Exchange, Server, ServerLimits
from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.runtime.real.machine import real_runtime
from tests.cases import slow
from tests.fuzz.frames import HostilePeer, attack, fuzz_bytes
from tests.unit.protocol.samples import sample


def memory() -> Runtime:
    return memory_runtime()[0]


runtimes = pytest.mark.parametrize("make_runtime", [memory, real_runtime], ids=["memory", "tcp"])


class FuzzedNode:
    """Answers every second request with a sample and leaves the others parked."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.parked: list[Exchange] = []
        self.served = 0
        handlers = {key: self.handle for key in APIS if key.name != "API_VERSIONS"}
        self.server = Server(runtime, 1, "FUZZ", handlers, ServerLimits(in_flight_max=3))
        self.ended: list[int] = []
        self.server.on_disconnect = self.ended.append

    def handle(self, exchange: Exchange) -> None:
        self.served += 1
        if self.served % 2:
            exchange.respond(sample(exchange.api.response))
        else:
            self.parked.append(exchange)


@runtimes
@pytest.mark.parametrize("seed", [0, *slow(1, 2)])
async def test_hostile_connections_leave_nothing_behind_and_disturb_no_client(
    make_runtime: Callable[[], Runtime], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = make_runtime()
    node = FuzzedNode(runtime)
    port = await node.server.start("127.0.0.1", 0)
    await attack(runtime, "127.0.0.1", port, seed)
    await until_alone(node.server)
    assert node.server.connection_count == 0
    assert node.server.in_flight_count == 0
    assert len(node.ended) == len(set(node.ended)) == 10 * 20 + 10 + 1
    assert node.parked, "no request got through: the fuzz is too blunt"
    assert not any(exchange.is_open for exchange in node.parked)
    for exchange in node.parked:
        exchange.respond(sample(exchange.api.response))  # what a purgatory does later; goes nowhere
    await node.server.close()
    # one clear line a refused connection, never more than that
    assert len(caplog.records) <= 10 * 20


async def until_alone(server: Server) -> None:
    """Let the ends of the last connections arrive."""
    for _ in range(1_000):
        if not server.connection_count:
            return
        await asyncio.sleep(0.005)


def test_a_seed_always_says_the_same() -> None:
    first, second = fuzz_bytes(5), fuzz_bytes(5)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]
    assert list(itertools.islice(fuzz_bytes(6), 5)) != list(itertools.islice(fuzz_bytes(5), 5))


async def test_a_thousand_silent_connections_cost_little_and_are_closed_in_time() -> None:
    runtime, world = memory_runtime()
    node = FuzzedNode(runtime)
    port = await node.server.start("127.0.0.1", 0)
    peers = [HostilePeer() for _ in range(1_000)]
    for peer in peers:
        await runtime.network.connect("127.0.0.1", port, peer, 1_000)
    assert node.server.connection_count == 1_000
    await attack(runtime, "127.0.0.1", port, 1, waves=1)
    await world.clock.advance(45_000)
    await settle()
    assert all(peer.is_lost for peer in peers)
    assert node.server.connection_count == 0


def test_a_decoder_holds_no_more_than_was_sent() -> None:
    for data in itertools.islice(fuzz_bytes(9), 300):
        decoder = FrameDecoder()
        try:
            decoder.feed(data)
        except ValueError:
            continue
        assert decoder.held_bytes <= len(data)
