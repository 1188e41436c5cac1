"""Kafka's frames: cut as they come, refused before they cost memory."""

import pytest

from holdfast.kafka_listener.core.frames import REQUEST_MAX_BYTES, KafkaFrameDecoder, bytes_of
from holdfast.protocol.frames import FrameError


def frame(api_key: int, body: bytes = b"12345678") -> bytes:
    inside = api_key.to_bytes(2, "big") + body
    return len(inside).to_bytes(4, "big") + inside


def test_frames_are_cut_however_their_bytes_arrive() -> None:
    data = frame(3) + frame(0, b"x" * 1000) + frame(18)
    for step in (1, 2, 7, 500, len(data)):
        decoder = KafkaFrameDecoder()
        found: list[bytes] = []
        for start in range(0, len(data), step):
            found += [bytes(bytes_of(one)) for one in decoder.feed(data[start : start + step])]
        assert found == [frame(3)[4:], frame(0, b"x" * 1000)[4:], frame(18)[4:]]
        assert decoder.held_bytes == 0


BAD = {
    "a negative size": b"\xff\xff\xff\xff\x00\x00",
    "a size below that of a header": b"\x00\x00\x00\x09\x00\x12",
    "an HTTP request": b"GET / HTTP/1.1\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01",
    "a produce larger than the limit": b"\x00\x00\x20\x01\x00\x00",
    "another request larger than its limit": (REQUEST_MAX_BYTES + 1).to_bytes(4, "big") + b"\x00\x03",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_bad_size_is_refused_from_its_first_six_bytes(data: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        KafkaFrameDecoder(0x2000 if data[4:6] == b"\0\0" else 64 << 20).feed(frame(18) + data[:6])
    assert [bytes(bytes_of(one)) for one in caught.value.frames] == [frame(18)[4:]]


@pytest.mark.parametrize("name", ["a negative size", "a size below that of a header", "a TLS hello"])
def test_a_size_that_no_request_has_is_refused_from_its_four_bytes(name: str) -> None:
    """Who sends no more would hold the connection until it is given up."""
    with pytest.raises(FrameError):
        KafkaFrameDecoder().feed(BAD[name][:4])
