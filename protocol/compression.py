"""Unpacks the records of a compressed batch, never beyond a limit: a few bytes can hold gigabytes.

Owns the four codecs of batches (gzip, snappy, lz4, zstd) and the bound on what they give. cramjam does the
work; a codec whose output does not fit is stopped, so no more than the limit is ever held.
"""

import struct
from collections.abc import Callable

import cramjam

from holdfast.protocol.record_batch import (
    COMPRESSION_MASK,
    GZIP,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    LZ4,
    NO_COMPRESSION,
    SNAPPY,
    UNPACKED_MAX_BYTES,
    ZSTD,
    Buffer,
    CorruptBatch,
    UnpacksTooLarge,
    parse_header,
)

#: The first room for what is unpacked, in bytes; it grows when that is too small.
_ROOM_MIN_BYTES = 64 << 10
_ROOM_GROWTH = 8
#: cramjam's words, and only these, for an output that is full.
_IS_FULL = "failed to write whole buffer"
#: What snappy-java, and with it Kafka's own clients, write before blocks; then two int32 for versions.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES = 16
_INTO: dict[int, Callable[[Buffer, bytearray], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
_NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
_LENGTH_POSITION = 8
_ATTRIBUTES_POSITION = 21
_RECORDS_LENGTH_MAX = (1 << 31) - 1 - HEADER_SIZE


def unpack_records(codec: int, packed: Buffer, limit_bytes: int = UNPACKED_MAX_BYTES) -> Buffer:
    """The bytes behind the header of a batch, unpacked. Kafka's numbers: 0 none, 1 gzip, 2 snappy, 3 lz4,
    4 zstd.

    Raises: UnpacksTooLarge beyond `limit_bytes`; CorruptBatch for bytes that are not of this codec, are cut
    short, or when there is no such codec.
    """
    if codec == NO_COMPRESSION:
        return packed
    if codec == SNAPPY:
        return _unpack_snappy(bytes(packed), limit_bytes)
    unpack_into = _INTO.get(codec)
    if unpack_into is not None:
        return _unpack_stream(codec, unpack_into, packed, limit_bytes)
    raise CorruptBatch(f"there is no compression {codec}, only 0 to 4")


def unpack_batch(batch: Buffer, limit_bytes: int = UNPACKED_MAX_BYTES) -> Buffer:
    """The one batch in `batch` as its producer would have written it without compression; `batch` itself when
    it has none. The crc is left as it stands and does not fit what is returned: check it before.

    Raises: UnpacksTooLarge when its records take more than `limit_bytes`; CorruptBatch.
    """
    codec = parse_header(batch).compression
    if codec == NO_COMPRESSION:
        return batch
    records = unpack_records(codec, memoryview(batch)[HEADER_SIZE:], min(limit_bytes, _RECORDS_LENGTH_MAX))
    plain = bytearray(memoryview(batch)[:HEADER_SIZE])
    struct.pack_into(">i", plain, _LENGTH_POSITION, HEADER_SIZE - LENGTH_PREFIX_SIZE + len(records))
    (attributes,) = struct.unpack_from(">h", plain, _ATTRIBUTES_POSITION)
    struct.pack_into(">h", plain, _ATTRIBUTES_POSITION, attributes & ~COMPRESSION_MASK)
    plain += records
    return plain


def _unpack_stream(
    codec: int, unpack_into: Callable[[Buffer, bytearray], int], packed: Buffer, limit_bytes: int
) -> Buffer:
    size = min(limit_bytes, max(_ROOM_MIN_BYTES, _ROOM_GROWTH * len(packed)))
    while True:
        room = bytearray(size)
        try:
            filled = unpack_into(packed, room)
        except cramjam.DecompressionError as error:
            if str(error) != _IS_FULL:
                raise CorruptBatch(f"records are not {_NAMES[codec]}: {error}") from None
        else:
            del room[filled:]
            return room
        if size >= limit_bytes:
            raise _too_large(codec, limit_bytes)
        del room
        size = min(limit_bytes, _ROOM_GROWTH * size)


def _unpack_snappy(packed: bytes, limit_bytes: int) -> Buffer:
    if not packed.startswith(_XERIAL_MAGIC):
        return _unpack_snappy_block(packed, limit_bytes, limit_bytes)
    unpacked = bytearray()
    position = _XERIAL_HEAD_BYTES
    while position < len(packed):
        try:
            (size,) = struct.unpack_from(">i", packed, position)
        except struct.error:
            raise CorruptBatch("snappy records are cut short") from None
        position += 4
        if not 0 <= size <= len(packed) - position:
            raise CorruptBatch(f"a snappy block of {size} bytes, {len(packed) - position} are left")
        block = packed[position : position + size]
        unpacked += _unpack_snappy_block(block, limit_bytes - len(unpacked), limit_bytes)
        position += size
    return unpacked


def _unpack_snappy_block(block: bytes, room_bytes: int, limit_bytes: int) -> Buffer:
    # A block says first how much it gives.
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > room_bytes:
            raise _too_large(SNAPPY, limit_bytes)
        room = bytearray(size)
        cramjam.snappy.decompress_raw_into(block, room)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records are not snappy: {error}") from None
    return room


def _too_large(codec: int, limit_bytes: int) -> UnpacksTooLarge:
    return UnpacksTooLarge(f"{_NAMES[codec]} records unpack to more than {limit_bytes} bytes")
