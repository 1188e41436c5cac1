"""What may be raised by aiokafka's codec when the records of a batch are not what their header says.

Owns the list, which is that of the libraries below the codec: it lets their errors through. Never decodes.
"""

import struct
import zlib

import cramjam
from aiokafka.errors import KafkaError

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
