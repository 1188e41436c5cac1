"""D3 seen from the serving side: order, pipelining, back pressure, limits, and no other client disturbed."""

import dataclasses
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request, parse_response
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FRAME_MAX_BYTES, Frame, FrameDecoder, encode_frame
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.protocol.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.protocol.schema.fields import decode_message
from holdfast.rpc.channel import CallRefused, Channel, Disconnected
from holdfast.rpc.server import Exchange, Server, ServerLimits
from holdfast.rpc.server_connection import STARTS_A_TURN
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Connection, NetworkError
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle

DEFAULTS = ServerLimits()


def ask(producer_id: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(producer_id=producer_id, producer_epoch=0)


def answer_to(exchange: Exchange) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        producer_id=exchange.message.producer_id,
        producer_epoch=0,
    )


def request_frame(producer_id: int, correlation_id: int = 7) -> bytes:
    api = APIS[ApiKey.INIT_PRODUCER_ID]
    return b"".join(encode_request(api, 0, correlation_id, "raw", ask(producer_id)))


class RawPeer:
    """A peer that sends any bytes. A `ConnectionHandler`."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.decoder = FrameDecoder()
        self.frames: list[Frame] = []
        self.reads = 0
        self.is_lost = False

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def bytes_received(self, data: bytes) -> None:
        self.reads += 1
        self.frames += self.decoder.feed(data)

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None:
        self.is_lost = True

    async def send(self, *data: bytes) -> None:
        assert self.connection is not None
        self.connection.write(data)
        await settle()

    @property
    def answers(self) -> list[tuple[int, Any]]:
        """(correlation id, message or (error code, text)) of every answer."""
        parts = [parse_response(frame.body) for frame in self.frames]
        return [(p.correlation_id, p.message if p.refusal is None else p.refusal) for p in parts]


class Node:
    """A server whose InitProducerId requests are parked until a test answers them, with peers of it."""

    def __init__(self, limits: ServerLimits = DEFAULTS) -> None:
        self.runtime, self.world = memory_runtime()
        self.parked: list[Exchange] = []
        self.fetched: list[Exchange] = []
        self.disconnected: list[int] = []
        self.on_request: Callable[[Exchange], None] = self.parked.append
        self.on_fetch: Callable[[Exchange], None] = self.fetched.append
        handlers = {
            ApiKey.INIT_PRODUCER_ID: lambda exchange: self.on_request(exchange),
            ApiKey.FETCH: lambda exchange: self.on_fetch(exchange),
        }
        self.server = Server(self.runtime, 1, "INTERNAL", handlers, limits)
        self.server.on_disconnect = self.disconnected.append
        self.port = 0

    async def channel(self) -> Channel:
        await self.start()
        channel = Channel(self.runtime, "127.0.0.1", self.port, "test")
        await channel.connect(1_000)
        return channel

    async def raw_peer(self) -> RawPeer:
        await self.start()
        peer = RawPeer()
        await self.runtime.network.connect("127.0.0.1", self.port, peer, 1_000)
        return peer

    async def start(self) -> None:
        if not self.port:
            self.port = await self.server.start("127.0.0.1", 0)

    @property
    def parked_ids(self) -> list[int]:
        return [exchange.message.producer_id for exchange in self.parked]


async def served(node: Node, channel: Channel) -> None:
    """The node still serves this well-behaved channel."""
    node.on_request = lambda exchange: exchange.respond(answer_to(exchange))
    answer = await channel.call(ask(424242), 1_000)
    assert answer.producer_id == 424242


async def test_requests_start_in_arrival_order_and_answers_go_out_when_ready() -> None:
    node = Node()
    channel = await node.channel()
    calls = [channel.call_soon(ask(n), 1_000) for n in range(5)]
    await settle()
    assert node.parked_ids == [0, 1, 2, 3, 4]
    for exchange in reversed(node.parked):
        exchange.respond(answer_to(exchange))
        await settle()
        number = exchange.message.producer_id
        assert [call.done() for call in calls] == [n >= number for n in range(5)]
    assert [(await call).producer_id for call in calls] == [0, 1, 2, 3, 4]


async def test_a_parked_request_holds_back_nothing_behind_it() -> None:
    node = Node()
    channel = await node.channel()
    parked = channel.call_soon(ask(1), 1_000)
    await settle()
    await served(node, channel)
    assert not parked.done()
    parked.cancel()


async def test_answers_of_one_turn_leave_in_one_write() -> None:
    node = Node()
    peer = await node.raw_peer()
    await peer.send(request_frame(1, 1), request_frame(2, 2), request_frame(3, 3))
    assert peer.reads == 0
    for exchange in node.parked:
        exchange.respond(answer_to(exchange))
    await settle()
    assert (len(peer.frames), peer.reads) == (3, 1)


async def test_past_the_in_flight_limit_the_server_stops_reading_from_that_connection_only() -> None:
    node = Node(ServerLimits(in_flight_max=3))
    channel, other = await node.channel(), await node.channel()
    calls = [channel.call_soon(ask(n), 1_000) for n in range(8)]
    await settle()
    assert node.parked_ids == [0, 1, 2]
    parked_elsewhere = other.call_soon(ask(100), 1_000)
    await settle()
    assert node.parked_ids == [0, 1, 2, 100]

    node.parked[1].respond(answer_to(node.parked[1]))
    await settle()
    assert node.parked_ids == [0, 1, 2, 100, 3]
    for exchange in node.parked:
        if exchange.is_open:
            exchange.respond(answer_to(exchange))
    node.on_request = lambda exchange: exchange.respond(answer_to(exchange))
    assert [(await call).producer_id for call in calls] == list(range(8))
    assert (await parked_elsewhere).producer_id == 100
    assert node.server.in_flight_count == 0


async def test_a_request_without_answer_frees_its_place() -> None:
    node = Node(ServerLimits(in_flight_max=1))
    peer = await node.raw_peer()
    await peer.send(request_frame(1), request_frame(2))
    assert node.parked_ids == [1]
    node.parked[0].drop()
    await settle()
    assert node.parked_ids == [1, 2]
    assert peer.frames == []


async def test_answering_never_starts_another_request_from_inside() -> None:
    node = Node(ServerLimits(in_flight_max=1))
    channel = await node.channel()
    calls = [channel.call_soon(ask(n), 1_000) for n in range(2)]
    await settle()
    node.parked[0].respond(answer_to(node.parked[0]))
    assert node.parked_ids == [0]
    await settle()
    assert node.parked_ids == [0, 1]
    for call in calls:
        call.cancel()


def fetch_answer(*rows: Any) -> FetchResponse:
    """One row for each of `rows`, which are what the records of a row are made of."""
    return FetchResponse(
        error_code=0,
        error_message=None,
        partitions=tuple(
            FetchPartitionResponse(
                topic_id=bytes(16),
                partition_index=index,
                error_code=0,
                high_watermark=0,
                log_start_offset=0,
                log_end_offset=0,
                diverging_epoch=None,
                leader_id=1,
                leader_epoch=0,
                records=records,
            )
            for index, records in enumerate(rows)
        ),
    )


FETCH = FetchRequest(
    cluster_id=None, replica_id=-1, broker_epoch=-1, max_wait_ms=0, min_bytes=0, max_bytes=0, partitions=()
)


@pytest.mark.parametrize("is_answered_at_once", [True, False])
async def test_a_peer_that_does_not_read_its_answers_gets_no_more_work_done(
    is_answered_at_once: bool,
) -> None:
    node = Node()
    greedy, modest = await node.raw_peer(), await node.channel()
    assert greedy.connection is not None
    greedy.connection.pause_reading()

    def answer_at_once(exchange: Exchange) -> None:
        node.fetched.append(exchange)
        exchange.respond(fetch_answer(bytes(900_000)))

    if is_answered_at_once:
        node.on_fetch = answer_at_once
    requests = [b"".join(encode_request(APIS[ApiKey.FETCH], 0, n, "raw", FETCH)) for n in range(12)]
    if is_answered_at_once:
        await greedy.send(*requests)
    else:
        for request in requests:
            await greedy.send(request)
            for exchange in node.fetched:
                if exchange.is_open:
                    exchange.respond(fetch_answer(bytes(900_000)))
    await settle()
    started = len(node.fetched)
    assert started <= 3
    await served(node, modest)

    greedy.connection.resume_reading()
    await settle()
    assert len(node.fetched) > started


async def test_a_flood_of_small_requests_leaves_others_their_turn() -> None:
    node = Node()
    order: list[int] = []

    def note(exchange: Exchange) -> None:
        order.append(exchange.message.producer_id)
        exchange.respond(answer_to(exchange))

    node.on_request = note
    flood, other = await node.raw_peer(), await node.raw_peer()
    assert flood.connection is not None
    assert other.connection is not None
    flood.connection.write([request_frame(1, number) for number in range(2_000)])
    other.connection.write([request_frame(2)])
    await settle()
    assert order.index(2) <= 2 * STARTS_A_TURN
    assert len(order) == 2_001
    assert len(flood.frames) == 2_000


async def test_attachments_arrive_whole_from_buffers_of_any_kind() -> None:
    node = Node()
    channel = await node.channel()
    call = channel.call_soon(FETCH, 1_000)
    await settle()
    node.fetched[0].respond(fetch_answer((b"abc", memoryview(b"defg")), (bytearray(b""),), (b"tail",)))
    response = await call
    assert [bytes(row.records) for row in response.partitions] == [b"abcdefg", b"", b"tail"]


# --- refusals ---------------------------------------------------------------------------------------------


async def test_the_server_answers_api_versions_itself_with_what_its_listener_serves() -> None:
    node = Node()
    peer = await node.raw_peer()
    api = APIS[ApiKey.API_VERSIONS]
    await peer.send(*map(bytes, encode_request(api, 0, 3, "raw", ApiVersionsRequest(software="x"))))
    correlation_id, raw = peer.answers[0]
    response = decode_message(ApiVersionsResponse, raw, 0, memoryview(b""))
    assert correlation_id == 3
    assert response.node_id == 1
    assert [row.api_key for row in response.apis] == [
        ApiKey.FETCH,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
    ]


@pytest.mark.parametrize(("api_key", "api_version"), [(3, 0), (9_999, 0), (22, 1), (22, -1)])
async def test_an_unknown_api_or_version_is_refused_and_the_connection_stays(
    api_key: int, api_version: int
) -> None:
    node = Node()
    peer = await node.raw_peer()
    body = [api_key, api_version, 5, "raw", [1, 2]]
    await peer.send(*map(bytes, encode_frame(body)), request_frame(1, correlation_id=6))
    assert [(correlation_id, refusal[0]) for correlation_id, refusal in peer.answers] == [
        (5, ErrorCode.UNSUPPORTED_VERSION)
    ]
    assert node.parked_ids == [1]
    assert not peer.is_lost


async def test_a_request_that_names_too_much_is_refused_and_the_connection_stays() -> None:
    node = Node()
    peer = await node.raw_peer()
    rows = [[b"t" * 16, 0, -1, 0, -1, -1, 1]] * 10_000
    body = [int(ApiKey.FETCH), 0, 5, "raw", [None, -1, -1, 0, 0, 0, rows]]
    await peer.send(*map(bytes, encode_frame(body)), request_frame(1, correlation_id=6))
    assert [(correlation_id, refusal[0]) for correlation_id, refusal in peer.answers] == [
        (5, ErrorCode.INVALID_REQUEST)
    ]
    assert node.fetched == []
    assert node.parked_ids == [1]


async def test_a_message_of_the_wrong_type_gets_a_clear_error_then_the_connection_closes() -> None:
    node = Node()
    peer, other = await node.raw_peer(), await node.channel()
    body = [int(ApiKey.INIT_PRODUCER_ID), 0, 9, "raw", ["no number", 0]]
    await peer.send(request_frame(1), *map(bytes, encode_frame(body)), request_frame(2))
    correlation_id, (code, text) = peer.answers[0]
    assert (correlation_id, code) == (9, ErrorCode.MALFORMED_FRAME)
    assert "InitProducerIdRequest.producer_id: expected int64" in text
    assert node.parked_ids == [1]  # what came before was started, what came behind was not
    assert not node.parked[0].is_open
    assert peer.is_lost
    await served(node, other)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: holdfast\r\n\r\n",
        struct.pack(">II", 65 << 20, 10),  # larger than any frame
        struct.pack(">II", 4 << 20, 3 << 20),  # a body larger than a request's
        struct.pack(">II", 10, 20),  # the body does not fit the frame
        struct.pack(">II", 3, 0),
        struct.pack(">II", 5, 1) + b"\xc1",  # no msgpack
        struct.pack(">II", 104, 100) + b"\x91" * 100,  # nests without end
        b"".join(map(bytes, encode_frame({"a": 1}))),
        b"".join(map(bytes, encode_frame([22, 0]))),
    ],
)
async def test_bytes_that_are_no_request_close_the_connection_and_disturb_no_client(data: bytes) -> None:
    node = Node()
    peer, other = await node.raw_peer(), await node.channel()
    await peer.send(request_frame(1) + data)
    assert peer.is_lost
    assert peer.frames == []
    assert node.parked_ids == [1]
    assert node.server.connection_count == 1
    await served(node, other)


async def test_a_frame_that_may_not_be_started_yet_waits_packed_and_unjudged() -> None:
    """Unpacked it would take up to sixty times as much, for as long as requests are parked."""
    node = Node(ServerLimits(in_flight_max=1))
    peer = await node.raw_peer()
    await peer.send(request_frame(1) + struct.pack(">II", 5, 1) + b"\xc1" + request_frame(2))
    assert not peer.is_lost
    node.parked[0].respond(answer_to(node.parked[0]))
    await settle()
    assert [correlation_id for correlation_id, _ in peer.answers] == [7]
    assert peer.is_lost
    assert node.parked_ids == [1]


async def test_an_answer_larger_than_a_frame_is_refused_instead() -> None:
    node = Node()
    channel = await node.channel()
    node.on_fetch = lambda exchange: exchange.respond(fetch_answer(bytes(FRAME_MAX_BYTES)))
    call = channel.call_soon(FETCH, 1_000)
    with pytest.raises(CallRefused, match="ask for less at once") as caught:
        await call
    assert caught.value.error_code == ErrorCode.MESSAGE_TOO_LARGE
    await served(node, channel)


async def test_a_handler_may_refuse_a_request_as_a_whole() -> None:
    node = Node()
    node.on_request = lambda exchange: exchange.fail(ErrorCode.NOT_CONTROLLER, "ask node 3")
    channel = await node.channel()
    with pytest.raises(CallRefused, match="NOT_CONTROLLER: ask node 3") as caught:
        await channel.call(ask(1), 1_000)
    assert caught.value.text == "ask node 3"


# --- own bugs ---------------------------------------------------------------------------------------------


async def test_a_handler_that_meets_our_own_bug_stops_the_node(failures_logged: object) -> None:
    def broken(exchange: Exchange) -> None:
        raise AssertionError("high watermark above log end")

    node = Node()
    node.on_request = broken
    channel = await node.channel()
    with pytest.raises(Disconnected):
        await channel.call(ask(1), 1_000)
    failure = await node.world.tasks.failure()
    assert isinstance(failure, AssertionError)
    assert "high watermark above log end" in str(failure)


async def test_a_server_that_fell_silent_answers_nothing_and_starts_nothing() -> None:
    """Neither what is asked already nor what comes, on old connections or on new ones."""
    node = Node()
    channel = await node.channel()
    asked = channel.call_soon(ask(1), 1_000)
    await settle()
    node.server.fall_silent()
    node.parked[0].respond(answer_to(node.parked[0]))
    later = channel.call_soon(ask(2), 1_000)
    newcomer = await node.raw_peer()
    await newcomer.send(request_frame(3))
    assert node.parked_ids == [1]
    assert not asked.done()
    assert not later.done()
    assert newcomer.frames == []
    channel.abort()
    await settle()


async def test_answering_twice_is_a_bug() -> None:
    node = Node()
    peer = await node.raw_peer()
    await peer.send(request_frame(1))
    node.parked[0].drop()
    with pytest.raises(AssertionError, match="answered twice"):
        node.parked[0].respond(answer_to(node.parked[0]))


async def test_an_answer_of_another_api_is_a_bug() -> None:
    node = Node()
    peer = await node.raw_peer()
    await peer.send(request_frame(1))
    with pytest.raises(AssertionError, match="ApiVersionsResponse"):
        node.parked[0].respond(ApiVersionsResponse(0, None, 1, ()))


# --- ends -------------------------------------------------------------------------------------------------


async def test_a_disconnect_closes_the_exchanges_and_answering_them_does_nothing() -> None:
    node = Node()
    peer = await node.raw_peer()
    await peer.send(request_frame(1), request_frame(2))
    exchange = node.parked[0]
    assert exchange.is_open
    assert peer.connection is not None
    peer.connection.close()
    await settle()
    assert not exchange.is_open
    assert node.disconnected == [exchange.connection_id]
    exchange.respond(answer_to(exchange))
    node.parked[1].drop()
    assert (node.server.connection_count, node.server.in_flight_count) == (0, 0)


async def test_hanging_up_ends_the_connection_once_whenever_it_is_decided(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A write with acks 0 that waited for its log: its sender may be gone by then, or cut off by another."""
    node = Node()
    first, second = await node.raw_peer(), await node.raw_peer()
    await first.send(request_frame(1), request_frame(2))
    await second.send(request_frame(3))
    node.parked[0].hang_up("refused")
    node.parked[1].hang_up("refused, too")
    await settle()
    assert (first.is_lost, second.is_lost) == (True, False)
    assert second.connection is not None
    second.connection.abort()
    await settle()
    node.parked[2].hang_up("no node is there")
    assert [record.args[2] for record in caplog.records if isinstance(record.args, tuple)] == ["refused"]
    assert (node.server.connection_count, node.server.in_flight_count) == (0, 0)


