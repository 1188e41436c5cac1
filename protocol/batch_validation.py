"""What a broker takes from a producer, as Kafka's LogValidator has it: the header, timestamps, the records.

Owns the verdict only; where a partition's limits come from is the caller's business. The records are read by
aiokafka's compiled reader, about 0.13 µs a record, compressed ones after `compression.unpack_batch`; those of
a plain batch that are all alike are proven sound without it (`even_batch`). What followers fetch and what
recovery finds was judged before and is not judged again.
"""

from typing import NamedTuple

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatch

from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.even_batch import are_sound
from holdfast.protocol.record_batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_COMPRESSION,
    RECORD_SIZE_MIN,
    UNPACKED_MAX_BYTES,
    ZSTD,
    BatchHeader,
    Buffer,
    CorruptBatch,
    UnpacksTooLarge,
)

#: Most records of one batch: so many offsets a segment keeps free for its last one.
BATCH_RECORDS_MAX = 1 << 24
#: The timestamp of a record that has none.
NO_TIMESTAMP = -1
#: Work that one turn of the event loop may do: records read, and bytes of a compressed batch unpacked.
TURN_RECORDS_MAX, TURN_UNPACKED_MAX_BYTES = 100_000, 4 << 20

#: Of the reader over bytes that are no records; lengths that no buffer could have give the last two.
_UNREADABLE = (KafkaError, ValueError, OverflowError, MemoryError)


class BatchFault(NamedTuple):
    """Why a batch must not be appended: the error to answer, and a sentence."""

    error_code: ErrorCode
    text: str


class TakesLonger(Exception):
    """The records cannot be read within one turn of the event loop."""


class TimestampRange(NamedTuple):
    """Timestamps that a partition takes, inclusive, in ms since 1970; NO_TIMESTAMP is always taken."""

    low_ms: int
    high_ms: int


def timestamp_range(wall_ms: int, before_max_ms: int, after_max_ms: int) -> TimestampRange:
    """The range around the broker's clock (`message.timestamp.before.max.ms`, `after.max.ms`)."""
    return TimestampRange(max(0, wall_ms - before_max_ms), wall_ms + after_max_ms)


def header_fault(header: BatchHeader, size_bytes: int) -> BatchFault | None:
    """What is wrong with the header of a producer's batch that came in `size_bytes` bytes with a true crc;
    None when nothing is."""
    if header.size_bytes != size_bytes:
        return _invalid("send exactly one record batch per partition and request")
    if header.base_offset:
        return _invalid(f"base offset {header.base_offset}: a producer's batch begins at 0")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        return _invalid(
            f"{header.record_count} records with last offset delta {header.last_offset_delta}; "
            "number the records from 0 without gaps"
        )
    if header.compression > ZSTD:
        return BatchFault(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression {header.compression} is none of 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
        )
    room = (size_bytes - HEADER_SIZE) // RECORD_SIZE_MIN
    if header.record_count > room and header.compression == NO_COMPRESSION:
        return _invalid(
            f"{header.record_count} records in a batch of {size_bytes} bytes, which holds {room} at most"
        )
    if header.record_count > BATCH_RECORDS_MAX:
        return _invalid(f"{header.record_count} records in one batch, {BATCH_RECORDS_MAX} are the most")
    if header.is_control or header.is_transactional:
        return _invalid("control batches and transactions are not accepted from clients")
    if header.attributes & DELETE_HORIZON:
        return _invalid("attribute bit 6, the time of removal of tombstones, is set by compaction only")
    if header.producer_id < -1:
        return _invalid(f"producer id {header.producer_id}: send -1 for none")
    if header.attributes & LOG_APPEND_TIME:
        return BatchFault(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer's batch has the timestamp type CreateTime, not LogAppendTime",
        )
    return None


def timestamp_fault(header: BatchHeader, taken: TimestampRange) -> BatchFault | None:
    """INVALID_TIMESTAMP when the header's largest timestamp, which retention goes by, is out of range; None
    when it is not."""
    if header.max_timestamp == NO_TIMESTAMP or taken.low_ms <= header.max_timestamp <= taken.high_ms:
        return None
    return _bad_timestamp("the batch's largest", header.max_timestamp, taken)


def record_fault(
    batch: Buffer,
    header: BatchHeader,
    taken: TimestampRange,
    *,
    in_one_turn: bool = False,
    needs_keys: bool = False,
) -> BatchFault | None:
    """What is wrong with the records of a batch with this header; None when nothing is.

    Counts them, follows each to its end, and looks at its offset and timestamp. A compressed batch is
    unpacked to UNPACKED_MAX_BYTES at most. `needs_keys`: a record without one is at fault. Raises:
    TakesLonger, only with `in_one_turn`.
    """
    limit_bytes = UNPACKED_MAX_BYTES
    if in_one_turn:
        if header.record_count > TURN_RECORDS_MAX:
            raise TakesLonger
        limit_bytes = TURN_UNPACKED_MAX_BYTES
    try:
        plain = unpack_batch(batch, limit_bytes)
    except UnpacksTooLarge as error:
        if in_one_turn:
            raise TakesLonger from None
        return BatchFault(ErrorCode.MESSAGE_TOO_LARGE, f"{error}; send smaller batches")
    except CorruptBatch as error:
        return _invalid(str(error))
    if not needs_keys and header.compression == NO_COMPRESSION and are_sound(plain, header, *taken):
        return None
    return _read(plain, taken, needs_keys=needs_keys)


def _read(plain: Buffer, taken: TimestampRange, *, needs_keys: bool = False) -> BatchFault | None:
    low_ms, high_ms = taken
    index, good_ms = -1, NO_TIMESTAMP
    try:
        for index, record in enumerate(DefaultRecordBatch(plain)):
            if needs_keys and record.key is None:
                return _invalid(f"record {index} has no key, and the topic is compacted (cleanup.policy)")
            if record.offset == index:
                timestamp_ms = record.timestamp
                # Most records have the timestamp of the one before.
                if timestamp_ms == good_ms or low_ms <= timestamp_ms <= high_ms:
                    good_ms = timestamp_ms
                    continue
            if record.offset != index:
                return _invalid(
                    f"record {index} has offset delta {record.offset}; number them from 0 without gaps"
                )
            if record.timestamp != NO_TIMESTAMP:
                return _bad_timestamp(f"record {index}'s", record.timestamp, taken)
    except _UNREADABLE as error:
        return _invalid(f"behind record {index} the batch is no records: {error or type(error).__name__}")
    return None


def _invalid(text: str) -> BatchFault:
    return BatchFault(ErrorCode.INVALID_RECORD, text)


def _bad_timestamp(whose: str, timestamp_ms: int, taken: TimestampRange) -> BatchFault:
    return BatchFault(
        ErrorCode.INVALID_TIMESTAMP,
        f"{whose} timestamp {timestamp_ms} is not within {taken.low_ms} to {taken.high_ms} "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
    )
