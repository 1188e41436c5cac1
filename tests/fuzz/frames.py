"""Bytes that no honest peer sends, from a seed, and a way to throw them at any listener.

`fuzz_bytes(seed)` makes what one hostile connection says; `attack(...)` plays many such connections against
`host:port` over any runtime's network, beside a channel that must stay served. Point it at a live broker or
controller as well as at a bare `rpc.server.Server`.
"""

import random
import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.messages import APIS, Api
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.protocol.schema.fields import FieldType, Kind, schema_of
from holdfast.rpc.channel import Channel
from holdfast.runtime.api import Connection, NetworkError, Runtime
from tests.unit.protocol.samples import sample

_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    -(2**31) - 1,
    2**63,
    2**64 - 1,
    1.5,
    float("nan"),
    "",
    "x" * 40_000,
    "\x00",
    b"",
    bytes(16),
    bytes(2_000),
    [],
    [[]],
    [0] * 1_000,
    [2**40, 2**40],
    [0, 10**6],
    {},
    {1: 2},
    msgpack.ExtType(1, b"x"),
    msgpack.Timestamp(1, 2),
)


def fuzz_bytes(seed: int) -> Iterator[bytes]:
    """Without end: each item is all that one connection sends, whole or cut, one frame or several."""
    chance = random.Random(seed)
    makers = (
        _noise,
        _flipped,
        _truncated,
        _with_other_lengths,
        _with_another_value,
        _deep,
        _huge_counts,
        _of_another_api,
        _unknown_api,
        _wrong_envelope,
        _valid,
        _body_as_attachment,
    )
    while True:
        frames = [chance.choice(makers)(chance) for _ in range(chance.choice((1, 1, 1, 2, 5)))]
        yield b"".join(frames)


# --- makers -----------------------------------------------------------------------------------------------


def _any_api(chance: random.Random) -> Api:
    return chance.choice(list(APIS.values()))


def _valid(chance: random.Random, api: Api | None = None) -> bytes:
    api = api or _any_api(chance)
    correlation_id = chance.randrange(1 << 31)
    return b"".join(encode_request(api, api.max_version, correlation_id, "fuzz", _message(chance, api)))


def _message(chance: random.Random, api: Api) -> Any:
    return sample(api.request, chance.randrange(1, 90))


def _frame(body: Any, attachment: bytes = b"") -> bytes:
    return _frame_of(msgpack.packb(body), attachment)


def _frame_of(packed: bytes, attachment: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(packed) + len(attachment), len(packed)) + packed + attachment


def _noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, 7, 8, 9, 100, 5_000)))


