"""D4: batches are Kafka's v2 format byte for byte. Second opinion, both directions: aiokafka's codec."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
    _DefaultRecordBatchPy,
)
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.record_batch import (
    GZIP,
    HEADER_SIZE,
    LZ4,
    ZSTD,
    BatchHeader,
    CorruptBatch,
    Record,
    check_batch,
    decode_records,
    encode_batch,
    iter_batches,
    parse_header,
    stamp,
)

HEADERS = (("trace", b"abc"), ("naïve", None), ("", b""))
RECORDS = [
    Record(40, 1_700_000_000_000, b"key", b"value", ()),
    Record(41, 1_700_000_000_007, None, b"", HEADERS),
    Record(42, 1_699_999_999_000, b"", None, ()),
]


def small_batch(base_offset: int = 40, leader_epoch: int = 5, records: Sequence[Record] = RECORDS) -> bytes:
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


def built_by_aiokafka(builder_class: Any, compression: int, records: Sequence[Record]) -> bytes:
    builder = builder_class(2, compression, False, 7_000_000_001, 3, 2_147_483_646, 1 << 20)
    for index, record in enumerate(records):
        appended = builder.append(index, record.timestamp_ms, record.key, record.value, [*record.headers])
        assert appended is not None
    return bytes(builder.build())


def read_by_aiokafka(reader_class: Any, batch: bytes) -> list[Record]:
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((k, v) for k, v in r.headers))
        for r in reader_class(batch)
    ]


optional_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, first_offset: int = 0) -> list[Record]:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 1 << 45), optional_bytes, optional_bytes, headers),
            min_size=1,
            max_size=8,
        )
    )
    return [Record(first_offset + index, *row) for index, row in enumerate(rows)]


@pytest.mark.parametrize("reader", [DefaultRecordBatch, _DefaultRecordBatchPy])
@given(records=record_lists(first_offset=1 << 40))
def test_kafka_readers_read_what_we_encode(reader: Any, records: list[Record]) -> None:
    batch = encode_batch(
        records, base_offset=1 << 40, leader_epoch=9, producer_id=77, producer_epoch=1, base_sequence=12
    )
    assert read_by_aiokafka(reader, batch) == records
    read = reader(batch)
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 1, 12)
    assert read.next_offset == records[-1].offset + 1


@pytest.mark.parametrize("builder", [DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy])
@given(records=record_lists())
def test_we_read_what_kafka_builders_encode(builder: Any, records: list[Record]) -> None:
    batch = built_by_aiokafka(builder, 0, records)
    header = check_batch(batch)
    assert decode_records(batch) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        7_000_000_001,
        3,
        2_147_483_646,
    )
    assert header.max_timestamp == max(r.timestamp_ms for r in records)
    assert header.record_count == len(records)


def test_our_bytes_equal_those_of_the_kafka_builder() -> None:
    records = [Record(i, 1_000 + i, b"k", b"v" * i, HEADERS) for i in range(4)]
    ours = encode_batch(
        records,
        base_offset=0,
        leader_epoch=-1,
        producer_id=7_000_000_001,
        producer_epoch=3,
        base_sequence=2_147_483_646,
    )
    theirs = built_by_aiokafka(_DefaultRecordBatchBuilderPy, 0, records)
    assert parse_header(ours)._replace(leader_epoch=0) == parse_header(theirs)._replace(leader_epoch=0)
    assert ours[HEADER_SIZE:] == theirs[HEADER_SIZE:]


@pytest.mark.parametrize("compression", [GZIP, LZ4, ZSTD])
def test_headers_of_compressed_batches_are_read_without_unpacking(compression: int) -> None:
    records = [Record(i, 5_000, None, b"x" * 500, ()) for i in range(10)]
    batch = built_by_aiokafka(DefaultRecordBatchBuilder, compression, records)
    header = check_batch(batch)
    assert (header.compression, header.record_count, header.last_offset) == (compression, 10, 9)
    if compression == GZIP:
        assert decode_records(batch) == records
    else:
        with pytest.raises(CorruptBatch, match=f"compression {compression}"):
            decode_records(batch)


def test_stamp_sets_offset_and_epoch_keeps_the_crc_and_copies_nothing() -> None:
    batch = bytearray(small_batch(base_offset=40))
    head, rest = stamp(memoryview(batch), 1_000, 6)
    stamped = head + bytes(rest)
    header = check_batch(stamped)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (1_000, 6, 1_002)
    batch[-1] ^= 1
    assert rest[-1] == batch[-1]  # the same memory


def test_stamp_refuses_more_than_one_batch() -> None:
    with pytest.raises(AssertionError):
        stamp(small_batch() * 2, 0, 0)


def test_offsets_of_a_batch_may_have_gaps() -> None:
    records = [Record(10, 1, None, b"a"), Record(15, 1, None, b"b")]
    batch = encode_batch(records, base_offset=8, leader_epoch=0)
    assert parse_header(batch).next_offset == 16
    assert decode_records(batch) == records


def test_control_batches_carry_their_bit_and_their_records() -> None:
    record = Record(3, 9, b"\x00\x00\x00\x02", b"\x00\x01", ())
    batch = encode_batch([record], base_offset=3, leader_epoch=2, is_control=True)
    assert check_batch(batch).is_control
    assert DefaultRecordBatch(batch).is_control_batch
    assert decode_records(batch) == [record]
    assert not parse_header(small_batch()).is_control


def test_last_sequence_wraps_at_2_to_the_31() -> None:
    batch = encode_batch(
        RECORDS, base_offset=40, leader_epoch=0, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2
    )
    assert parse_header(batch).last_sequence == 0
    assert parse_header(small_batch()).last_sequence == -1


def test_iter_batches_gives_every_batch_with_its_own_bytes() -> None:
    batches = [
        small_batch(40),
        small_batch(50, records=[Record(51, 0, None, b"x")]),
        small_batch(60, records=[Record(60, 0, None, None)]),
    ]
    seen = list(iter_batches(b"".join(batches)))
    assert [header.base_offset for header, _ in seen] == [40, 50, 60]
    assert [bytes(view) for _, view in seen] == batches


@pytest.mark.parametrize("cut", [1, 30, HEADER_SIZE])
def test_a_batch_that_is_cut_short_is_corrupt(cut: int) -> None:
    whole = small_batch()
    with pytest.raises(CorruptBatch, match=f"batch at byte {len(whole)}"):
        list(iter_batches(whole + whole[:cut]))
    with pytest.raises(CorruptBatch):
        check_batch(whole[:-1])


@given(position=st.integers(16, len(small_batch()) - 1), bit=st.integers(0, 7))
def test_every_flipped_bit_that_the_crc_covers_is_found(position: int, bit: int) -> None:
    damaged = bytearray(small_batch())
    damaged[position] ^= 1 << bit
    with pytest.raises(CorruptBatch):
        check_batch(damaged)


def test_a_large_batch_is_summed_in_pieces_to_the_same_crc() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(range(256)) * 1000)], base_offset=0, leader_epoch=0)
    assert check_batch(memoryview(bytearray(b"pad" + batch)), 3).record_count == 1
    damaged = bytearray(batch)
    damaged[200_000] ^= 4
    with pytest.raises(CorruptBatch, match="crc"):
        check_batch(damaged)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("magic", 1, "magic 1, expected 2"),
        ("batch_length", 48, "shorter than a header"),
        ("last_offset_delta", -1, "must not be negative"),
        ("record_count", -1, "must not be negative"),
    ],
)
def test_headers_that_cannot_be_are_corrupt(field: str, value: int, text: str) -> None:
    header: BatchHeader = parse_header(small_batch())._replace(**{field: value})
    with pytest.raises(CorruptBatch, match=text):
        parse_header(struct.pack(">qiibIhiqqqhii", *header))


def test_zeros_are_no_batch() -> None:
    with pytest.raises(CorruptBatch, match="magic 0"):
        parse_header(bytes(4096))


@given(junk=st.binary(max_size=120), count=st.integers(0, 5), compression=st.sampled_from([0, 1]))
def test_decoding_junk_records_never_fails_otherwise_than_corrupt(
    junk: bytes, count: int, compression: int
) -> None:
    body = gzip.compress(junk) if compression and count % 2 else junk
    batch = bytearray(small_batch()[:HEADER_SIZE] + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = compression
    batch[57:61] = count.to_bytes(4, "big")
    try:
        decode_records(batch)
    except CorruptBatch:
        pass


def test_a_gzip_bomb_is_refused_before_it_fills_memory() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(65)) + packer.flush()
    batch = bytearray(small_batch()[:HEADER_SIZE] + bomb)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = GZIP
    with pytest.raises(CorruptBatch, match="unpack to more than"):
        decode_records(batch)
