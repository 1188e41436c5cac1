"""A client that sends any request of Kafka's and reads the answer with the library kio; and what codes say.

Serves one connection at a time and judges nothing: it tells every error code of an answer, in order, or that
the connection was closed.
"""

import dataclasses
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type, response_type
from holdfast.kafka_listener.core.schema_writer import write_message

TIMEOUT_S = 60.0
#: What is told of a connection that ends without an answer.
CLOSED = "closed"
_CLIENT_ID = b"raw"


def frame(api: int, version: int, body: bytes, *, is_flexible: bool, correlation_id: int = 1) -> bytes:
    """A request with its head."""
    head = struct.pack(">hhih", api, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    head += b"\0" if is_flexible else b""
    return struct.pack(">i", len(head) + len(body)) + head + body


def request(api: KafkaApi, version: int, fields: Mapping[str, Any]) -> bytes:
    """A request with these fields."""
    schema: Any = request_type(api, version)
    body = b"".join(write_message(schema, fields))
    return frame(int(api), version, body, is_flexible=schema.__header_schema__.__flexible__)


class RawClient:
    """One connection to one broker, made anew when it was closed."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def ask(self, api: KafkaApi, version: int, fields: Mapping[str, Any]) -> Any:
        """The answer as kio's object. Raises: ConnectionError when the connection is closed instead."""
        answer = self.send(request(api, version, fields))
        schema: Any = response_type(api, version)
        start = 5 if schema.__header_schema__.__flexible__ else 4
        entity, size = entity_reader(schema)(answer, start)
        assert start + size == len(answer), f"{api.title} v{version}: bytes behind the answer"
        return entity

    def send(self, data: bytes) -> bytes:
        """The frame of the answer, without its size. Raises: ConnectionError."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, self._timeout_s)
        try:
            self._socket.sendall(data)
            return self._receive(int.from_bytes(self._receive(4), "big"))
        except OSError:
            self.close()
            raise

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError(f"closed after {len(data)} of {size} bytes")
            data += more
        return data

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def error_codes(answer: Any) -> list[int]:
    """Every error code in an answer, outermost first, rows in their order."""
    return list(_codes(answer))


def _codes(value: Any) -> Iterator[int]:
    if dataclasses.is_dataclass(value):
        inner = [getattr(value, one.name) for one in dataclasses.fields(value)]
        yield from (one.value for one in inner if isinstance(one, ErrorCode))
        for one in inner:
            if not isinstance(one, ErrorCode):
                yield from _codes(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from _codes(one)
