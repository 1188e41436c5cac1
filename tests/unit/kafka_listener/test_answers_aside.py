"""Answers of large requests: what they count for while they are written beside the event loop."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.envelope import ITEMS_AT_ONCE
from holdfast.kafka_listener.server import KafkaExchange
from holdfast.rpc.server_connection import FLUSH_BYTES
from holdfast.runtime.memory.machine import settle
from tests.unit.kafka_listener.test_server import KafkaNode, KafkaPeer, request
from tests.unit.kafka_listener.test_translations import answer_of

MIB = 1 << 20
LARGE = ITEMS_AT_ONCE + 1


def fetch(correlation_id: int, count: int) -> bytes:
    """Of so many elements."""
    row = {"current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": MIB}
    rows = [{**row, "partition": index} for index in range(count - 1)]
    fields = {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 64 * MIB,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": rows}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return request(KafkaApi.FETCH, 11, correlation_id, fields)


def answer(question: KafkaExchange, size_bytes: int) -> None:
    """With so many bytes of records."""
    answered = answer_of(question.message)
    (row,) = answered.partitions
    question.respond(replace(answered, partitions=(replace(row, records=memoryview(bytes(size_bytes))),)))


def unread_bytes(node: KafkaNode) -> int:
    """What strangers have not taken, as the node's memory has it."""
    return node.server.shares.memory.unread_bytes[0]


@pytest.mark.parametrize("count", [100, LARGE], ids=["written on the loop", "written beside it"])
async def test_answers_that_are_not_taken_are_bounded_however_they_are_written(count: int) -> None:
    node = KafkaNode(memory_bytes=64 * MIB)
    peers: list[KafkaPeer] = []
    for _ in range(20):
        peer = await node.peer()
        peers.append(peer)
        await peer.send(fetch(1, count))
        assert peer.connection is not None
        peer.connection.pause_reading()
    granted = 0
    for question in node.parked:
        room_bytes = question.room_for_answer
        granted += room_bytes
        answer(question, room_bytes)
    assert len(node.parked) == len(peers)
    # Short answers count from the end of the turn on.
    assert 15 * MIB < granted <= 16 * MIB + len(peers) * FLUSH_BYTES
    await settle()
    assert not any(peer.is_lost for peer in peers)
    for peer in peers:
        assert peer.connection is not None
        peer.connection.abort()
    await settle()
    assert unread_bytes(node) == 0


async def test_another_answer_of_the_connection_does_not_hide_those_that_are_written_beside_the_loop() -> (
    None
):
    node = KafkaNode(memory_bytes=64 * MIB)
    peer = await node.peer()
    await peer.send(fetch(1, 100), fetch(2, LARGE), fetch(3, LARGE))
    small, *large = node.parked
    for question in large:
        answer(question, MIB)
    assert unread_bytes(node) == 2 * MIB
    answer(small, MIB)
    assert unread_bytes(node) >= 2 * MIB
    await settle()
    assert peer.answered_ids == [1, 2, 3]


async def test_an_answer_whose_peer_has_gone_while_it_was_written_counts_for_nothing() -> None:
    node = KafkaNode(memory_bytes=64 * MIB)
    peer = await node.peer()
    await peer.send(fetch(1, LARGE))
    (question,) = node.parked
    answer(question, MIB)
    assert peer.connection is not None
    peer.connection.close()
    await settle()
    assert (unread_bytes(node), node.server.in_flight_count, node.server.connection_count) == (0, 0, 0)


async def test_connections_take_turns_in_what_is_done_beside_the_event_loop() -> None:
    server = KafkaNode().server
    done: list[str] = []

    async def work(connection_id: int, name: str) -> None:
        await server.compute(connection_id, lambda: done.append(name))

    await asyncio.gather(work(1, "a1"), work(1, "a2"), work(1, "a3"), work(2, "b1"))
    assert done == ["a1", "a2", "b1", "a3"]


async def test_what_waits_of_a_connection_that_has_ended_is_not_done() -> None:
    server = KafkaNode().server
    done: list[str] = []

    async def work(connection_id: int, name: str) -> None:
        await server.compute(connection_id, lambda: done.append(name))

    await asyncio.gather(
        server.compute(1, lambda: server.lost(2)), work(2, "b1"), work(2, "b2"), work(1, "a1")
    )
    assert done == ["a1"]


async def test_work_that_is_cancelled_while_it_waits_holds_up_no_other() -> None:
    server = KafkaNode().server
    done: list[str] = []

    async def work(connection_id: int, name: str) -> None:
        await server.compute(connection_id, lambda: done.append(name))

    tasks = [asyncio.ensure_future(work(number, str(number))) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await work(1, "3")
    assert done == ["0", "2", "3"]


async def test_others_wait_for_one_large_request_at_most() -> None:
    node = KafkaNode()
    peers = [await node.peer() for _ in range(5)]
    for peer in peers:
        await peer.send(fetch(1, LARGE))
    for question in node.parked:
        answer(question, 1)
    await asyncio.sleep(0)  # each wants its turn now

    def written() -> int:
        return sum(question.answer is not None for question in node.parked)

    assert await node.runtime.tasks.compute(written) <= 1
    await settle()
    assert written() == len(peers)
