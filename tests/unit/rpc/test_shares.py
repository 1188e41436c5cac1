"""The memory and the time of a node at its servers: rude peers cost the others neither."""

import struct
from typing import Any

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.messages import APIS
from holdfast.rpc.core.memory import SLOW_MS, STALLED_MS, CutReason, Pool
from holdfast.rpc.server import Exchange, Server, ServerLimits
from holdfast.rpc.shares import CHECK_MS, NodeShares
from tests.unit.rpc.test_server import FETCH, Node, RawPeer, advance, answer_to, fetch_answer, request_frame

MIB = 1 << 20
#: of the 128 MiB, 64 are for large requests and 32 for answers
MEMORY_BYTES = 128 * MIB


class SharingNode(Node):
    """With a budget; one more listener shares it."""

    def __init__(self, **limits: int) -> None:
        super().__init__()
        self.shares = NodeShares(self.runtime.clock, MEMORY_BYTES, **limits)
        handlers = {
            ApiKey.INIT_PRODUCER_ID: lambda exchange: self.on_request(exchange),
            ApiKey.FETCH: lambda exchange: self.on_fetch(exchange),
        }
        self.server = Server(self.runtime, 1, "ONE", handlers, ServerLimits(), self.shares)
        self.other = Server(
            self.runtime, 1, "TWO", handlers, ServerLimits(), self.shares, {ApiKey.INIT_PRODUCER_ID}
        )

    def answer_at_once(self) -> None:
        self.on_request = lambda exchange: exchange.respond(answer_to(exchange))


def frame_head(frame_bytes: int) -> bytes:
    return struct.pack(">II", frame_bytes - 4, 10)


async def half_sent(node: Node, *, size: int = 30 * MIB, sent: int = 5 * MIB) -> RawPeer:
    """A peer that stops in the midst of a request."""
    peer = await node.raw_peer()
    await peer.send(frame_head(size) + bytes(sent))
    return peer


async def test_unfinished_requests_take_no_more_than_their_share_and_others_are_served() -> None:
    node = SharingNode()
    node.answer_at_once()
    rude = [await half_sent(node) for _ in range(5)]
    used = node.shares.memory.used_bytes
    assert used[Pool.LARGE] == 60 * MIB
    polite = await node.raw_peer()
    await polite.send(request_frame(1))
    assert len(polite.frames) == 1
    assert [peer.is_lost for peer in rude] == [False] * 5


async def test_who_stopped_in_the_midst_of_a_request_is_cut_off_for_those_who_wait() -> None:
    node = SharingNode()
    node.answer_at_once()
    rude = [await half_sent(node) for _ in range(2)]
    await advance(node.world, 2_000)
    assert not rude[0].is_lost  # there is room: it has its time
    large = request_frame(3)
    head = struct.unpack(">II", large[:8])
    padding = bytes(20 * MIB)  # an attachment that the message does not use
    waiting = await node.raw_peer()
    await waiting.send(struct.pack(">II", head[0] + len(padding), head[1]) + large[8:] + padding[: 5 * MIB])
    assert node.shares.memory.waiting_count == 1
    await advance(node.world, CHECK_MS)
    assert [peer.is_lost for peer in rude] == [True, True]
    assert node.shares.cut_count == {CutReason.SLOW_SENDER: 2}
    await waiting.send(padding[5 * MIB :])
    assert len(waiting.frames) == 1


async def test_a_request_has_its_room_until_it_is_answered() -> None:
    node = SharingNode()
    peer = await node.raw_peer()
    await peer.send(request_frame(1), request_frame(2))
    size = len(request_frame(1))
    assert node.shares.memory.used_bytes[Pool.LITTLE] == 2 * size
    node.parked[0].respond(answer_to(node.parked[0]))
    assert node.shares.memory.used_bytes[Pool.LITTLE] == size
    node.parked[1].let_go()  # what is answered later needs no room either
    assert node.shares.memory.used_bytes[Pool.LITTLE] == 0
    node.parked[1].drop()
    assert node.shares.memory.used_bytes[Pool.LITTLE] == 0


def fetch_frame(number: int) -> bytes:
    return b"".join(encode_request(APIS[ApiKey.FETCH], 0, number, "raw", FETCH))


async def greedy_reader(node: SharingNode) -> RawPeer:
    """A peer that asks for much and reads nothing."""
    peer = await node.raw_peer()
    assert peer.connection is not None
    peer.connection.pause_reading()
    await peer.send(fetch_frame(1))
    return peer


def answers_with_all_there_is_room_for(node: SharingNode) -> list[int]:
    sizes: list[int] = []

    def answer(exchange: Exchange) -> None:
        sizes.append(exchange.room_for_answer)
        exchange.respond(fetch_answer(bytes(sizes[-1])))

    node.on_fetch = answer
    return sizes


