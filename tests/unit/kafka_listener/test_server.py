"""The listener as Kafka's clients see it: order of answers, versions, refusals, and hostile bytes."""

import asyncio
import io
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type, response_type
from holdfast.kafka_listener.core.schema_writer import write_message
from holdfast.kafka_listener.server import (
    ASKED_AGAIN_MS,
    STARTING_PATIENCE_MS,
    Handler,
    KafkaExchange,
    KafkaServer,
)
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.metadata import MetadataResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdResponse
from holdfast.rpc.server import ServerLimits
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Connection, NetworkError
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.kafka_listener.cluster_view import VIEW
from tests.unit.kafka_listener.samples import SERVED, kafka_sample, plain
from tests.unit.kafka_listener.test_translations import BATCH, answer_of


def frame(api: int, version: int, correlation_id: int, schema: Any, body: bytes) -> bytes:
    head = struct.pack(">hhih", api, version, correlation_id, 4) + b"test"
    if schema.__header_schema__.__flexible__:
        head += b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def request(api: KafkaApi, version: int, correlation_id: int, fields: dict[str, Any]) -> bytes:
    schema = request_type(api, version)
    return frame(api, version, correlation_id, schema, b"".join(write_message(schema, fields)))


def init_producer_id(correlation_id: int) -> bytes:
    fields = {
        "transactional_id": None,
        "transaction_timeout": 1,
        "producer_id": correlation_id,
        "producer_epoch": 0,
    }
    return request(KafkaApi.INIT_PRODUCER_ID, 3, correlation_id, fields)


def produce(correlation_id: int, acks: int, *topics: str) -> bytes:
    rows = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]} for name in ("t", *topics)]
    fields = {"transactional_id": None, "acks": acks, "timeout": 1, "topic_data": rows}
    return request(KafkaApi.PRODUCE, 9, correlation_id, fields)


