"""A write of very many batches: parts towards the broker, one answer to the client."""

from collections.abc import Sequence
from typing import Any

import pytest
from kio.serial import entity_reader

from holdfast.kafka_listener.core.api_table import KafkaApi, response_type
from holdfast.kafka_listener.core.produce_in_parts import BATCHES_A_TURN
from holdfast.kafka_listener.server import KafkaExchange
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.memory.machine import settle
from tests.unit.kafka_listener.samples import plain
from tests.unit.kafka_listener.test_server import (
    KafkaNode,
    KafkaPeer,
    answer,
    init_producer_id,
    request,
)
from tests.unit.kafka_listener.test_translations import BATCH, answer_of

#: Batches of a write that needs three parts.
MANY = 2 * BATCHES_A_TURN + 100


async def send(node: KafkaNode, peer: KafkaPeer, *data: bytes) -> None:
    """Until each part of a write had its turn."""
    await peer.send(*data)
    await node.world.clock.advance(0)


def write(correlation_id: int, acks: int = -1, count: int = MANY) -> bytes:
    return write_of_one_topic(correlation_id, acks, range(count))


def write_of_one_topic(correlation_id: int, acks: int, indexes: Sequence[int]) -> bytes:
    rows = [{"index": index, "records": BATCH} for index in indexes]
    topics = [{"name": "t", "partition_data": rows}]
    fields = {"transactional_id": None, "acks": acks, "timeout": 1, "topic_data": topics}
    return request(KafkaApi.PRODUCE, 9, correlation_id, fields)


def codes(frame: bytes) -> list[int]:
    """Of the rows of an answer to a write."""
    entity, _ = entity_reader(response_type(KafkaApi.PRODUCE, 9))(frame, 5)
    topics: list[Any] = plain(entity)["responses"]
    return [row["error_code"] for topic in topics for row in topic["partition_responses"]]


async def test_what_comes_behind_a_large_write_begins_behind_it() -> None:
    """A client's next batch of a partition must not come into the log before this one."""
    node = KafkaNode()
    peer = await node.peer()
    await send(node, peer, write(1), init_producer_id(2))
    *parts, other = node.parked
    assert {one.api_key for one in parts} == {ApiKey.PRODUCE}
    answer(other)
    for one in parts:
        one.respond(answer_of(one.message))
    await settle()
    assert peer.answered_ids == [1, 2]
    assert node.server.in_flight_count == 0


async def test_a_write_of_very_many_batches_is_answered_as_one() -> None:
    node = KafkaNode()
    peer = await node.peer()
    used = node.server.shares.memory.used_bytes
    await send(node, peer, write(1))
    first, second, third = node.parked
    assert [len(one.message.partitions) for one in node.parked] == [BATCHES_A_TURN, BATCHES_A_TURN, 100]
    answered = answer_of(first.message)
    third.respond(answer_of(third.message))
    second.fail(ErrorCode.BROKER_NOT_AVAILABLE, "stopping")
    await settle()
    assert sum(used.values()) > 0
    first.let_go()
    assert sum(used.values()) == 0
    first.respond(answered)
    await settle()
    refused = [int(ErrorCode.LEADER_NOT_AVAILABLE)] * BATCHES_A_TURN
    assert codes(peer.answers[0]) == [0] * BATCHES_A_TURN + refused + [0] * 100


async def test_each_part_of_a_write_with_acks_0_is_begun_before_its_refusal_ends_the_connection() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await send(node, peer, write(1, acks=0))
    first, second, third = node.parked
    first.hang_up("not the leader")
    second.drop()
    await settle()
    assert not peer.is_lost
    third.drop()
    await settle()
    assert peer.is_lost


async def test_a_write_with_acks_0_in_parts_has_no_answer() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await send(node, peer, write(1, acks=0), init_producer_id(2))
    *parts, other = node.parked
    for one in parts:
        one.drop()
    answer(other)
    await settle()
    assert (peer.answered_ids, peer.is_lost, node.server.in_flight_count) == ([2], False, 0)


async def test_a_write_in_parts_gives_back_its_room_also_when_its_peer_has_gone() -> None:
    node = KafkaNode()
    peer = await node.peer()
    used = node.server.shares.memory.used_bytes
    await send(node, peer, write(1))
    assert peer.connection is not None
    peer.connection.close()
    await settle()
    assert sum(used.values()) > 0
    for one in node.parked:
        one.let_go()
    assert sum(used.values()) == 0


@pytest.mark.parametrize("end", ["the broker fails", "the node falls silent"])
async def test_no_part_of_a_write_is_begun_after_an_error_that_ends_the_node(
    end: str, failures_logged: list[str]
) -> None:
    node = KafkaNode()
    peer = await node.peer()
    begun: list[KafkaExchange] = []

    def on_request(part: KafkaExchange) -> None:
        begun.append(part)
        if end == "the broker fails":
            raise RuntimeError("a dead disk")
        node.server.fall_silent()

    node.on_request = on_request
    await send(node, peer, write(1))
    assert len(begun) == 1


async def test_each_part_of_a_write_is_begun_although_its_peer_goes() -> None:
    node = KafkaNode()
    peer = await node.peer()

    def on_request(part: KafkaExchange) -> None:
        node.parked.append(part)
        assert peer.connection is not None
        peer.connection.close()

    node.on_request = on_request
    await send(node, peer, write(1))
    assert len(node.parked) == 3


@pytest.mark.parametrize("acks", [-1, 0])
async def test_a_second_batch_of_a_partition_is_refused_also_when_it_is_in_another_part(acks: int) -> None:
    node = KafkaNode()
    peer = await node.peer()
    indexes = [*range(600), 0, 600, 599]
    await send(node, peer, write_of_one_topic(1, acks, indexes))
    assert [row.partition_index for one in node.parked for row in one.message.partitions] == [*range(601)]
    for one in node.parked:
        if acks:
            one.respond(answer_of(one.message))
        else:
            one.drop()
    await settle()
    assert peer.is_lost == (acks == 0)
    if acks:
        twice = int(ErrorCode.INVALID_REQUEST)
        assert codes(peer.answers[0]) == [*[0] * 600, twice, 0, twice]
