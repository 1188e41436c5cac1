"""Compressed records are unpacked up to a limit and not beyond, in every codec."""

import gzip
import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.compression import unpack_batch, unpack_records
from holdfast.protocol.record_batch import (
    GZIP,
    LZ4,
    NO_COMPRESSION,
    SNAPPY,
    ZSTD,
    CorruptBatch,
    UnpacksTooLarge,
    check_batch,
    parse_header,
)

Packer = Callable[[bytes], bytes]


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


PACKERS: dict[str, tuple[int, Packer]] = {
    "gzip": (GZIP, gzip_encode),
    "gzip of two members": (GZIP, lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:])),
    "snappy in blocks": (SNAPPY, snappy_encode),
    "snappy without blocks": (SNAPPY, raw_snappy),
    "lz4": (LZ4, lz4_encode),
    "zstd": (ZSTD, zstd_encode),
}
every_packer = pytest.mark.parametrize(("codec", "pack"), PACKERS.values(), ids=PACKERS)

#: ten pages of which none is like another, so that no codec finds much
DATA = b"".join(str(n * n).encode() for n in range(8_000))


@every_packer
def test_what_was_packed_is_unpacked(codec: int, pack: Packer) -> None:
    assert unpack_records(codec, memoryview(pack(DATA)), len(DATA)) == DATA


@every_packer
def test_records_that_compress_a_thousandfold_are_unpacked_within_the_limit(codec: int, pack: Packer) -> None:
    assert unpack_records(codec, pack(bytes(3 << 20)), 4 << 20) == bytes(3 << 20)


@every_packer
def test_one_byte_beyond_the_limit_is_refused(codec: int, pack: Packer) -> None:
    with pytest.raises(UnpacksTooLarge, match=f"unpack to more than {len(DATA) - 1} bytes"):
        unpack_records(codec, pack(DATA), len(DATA) - 1)


@every_packer
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: int, pack: Packer) -> None:
    bomb = pack(bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UnpacksTooLarge):
            unpack_records(codec, bomb, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the blocks of snappy hold the input once more
    assert peak_bytes < (4 << 20) + len(bomb)


@every_packer
@pytest.mark.parametrize("harm", [lambda b: b[: len(b) // 2], lambda b: b"no codec at all" + b])
def test_damaged_records_are_corrupt_and_not_too_large(
    codec: int, pack: Packer, harm: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(CorruptBatch) as caught:
        unpack_records(codec, harm(pack(DATA)))
    assert not isinstance(caught.value, UnpacksTooLarge)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(CorruptBatch, match=f"no compression {codec}"):
        unpack_records(codec, b"")


@given(junk=st.binary(max_size=200), codec=st.integers(0, 7), is_xerial=st.booleans())
def test_junk_is_never_refused_otherwise_than_as_corrupt(junk: bytes, codec: int, is_xerial: bool) -> None:
    try:
        unpack_records(codec, b"\x82SNAPPY\x00" + bytes(8) + junk if is_xerial else junk, 1 << 20)
    except CorruptBatch:
        pass


def built(compression: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, True, 7, 3, 5, 1 << 20)
    for number in range(100):
        builder.append(number, 1_000 + number, b"key", b"value " * 20, [])
    return bytes(builder.build())


def rows(batch: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(batch)]


@pytest.mark.parametrize("compression", [NO_COMPRESSION, GZIP, SNAPPY, LZ4, ZSTD])
def test_an_unpacked_batch_has_the_same_header_and_records_and_no_compression(compression: int) -> None:
    batch = built(compression)
    header = check_batch(batch)
    plain = unpack_batch(batch)
    assert rows(plain) == rows(batch)
    assert parse_header(plain) == header._replace(
        batch_length=len(plain) - 12, attributes=header.attributes & ~0x07
    )


def test_a_batch_that_is_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(UnpacksTooLarge):
        unpack_batch(built(ZSTD), 1_000)
