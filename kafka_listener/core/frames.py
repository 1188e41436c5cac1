"""Kafka's frames: i32 `size`, then so many bytes, which begin with i16 `api_key` and i16 `api_version`.

Pure: bytes in, frames out. Sizes are checked from the first six bytes, before memory is spent.
"""

import struct

from holdfast.protocol.frames import FRAME_MAX_BYTES, FrameError

_SIZE_AND_KEY = struct.Struct(">ih")
_PRODUCE = 0

#: Bytes of the shortest request: api key, api version, correlation id, a null client id.
REQUEST_MIN_BYTES = 10
#: Most bytes of a request other than Produce: decoded it may take a hundred times as much for a moment.
REQUEST_MAX_BYTES = 2 << 20


class KafkaFrameDecoder:
    """Cuts a byte stream into requests. Keeps chunks as they came and joins them once a frame is complete."""

    __slots__ = ("_chunks", "_frame_max_bytes", "_held", "_need")

    def __init__(self, frame_max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        #: bytes that must be held before anything can be cut: 6 to know the size and the API, else a frame
        self._need = _SIZE_AND_KEY.size
        self._frame_max_bytes = frame_max_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete frame in memory."""
        return self._held

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that `data` completes, without their size. Raises: FrameError; the decoder is spent
        then."""
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._need:
            return []
        view = memoryview(data if len(self._chunks) == 1 else b"".join(self._chunks))
        frames: list[memoryview] = []
        position = 0
        left = len(view)
        self._need = _SIZE_AND_KEY.size
        try:
            while left >= _SIZE_AND_KEY.size:
                size = self._size(view, position)
                if left < 4 + size:
                    self._need = 4 + size
                    break
                frames.append(view[position + 4 : position + 4 + size])
                position += 4 + size
                left = len(view) - position
        except FrameError as error:
            error.frames = frames
            raise
        self._chunks = [bytes(view[position:])] if left else []
        self._held = left
        return frames

    def _size(self, view: memoryview, position: int) -> int:
        size: int
        size, api_key = _SIZE_AND_KEY.unpack_from(view, position)
        if size < REQUEST_MIN_BYTES:
            raise FrameError(f"a frame of {size} bytes: a Kafka request has {REQUEST_MIN_BYTES} at least")
        limit = (
            self._frame_max_bytes if api_key == _PRODUCE else min(REQUEST_MAX_BYTES, self._frame_max_bytes)
        )
        if size > limit:
            raise FrameError(f"a frame of {size} bytes for api key {api_key} is larger than {limit}")
        return size
