"""What the kernel says of packets that wait; holding them needs root: tests/containers."""

import struct

from holdfast.localcluster.packet_delay import packet_ids

PACKET, OTHER = 3 << 8, 3 << 8 | 2


def attribute(name: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), name) + value + b"\0" * (-len(value) % 4)


def message(kind: int, *attributes: bytes) -> bytes:
    body = b"\0\0\0\7" + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_the_id_of_each_packet_is_found_among_what_else_is_said() -> None:
    header = [attribute(1, struct.pack("!IHBx", number, 0x0800, 1)) for number in (5, 70_000)]
    mark, hardware = attribute(3, b"\0\0\0\1"), attribute(8, b"odd")
    data = message(PACKET, mark, header[0]) + message(OTHER, header[1]) + message(PACKET, hardware, header[1])
    assert packet_ids(data) == [5, 70_000]
    assert packet_ids(b"") == []