def _flipped(chance: random.Random) -> bytes:
    data = bytearray(_valid(chance))
    for _ in range(chance.choice((1, 1, 3, 10))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _truncated(chance: random.Random) -> bytes:
    data = _valid(chance)
    return data[: chance.randrange(len(data))]


def _with_other_lengths(chance: random.Random) -> bytes:
    data = _valid(chance)
    frame_length, body_length = struct.unpack_from(">II", data)
    odd = (0, 1, 3, 4, frame_length - 1, frame_length + 1, body_length, 1 << 20, 1 << 26, (1 << 32) - 1)
    if chance.random() < 0.5:
        frame_length = chance.choice(odd)
    else:
        body_length = chance.choice(odd)
    return struct.pack(">II", frame_length, body_length) + data[8:]


def _with_another_value(chance: random.Random) -> bytes:
    """A frame in which one value, somewhere, has another type or size: passes msgpack, fails the schema."""
    data = _valid(chance)
    (body_length,) = struct.unpack_from(">I", data, 4)
    body = msgpack.unpackb(data[8 : 8 + body_length])
    place = body
    while True:
        position = chance.randrange(len(place))
        if type(place[position]) is list and place[position] and chance.random() < 0.8:
            place = place[position]
            continue
        action = chance.random()
        if action < 0.7:
            place[position] = chance.choice(_ODD_VALUES)
        elif action < 0.85:
            del place[position]
        else:
            place.insert(position, chance.choice(_ODD_VALUES))
        return _frame(body, data[8 + body_length :])


def _deep(chance: random.Random) -> bytes:
    api = _any_api(chance)
    levels = chance.choice((17, 100, 400, 600, 100_000))
    head = msgpack.packb([int(api.key), 0, 5, "fuzz", None])[:-1]
    return _frame_of(head + b"\x91" * levels + chance.choice((b"\x01", b"")))


def _huge_counts(chance: random.Random) -> bytes:
    head = msgpack.packb([int(_any_api(chance).key), 0, 5, "fuzz", None])[:-1]
    claim = chance.choice((b"\xdd", b"\xdb", b"\xc6", b"\xdf", b"\xc9")) + b"\xff\xff\xff\xff"
    many = b"\xdc\xff\xff" + b"\x90" * 65_535
    return _frame_of(head + chance.choice((claim, many)))


def _of_another_api(chance: random.Random) -> bytes:
    data = _valid(chance)
    (body_length,) = struct.unpack_from(">I", data, 4)
    body = msgpack.unpackb(data[8 : 8 + body_length])
    body[0] = int(_any_api(chance).key)
    return _frame(body, data[8 + body_length :])


def _unknown_api(chance: random.Random) -> bytes:
    api_key, version = chance.choice(((999, 0), (-1, 0), (0, 99), (1, -1), (2**40, 2**40)))
    return _frame([api_key, version, 1, "fuzz", [1, "a", [None]]])


def _wrong_envelope(chance: random.Random) -> bytes:
    body: list[Any] = [int(_any_api(chance).key), 0, 7, "fuzz", []]
    body[chance.randrange(5)] = chance.choice(_ODD_VALUES)
    return _frame(body[: chance.choice((0, 1, 3, 5, 5, 5, 5))])


def _body_as_attachment(chance: random.Random) -> bytes:
    """Records fields that hold whole, damaged and no batches: what only the layer above can refuse."""
    api = chance.choice([api for api in APIS.values() if _has_records(api.request)])
    batch = bytearray(encode_batch([Record(0, 1, None, chance.randbytes(50))], base_offset=0, leader_epoch=0))
    if chance.random() < 0.7:
        batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
    data = _valid(chance, api)
    (body_length,) = struct.unpack_from(">I", data, 4)
    rest = data[8 + body_length :]
    batch = (batch * (len(rest) // len(batch) + 1))[: len(rest)]
    return data[: 8 + body_length] + batch


def _has_records(cls: type) -> bool:
    def inside(type_: FieldType) -> bool:
        return type_.kind is Kind.RECORDS or any(map(_has_records, type_.inner))

    return any(inside(spec.type) for spec in schema_of(cls))


# --- attack -----------------------------------------------------------------------------------------------


class HostilePeer:
    """Sends and does not care. A `ConnectionHandler`."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.is_lost = False

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def bytes_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None:
        self.is_lost = True


async def attack(
    runtime: Runtime, host: str, port: int, seed: int, *, waves: int = 10, width: int = 20
) -> None:
    """Play `waves` times `width` hostile connections at once. In every wave a well-behaved channel that was
    there before asks for the versions and must be answered, and a new one must be let in.

    Raises: what the well-behaved channels met; AssertionError when their answers are wrong.
    """
    chance = random.Random(seed)
    source = fuzz_bytes(seed)
    good = Channel(runtime, host, port, "good")
    await good.connect(10_000)
    for _ in range(waves):
        peers = [HostilePeer() for _ in range(width)]
        for peer in peers:
            connection = await runtime.network.connect(host, port, peer, 10_000)
            data = next(source)
            cut = chance.randrange(len(data) + 1)
            for piece in (data[:cut], data[cut:]) if chance.random() < 0.5 else (data,):
                connection.write([piece])
            if chance.random() < 0.1:
                connection.abort()
        await _ask_versions(good)
        newcomer = Channel(runtime, host, port, "newcomer")
        await newcomer.connect(10_000)
        await _ask_versions(newcomer)
        newcomer.close()
        for peer in peers:
            if peer.connection is not None and not peer.is_lost:
                peer.connection.close()
    await _ask_versions(good)
    good.close()


async def _ask_versions(channel: Channel) -> None:
    response: ApiVersionsResponse = await channel.call(ApiVersionsRequest(software="good"), 10_000)
    assert ApiKey.API_VERSIONS in [row.api_key for row in response.apis]
