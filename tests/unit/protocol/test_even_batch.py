"""Records that are all alike are proven sound by columns, and never when the reader finds something wrong."""

import struct

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol import batch_validation
from holdfast.protocol.batch_validation import TimestampRange, record_fault
from holdfast.protocol.even_batch import EVEN_RECORDS_MAX, EVEN_RECORDS_MIN, are_sound
from holdfast.protocol.record_batch import HEADER_SIZE, Record, check_batch, encode_batch

NOW = 1_700_000_000_000
HOUR = 3_600_000
TAKEN = TimestampRange(0, NOW + HOUR)


def even_batch(count: int, key: bytes | None = None, value: bytes | None = b"v" * 100) -> bytes:
    """Records with timestamps that need as many bytes each."""
    records = [Record(number, NOW + number % 3, key, value) for number in range(count)]
    return encode_batch(records, base_offset=0, leader_epoch=-1)


def with_body(batch: bytes, body: bytes) -> bytes:
    """With a true crc."""
    behind = batch[21:HEADER_SIZE] + body
    return struct.pack(">qiibI", 0, 9 + len(behind), -1, 2, google_crc32c.value(behind)) + behind


def is_proven(batch: bytes, taken: TimestampRange = TAKEN) -> bool:
    return are_sound(batch, check_batch(batch), *taken)


def is_right(batch: bytes) -> bool:
    """What the reader says."""
    return batch_validation._read(batch, TAKEN) is None


@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 70])
@pytest.mark.parametrize("value", [None, b"", b"v" * 63, b"v" * 64, b"v" * 9000])
@pytest.mark.parametrize("count", [EVEN_RECORDS_MIN, 64, 65, 300])
def test_batches_of_records_that_are_alike_are_proven_sound(
    count: int, key: bytes | None, value: bytes | None
) -> None:
    batch = even_batch(count, key, value)
    assert is_proven(batch)
    assert is_proven(batch) == is_right(batch)


def test_the_longest_one_is_proven_and_the_reader_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_validation, "_read", None)
    batch = memoryview(even_batch(EVEN_RECORDS_MAX))
    assert record_fault(batch, check_batch(batch), TAKEN) is None


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(even_batch(EVEN_RECORDS_MIN - 1), id="too few"),
        pytest.param(even_batch(EVEN_RECORDS_MAX + 1, value=None), id="too many"),
        pytest.param(
            encode_batch(
                [Record(n, NOW, None, b"v" * (n % 7)) for n in range(100)], base_offset=0, leader_epoch=-1
            ),
            id="of different sizes",
        ),
        pytest.param(
            encode_batch(
                [Record(n, NOW, None, b"v", (("name", b"1"),)) for n in range(100)],
                base_offset=0,
                leader_epoch=-1,
            ),
            id="with headers",
        ),
    ],
)
def test_other_batches_are_left_to_the_reader(batch: bytes) -> None:
    assert not is_proven(batch)
    assert is_right(batch)


def test_timestamps_that_could_be_out_of_range_are_left_to_the_reader() -> None:
    batch = even_batch(100)
    assert is_proven(batch, TimestampRange(NOW - 128, NOW + 200))
    assert not is_proven(batch, TimestampRange(NOW, NOW + 200))
    assert not is_proven(batch, TimestampRange(NOW - 128, NOW + 100))


@settings(max_examples=400)
@given(
    st.sampled_from(
        [(40, None, b"v" * 20), (70, b"k", b"v" * 3), (130, b"key", None), (100, None, b"v" * 70)]
    ),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_what_is_proven_sound_is_what_the_reader_takes(
    shape: tuple[int, bytes | None, bytes | None], changes: list[tuple[int, int]]
) -> None:
    whole = even_batch(*shape)
    body = bytearray(whole[HEADER_SIZE:])
    for place, byte in changes:
        body[place % len(body)] = byte
    batch = with_body(whole, bytes(body))
    assert is_right(batch) or not is_proven(batch)


@pytest.mark.parametrize("record", [0, 1, 63, 64, 69])
def test_each_changed_byte_of_the_framing_of_a_record_is_noticed(record: int) -> None:
    whole = even_batch(70, b"k", b"vv")
    starts = [HEADER_SIZE]
    for number in range(70):
        starts.append(starts[-1] + (10 if number < 64 else 11))
    assert starts[-1] == len(whole)
    for place in range(starts[record], starts[record + 1]):
        for byte in (0, 1, 127, 128, 255, whole[place] ^ 2):
            body = bytearray(whole[HEADER_SIZE:])
            body[place - HEADER_SIZE] = byte
            batch = with_body(whole, bytes(body))
            assert is_right(batch) or not is_proven(batch), (record, place, byte)


@given(st.binary(max_size=300), st.integers(EVEN_RECORDS_MIN, 100))
def test_garbage_is_not_proven(body: bytes, count: int) -> None:
    batch = with_body(even_batch(count), body)
    assert is_right(batch) or not is_proven(batch)
