"""A batch whose crc holds and whose records cannot be read raises nothing that readers do not know."""

import gzip
import struct

import google_crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.client.core.decoding import UNDECODABLE
from holdfast.protocol.record_batch import Record, check_batch, encode_batch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
GZIPPED = gzip.compress(bytes(100), mtime=0)  # all workers of pytest name the tests by it
#: keys of 2**63 - 1 bytes, and of as many as one may still ask the allocator for
HUGE_KEYS = [
    (0, b"\x18\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    (0, b"\x18\0\0\0\xae\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
]
#: (codec, what stands in the place of records)
POISONS = [
    (0, b""),
    (0, b"\xff" * 30),
    *HUGE_KEYS,
    *((codec, junk) for codec in (GZIP, SNAPPY, LZ4, ZSTD, 7) for junk in (b"", b"junk", b"\0" * 40)),
    (GZIP, GZIPPED[:10] + b"junkjunkjunk"),
    (GZIP, GZIPPED[:-9]),
    (GZIP, GZIPPED),
    (SNAPPY, b"\x82SNAPPY\0" + bytes(8)),
    (SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\x09junk"),
]


def poisoned(codec: int, payload: bytes) -> bytes:
    """A batch of one record, with this payload, whose crc holds."""
    batch = bytearray(encode_batch([Record(0, 1, None, b"x")], base_offset=0, leader_epoch=0)[:61] + payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize(("codec", "payload"), POISONS)
def test_all_errors_of_the_codec_are_known(codec: int, payload: bytes) -> None:
    batch = poisoned(codec, payload)
    check_batch(batch)
    with pytest.raises(UNDECODABLE):
        list(DefaultRecordBatch(batch))