async def test_connections_past_the_limit_are_closed_and_the_others_stay() -> None:
    node = Node(ServerLimits(connection_max=2))
    channel = await node.channel()
    second = await node.raw_peer()
    third = await node.raw_peer()
    await settle()
    assert (second.is_lost, third.is_lost) == (False, True)
    assert node.disconnected == []
    await served(node, channel)


@pytest.mark.parametrize(("listeners", "admitted"), [(1, 4), (2, 2)])
async def test_connections_leave_half_of_the_open_files_to_the_logs(listeners: int, admitted: int) -> None:
    """The node's listeners share the other half: a log that finds no handle is taken for a dead disk."""
    runtime, _ = memory_runtime()
    limits = ServerLimits(listeners=listeners)
    server = Server(dataclasses.replace(runtime, open_files_max=8), 1, "INTERNAL", {}, limits)
    port = await server.start("127.0.0.1", 0)
    peers = [RawPeer() for _ in range(admitted + 1)]
    for peer in peers:
        await runtime.network.connect("127.0.0.1", port, peer, 1_000)
    await settle()
    assert [peer.is_lost for peer in peers] == [False] * admitted + [True]


@pytest.mark.parametrize(("asked", "told"), [(None, [("INFO", 10_000)]), (4, []), (5, [("WARNING", 5)])])
async def test_only_an_operator_who_asked_for_more_connections_is_warned_of_too_few_files(
    asked: int | None, told: list[tuple[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.rpc")
    runtime, _ = memory_runtime()
    shares = NodeShares(runtime.clock, connection_max=asked)
    server = Server(dataclasses.replace(runtime, open_files_max=8), 1, "INTERNAL", {}, shares=shares)
    await server.start("127.0.0.1", 0)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (
            level,
            f"listener INTERNAL takes 4 connections at most instead of {wanted}: "
            "this process may only open 8 files; raise its limit (ulimit -n)",
        )
        for level, wanted in told
    ]


async def advance(world: MemoryWorld, duration_ms: int) -> None:
    await world.clock.advance(duration_ms)
    await settle()


async def test_a_connection_that_never_asks_and_one_that_stops_within_a_frame_are_closed() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000))
    silent, half, good = await node.raw_peer(), await node.raw_peer(), await node.channel()
    await half.send(request_frame(1) + request_frame(2)[:-1])
    await advance(node.world, 900)
    assert (silent.is_lost, half.is_lost) == (False, False)
    await advance(node.world, 600)
    assert silent.is_lost
    assert half.is_lost
    await served(node, good)


