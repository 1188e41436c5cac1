"""Batches with fewer records: each record that is left is as it was, and the batch stands for the same
offsets."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from holdfast.protocol.cleaned_batch import keyed_records, plain_records, with_records, without_records
from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.record_batch import (
    DELETE_HORIZON,
    BatchHeader,
    CorruptBatch,
    Record,
    check_batch,
    decode_records,
    encode_batch,
    from_offset,
    iter_batches,
    parse_header,
    put_varint,
    with_header,
)

RECORDS = [
    Record(10, 1_000, b"a", b"1", (("h", b"x"), ("h", None))),
    Record(11, 1_500, b"", b"2" * 300),
    Record(12, 900, b"tomb", None),
    Record(13, 70_000_000, None, b"no key"),
    Record(14, 1_001, b"k" * 200, b""),
]
BATCH = encode_batch(
    RECORDS, base_offset=10, leader_epoch=3, producer_id=7, producer_epoch=1, base_sequence=20
)


def header_of(batch: bytes) -> BatchHeader:
    return check_batch(batch)


def test_keys_and_tombstones_are_read() -> None:
    header = header_of(BATCH)
    found = list(keyed_records(plain_records(BATCH, header), header))
    assert [(one.offset, one.key, one.is_tombstone, one.timestamp_ms) for one in found] == [
        (record.offset, record.key, record.value is None, record.timestamp_ms) for record in RECORDS
    ]


@pytest.mark.parametrize("kept", [(0,), (2,), (4,), (0, 2, 4), (1, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("horizon_ms", [None, 5, 90_000_000])
def test_what_is_left_is_as_it_was(kept: tuple[int, ...], horizon_ms: int | None) -> None:
    header = header_of(BATCH)
    plain = plain_records(BATCH, header)
    records = list(keyed_records(plain, header))
    batch = with_records(header, plain, [records[number] for number in kept], horizon_ms)
    assert decode_records(batch) == [RECORDS[number] for number in kept]
    left = header_of(batch)
    same = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(left, name) for name in same] == [getattr(header, name) for name in same]
    assert left.last_sequence == header.last_sequence
    assert left.max_timestamp == max(RECORDS[number].timestamp_ms for number in kept)
    assert bool(left.attributes & DELETE_HORIZON) == (horizon_ms is not None)
    if horizon_ms is not None:
        assert left.base_timestamp == horizon_ms


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_compression_is_written_as_it_was_read(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for number in range(50):
        builder.append(number, 1000 + number, b"key %d" % (number % 5), b"value" * 20, [])
    batch = bytes(builder.build())
    header = header_of(batch)
    assert header.compression == codec
    plain = plain_records(batch, header)
    records = list(keyed_records(plain, header))
    cleaned = with_records(header, plain, records[-5:])
    assert header_of(cleaned).compression == codec
    read = [(one.offset, one.key, one.timestamp) for one in DefaultRecordBatch(unpack_batch(cleaned))]
    assert read == [(one.offset, one.key, one.timestamp_ms) for one in records[-5:]]
    assert len(cleaned) < len(batch) or codec


def test_batch_without_records_stands_for_the_same_offsets() -> None:
    header, empty = header_of(BATCH), header_of(without_records(header_of(BATCH)))
    assert (empty.base_offset, empty.next_offset, empty.record_count) == (10, 15, 0)
    assert (empty.producer_id, empty.last_sequence) == (7, header.last_sequence)
    assert (empty.max_timestamp, empty.leader_epoch, empty.size_bytes) == (70_000_000, 3, 61)


def test_records_that_are_cut_anywhere_are_told() -> None:
    header = header_of(BATCH)
    plain = plain_records(BATCH, header)
    for size in range(len(plain)):
        with pytest.raises(CorruptBatch):
            list(keyed_records(plain[:size], header))


def test_record_that_is_longer_than_it_says_is_told() -> None:
    header = header_of(BATCH)
    plain = bytearray(plain_records(BATCH, header))
    plain[0] -= 2
    with pytest.raises(CorruptBatch):
        list(keyed_records(bytes(plain), header))


@pytest.mark.parametrize(("time_delta", "offset_delta"), [(1 << 66, 0), (-(1 << 66), 0), (0, 5), (0, -1)])
def test_record_with_no_possible_time_or_offset_is_told(time_delta: int, offset_delta: int) -> None:
    record, body = bytearray(1), bytearray()
    for number in (time_delta, offset_delta, 1):
        put_varint(record, number)
    record += b"k"
    put_varint(record, -1)
    put_varint(record, 0)
    put_varint(body, len(record))
    header = header_of(BATCH)._replace(record_count=1)
    with pytest.raises(CorruptBatch):
        list(keyed_records(bytes(body + record), header))


def test_unpacking_what_is_not_packed_is_told() -> None:
    header = header_of(BATCH)
    packed = with_header(header._replace(attributes=4), b"no zstd")
    with pytest.raises(CorruptBatch):
        plain_records(packed, parse_header(packed))


# --- cut empty batches ---------------------------------------------------------------------------------

RUN = with_header(header_of(without_records(header_of(BATCH)))._replace(producer_id=-1), b"")
NEXT = encode_batch([Record(15, 1, b"a", b"")], base_offset=15, leader_epoch=3)


@pytest.mark.parametrize("offset", range(10, 15))
def test_empty_batch_begins_where_it_is_read_from(offset: int) -> None:
    found = [header for header, _ in iter_batches(from_offset(RUN + NEXT, offset))]
    assert [(one.base_offset, one.next_offset) for one in found] == [(offset, 15), (15, 16)]
    assert header_of(from_offset(RUN, offset)).leader_epoch == 3


@pytest.mark.parametrize(("batches", "offset"), [(b"", 5), (BATCH, 12), (NEXT, 15), (NEXT, 14)])
def test_other_batches_are_read_as_they_are(batches: bytes, offset: int) -> None:
    assert from_offset(batches, offset) == batches