class KafkaPeer:
    """A client that sends any bytes. A `ConnectionHandler`."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.data = b""
        self.is_lost = False

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def bytes_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None:
        self.is_lost = True

    async def send(self, *data: bytes) -> None:
        assert self.connection is not None
        self.connection.write(data)
        await settle()

    @property
    def answers(self) -> list[bytes]:
        """The frames received, without their size."""
        found, data = [], self.data
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found

    @property
    def answered_ids(self) -> list[int]:
        """Correlation ids of the answers, in order of arrival."""
        return [int.from_bytes(answer[:4], "big") for answer in self.answers]


class KafkaNode:
    """A listener whose questions to the broker are parked until a test answers them."""

    def __init__(
        self,
        limits: ServerLimits = ServerLimits(),  # noqa: B008  a frozen value
        memory_bytes: int | None = None,
    ) -> None:
        self.runtime, self.world = memory_runtime()
        self.parked: list[KafkaExchange] = []
        self.on_request: Callable[[KafkaExchange], None] = self.parked.append
        handlers: dict[ApiKey, Handler] = {
            key: lambda exchange: self.on_request(exchange) for key in APIS if key is not ApiKey.API_VERSIONS
        }
        shares = None if memory_bytes is None else NodeShares(self.runtime.clock, memory_bytes)
        self.server = KafkaServer(self.runtime, 1, "KAFKA", handlers, lambda: VIEW, limits, shares)
        self.port = 0

    async def peer(self) -> KafkaPeer:
        if not self.port:
            self.port = await self.server.start("127.0.0.1", 0)
        peer = KafkaPeer()
        await self.runtime.network.connect("127.0.0.1", self.port, peer, 1_000)
        return peer


def answer(exchange: KafkaExchange) -> None:
    exchange.respond(InitProducerIdResponse(0, None, exchange.message.producer_id, 0))


async def test_requests_start_at_once_and_answers_leave_in_their_order() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(*(init_producer_id(number) for number in range(5)))
    assert [exchange.message.producer_id for exchange in node.parked] == [0, 1, 2, 3, 4]
    for number, answered in ((3, []), (1, []), (0, [0, 1]), (4, [0, 1]), (2, [0, 1, 2, 3, 4])):
        answer(node.parked[number])
        await settle()
        assert peer.answered_ids == answered
    assert node.server.in_flight_count == 0


async def test_a_parked_request_holds_back_no_other_connection() -> None:
    node = KafkaNode()
    parked, other = await node.peer(), await node.peer()
    await parked.send(init_producer_id(1))
    await other.send(init_producer_id(2))
    answer(node.parked[1])
    await settle()
    assert (parked.answered_ids, other.answered_ids) == ([], [2])


async def test_a_write_with_acks_0_has_no_answer_and_holds_back_none() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(produce(1, 0), init_producer_id(2))
    written, asked = node.parked
    assert written.message.required_acks == 0
    answer(asked)
    await settle()
    assert peer.answered_ids == [2]
    written.drop()
    await settle()
    assert (peer.answered_ids, peer.is_lost, node.server.in_flight_count) == ([2], False, 0)


async def test_a_refused_write_with_acks_0_ends_the_connection() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(produce(1, 0))
    node.parked[0].hang_up("not the leader")
    await settle()
    assert peer.is_lost


async def test_a_write_with_acks_0_that_is_refused_in_part_ends_the_connection_behind_the_rest() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(produce(1, 0, "no such topic"))
    (written,) = node.parked
    assert (len(written.message.partitions), peer.is_lost) == (1, False)
    written.drop()
    await settle()
    assert peer.is_lost


async def test_an_unknown_version_of_api_versions_is_answered_in_the_form_of_version_0() -> None:
    node = KafkaNode()
    peer = await node.peer()
    fields = {"client_software_name": "a", "client_software_version": "b"}
    data = bytearray(request(KafkaApi.API_VERSIONS, 4, 9, fields))
    data[6:8] = (77).to_bytes(2, "big")
    await peer.send(bytes(data))
    entity, size = entity_reader(response_type(KafkaApi.API_VERSIONS, 0))(peer.answers[0], 4)
    assert size == len(peer.answers[0]) - 4
    found = plain(entity)
    assert (peer.answered_ids, found["error_code"]) == ([9], ErrorCode.UNSUPPORTED_VERSION)
    assert {row["api_key"] for row in found["api_keys"]} == {int(api) for api in KafkaApi}
    assert not peer.is_lost


@pytest.mark.parametrize(
    ("api", "version"), [(3, 99), (1, 3), (26, 3), (56, 0), (-1, 0)], ids=lambda number: str(number)
)
async def test_an_api_or_version_that_is_not_served_ends_the_connection_with_a_sentence(
    api: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(frame(api, version, 1, request_type(KafkaApi.METADATA, 1), b"\0\0\0\0"))
    assert peer.is_lost
    assert "served" in caplog.text


async def test_the_versions_that_clients_speak_are_counted() -> None:
    node = KafkaNode()
    node.on_request = answer
    peer = await node.peer()
    await peer.send(init_producer_id(1), init_producer_id(2))
    (family,) = (one for one in node.server.stats() if one.name == "kafka_server_request_versions_total")
    labels = (("request", "init_producer_id"), ("version", "3"), ("listener", "KAFKA"))
    assert [sample.labels for sample in family.samples if sample.value] == [labels]
    assert sum(sample.value for sample in family.samples if isinstance(sample.value, int)) == 2


async def test_a_broker_that_refuses_the_whole_request_is_answered_with_rows() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(produce(1, -1))
    node.parked[0].fail(ErrorCode.BROKER_NOT_AVAILABLE, "starting")
    await settle()
    entity, _ = entity_reader(response_type(KafkaApi.PRODUCE, 9))(peer.answers[0], 5)
    row = plain(entity)["responses"][0]["partition_responses"][0]
    assert (row["error_code"], row["error_message"]) == (ErrorCode.LEADER_NOT_AVAILABLE, "starting")


def all_topics(correlation_id: int) -> bytes:
    fields = {
        "topics": None,
        "include_topic_authorized_operations": False,
        "allow_auto_topic_creation": False,
    }
    return request(KafkaApi.METADATA, 12, correlation_id, fields)


async def test_metadata_of_a_broker_that_starts_is_answered_when_it_has_started() -> None:
    """No answer can say that it starts, and librdkafka does not ask again after the third lost connection."""
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(all_topics(1), init_producer_id(2))
    question, other = node.parked
    answer(other)
    for _ in range(3):
        node.parked.clear()
        question.fail(ErrorCode.BROKER_NOT_AVAILABLE, "starting")
        assert not node.parked
        await node.world.clock.advance(ASKED_AGAIN_MS)
        assert node.parked == [question]
        assert (peer.answered_ids, peer.is_lost) == ([], False)
    question.respond(MetadataResponse("cluster", 1, 1, (), ()))
    await settle()
    assert (peer.answered_ids, peer.is_lost) == ([1, 2], False)


async def test_a_broker_that_does_not_start_ends_the_connection_in_the_end() -> None:
    node = KafkaNode()
    peer = await node.peer()
    node.on_request = lambda exchange: exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, "starting")
    await peer.send(all_topics(1))
    asked = 0
    while not peer.is_lost:
        asked += 1
        await node.world.clock.advance(ASKED_AGAIN_MS)
    assert asked == STARTING_PATIENCE_MS // ASKED_AGAIN_MS
    assert node.server.in_flight_count == 0


async def test_a_broker_that_starts_is_not_asked_for_a_peer_that_has_gone() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(all_topics(1))
    assert peer.connection is not None
    node.parked[0].fail(ErrorCode.BROKER_NOT_AVAILABLE, "starting")
    peer.connection.close()
    await settle()
    await node.world.clock.advance(ASKED_AGAIN_MS)
    assert len(node.parked) == 1
    assert node.server.in_flight_count == 0


async def test_an_answer_to_a_peer_that_has_gone_goes_nowhere() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(init_producer_id(1), produce(2, 0))
    assert peer.connection is not None
    peer.connection.close()
    await settle()
    assert not any(exchange.is_open for exchange in node.parked)
    answer(node.parked[0])
    node.parked[1].drop()
    await settle()
    assert node.server.connection_count == 0


async def test_a_translation_that_fails_costs_the_connection_and_not_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = KafkaNode()
    node.on_request = lambda exchange: exchange.respond(object())
    peer, other = await node.peer(), await node.peer()
    await peer.send(init_producer_id(1))
    assert peer.is_lost
    assert "could not be translated" in caplog.text
    node.on_request = answer
    await other.send(init_producer_id(2))
    assert other.answered_ids == [2]


async def test_a_write_takes_room_until_its_records_are_in_the_log_and_no_longer() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(produce(1, -1))
    used = node.server.shares.memory.used_bytes
    (written,) = node.parked
    assert sum(used.values()) > len(BATCH)
    question = written.message
    written.let_go()
    assert sum(used.values()) == 0
    assert (written.message, written.is_open) == (None, True)
    written.respond(answer_of(question))
    await settle()
    assert peer.answered_ids == [1]


async def test_a_client_that_waits_for_one_answer_cannot_pile_up_others() -> None:
    node = KafkaNode(ServerLimits(unread_max_bytes=1_000))
    peer = await node.peer()
    await peer.send(*(init_producer_id(number) for number in range(200)))
    for exchange in node.parked[1:]:
        if exchange.is_open:
            answer(exchange)
    await settle()
    assert peer.is_lost


# --- hostile bytes -------------------------------------------------------------------------------------


def valid(case: int, salt: int) -> bytes:
    api, version = served_cases()[case % len(served_cases())]
    schema = request_type(api, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, kafka_sample(schema, salt))
    return frame(api, version, salt, schema, buffer.getvalue())


def served_cases() -> list[tuple[KafkaApi, int]]:
    return [case.values if hasattr(case, "values") else case for case in SERVED]


@st.composite
def hostile_bytes(draw: st.DrawFn) -> bytes:
    """A valid request with bytes changed, cut out, put in or repeated; or noise."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(valid(draw(st.integers(0, 1_000)), draw(st.integers(1, 9))))
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[position] = draw(st.integers(0, 255))
            case 1:
                data[position : position + 4] = draw(
                    st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"])
                )
            case 2:
                del data[position : position + draw(st.integers(1, 20))]
            case 3:
                data[position:position] = data[:position]
        data = data or bytearray(b"\0")
    if draw(st.booleans()):
        data[:4] = struct.pack(">i", len(data) - 4) if len(data) > 4 else data[:4]
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 4)) == 0 else data)


