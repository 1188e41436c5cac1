"""What decoding a batch may cost, and what aiokafka's codec may raise when records are not what their header
says.

Owns the list of errors, which is that of the libraries below the codec: it lets them through. Never decodes.
"""

import struct
import zlib

import cramjam
from aiokafka.errors import KafkaError

from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.record_batch import (
    BatchHeader,
    Buffer,
    CorruptBatch,
    UnpacksTooLarge,
    check_batch,
)

#: About what a record takes as Python objects besides its bytes: a tuple, its numbers, its fields' own heads.
RECORD_COST_BYTES = 350

#: Of `DefaultRecordBatch` over a batch whose crc holds. OSError is gzip's word for another format;
#: OverflowError and MemoryError come of lengths that no buffer could have.
UNDECODABLE = (
    KafkaError,
    ValueError,
    RuntimeError,
    OSError,
    EOFError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    cramjam.DecompressionError,
)


def is_whole(batch: Buffer) -> bool:
    """All its bytes are there and match its crc. The codec's own check takes six times as long."""
    try:
        check_batch(batch)
    except CorruptBatch:
        return False
    return True


def unpacked(header: BatchHeader, batch: Buffer, limit_bytes: int) -> Buffer:
    """The batch without compression; `batch` itself when it has none.

    Raises: UnpacksTooLarge when its records would take more than `limit_bytes` in memory, CorruptBatch.
    """
    left = limit_bytes - header.record_count * RECORD_COST_BYTES
    if left < 0:
        raise UnpacksTooLarge(f"{header.record_count} records take more than {limit_bytes} bytes in memory")
    return unpack_batch(batch, left)
