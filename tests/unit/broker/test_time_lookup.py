"""A time leads to the first record that is at least as young, not to the batch that holds it."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from holdfast.broker import time_lookup
from holdfast.broker.time_lookup import FoundRecord, find_newest, find_record
from holdfast.protocol.record_batch import (
    GZIP,
    LZ4,
    NO_COMPRESSION,
    SNAPPY,
    ZSTD,
    Record,
    encode_batch,
)
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log

#: of the records of two batches; not in order, as from several producers
TIMES = ((1000, 1003, 1001, 1007), (1002, 1009, 1004))


def packed(times: tuple[int, ...], codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, timestamp_ms in enumerate(times):
        builder.append(offset, timestamp_ms, b"key", b"value", [("header", b"content")])
    return bytes(builder.build())


async def log_of(*batches: bytes) -> tuple[Log, MemoryWorld]:
    runtime, world = memory_runtime()
    log = await Log.open(runtime, "/data/t-0", LogConfig(), clean=False)
    for data in batches:
        log.append_as_leader(data, 1)
    return log, world


@pytest.mark.parametrize("codec", [NO_COMPRESSION, GZIP, SNAPPY, LZ4, ZSTD])
async def test_the_first_record_that_is_young_enough_is_found(codec: int) -> None:
    log, world = await log_of(*(packed(times, codec) for times in TIMES))
    every = [*enumerate(TIMES[0] + TIMES[1])]
    for asked in range(999, 1011):
        expected = next(((time, offset) for offset, time in every if time >= asked), None)
        assert await find_record(log, asked, world.clock) == expected


async def test_records_below_the_log_start_are_not_found() -> None:
    log, world = await log_of(*(packed(times, NO_COMPRESSION) for times in TIMES))
    log._log_start_offset = 2
    assert await find_record(log, 1000, world.clock) == (1001, 2)


#: of the records of five batches; the newest two are in the first one, and equal
DELETABLE = ((1007, 1000, 1007), (1001, 1004), (1003,), (1002, 1004, 1000), (1001,))


@pytest.mark.parametrize("start", range(1 + sum(map(len, DELETABLE))))
async def test_times_are_looked_up_among_the_records_that_are_not_deleted(start: int) -> None:
    """The log may start within a batch, whose newest record may be deleted."""
    log, world = await log_of(*(packed(times, GZIP) for times in DELETABLE))
    await log.flush()
    log.move_start(start)
    left = [FoundRecord(time, offset) for offset, time in enumerate(sum(DELETABLE, ())) if offset >= start]
    for asked in range(999, 1009):
        expected = next((one for one in left if one.timestamp_ms >= asked), None)
        assert await find_record(log, asked, world.clock) == expected
    newest = max(left, key=lambda one: one.timestamp_ms, default=None)
    assert await find_newest(log, world.clock) == newest


async def test_records_without_timestamps_have_no_newest_one() -> None:
    log, world = await log_of(*(packed((-1, -1), NO_COMPRESSION) for _ in range(3)))
    await log.flush()
    for start in range(7):
        log.move_start(start)
        assert await find_newest(log, world.clock) is None


async def test_a_long_batch_is_walked_through_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_lookup, "SLICE_RECORDS", 2)
    records = [Record(offset, 1000 + offset, None, b"") for offset in range(7)]
    log, _ = await log_of(encode_batch(records, base_offset=0, leader_epoch=-1))
    turns = []

    class Counted:
        async def sleep(self, duration_ms: float) -> None:
            turns.append(duration_ms)

    assert await find_record(log, 1006, Counted()) == (1006, 6)  # type: ignore[arg-type]  # that is all it calls
    assert turns == [0, 0, 0]


@pytest.mark.parametrize("limit_bytes", [pytest.param(10, id="it unpacks to too much"), 1 << 20])
async def test_a_batch_whose_records_cannot_be_read_is_found_as_a_whole(
    limit_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads from there misses nothing, and hears of the damage."""
    monkeypatch.setattr(time_lookup, "UNPACKED_MAX_BYTES", limit_bytes)
    data = bytearray(packed(TIMES[1], ZSTD))
    if limit_bytes > 10:
        data[61:] = b"x" * (len(data) - 61)
        _seal(data)
    log, world = await log_of(packed(TIMES[0], NO_COMPRESSION), bytes(data))
    assert await find_record(log, 1008, world.clock) == (1009, 4)


def _seal(data: bytearray) -> None:
    import google_crc32c

    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
