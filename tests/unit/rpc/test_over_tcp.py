"""The same rules over real sockets: what only kernel buffers, resets and partial reads can show (D3)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.rpc.channel import CallRefused, CallTimedOut, Channel, Disconnected, Pool
from holdfast.rpc.server import Exchange, Server, ServerLimits
from holdfast.runtime.api import ConnectionRefused, Runtime
from holdfast.runtime.real.machine import real_runtime

FETCH = FetchRequest(
    cluster_id=None, replica_id=-1, broker_epoch=-1, max_wait_ms=0, min_bytes=0, max_bytes=0, partitions=()
)


def ask(producer_id: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(producer_id=producer_id, producer_epoch=0)


def answer(exchange: Exchange) -> None:
    number = exchange.message.producer_id
    exchange.respond(InitProducerIdResponse(ErrorCode.NONE, None, number, 0))


def fetched(data: bytes) -> FetchResponse:
    row = FetchPartitionResponse(bytes(16), 0, 0, 0, 0, 0, None, 1, 0, memoryview(data))
    return FetchResponse(0, None, (row,))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the kernel to have carried something over."""
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


class TcpNode:
    def __init__(self, runtime: Runtime, limits: ServerLimits) -> None:
        self.parked: list[Exchange] = []
        self.fetches: list[Exchange] = []
        self.ended: list[int] = []
        self.on_fetch: Callable[[Exchange], None] = lambda exchange: None
        handlers = {ApiKey.INIT_PRODUCER_ID: self.parked.append, ApiKey.FETCH: self._fetch}
        self.server = Server(runtime, 1, "TCP", handlers, limits)
        self.server.on_disconnect = self.ended.append
        self.port = 0

    def _fetch(self, exchange: Exchange) -> None:
        self.fetches.append(exchange)
        self.on_fetch(exchange)


@asynccontextmanager
async def node_with_channel(
    limits: ServerLimits | None = None,
) -> AsyncIterator[tuple[Runtime, TcpNode, Channel]]:
    runtime = real_runtime()
    node = TcpNode(runtime, limits or ServerLimits())
    node.port = await node.server.start("127.0.0.1", 0)
    channel = Channel(runtime, "127.0.0.1", node.port, "tcp")
    await channel.connect(5_000)
    connection = channel._connection
    assert connection is not None
    try:
        yield runtime, node, channel
    finally:
        channel.abort()
        await node.server.close()
        await until(lambda: connection.is_closing)
        await asyncio.sleep(0.01)  # the loop tells of the end one turn later


async def test_pipelined_calls_are_answered_out_of_order() -> None:
    async with node_with_channel() as (_, node, channel):
        calls = [channel.call_soon(ask(n), 10_000) for n in range(50)]
        await until(lambda: len(node.parked) == 50)
        assert [exchange.message.producer_id for exchange in node.parked] == list(range(50))
        for exchange in reversed(node.parked):
            answer(exchange)
        assert [(await call).producer_id for call in calls] == list(range(50))


async def test_attachments_of_megabytes_arrive_whole_among_small_answers() -> None:
    async with node_with_channel() as (_, node, channel):
        blobs = [bytes([n]) * (3 << 20) for n in range(4)]
        fetches = [channel.call_soon(FETCH, 10_000) for _ in blobs]
        small = channel.call_soon(ask(1), 10_000)
        await until(lambda: len(node.fetches) == 4 and len(node.parked) == 1)
        answer(node.parked[0])
        for exchange, blob in zip(node.fetches, blobs, strict=True):
            exchange.respond(fetched(blob))
        assert [bytes((await call).partitions[0].records) for call in fetches] == blobs
        assert (await small).producer_id == 1


async def test_a_peer_that_does_not_read_stops_being_served_and_goes_on_when_it_reads() -> None:
    async with node_with_channel() as (_, node, channel):
        blob = bytes(2 << 20)
        node.on_fetch = lambda exchange: exchange.respond(fetched(blob))
        assert channel._connection is not None
        channel._connection.pause_reading()
        calls = [channel.call_soon(FETCH, 60_000) for _ in range(40)]
        await until(lambda: len(node.fetches) >= 2)
        await asyncio.sleep(0.05)
        assert len(node.fetches) < 40
        channel._connection.resume_reading()
        for call in calls:
            assert len((await call).partitions[0].records) == len(blob)


async def test_close_does_not_wait_for_a_peer_that_does_not_read() -> None:
    async with node_with_channel(ServerLimits(close_timeout_ms=100)) as (runtime, node, channel):
        assert channel._connection is not None
        channel._connection.pause_reading()
        call = channel.call_soon(FETCH, 60_000)
        await until(lambda: len(node.fetches) == 1)
        node.fetches[0].respond(fetched(bytes(32 << 20)))
        began_ms = runtime.clock.now_ms()
        await node.server.close()
        assert runtime.clock.now_ms() - began_ms >= 99  # it did try
        assert node.server.connection_count == 0
        call.cancel()
        channel.abort()


async def test_a_malformed_request_is_answered_before_the_connection_closes() -> None:
    async with node_with_channel() as (_, node, channel):
        call = channel.call_soon(ask(1), 10_000)
        await until(lambda: len(node.parked) == 1)
        refused = channel.call_soon(InitProducerIdRequest(producer_id="x", producer_epoch=0), 10_000)  # type: ignore[arg-type]
        with pytest.raises(CallRefused, match="producer_id: expected int64") as caught:
            await refused
        assert caught.value.error_code == ErrorCode.MALFORMED_FRAME
        with pytest.raises(Disconnected):
            await call
        assert not node.parked[0].is_open


async def test_a_dead_node_is_a_disconnect_and_then_a_refused_connection() -> None:
    async with node_with_channel() as (runtime, node, channel):
        pool = Pool(runtime, "tcp")
        call = channel.call_soon(ask(1), 10_000)
        await until(lambda: len(node.parked) == 1)
        await node.server.close()
        with pytest.raises(Disconnected):
            await call
        with pytest.raises(ConnectionRefused):
            await pool.call("127.0.0.1", node.port, ask(2), 5_000)
        pool.close()


async def test_the_server_hears_of_a_peer_that_was_killed() -> None:
    async with node_with_channel() as (_, node, channel):
        call = channel.call_soon(ask(1), 10_000)
        await until(lambda: len(node.parked) == 1)
        exchange = node.parked[0]
        channel.abort()
        with pytest.raises(Disconnected):
            await call
        await until(lambda: node.ended == [exchange.connection_id])
        assert not exchange.is_open
        answer(exchange)


async def test_deadlines_come_true_on_the_real_clock() -> None:
    async with node_with_channel() as (_, node, channel):
        late = channel.call_soon(ask(1), 50)
        with pytest.raises(CallTimedOut, match="within 50 ms"):
            await late
        assert not channel.is_connected  # not a byte came meanwhile
        await until(lambda: len(node.ended) == 1)


async def test_frames_that_come_byte_by_byte_are_requests_all_the_same() -> None:
    async with node_with_channel() as (_, node, channel):
        data = b"".join(encode_request(APIS[ApiKey.INIT_PRODUCER_ID], 0, 900_000, "drip", ask(7)))
        assert channel._connection is not None
        for position in range(len(data)):
            channel._connection.write([data[position : position + 1]])
            if position % 8 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(node.parked) == 1)
        assert node.parked[0].message == ask(7)
        channel.abort()