class Faults(logging.Handler):
    """Collects the adapter's own faults: bytes of a peer never lead to one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage() + str(record.exc_info))

    def __enter__(self) -> None:
        logging.getLogger("holdfast").addHandler(self)

    def __exit__(self, *error: object) -> None:
        logging.getLogger("holdfast").removeHandler(self)


@given(st.lists(hostile_bytes(), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_hostile_bytes_end_in_an_answer_or_a_closed_connection(pieces: list[bytes]) -> None:
    faults = Faults()

    async def play() -> None:
        node = KafkaNode()
        node.on_request = lambda exchange: exchange.respond(answer_of(exchange.message))
        peer, good = await node.peer(), await node.peer()
        for piece in pieces:
            if not peer.is_lost:
                await peer.send(piece)
        node.on_request = answer
        await good.send(init_producer_id(7))
        assert good.answered_ids == [7]

    with faults:
        asyncio.run(play())
    assert faults.texts == []


async def test_a_large_answer_is_translated_beside_the_event_loop_and_keeps_its_place() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(init_producer_id(1), init_producer_id(2))
    large, second = node.parked
    second.respond(InitProducerIdResponse(0, None, 7, 0))
    node.runtime.tasks.start("answer", large.respond_aside(InitProducerIdResponse(0, None, 6, 0)))
    assert peer.answered_ids == []
    await settle()
    assert peer.answered_ids == [1, 2]


async def test_a_large_answer_to_a_peer_that_has_gone_ends_nothing() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(init_producer_id(1))
    (large,) = node.parked
    assert peer.connection is not None
    peer.connection.abort()
    await settle()
    node.runtime.tasks.start("answer", large.respond_aside(InitProducerIdResponse(0, None, 6, 0)))
    await settle()
    assert large.is_answered
    await (await node.peer()).send(init_producer_id(2))
    assert len(node.parked) == 2
