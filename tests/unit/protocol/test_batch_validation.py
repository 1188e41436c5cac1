"""What a broker takes from a producer: each kind of wrong batch has its error, whole ones have none."""

import struct
import tracemalloc
from collections.abc import Callable

import google_crc32c
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.batch_validation import (
    BATCH_RECORDS_MAX,
    TURN_RECORDS_MAX,
    TURN_UNPACKED_MAX_BYTES,
    TakesLonger,
    header_fault,
    record_fault,
    timestamp_fault,
    timestamp_range,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import (
    GZIP,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    LOG_APPEND_TIME,
    LZ4,
    SNAPPY,
    UNPACKED_MAX_BYTES,
    ZSTD,
    BatchHeader,
    Record,
    check_batch,
    decode_records,
    encode_batch,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
ANY_TIME = timestamp_range(NOW, (1 << 63) - 1, HOUR)
CODECS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: gzip_encode,
    SNAPPY: snappy_encode,
    LZ4: lz4_encode,
    ZSTD: zstd_encode,
}
HEAD = ">hiqqqhii"
FIELDS = (
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def built(
    timestamps: tuple[int, ...] = (NOW, NOW + 1, NOW - 1), codec: int = 0, value: bytes = b"v"
) -> bytes:
    """As Kafka's clients write it."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for index, timestamp in enumerate(timestamps):
        builder.append(index, timestamp, b"key", value, [("name", b"1"), ("none", None)])
    return bytes(builder.build())


def changed(batch: bytes, body: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields and records, and a true crc."""
    values = dict(zip(FIELDS, struct.unpack_from(HEAD, batch, 21), strict=True)) | fields
    behind = struct.pack(HEAD, *values.values()) + (batch[HEADER_SIZE:] if body is None else body)
    length = 21 + len(behind) - LENGTH_PREFIX_SIZE
    return struct.pack(">qiibI", 0, length, -1, 2, google_crc32c.value(behind)) + behind


def packed(codec: int, body: bytes, **fields: int) -> bytes:
    return changed(built(), CODECS[codec](body), attributes=codec, **fields)


def verdict(batch: bytes) -> str:
    """All three checks, as a broker does them, of a batch whose crc is true."""
    header = check_batch(batch)
    fault = (
        header_fault(header, len(batch))
        or timestamp_fault(header, ANY_TIME)
        or record_fault(batch, header, ANY_TIME)
    )
    assert fault is None or fault.text
    return "NONE" if fault is None else fault.error_code.name


GOOD = built()
BODY = GOOD[HEADER_SIZE:]
ONE = built((NOW,))
FUTURE = (1 << 63) - 1


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    "timestamps", [(NOW,), (NOW, NOW + HOUR, 0), (NOW,) * 300], ids=["one", "the bounds", "many"]
)
def test_batches_of_kafkas_clients_are_taken(codec: int, timestamps: tuple[int, ...]) -> None:
    assert verdict(built(timestamps, codec)) == "NONE"


def test_records_without_a_timestamp_are_taken() -> None:
    records = [Record(0, -1, None, None), Record(1, -1, None, None)]
    assert verdict(encode_batch(records, base_offset=0, leader_epoch=-1)) == "NONE"


WRONG = {
    "a record less than its count": (changed(GOOD, record_count=4, last_offset_delta=3), "INVALID_RECORD"),
    "a record more than its count": (changed(GOOD, record_count=2, last_offset_delta=1), "INVALID_RECORD"),
    "no record": (changed(GOOD, b"", record_count=0, last_offset_delta=-1 & 0x7FFFFFFF), "INVALID_RECORD"),
    "a count unlike the offsets": (changed(GOOD, record_count=2), "INVALID_RECORD"),
    "garbage": (changed(GOOD, b"\xff" * len(BODY)), "INVALID_RECORD"),
    "zeros": (changed(GOOD, bytes(len(BODY))), "INVALID_RECORD"),
    "cut records": (changed(GOOD, BODY[:-1]), "INVALID_RECORD"),
    "bytes behind the records": (changed(GOOD, BODY + b"x"), "INVALID_RECORD"),
    "a record length that is too large": (changed(ONE, b"\x7e" + ONE[HEADER_SIZE + 1 :]), "INVALID_RECORD"),
    "the same offset twice": (
        changed(ONE, 2 * ONE[HEADER_SIZE:], record_count=2, last_offset_delta=1),
        "INVALID_RECORD",
    ),
    "a header name that is no text": (
        changed(GOOD, BODY.replace(b"name", b"\xff\xfe\xfd\xfc")),
        "INVALID_RECORD",
    ),
    "a key of 2^63 - 1 bytes": (
        changed(ONE, b"\x16\x00\x00\x00" + b"\xfe" + b"\xff" * 8 + b"\x01", record_count=1),
        "INVALID_RECORD",
    ),
    "codec 5": (changed(GOOD, attributes=5), "UNSUPPORTED_COMPRESSION_TYPE"),
    "codec 7": (changed(GOOD, attributes=7), "UNSUPPORTED_COMPRESSION_TYPE"),
    "a control batch": (changed(GOOD, attributes=0x20), "INVALID_RECORD"),
    "a transaction": (changed(GOOD, attributes=0x10), "INVALID_RECORD"),
    "a time of removal of tombstones": (changed(GOOD, attributes=0x40), "INVALID_RECORD"),
    "LogAppendTime": (changed(GOOD, attributes=LOG_APPEND_TIME), "INVALID_TIMESTAMP"),
    "more records than a segment has offsets for": (
        changed(
            packed(ZSTD, BODY), record_count=BATCH_RECORDS_MAX + 1, last_offset_delta=BATCH_RECORDS_MAX
        ),
        "INVALID_RECORD",
    ),
    "a base offset": (struct.pack(">q", 7) + GOOD[8:], "INVALID_RECORD"),
    "producer id -2": (changed(GOOD, producer_id=-2), "INVALID_RECORD"),
    "two batches": (GOOD + GOOD, "INVALID_RECORD"),
    "a record of the far future": (built((NOW, FUTURE)), "INVALID_TIMESTAMP"),
    "a record of the far future under an honest header": (
        changed(built((NOW, FUTURE)), max_timestamp=NOW),
        "INVALID_TIMESTAMP",
    ),
    "a record a moment too young": (built((NOW + HOUR + 1,)), "INVALID_TIMESTAMP"),
    "a header of the far future": (changed(GOOD, max_timestamp=FUTURE), "INVALID_TIMESTAMP"),
    "a base timestamp that makes the records old": (
        changed(GOOD, base_timestamp=-(1 << 63)),
        "INVALID_TIMESTAMP",
    ),
    "a timestamp below -1": (changed(GOOD, max_timestamp=-2), "INVALID_TIMESTAMP"),
} | {
    f"{name} in codec {codec}": (packed(codec, body, **fields), "INVALID_RECORD")
    for codec in CODECS
    for name, body, fields in (
        ("a record less", BODY, {"record_count": 4, "last_offset_delta": 3}),
        ("bytes too many", BODY + b"x", {}),
        ("garbage", b"\xff" * 40, {}),
    )
} | {
    f"no codec {codec}": (changed(GOOD, b"no compressed data", attributes=codec), "INVALID_RECORD")
    for codec in CODECS
}  # fmt: skip


@pytest.mark.parametrize(("batch", "code"), WRONG.values(), ids=list(WRONG))
def test_wrong_batches_have_their_error(batch: bytes, code: str) -> None:
    assert verdict(batch) == code


@pytest.mark.parametrize(
    ("timestamp", "code"),
    [
        (NOW - 1001, "INVALID_TIMESTAMP"),
        (NOW - 1000, "NONE"),
        (NOW + 50, "NONE"),
        (NOW + 51, "INVALID_TIMESTAMP"),
    ],
)
def test_timestamps_lie_around_the_brokers_clock(timestamp: int, code: str) -> None:
    taken = timestamp_range(NOW, 1000, 50)
    for batch in (built((timestamp,)), built((NOW, timestamp, NOW))):
        fault = record_fault(batch, check_batch(batch), taken)
        assert ("NONE" if fault is None else fault.error_code.name) == code
    no_timestamp = encode_batch([Record(0, -1, None, None)], base_offset=0, leader_epoch=-1)
    assert record_fault(no_timestamp, check_batch(no_timestamp), taken) is None
    assert timestamp_fault(check_batch(no_timestamp), taken) is None


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_record_without_a_key_is_at_fault_where_keys_are_needed(count: int, codec: int) -> None:
    """Also among many alike, which need no reading otherwise."""
    for keys in ([b"k"] * count, [b""] * count, [b"k"] * (count - 1) + [None], [None] * count):
        records = [Record(number, NOW, key, b"v") for number, key in enumerate(keys)]
        plain = encode_batch(records, base_offset=0, leader_epoch=-1)
        batch = changed(plain, CODECS.get(codec, bytes)(plain[HEADER_SIZE:]), attributes=codec)
        fault = record_fault(batch, check_batch(batch), ANY_TIME, needs_keys=True)
        assert (fault is not None) == (None in keys)
        assert fault is None or fault.error_code is ErrorCode.INVALID_RECORD
        assert record_fault(batch, check_batch(batch), ANY_TIME) is None


@given(st.binary(max_size=60), st.integers(0, 4), st.integers(1, 5))
def test_no_bytes_are_taken_that_the_plain_reader_refuses(body: bytes, codec: int, count: int) -> None:
    """And none make the check raise."""
    batch = changed(GOOD, body, attributes=codec, record_count=count, last_offset_delta=count - 1)
    fault = record_fault(batch, check_batch(batch), ANY_TIME)
    assert fault is None or fault.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
    if fault is None and codec <= GZIP:
        assert [record.offset for record in decode_records(batch)] == list(range(count))


@given(st.data())
def test_one_changed_byte_is_refused_or_harmless(data: st.DataObject) -> None:
    body = bytearray(BODY)
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    batch = changed(GOOD, bytes(body))
    if record_fault(batch, check_batch(batch), ANY_TIME) is None:
        assert [record.offset for record in decode_records(batch)] == [0, 1, 2]


def test_what_takes_longer_than_a_turn_is_said_before_it_is_done() -> None:
    many = built((NOW,) * (TURN_RECORDS_MAX + 1), value=b"")
    bomb = built((NOW,), ZSTD, bytes(TURN_UNPACKED_MAX_BYTES))
    for batch in (many, bomb):
        with pytest.raises(TakesLonger):
            record_fault(batch, check_batch(batch), ANY_TIME, in_one_turn=True)
        assert verdict(batch) == "NONE"


def test_a_batch_that_unpacks_to_gigabytes_is_too_large_and_takes_no_more_than_the_limit() -> None:
    bomb = changed(built((NOW,)), zstd_encode(bytes(UNPACKED_MAX_BYTES + 1)), attributes=ZSTD)
    tracemalloc.start()
    assert verdict(bomb) == "MESSAGE_TOO_LARGE"
    assert tracemalloc.get_traced_memory()[1] < 2 * UNPACKED_MAX_BYTES
    tracemalloc.stop()


def test_the_header_alone_is_enough_for_what_only_the_header_says() -> None:
    header = BatchHeader(0, 49, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    assert header_fault(header, 61) is not None, "one record in no bytes"
