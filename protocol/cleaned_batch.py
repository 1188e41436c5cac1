"""Batches with fewer records than their producer sent: what compaction leaves of them, as in Kafka.

Owns reading the keys of a batch and writing it anew with some of its records. A batch keeps its base offset,
last offset, leader epoch and producer, so each record keeps its offset, and a batch without records still
says which offsets it stood for. Does not decide which records are kept.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from holdfast.protocol.compression import unpack_records
from holdfast.protocol.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    GZIP,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LZ4,
    NO_COMPRESSION,
    SNAPPY,
    ZSTD,
    BatchHeader,
    Buffer,
    CorruptBatch,
    get_varint,
    put_varint,
    with_header,
)

_PACK: dict[int, Callable[[bytes], bytes]] = {
    NO_COMPRESSION: lambda plain: plain,
    GZIP: gzip_encode,
    SNAPPY: snappy_encode,
    LZ4: lz4_encode,
    ZSTD: zstd_encode,
}


#: A timestamp has 64 bits.
_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1


class KeyedRecord(NamedTuple):
    """One record, and where it lies in the plain bytes of its batch."""

    offset: int
    #: None for a record without a key
    key: bytes | None
    #: it has no value: its key is to be deleted
    is_tombstone: bool
    timestamp_ms: int
    #: bytes [start, end), with the length in front
    start: int
    end: int
    #: end of the varint of its timestamp
    time_end: int


def plain_records(batch: Buffer, header: BatchHeader) -> bytes:
    """The bytes behind the header, without compression. Raises: CorruptBatch."""
    return bytes(unpack_records(header.compression, memoryview(batch)[HEADER_SIZE:]))


def keyed_records(plain: bytes, header: BatchHeader) -> Iterator[KeyedRecord]:
    """The records of `plain_records`. Raises: CorruptBatch when they are none, or when a time or an offset
    is none that the header could have."""
    position = 0
    try:
        for _ in range(header.record_count):
            length, body = get_varint(plain, position)
            end = body + length
            time_delta, time_end = get_varint(plain, body + 1)  # behind the attributes
            offset_delta, at = get_varint(plain, time_end)
            size, at = get_varint(plain, at)
            key = None if size < 0 else plain[at : at + size]
            value_size, at = get_varint(plain, at + max(size, 0))
            if end > len(plain) or at + max(value_size, 0) > end or length <= 0:
                raise CorruptBatch(f"a record of batch {header.base_offset} does not end where it says")
            timestamp_ms = header.base_timestamp + time_delta
            if not (0 <= offset_delta <= header.last_offset_delta and _TIME_MIN <= timestamp_ms <= _TIME_MAX):
                raise CorruptBatch(f"a record of batch {header.base_offset} has no such offset or timestamp")
            yield KeyedRecord(
                header.base_offset + offset_delta,
                key,
                value_size < 0,
                timestamp_ms,
                position,
                end,
                time_end,
            )
            position = end
    except IndexError:
        raise CorruptBatch(f"a record of batch {header.base_offset} is cut") from None


def with_records(
    header: BatchHeader, plain: bytes, kept: Sequence[KeyedRecord], horizon_ms: int | None = None
) -> bytes:
    """The batch with these of its records, at least one. `horizon_ms`: tombstones in it may be removed from
    then on; None leaves what it says about that."""
    assert kept
    changes: dict[str, int] = {"record_count": len(kept)}
    if not header.attributes & LOG_APPEND_TIME:
        changes["max_timestamp"] = max(record.timestamp_ms for record in kept)
    if horizon_ms is None:
        body = b"".join([plain[record.start : record.end] for record in kept])
    else:
        body = b"".join(_retimed(plain, record, horizon_ms) for record in kept)
        changes |= {"base_timestamp": horizon_ms, "attributes": header.attributes | DELETE_HORIZON}
    return with_header(header._replace(**changes), _PACK[header.compression](body))


def _retimed(plain: bytes, record: KeyedRecord, base_ms: int) -> bytes:
    """The record with its timestamp relative to another one."""
    _, body = get_varint(plain, record.start)
    out = bytearray(plain[body : body + 1])
    put_varint(out, record.timestamp_ms - base_ms)
    out += plain[record.time_end : record.end]
    length = bytearray()
    put_varint(length, len(out))
    return bytes(length + out)


def without_records(header: BatchHeader) -> bytes:
    """The batch with none of its records: its offsets, epoch, largest timestamp and producer are left."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    empty = header._replace(record_count=0, attributes=attributes, base_timestamp=header.max_timestamp)
    return with_header(empty, b"")