async def test_a_frame_that_is_begun_late_has_its_whole_time() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000))
    node.on_request = lambda exchange: exchange.respond(answer_to(exchange))
    peer = await node.raw_peer()
    await peer.send(request_frame(1))
    await advance(node.world, 5_000)
    await peer.send(request_frame(2)[:10])
    await advance(node.world, 900)
    await peer.send(request_frame(2)[10:])
    assert len(peer.frames) == 2


async def test_time_in_which_the_server_does_not_read_is_not_the_peers() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000, in_flight_max=1))
    peer = await node.raw_peer()
    await peer.send(request_frame(1) + request_frame(2)[:10])
    await advance(node.world, 5_000)
    assert not peer.is_lost
    node.parked[0].respond(answer_to(node.parked[0]))
    await advance(node.world, 900)
    assert not peer.is_lost
    await advance(node.world, 700)
    assert peer.is_lost


async def test_an_idle_connection_is_closed_but_not_one_that_waits_for_an_answer() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000, idle_max_ms=10_000))
    waiting = await node.raw_peer()
    await waiting.send(request_frame(1))
    node.on_request = lambda exchange: exchange.respond(answer_to(exchange))
    idle = await node.raw_peer()
    await idle.send(request_frame(2))
    await advance(node.world, 9_900)
    assert not idle.is_lost
    await advance(node.world, 700)
    assert (idle.is_lost, waiting.is_lost) == (True, False)


