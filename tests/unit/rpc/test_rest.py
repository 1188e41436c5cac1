"""A connection that rests because its client is over a quota: nothing of it is read or started meanwhile."""

from holdfast.rpc.exchange import Exchange
from holdfast.rpc.server import ServerLimits
from tests.unit.rpc.test_server import Node, RawPeer, advance, answer_to, request_frame, served


def answer_and_rest(rest_ms: int, node: Node) -> None:
    """From now on each request is answered at once, and its connection rests."""

    def answer(exchange: Exchange) -> None:
        exchange.throttle(rest_ms)
        exchange.respond(answer_to(exchange))

    node.on_request = answer


def answered(peer: RawPeer) -> int:
    return len(peer.frames)


async def test_the_answer_leaves_at_once_and_the_next_request_waits() -> None:
    node = Node()
    answer_and_rest(1_000, node)
    peer, other = await node.raw_peer(), await node.channel()
    await peer.send(request_frame(1) + request_frame(2))
    assert answered(peer) == 1
    await peer.send(request_frame(3))
    await advance(node.world, 999)
    assert answered(peer) == 1
    await advance(node.world, 1)
    assert answered(peer) == 2
    await advance(node.world, 1_000)
    assert answered(peer) == 3
    await served(node, other)


async def test_no_byte_is_read_from_a_connection_that_rests() -> None:
    node = Node()
    answer_and_rest(1_000, node)
    peer = await node.raw_peer()
    await peer.send(request_frame(1))
    await peer.send(request_frame(2))
    assert peer.connection is not None
    assert peer.connection.unsent_bytes == len(request_frame(2))
    await advance(node.world, 1_000)
    assert answered(peer) == 2


async def test_the_longest_of_several_rests_counts() -> None:
    node = Node()
    peer = await node.raw_peer()
    await peer.send(request_frame(1) + request_frame(2) + request_frame(3))
    for exchange, rest_ms in zip(node.parked, (500, 2_000, 1_000), strict=True):
        exchange.throttle(rest_ms)
        exchange.respond(answer_to(exchange))
    await peer.send(request_frame(4))
    await advance(node.world, 1_999)
    assert len(node.parked) == 3
    await advance(node.world, 1)
    assert len(node.parked) == 4


async def test_time_in_which_a_connection_rests_is_not_the_peers() -> None:
    node = Node(ServerLimits(frame_timeout_ms=1_000, idle_max_ms=2_000))
    answer_and_rest(5_000, node)
    peer = await node.raw_peer()
    await peer.send(request_frame(1) + request_frame(2)[:10])
    await advance(node.world, 5_000)
    assert not peer.is_lost
    await peer.send(request_frame(2)[10:])
    assert answered(peer) == 2


async def test_a_connection_that_ends_while_it_rests_leaves_no_timer() -> None:
    node = Node()
    answer_and_rest(1_000, node)
    gone, closed = await node.raw_peer(), await node.raw_peer()
    await gone.send(request_frame(1))
    await closed.send(request_frame(1))
    assert gone.connection is not None
    gone.connection.abort()
    await advance(node.world, 10)
    assert node.server.connection_count == 1
    await node.server.close()
    assert closed.is_lost
    await advance(node.world, 5_000)
    assert (answered(gone), answered(closed)) == (1, 1)


async def test_who_has_gone_does_not_rest() -> None:
    node = Node()
    peer = await node.raw_peer()
    await peer.send(request_frame(1))
    assert peer.connection is not None
    peer.connection.abort()
    await advance(node.world, 10)
    node.parked[0].throttle(1_000)
    node.parked[0].respond(answer_to(node.parked[0]))
    await advance(node.world, 5_000)
    assert (node.server.connection_count, node.server.in_flight_count) == (0, 0)