async def test_answers_that_are_not_taken_are_bounded_and_their_readers_cut_off() -> None:
    node = SharingNode()
    node.answer_at_once()
    sizes = answers_with_all_there_is_room_for(node)
    for _ in range(9):
        await greedy_reader(node)
    assert sum(sizes) <= 32 * MIB
    assert sizes[0] == 16 * MIB
    polite = await node.raw_peer()
    await polite.send(request_frame(1), fetch_frame(2))
    assert len(polite.frames) == 1  # small answers go out; a large one waits for room
    await advance(node.world, STALLED_MS + CHECK_MS)
    assert node.shares.cut_count[CutReason.SLOW_READER] > 0
    assert len(polite.frames) == 2


async def test_answers_to_requests_that_were_parked_before_do_not_pass_the_bound() -> None:
    node = SharingNode()
    for _ in range(5):
        await greedy_reader(node)
    for exchange in node.fetched:
        exchange.respond(fetch_answer(bytes(30 * MIB)))
    assert sum(node.shares.memory.unread_bytes) <= 64 * MIB
    assert node.shares.cut_count == {CutReason.NO_MEMORY: 3}


async def test_who_sends_what_only_nodes_send_has_a_share_of_its_own() -> None:
    node = SharingNode()
    port = await node.other.start("127.0.0.1", 0)
    peer = RawPeer()
    await node.runtime.network.connect("127.0.0.1", port, peer, 1_000)
    await peer.send(request_frame(1))
    await peer.send(request_frame(2))
    assert node.shares.memory.used_bytes[Pool.MEMBERS] == len(request_frame(2))


async def test_listeners_share_their_connections_and_addresses_have_a_limit() -> None:
    node = SharingNode(connection_max=3, connection_max_per_ip=2)
    port = await node.other.start("127.0.0.1", 0)
    peers = [await node.raw_peer(), RawPeer(), RawPeer()]
    for peer in peers[1:]:
        await node.runtime.network.connect("127.0.0.1", port, peer, 1_000)
        await peer.send()
    assert [peer.is_lost for peer in peers] == [False, False, True]
    assert peers[0].connection is not None
    peers[0].connection.close()
    again = await node.raw_peer()
    await again.send(request_frame(1))
    assert node.parked_ids == [1]
    assert node.shares.refused_count == 1


async def test_nothing_is_left_of_connections_that_have_ended(caplog: pytest.LogCaptureFixture) -> None:
    node = SharingNode(connection_max=4)
    peers = [await half_sent(node) for _ in range(3)] + [await greedy_reader(node)]
    await node.raw_peer()  # one too many
    node.fetched[0].respond(fetch_answer(bytes(5 * MIB)))
    for peer in peers:
        assert peer.connection is not None
        peer.connection.abort()
    await advance(node.world, SLOW_MS)
    memory = node.shares.memory
    assert (sum(memory.used_bytes.values()), sum(memory.unread_bytes), memory.backlog_bytes) == (0, 0, 0)
    assert memory.waiting_count == 0


async def test_the_shares_show_what_they_hold_and_whom_they_cut_off() -> None:
    node = SharingNode()
    await half_sent(node)
    samples: dict[Any, Any] = {
        (family.name, *(value for _, value in sample.labels)): sample.value
        for family in node.shares.stats()
        for sample in family.samples
    }
    assert samples["kafka_server_memory_pool_used_bytes", "large"] == 30 * MIB
    assert samples["kafka_server_memory_pool_used_bytes", "answers"] == 0
    assert samples["kafka_server_memory_pool_max_bytes",] == MEMORY_BYTES
    assert samples["kafka_server_connections_cut_total", "slow_reader"] == 0


class Client:
    """A connection whose requests take a millisecond each; a `Peer`."""

    def __init__(self, node: "BusyNode", name: str, *, is_asking: bool) -> None:
        self.account = node.shares.memory.open()
        self.is_asking = is_asking
        self.unsent_bytes = 0
        self._node = node
        self._name = name
        node.shares.join(self, "host")

    def start_waiting(self, until_ns: int) -> bool:
        self._node.world.clock._now_ns += 1_000_000
        self._node.served[self._name] = self._node.served.get(self._name, 0) + 1
        return False

    def go_on_soon(self) -> None: ...

    def cut_off(self, reason: str) -> None: ...


class BusyNode(Node):
    """Where time passes while requests are handled, and in no other way."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = NodeShares(self.runtime.clock)
        #: {who: requests}
        self.served: dict[str, int] = {}
        self.begun_ms = self.world.clock.now_ms()

    async def serve(self, *clients: Client) -> None:
        """Each of them always has a request."""
        while sum(self.served.values()) < 2000:
            for client in clients:
                self.shares.want_turn(client)
            await advance(self.world, 0)


async def test_a_flood_of_questions_leaves_most_of_the_time_to_those_who_write() -> None:
    node = BusyNode()
    writer = Client(node, "writer", is_asking=False)
    await node.serve(writer, *(Client(node, "flood", is_asking=True) for _ in range(40)))
    assert 0.08 < node.served["flood"] / node.served["writer"] < 0.15


async def test_a_flood_of_questions_has_all_the_time_while_nothing_is_written() -> None:
    node = BusyNode()
    await node.serve(*(Client(node, "flood", is_asking=True) for _ in range(40)))
    assert node.world.clock.now_ms() - node.begun_ms < 2050