async def unread_answer(node: Node) -> RawPeer:
    """A peer that stopped reading before an answer that the connection has no room for."""
    node.on_fetch = lambda exchange: exchange.respond(fetch_answer(bytes(2_000_000)))
    peer = await node.raw_peer()
    assert peer.connection is not None
    peer.connection.pause_reading()
    await peer.send(b"".join(encode_request(APIS[ApiKey.FETCH], 0, 1, "raw", FETCH)))
    return peer


async def test_a_peer_that_never_reads_its_answers_is_closed() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000, unread_max_ms=10_000))
    peer = await unread_answer(node)
    await advance(node.world, 9_400)
    assert node.server.connection_count == 1
    await advance(node.world, 1_200)
    assert node.server.connection_count == 0
    assert node.disconnected == [1]
    assert peer.frames == []


async def test_no_more_is_queued_for_a_peer_that_reads_nothing_than_the_limit() -> None:
    """It asked for many answers before the first was made; each is large, and all wait in memory."""
    node = Node(ServerLimits(unread_max_bytes=5_000_000))
    greedy, modest = await node.raw_peer(), await node.channel()
    assert greedy.connection is not None
    greedy.connection.pause_reading()
    await greedy.send(*(b"".join(encode_request(APIS[ApiKey.FETCH], 0, n, "raw", FETCH)) for n in range(9)))
    for exchange in node.fetched[:3]:
        exchange.respond(fetch_answer(bytes(2_000_000)))
    await settle()
    assert (
        node.server.connection_count == 2
    )  # two answers more than there is room for, one less than the limit
    for exchange in node.fetched[3:]:
        exchange.respond(fetch_answer(bytes(2_000_000)))
    await settle()
    assert (node.server.connection_count, greedy.is_lost, greedy.frames) == (1, True, [])
    await served(node, modest)


