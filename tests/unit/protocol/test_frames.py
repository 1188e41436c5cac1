"""Frames: cut anywhere, limits before memory, earlier frames survive later garbage (D3)."""

import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.frames import (
    BODY_MAX_BYTES,
    FRAME_MAX_BYTES,
    FrameDecoder,
    FrameError,
    FrameTooLarge,
    encode_frame,
    unpack_body,
)

bodies = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


@given(
    frames=st.lists(st.tuples(bodies, st.lists(st.binary(max_size=40), max_size=3)), max_size=6),
    data=st.data(),
)
def test_frames_come_back_however_the_stream_is_cut(
    frames: list[tuple[object, list[bytes]]], data: st.DataObject
) -> None:
    stream = b"".join(b"".join(encode_frame(body, buffers)) for body, buffers in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += decoder.feed(stream[start:end])
    assert [(frame.body, bytes(frame.attachment)) for frame in got] == [
        (body, b"".join(buffers)) for body, buffers in frames
    ]
    assert decoder.held_bytes == 0


def test_a_frame_is_two_lengths_a_body_and_an_attachment() -> None:
    data = b"".join(encode_frame([1, "a"], [b"xy", memoryview(b"z")]))
    body = msgpack.packb([1, "a"])
    assert data == struct.pack(">II", 4 + len(body) + 3, len(body)) + body + b"xyz"


def test_attachment_buffers_are_not_copied() -> None:
    record = bytearray(b"record")
    assert encode_frame([1], [record])[1] is record


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((FRAME_MAX_BYTES + 1, 10), "larger than"),
        ((FRAME_MAX_BYTES, BODY_MAX_BYTES + 1), "body of .* is larger than"),
        ((10, 7), "does not fit"),
        ((0, 0), "does not fit"),
        ((0xFFFFFFFF, 0xFFFFFFFF), "larger than"),
    ],
)
def test_lengths_are_checked_as_soon_as_they_are_there(lengths: tuple[int, int], text: str) -> None:
    decoder = FrameDecoder()
    head = struct.pack(">II", *lengths)
    assert decoder.feed(head[:7]) == []
    with pytest.raises(FrameError, match=text):
        decoder.feed(head[7:])


def test_a_reader_may_set_its_own_limits() -> None:
    frame = b"".join(encode_frame(["x" * 100], [bytes(100)]))
    assert len(FrameDecoder(frame_max_bytes=250, body_max_bytes=110).feed(frame)) == 1
    with pytest.raises(FrameError, match="larger than 200"):
        FrameDecoder(frame_max_bytes=200).feed(frame)
    with pytest.raises(FrameError, match="larger than 100"):
        FrameDecoder(body_max_bytes=100).feed(frame)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\x01\x02",
        b"\x91" * 2_000 + b"\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa1\xff",
        msgpack.packb({"a": 1}),
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb(msgpack.Timestamp(1)),
        msgpack.packb([0] * 100_001),
        msgpack.packb(bytes((1 << 20) + 1)),
    ],
)
def test_bodies_that_are_no_msgpack_or_exceed_its_limits_are_frame_errors(packed: bytes) -> None:
    with pytest.raises(FrameError, match="body is not msgpack within our limits"):
        unpack_body(packed)


def test_whole_frames_before_the_bad_one_are_not_lost() -> None:
    good = b"".join(encode_frame([1]))
    with pytest.raises(FrameError) as caught:
        FrameDecoder().feed(good + good + struct.pack(">II", 0, 0))
    assert [frame.body for frame in caught.value.frames] == [[1], [1]]


def test_a_body_is_unpacked_when_it_is_read() -> None:
    """Unpacked it takes up to sixty times as much, and a frame may have to wait."""
    good = b"".join(encode_frame([1]))
    first, bad, last = FrameDecoder().feed(good + struct.pack(">II", 5, 1) + b"\xc1" + good)
    assert (first.body, last.body) == ([1], [1])
    assert bytes(bad.packed_body) == b"\xc1"
    with pytest.raises(FrameError, match="body is not msgpack within our limits"):
        _ = bad.body


def test_a_sender_stays_below_the_limits() -> None:
    with pytest.raises(FrameTooLarge, match="ask for less"):
        encode_frame(["x"], [bytes(FRAME_MAX_BYTES)])
    with pytest.raises(FrameTooLarge):
        encode_frame([bytes(1 << 20)] * 9)


def test_nothing_is_held_of_frames_that_were_handed_out() -> None:
    decoder = FrameDecoder()
    frame = b"".join(encode_frame([1], [bytes(1_000)]))
    assert decoder.feed(frame[:500]) == []
    assert decoder.held_bytes == 500
    assert len(decoder.feed(frame[500:] + frame[:3])) == 1
    assert decoder.held_bytes == 3
