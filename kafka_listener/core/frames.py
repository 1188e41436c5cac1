"""Kafka's frames: i32 `size`, then so many bytes, which begin with i16 `api_key` and i16 `api_version`.

Pure: bytes in, frames out. Sizes are checked from the first four to six bytes, before memory is spent.
"""

import struct

from holdfast.protocol.frames import FRAME_MAX_BYTES, Frame, FrameDecoder, FrameError

_SIZE = struct.Struct(">i")
_SIZE_AND_KEY = struct.Struct(">ih")
_PRODUCE = 0

#: Bytes of the shortest request: api key, api version, correlation id, a null client id.
REQUEST_MIN_BYTES = 10
#: Most bytes of a request other than Produce: decoded it may take a hundred times as much for a moment.
REQUEST_MAX_BYTES = 2 << 20


class KafkaFrameDecoder(FrameDecoder):
    """Cuts a byte stream into requests. Decoding makes most requests many times as large, and so their bytes
    are the body of their Frame; a Produce is records, which stay as they are, and is the attachment."""

    __slots__ = ()

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        super().__init__(frame_max_bytes, REQUEST_MAX_BYTES)
        self._need = _SIZE.size

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, without their size. Raises: FrameError; the decoder is spent
        then."""
        self.held_bytes += len(data)
        if self.held_bytes < self._need:
            self._hold(data)
            return []
        view = memoryview(b"".join((*self._chunks, data)) if self._chunks else data)
        frames: list[Frame] = []
        position = 0
        left = len(view)
        self._need, self.pending_bytes, self.pending_body_bytes = _SIZE.size, 0, 0
        try:
            while left >= _SIZE.size:
                if left < _SIZE_AND_KEY.size:
                    self._check_any_size(_SIZE.unpack_from(view, position)[0])
                    self._need = _SIZE_AND_KEY.size
                    break
                size, api_key = self._size(view, position)
                if left < 4 + size:
                    self._need = self.pending_bytes = 4 + size
                    self.pending_body_bytes = 0 if api_key == _PRODUCE else size
                    break
                request = view[position + 4 : position + 4 + size]
                nothing = request[:0]
                frames.append(Frame(nothing, request) if api_key == _PRODUCE else Frame(request, nothing))
                position += 4 + size
                left = len(view) - position
        except FrameError as error:
            error.frames = frames
            raise
        self._chunks = [bytes(view[position:])] if left else []
        self.held_bytes = left
        return frames

    def _size(self, view: memoryview, position: int) -> tuple[int, int]:
        """(size, api key)."""
        size, api_key = _SIZE_AND_KEY.unpack_from(view, position)
        self._check_any_size(size)
        limit = (
            self._frame_max_bytes if api_key == _PRODUCE else min(REQUEST_MAX_BYTES, self._frame_max_bytes)
        )
        if size > limit:
            raise FrameError(f"a frame of {size} bytes for api key {api_key} is larger than {limit}")
        return size, api_key

    def _check_any_size(self, size: int) -> None:
        """What is too small or too large for every request."""
        if size < REQUEST_MIN_BYTES:
            raise FrameError(f"a frame of {size} bytes: a Kafka request has {REQUEST_MIN_BYTES} at least")
        if size > self._frame_max_bytes:
            raise FrameError(f"a frame of {size} bytes is larger than {self._frame_max_bytes}")


def bytes_of(frame: Frame) -> memoryview:
    """A request's bytes, header first."""
    return frame.packed_body or frame.attachment
