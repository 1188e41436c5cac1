"""Frames: u32 `frame_length`, u32 `body_length` (big endian), msgpack body, attachment bytes (design D3).

`frame_length` counts everything after itself. Pure: bytes in, frames out; knows nothing of messages.
Every limit is checked before memory is spent: lengths from the first eight bytes, nesting before unpacking.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from protocol.schema import ARRAY_MAX, BYTES_MAX, STRING_MAX, Buffer

_LENGTHS = struct.Struct(">II")

#: Most bytes of one frame after its length field.
FRAME_MAX_BYTES = 64 << 20
#: Most bytes of a msgpack body; record batches travel in the attachment, so bodies are small.
BODY_MAX_BYTES = 8 << 20
#: Deepest nesting of arrays in a body; the deepest declared message needs 7.
NESTING_MAX = 16


class FrameError(ValueError):
    """The bytes are no frame, or exceed a limit. The connection cannot go on: frame borders are lost."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `attachment` is a view of the received bytes."""

    body: Any
    attachment: memoryview


def encode_frame(body: Any, attachment: Sequence[Buffer] = ()) -> list[Buffer]:
    """The buffers of one frame: head and body in the first, then the attachment's own buffers, uncopied."""
    packed: bytes = msgpack.packb(body, use_bin_type=True)
    size = sum(map(len, attachment))
    frame_length = 4 + len(packed) + size
    assert len(packed) <= BODY_MAX_BYTES and frame_length <= FRAME_MAX_BYTES, (
        "a sender must stay below the limits"
    )
    return [_LENGTHS.pack(frame_length, len(packed)) + packed, *attachment]


def unpack_body(packed: Buffer) -> Any:
    """The msgpack value in `packed`. Raises: FrameError."""
    _check_nesting(packed)
    try:
        return msgpack.unpackb(
            packed,
            raw=False,
            strict_map_key=True,
            max_str_len=4 * STRING_MAX,
            max_bin_len=BYTES_MAX,
            max_array_len=ARRAY_MAX,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException, UnicodeDecodeError) as error:
        raise FrameError(f"body is not msgpack within our limits: {error}") from error


def _check_nesting(packed: Buffer) -> None:
    # msgpack refuses nesting only at 511 levels (its own C stack); a body so deep is never ours, and the
    # cheap necessary condition for it is NESTING_MAX array heads in a row.
    run = 0
    for byte in bytes(packed[: NESTING_MAX + 1]):
        run = run + 1 if byte in (0x91, 0xDC, 0xDD) else 0
    if run > NESTING_MAX:
        raise FrameError(f"body nests deeper than {NESTING_MAX} levels")


class FrameDecoder:
    """Cuts a byte stream into frames. Keeps chunks as they came and joins them once a frame is complete."""

    __slots__ = ("_chunks", "_frame_max_bytes", "_held", "_need")

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        #: bytes that must be held before anything can be cut: 8 for the lengths, else a whole frame
        self._need = 8
        self._frame_max_bytes = frame_max_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete frame in memory."""
        return self._held

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order. Raises: FrameError; the decoder is spent then."""
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._need:
            return []
        view = memoryview(data if len(self._chunks) == 1 else b"".join(self._chunks))
        frames: list[Frame] = []
        position = 0
        left = len(view)
        self._need = 8
        while left >= 8:
            frame_length, body_length = _LENGTHS.unpack_from(view, position)
            if frame_length > self._frame_max_bytes:
                raise FrameError(f"frame of {frame_length} bytes is larger than {self._frame_max_bytes}")
            if body_length > BODY_MAX_BYTES or body_length + 4 > frame_length:
                raise FrameError(f"body of {body_length} bytes does not fit a frame of {frame_length} bytes")
            if left < 4 + frame_length:
                self._need = 4 + frame_length
                break
            body_start = position + 8
            body_end = body_start + body_length
            position += 4 + frame_length
            frames.append(Frame(unpack_body(view[body_start:body_end]), view[body_end:position]))
            left = len(view) - position
        rest = view[position:]
        self._chunks = [bytes(rest)] if len(rest) else []
        self._held = len(rest)
        return frames
