"""Produce as clients send it, read and written without the schemas: the same values, the same bytes."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type, response_type
from holdfast.kafka_listener.core.envelope import read_head, read_request, write_response
from holdfast.kafka_listener.core.produce_codec import FIRST_VERSION, read_produce, write_produced
from holdfast.kafka_listener.core.schema_reader import Cursor, MalformedRequest, read_message
from holdfast.kafka_listener.core.schema_writer import Fields, write_message

VERSIONS = range(FIRST_VERSION, KafkaApi.PRODUCE.max_version + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

IDS = st.binary(min_size=16, max_size=16)
NAMES = st.text(min_size=1, max_size=20)
#: Their lengths take one to three bytes.
RECORDS = st.sampled_from([b"r" * size for size in (0, 1, 126, 127, 128, 16_382, 16_383, 20_000)])
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSET = st.integers(-1, 2**63 - 1)


def topics_of(row: st.SearchStrategy[Fields], rows: str) -> st.SearchStrategy[list[Fields]]:
    topic = st.fixed_dictionaries({"name": NAMES, "topic_id": IDS, rows: st.lists(row, max_size=3)})
    return st.lists(topic, max_size=3)


MESSAGES = st.fixed_dictionaries(
    {
        "transactional_id": st.none(),
        "acks": st.sampled_from([-1, 0, 1, 7]),
        "timeout": INT32,
        "topic_data": topics_of(
            st.fixed_dictionaries({"index": INT32, "records": RECORDS}), "partition_data"
        ),
    }
)


def frame_of(version: int, message: Fields, client_id: str | None = "me") -> bytes:
    schema: Any = request_type(KafkaApi.PRODUCE, version)
    fields = {
        "request_api_key": int(KafkaApi.PRODUCE),
        "request_api_version": version,
        "correlation_id": 5,
    }
    head = b"".join(write_message(schema.__header_schema__, {**fields, "client_id": None}))
    # the one field that has the old form in the header of a new request
    name = (
        b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    )
    assert head[8:9] == b"\0"
    return head[:8] + name + b"\0" + b"".join(write_message(schema, message))


def by_schema(frame: bytes, version: int) -> tuple[str, Any]:
    schema: Any = request_type(KafkaApi.PRODUCE, version)
    cursor = Cursor(memoryview(frame))
    header = read_message(schema.__header_schema__, cursor)
    return header.client_id or "", read_message(schema, cursor)


def told(message: Any) -> Any:
    """What a translation looks at."""
    topics = [
        (
            getattr(topic, "name", ""),
            getattr(topic, "topic_id", None),
            [(row.index, bytes(row.records)) for row in topic.partition_data],
        )
        for topic in message.topic_data
    ]
    return message.transactional_id, message.acks, message.timeout, topics


@given(st.sampled_from(VERSIONS), MESSAGES, st.text(max_size=20))
def test_a_usual_request_is_read_as_the_schemas_read_it(
    version: int, message: Fields, client_id: str
) -> None:
    frame = frame_of(version, message, client_id)
    read = read_produce(memoryview(frame), version)
    assert read is not None
    expected = by_schema(frame, version)
    assert (read[0], told(read[1])) == (expected[0], told(expected[1]))


def usual(**changes: Any) -> Fields:
    row = {"index": 3, "records": b"records"}
    topic = {"name": "topic", "topic_id": bytes(range(16)), "partition_data": [row]}
    return {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": [topic], **changes}


def rows(*found: Fields) -> list[Fields]:
    return [{"name": "topic", "topic_id": bytes(range(16)), "partition_data": found}]


UNUSUAL: dict[str, tuple[Fields, str | None]] = {
    "a client without a name": (usual(), None),
    "a transaction": (usual(transactional_id="t"), "me"),
    "a batch that is null": (usual(topic_data=rows({"index": 0, "records": None})), "me"),
    "many topics": (usual(topic_data=rows() * 127), "me"),
    "many partitions": (usual(topic_data=rows(*[{"index": 0, "records": b""}] * 127)), "me"),
}


@pytest.mark.parametrize(("message", "client_id"), UNUSUAL.values(), ids=UNUSUAL)
@every_version
def test_what_is_unusual_is_read_by_the_schemas(version: int, message: Fields, client_id: str | None) -> None:
    frame = memoryview(frame_of(version, message, client_id))
    assert read_produce(frame, version) is None
    request = read_request(frame, read_head(frame))
    assert (request.client_id, request.correlation_id) == (client_id or "", 5)


def test_a_version_of_old_lengths_is_read_by_the_schemas() -> None:
    assert read_produce(memoryview(frame_of(FIRST_VERSION, usual())), FIRST_VERSION - 1) is None


@every_version
def test_a_request_that_is_cut_short_is_no_other_request(version: int) -> None:
    frame = memoryview(frame_of(version, usual()))
    assert read_produce(frame, version) is not None
    for size in range(8, len(frame)):
        assert read_produce(frame[:size], version) is None


@given(st.sampled_from(VERSIONS), st.data())
def test_any_other_bytes_are_read_as_the_schemas_read_them_or_by_them(
    version: int, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(version, usual()))
    position = data.draw(st.integers(8, len(frame) - 1))
    frame[position : position + 1] = data.draw(st.binary(min_size=1, max_size=6))
    read = read_produce(memoryview(frame), version)
    try:
        expected = by_schema(bytes(frame), version)
    except MalformedRequest:
        assert read is None
    else:
        assert read is None or (read[0], told(read[1])) == (expected[0], told(expected[1]))


@every_version
def test_a_length_that_never_ends_costs_no_time(version: int) -> None:
    frame = frame_of(version, usual())
    endless = frame[: frame.index(b"\x08records")] + b"\xff" * 100_000
    assert read_produce(memoryview(endless), version) is None


ANSWERED = st.fixed_dictionaries(
    {
        "index": INT32,
        "error_code": st.just(0),
        "base_offset": OFFSET,
        "log_append_time": st.just(-1),
        "log_start_offset": OFFSET,
        "record_errors": st.just(()),
        "error_message": st.none(),
    }
)
ANSWERS = st.fixed_dictionaries(
    {"responses": topics_of(ANSWERED, "partition_responses")}, optional={"throttle_time": INT32}
)


@given(st.sampled_from(VERSIONS), ANSWERS)
def test_an_answer_has_the_bytes_that_the_schemas_give(version: int, fields: Fields) -> None:
    body = b"".join(write_message(response_type(KafkaApi.PRODUCE, version), fields))
    assert write_produced(version, fields) == body
    frame = struct.pack(">iib", 5 + len(body), 7, 0) + body
    assert b"".join(write_response(KafkaApi.PRODUCE, version, 7, fields)) == frame


REFUSED: dict[str, Fields] = {
    "an error": {"error_code": 6, "current_leader": {"leader_id": 2, "leader_epoch": 9}},
    "a sentence": {"error_message": "why"},
    "errors of records": {"record_errors": ({"batch_index": 1, "batch_index_error_message": "why"},)},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
@every_version
def test_an_answer_with_an_error_is_written_by_the_schemas(version: int, changes: Fields) -> None:
    row = {
        "index": 3,
        "error_code": 0,
        "base_offset": 5,
        "log_append_time": -1,
        "log_start_offset": 0,
        "record_errors": (),
        "error_message": None,
        **changes,
    }
    topic = {"name": "topic", "topic_id": bytes(range(16)), "partition_responses": [row]}
    fields = {"responses": [topic]}
    assert write_produced(version, fields) is None
    body = b"".join(write_message(response_type(KafkaApi.PRODUCE, version), fields))
    assert b"".join(write_response(KafkaApi.PRODUCE, version, 7, fields))[9:] == body