async def test_a_peer_that_reads_between_its_answers_may_take_any_number_of_them() -> None:
    node = Node(ServerLimits(unread_max_bytes=5_000_000))
    peer = await node.raw_peer()
    assert peer.connection is not None
    await peer.send(*(b"".join(encode_request(APIS[ApiKey.FETCH], 0, n, "raw", FETCH)) for n in range(9)))
    for exchange in node.fetched:
        peer.connection.pause_reading()
        exchange.respond(fetch_answer(bytes(2_000_000)))
        await settle()
        peer.connection.resume_reading()
        await settle()
    assert (len(peer.frames), peer.is_lost) == (9, False)


async def test_a_peer_that_reads_its_answers_late_stays() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000, unread_max_ms=10_000))
    peer = await unread_answer(node)
    assert peer.connection is not None
    for _ in range(3):
        await advance(node.world, 8_000)
        peer.connection.resume_reading()
        await settle()
        peer.connection.pause_reading()
        await peer.send(b"".join(encode_request(APIS[ApiKey.FETCH], 0, 1, "raw", FETCH)))
    assert (len(peer.frames), peer.is_lost) == (3, False)


async def test_close_sends_what_is_answered_and_drops_the_rest() -> None:
    node = Node()
    channel = await node.channel()
    answered, parked = channel.call_soon(ask(1), 1_000), channel.call_soon(ask(2), 1_000)
    await settle()
    node.parked[0].respond(answer_to(node.parked[0]))
    await node.server.close()
    assert (await answered).producer_id == 1
    with pytest.raises(Disconnected):
        await parked
    assert node.server.connection_count == 0
    with pytest.raises(NetworkError):
        await node.channel()


async def test_stats_count_requests_by_api() -> None:
    node = Node()
    channel = await node.channel()
    await served(node, channel)
    await served(node, channel)
    samples = {
        (family.name, sample.labels[0][1]): sample.value
        for family in node.server.stats()
        for sample in family.samples
    }
    assert samples["kafka_server_requests_total", "init_producer_id"] == 2
    assert samples["kafka_server_connections", node.server.listener_name] == 1
