"""Every message of every version that is served, read and written; the library kio is the oracle of bytes."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type, response_type
from holdfast.kafka_listener.core.envelope import read_head, read_request, write_response
from holdfast.kafka_listener.core.schema_reader import ITEMS_MAX, Cursor, MalformedRequest, read_message
from holdfast.kafka_listener.core.schema_writer import COPIED_MAX_BYTES, write_message
from holdfast.protocol.schema.fields import STRING_MAX
from tests.unit.kafka_listener.samples import SERVED, kafka_sample, plain, served_id

every_version = pytest.mark.parametrize(("api", "version"), SERVED, ids=served_id)


def written_by_kio(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@every_version
def test_a_request_is_read_as_kio_reads_it(api: KafkaApi, version: int) -> None:
    for salt in (1, 2, 3):
        entity = kafka_sample(request_type(api, version), salt)
        data = written_by_kio(entity)
        cursor = Cursor(memoryview(data))
        assert plain(read_message(type(entity), cursor)) == plain(entity)
        assert cursor.left == 0


@every_version
def test_a_response_is_written_as_kio_reads_it(api: KafkaApi, version: int) -> None:
    for salt in (1, 2, 3):
        entity = kafka_sample(response_type(api, version), salt)
        data = b"".join(write_message(type(entity), plain(entity)))
        assert data == written_by_kio(entity)
        assert entity_reader(type(entity))(data, 0) == (entity, len(data))


@every_version
def test_a_request_that_is_cut_short_is_an_error_and_never_another_request(
    api: KafkaApi, version: int
) -> None:
    entity = kafka_sample(request_type(api, version))
    data = written_by_kio(entity)
    for size in range(0, len(data), 1 + len(data) // 20):
        with pytest.raises(MalformedRequest):
            read_message(type(entity), Cursor(memoryview(data)[:size]))


@every_version
def test_a_frame_has_the_header_of_its_version(api: KafkaApi, version: int) -> None:
    schema: Any = request_type(api, version)
    header = schema.__header_schema__(
        request_api_key=int(api), request_api_version=version, correlation_id=7, client_id="me"
    )
    frame = memoryview(written_by_kio(header) + written_by_kio(kafka_sample(schema)))
    request = read_request(frame, read_head(frame))
    assert (request.api, request.version, request.correlation_id, request.client_id) == (
        api,
        version,
        7,
        "me",
    )

    answer: Any = response_type(api, version)
    data = b"".join(write_response(api, version, 7, plain(kafka_sample(answer))))
    head, size = entity_reader(answer.__header_schema__)(data, 4)
    assert head.correlation_id == 7
    assert entity_reader(answer)(data, 4 + size)[0] == kafka_sample(answer)
    assert int.from_bytes(data[:4], "big") == len(data) - 4


def test_long_values_are_not_copied() -> None:
    records = memoryview(bytes(COPIED_MAX_BYTES + 1))
    entity = kafka_sample(response_type(KafkaApi.FETCH, 12))
    fields = plain(entity)
    fields["responses"][0]["partitions"][0]["records"] = records
    assert any(buffer is records for buffer in write_message(type(entity), fields))


HOSTILE = {
    "an array of more elements than bytes, short form": (12, b"\xff\xff\xff\xff\x0f"),
    "a length that never ends": (12, b"\xff" * 12),
    "an array of more elements than bytes, long form": (1, b"\x7f\xff\xff\xff"),
    "a negative array": (1, b"\xff\xff\xff\xfb"),
    "a null string": (1, b"\x00\x00\x00\x01\xff\xff"),
    "a negative string": (1, b"\x00\x00\x00\x01\xff\xf9"),
    "a string that is not UTF-8": (1, b"\x00\x00\x00\x01\x00\x01\xff"),
    "a tagged field longer than the request": (12, b"\x01\x00\x00\x01\x05\xff\xff\xff\xff\x0f"),
    "more tagged fields than bytes": (12, b"\x01\x00\x00\xff\xff\xff\xff\x0f"),
    "more elements than a request may have": (
        1,
        (ITEMS_MAX + 1).to_bytes(4, "big") + b"\x00\x00" * (ITEMS_MAX + 1),
    ),
}


@pytest.mark.parametrize(("version", "data"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_lengths_are_an_error_and_cost_no_memory(version: int, data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_message(request_type(KafkaApi.METADATA, version), Cursor(memoryview(data)))


@pytest.mark.parametrize("version", [0, 1])
def test_a_string_is_as_long_as_one_between_brokers_may_be(version: int) -> None:
    """Kafka's own limit. What clients send is passed on, and must not break a broker's own connection."""
    schema: Any = request_type(KafkaApi.INCREMENTAL_ALTER_CONFIGS, version)

    def with_value(text: str) -> memoryview:
        configs = [{"name": "retention.ms", "config_operation": 0, "value": text}]
        row = {"resource_type": 2, "resource_name": "t", "configs": configs}
        return memoryview(b"".join(write_message(schema, {"resources": [row], "validate_only": False})))

    longest = "x" * STRING_MAX
    read = read_message(schema, Cursor(with_value(longest)))
    assert read.resources[0].configs[0].value == longest
    if schema.__flexible__:  # else its length has no such number
        with pytest.raises(MalformedRequest, match="a string of 32768 bytes"):
            read_message(schema, Cursor(with_value(longest + "x")))


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def produced(count: int) -> dict[str, Any]:
    """As a client writes to a broker that leads one partition of each topic; topic and row count each."""
    row = {"index": 0, "records": b""}
    topics = [{"name": "t", "partition_data": [row]}] * (count // 2)
    topics += [{"name": "t", "partition_data": []}] * (count % 2)
    return {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": topics}


def told_of_topics(count: int) -> dict[str, Any]:
    """As a member of the newer group protocol does."""
    nothing = dict.fromkeys(("instance_id", "rack_id", "server_assignor", "topic_partitions"))
    its = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1}
    return {**nothing, **its, "subscribed_topic_names": names(count)}


@pytest.mark.parametrize(
    ("api", "version", "most", "fields"),
    [
        (
            KafkaApi.DELETE_TOPICS,
            6,
            10_000,
            lambda n: {"topics": [{"name": t} for t in names(n)], "timeout": 1},
        ),
        (KafkaApi.CONSUMER_GROUP_HEARTBEAT, 0, 4_000, told_of_topics),
        (KafkaApi.PRODUCE, 9, 20_000, produced),
    ],
    ids=["delete topics", "heartbeat of a group", "produce"],
)
def test_what_is_looked_up_one_by_one_is_asked_for_in_small_numbers(
    api: KafkaApi, version: int, most: int, fields: Callable[[int], dict[str, Any]]
) -> None:
    """10 000 partitions, led by one broker, each of a topic of its own, are written to in one request."""
    schema: Any = request_type(api, version)
    header = schema.__header_schema__(
        request_api_key=int(api), request_api_version=version, correlation_id=7, client_id="me"
    )

    def asks_for(count: int) -> memoryview:
        return memoryview(written_by_kio(header) + b"".join(write_message(schema, fields(count))))

    frame = asks_for(most)
    assert read_request(frame, read_head(frame)).api is api
    frame = asks_for(most + 1)
    with pytest.raises(MalformedRequest, match="ask for less at once"):
        read_request(frame, read_head(frame))


def test_an_unknown_tagged_field_is_skipped() -> None:
    schema = request_type(KafkaApi.API_VERSIONS, 3)
    data = b"\x02a\x02b\x02\x07\x01x\x08\x00"
    cursor = Cursor(memoryview(data))
    assert plain(read_message(schema, cursor)) == {
        "client_software_name": "a",
        "client_software_version": "b",
    }
    assert cursor.left == 0
