"""Requests with more elements than one turn of the event loop has time for."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.core.groups.config import OFFSETS_MAX
from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.envelope import ITEMS_AT_ONCE, ITEMS_MAX_OF
from holdfast.kafka_listener.core.schema_reader import ITEMS_MAX
from holdfast.protocol.api_keys import ApiKey
from holdfast.runtime.memory.machine import settle
from tests.unit.kafka_listener.test_server import (
    KafkaNode,
    init_producer_id,
    request,
)
from tests.unit.kafka_listener.test_translations import answer_of


def offsets(correlation_id: int, count: int) -> bytes:
    """A question about so many elements."""
    row = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    topics = [{"name": "t", "partitions": [row] * (count - 1)}]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    return request(KafkaApi.LIST_OFFSETS, 4, correlation_id, fields)


async def test_a_large_request_is_not_read_in_the_turn_in_which_it_comes() -> None:
    node = KafkaNode()
    peer, other = await node.peer(), await node.peer()
    assert peer.connection is not None
    peer.connection.write([offsets(1, ITEMS_AT_ONCE + 1)])
    assert other.connection is not None
    other.connection.write([init_producer_id(2)])
    await settle()
    assert [one.api_key for one in node.parked] == [ApiKey.INIT_PRODUCER_ID, ApiKey.LIST_OFFSETS]
    question = node.parked[1]
    question.respond(answer_of(question.message))
    await settle()
    assert peer.answered_ids == [1]


@pytest.mark.parametrize("is_gone", [False, True], ids=["its peer waits", "its peer has gone"])
async def test_a_request_that_is_too_large_ends_the_connection_and_takes_no_room(
    is_gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    node = KafkaNode()
    peer = await node.peer()
    assert peer.connection is not None
    peer.connection.write([offsets(1, ITEMS_MAX + 1)])
    if is_gone:
        peer.connection.close()
    await settle()
    assert not node.parked
    assert sum(node.server.shares.memory.used_bytes.values()) == 0
    assert is_gone or (peer.is_lost and "ask for less at once" in caplog.text)


@pytest.mark.parametrize("step", ["read", "answered"])
async def test_a_peer_that_goes_while_its_large_request_is_at_work_leaves_nothing_behind(step: str) -> None:
    node = KafkaNode()
    peer = await node.peer()
    assert peer.connection is not None
    peer.connection.write([offsets(1, ITEMS_AT_ONCE + 1)])
    if step == "answered":
        await settle()
        (question,) = node.parked
        question.respond(answer_of(question.message))
    peer.connection.close()
    await settle()
    assert len(node.parked) == (step == "answered")
    assert sum(node.server.shares.memory.used_bytes.values()) == 0
    assert (node.server.in_flight_count, node.server.connection_count) == (0, 0)


#: {API: (version, the fields of a request about these topics, a topic)}
OF_ALL_OFFSETS: dict[
    KafkaApi, tuple[int, Callable[[list[Any]], dict[str, Any]], Callable[[str, int], Any]]
] = {
    KafkaApi.OFFSET_COMMIT: (
        5,
        lambda topics: {
            "group_id": "g",
            "generation_id_or_member_epoch": 1,
            "member_id": "",
            "topics": topics,
        },
        lambda name, count: {
            "name": name,
            "partitions": [
                {"partition_index": index, "committed_offset": 1, "committed_metadata": ""}
                for index in range(count)
            ],
        },
    ),
    KafkaApi.OFFSET_FETCH: (
        8,
        lambda topics: {"groups": [{"group_id": "g", "topics": topics}], "require_stable": False},
        lambda name, count: {"name": name, "partition_indexes": list(range(count))},
    ),
    KafkaApi.OFFSET_DELETE: (
        0,
        lambda topics: {"group_id": "g", "topics": topics},
        lambda name, count: {
            "name": name,
            "partitions": [{"partition_index": index} for index in range(count)],
        },
    ),
}


@pytest.mark.parametrize("api", OF_ALL_OFFSETS, ids=lambda api: api.name)
async def test_a_request_may_name_as_many_offsets_as_a_group_has(api: KafkaApi) -> None:
    """A Java consumer commits all that it reads at once."""
    version, fields, topic = OF_ALL_OFFSETS[api]
    topics = [topic("t" if number == 0 else f"t{number}", OFFSETS_MAX // 100) for number in range(100)]
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(request(api, version, 1, fields(topics)))
    assert not peer.is_lost
    (question,) = node.parked
    question.respond(answer_of(question.message))
    await settle()
    assert peer.answered_ids == [1]


async def test_the_replicas_of_a_whole_log_dir_may_be_named_at_once() -> None:
    node = KafkaNode()
    peer = await node.peer()
    topics = [{"topic": "t", "partitions": list(range(OFFSETS_MAX))}]
    await peer.send(request(KafkaApi.DESCRIBE_LOG_DIRS, 1, 1, {"topics": topics}))
    assert peer.answered_ids == [1]


def test_no_api_has_a_limit_that_is_never_reached() -> None:
    assert all(ITEMS_AT_ONCE < most != ITEMS_MAX for most in ITEMS_MAX_OF.values())
