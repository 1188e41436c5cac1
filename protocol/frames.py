"""Frames: u32 `frame_length`, u32 `body_length` (big endian), msgpack body, attachment bytes (D3).

`frame_length` counts everything after itself. Pure: bytes in, frames out; knows nothing of messages.
Lengths are checked from the first eight bytes, before memory is spent; msgpack bounds what a body may hold.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from holdfast.protocol.schema.fields import ARRAY_MAX, BYTES_MAX, STRING_MAX, Buffer

_LENGTHS = struct.Struct(">II")
# One packer for all: making one costs more than packing a small body. It keeps nothing between calls.
_pack = msgpack.Packer(use_bin_type=True).pack

#: Most bytes of one frame after its length field.
FRAME_MAX_BYTES = 64 << 20
#: Most bytes of a msgpack body; record batches travel in the attachment, so bodies are small.
BODY_MAX_BYTES = 8 << 20
#: Attachments up to so many bytes fit a frame with any body.
ATTACHMENT_MAX_BYTES = FRAME_MAX_BYTES - BODY_MAX_BYTES - 4


#: Chunks below this are put together while a frame is incomplete.
_SMALL_CHUNK_BYTES = 4 << 10


class FrameError(ValueError):
    """The bytes are no frame, or exceed a limit. The connection cannot go on: frame borders are lost, or the
    peer is not one of ours."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: whole frames that came before the bad bytes
        self.frames: list[Any] = []


class FrameTooLarge(ValueError):
    """A message is larger than any peer would read. Nothing was sent."""


class Frame(NamedTuple):
    """One frame. Both parts are views of the received bytes: a body unpacked may take sixty times as much."""

    packed_body: memoryview
    attachment: memoryview

    @property
    def body(self) -> Any:
        """The body, unpacked anew. Raises: FrameError; the peer is not one of ours then."""
        return unpack_body(self.packed_body)


def encode_frame(body: Any, attachment: Sequence[Buffer] = ()) -> list[Buffer]:
    """The buffers of one frame: head and body in the first, then the attachment's own buffers, uncopied.

    Raises: FrameTooLarge.
    """
    packed: bytes = _pack(body)
    size = sum(map(len, attachment))
    frame_length = 4 + len(packed) + size
    if len(packed) > BODY_MAX_BYTES or frame_length > FRAME_MAX_BYTES:
        raise FrameTooLarge(
            f"a frame of {frame_length} bytes with a body of {len(packed)}, at most {FRAME_MAX_BYTES} and "
            f"{BODY_MAX_BYTES} are allowed: ask for less at once"
        )
    return [_LENGTHS.pack(frame_length, len(packed)) + packed, *attachment]


_LIMITS: dict[str, Any] = {
    "raw": False,
    "strict_map_key": True,
    "max_str_len": 4 * STRING_MAX,
    "max_bin_len": BYTES_MAX,
    "max_array_len": ARRAY_MAX,
    "max_map_len": 0,
    "max_ext_len": 0,
}


def unpack_body(packed: Buffer) -> Any:
    """The msgpack value in `packed`. Raises: FrameError."""
    try:
        return msgpack.unpackb(packed, **_LIMITS)
    except (ValueError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise FrameError(f"body is not msgpack within our limits: {reason}") from error


class FrameDecoder:
    """Cuts a byte stream into frames. Keeps chunks as they came and joins them once a frame is complete.

    Looks at lengths only: a body is judged when it is read.
    """

    __slots__ = (
        "_body_max_bytes",
        "_chunks",
        "_frame_max_bytes",
        "_need",
        "held_bytes",
        "pending_body_bytes",
        "pending_bytes",
    )

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES, body_max_bytes: int = BODY_MAX_BYTES) -> None:
        self._chunks: list[bytes | bytearray] = []
        #: bytes of an incomplete frame in memory
        self.held_bytes = 0
        #: what the incomplete frame will take in all, as it says itself; 0 while that is not known
        self.pending_bytes = 0
        #: msgpack bytes of it, once its lengths are known
        self.pending_body_bytes = 0
        #: bytes that must be held before anything can be cut: 8 for the lengths, else a whole frame
        self._need = 8
        self._frame_max_bytes = frame_max_bytes
        self._body_max_bytes = body_max_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order. Raises: FrameError; the decoder is spent then."""
        self.held_bytes += len(data)
        if self.held_bytes < self._need:
            self._hold(data)
            return []
        view = memoryview(b"".join((*self._chunks, data)) if self._chunks else data)
        frames: list[Frame] = []
        position = 0
        left = len(view)
        self._need = 8
        self.pending_bytes = 0
        try:
            while left >= 8:
                frame_length, body_length = self._lengths(view, position)
                if left < 4 + frame_length:
                    self._need = self.pending_bytes = 4 + frame_length
                    self.pending_body_bytes = body_length
                    break
                body_end = position + 8 + body_length
                body_start, position = position + 8, position + 4 + frame_length
                frames.append(Frame(view[body_start:body_end], view[body_end:position]))
                left = len(view) - position
        except FrameError as error:
            error.frames = frames
            raise
        self._chunks = [bytes(view[position:])] if left else []
        self.held_bytes = left
        return frames

    def _hold(self, data: bytes) -> None:
        # A peer that sends single bytes must not make us hold an object for each of them.
        chunks = self._chunks
        if not chunks or len(data) >= _SMALL_CHUNK_BYTES:
            chunks.append(data)
        elif isinstance(last := chunks[-1], bytearray):
            last += data
        else:
            chunks.append(bytearray(data))

    def _lengths(self, view: memoryview, position: int) -> tuple[int, int]:
        lengths: tuple[int, int] = _LENGTHS.unpack_from(view, position)
        frame_length, body_length = lengths
        if frame_length > self._frame_max_bytes:
            raise FrameError(f"frame of {frame_length} bytes is larger than {self._frame_max_bytes}")
        if body_length > self._body_max_bytes:
            raise FrameError(f"body of {body_length} bytes is larger than {self._body_max_bytes}")
        if body_length + 4 > frame_length:
            raise FrameError(f"body of {body_length} bytes does not fit a frame of {frame_length} bytes")
        return lengths
