"""What surrounds a Kafka message in its frame: the header of a request, the header of a response. Pure."""

import struct
from typing import Any, NamedTuple

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type, response_type
from holdfast.kafka_listener.core.produce_codec import read_produce, write_produced
from holdfast.kafka_listener.core.schema_reader import (
    ITEMS_MAX,
    Cursor,
    MalformedRequest,
    TooManyElements,
    read_message,
)
from holdfast.kafka_listener.core.schema_writer import Fields, write_message
from holdfast.protocol.schema.fields import Buffer

_HEAD = struct.Struct(">hhi")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
_APIS = {int(api): api for api in KafkaApi}
#: Most elements of a request that is read, translated and answered within one turn of the event loop.
ITEMS_AT_ONCE = 500
#: Most elements of all arrays of a request, where each is looked up and answered for one by one; as
#: `rpc.core.request_size` has it. For the others the reader's own limit holds.
ITEMS_MAX_OF = {
    KafkaApi.METADATA: 4_000,
    KafkaApi.DESCRIBE_TOPIC_PARTITIONS: 4_000,
    KafkaApi.DELETE_TOPICS: 10_000,
    KafkaApi.DESCRIBE_CONFIGS: 8_000,
    KafkaApi.ALTER_CONFIGS: 8_000,
    KafkaApi.CONSUMER_GROUP_HEARTBEAT: 4_000,
    # A group has 1000 members.
    KafkaApi.JOIN_GROUP: 4_000,
    KafkaApi.SYNC_GROUP: 4_000,
    KafkaApi.LEAVE_GROUP: 4_000,
    # Groups by name.
    KafkaApi.FIND_COORDINATOR: 10_000,
    KafkaApi.DESCRIBE_GROUPS: 10_000,
    KafkaApi.DELETE_GROUPS: 10_000,
    # A group has 100 000 offsets, here of 10 000 topics: clients name all of them at once.
    KafkaApi.OFFSET_COMMIT: 110_000,
    KafkaApi.OFFSET_FETCH: 110_000,
    KafkaApi.OFFSET_DELETE: 110_000,
    # A broker may have as many replicas.
    KafkaApi.DESCRIBE_LOG_DIRS: 110_000,
    # One request makes, moves or configures 10 000 partitions, and may name the replicas of each.
    KafkaApi.CREATE_TOPICS: 100_000,
    KafkaApi.CREATE_PARTITIONS: 100_000,
    KafkaApi.ALTER_PARTITION_REASSIGNMENTS: 100_000,
    KafkaApi.INCREMENTAL_ALTER_CONFIGS: 100_000,
}
#: Of the API that may have the most.
ITEMS_MAX_OF_ANY = max(ITEMS_MAX, *ITEMS_MAX_OF.values())


class RequestHead(NamedTuple):
    """The part of a request that every API and version has."""

    api_key: int
    api_version: int
    correlation_id: int

    @property
    def api(self) -> KafkaApi | None:
        """None for an API that is not served."""
        return _APIS.get(self.api_key)


class Request(NamedTuple):
    """A whole request; `message` is kio's class with plain values, or has its
    attributes (`produce_codec`)."""

    api: KafkaApi
    version: int
    correlation_id: int
    client_id: str
    message: Any


def read_head(frame: memoryview) -> RequestHead:
    """The first eight bytes of a frame; the decoder has checked that they are there."""
    return RequestHead(*_HEAD.unpack_from(frame))


def read_request(frame: memoryview, head: RequestHead, items_max: int = ITEMS_MAX_OF_ANY) -> Request:
    """The request in a frame. Its API and version must be served. Raises: MalformedRequest; TooManyElements
    of one with more than `items_max`, or than its API may have."""
    api = head.api
    assert api is not None
    if api is KafkaApi.PRODUCE and (usual := read_produce(frame, head.api_version)) is not None:
        return Request(api, head.api_version, head.correlation_id, *usual)
    schema: Any = request_type(api, head.api_version)
    cursor = Cursor(frame, items_left=min(items_max, ITEMS_MAX_OF.get(api, ITEMS_MAX)))
    header = read_message(schema.__header_schema__, cursor)
    message = read_message(schema, cursor)
    return Request(api, head.api_version, head.correlation_id, header.client_id or "", message)


def write_response(api: KafkaApi, version: int, correlation_id: int, fields: Fields) -> list[Buffer]:
    """The buffers of a response's frame."""
    if api is KafkaApi.PRODUCE and (usual := write_produced(version, fields)) is not None:
        return [_SIZE_AND_CORRELATION_ID.pack(5 + len(usual), correlation_id) + b"\0" + usual]
    schema: Any = response_type(api, version)
    # The header of a flexible response ends with its tagged fields, of which there are none. That of
    # ApiVersions never has any: who asks does not know yet what the other side understands.
    tagged = b"\0" if schema.__header_schema__.__flexible__ else b""
    body = write_message(schema, fields)
    size = 4 + len(tagged) + sum(map(len, body))
    return [_SIZE_AND_CORRELATION_ID.pack(size, correlation_id) + tagged + bytes(body[0]), *body[1:]]


__all__ = [
    "MalformedRequest",
    "Request",
    "RequestHead",
    "TooManyElements",
    "read_head",
    "read_request",
    "write_response",
]
