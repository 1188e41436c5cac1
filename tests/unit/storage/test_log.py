"""One log: what is appended is read, in order, and durable when it says so (D4-D6, R80-R88, A-20, A-21)."""

import asyncio
import errno

import pytest

from holdfast.protocol.record_batch import CorruptBatch, check_batch, iter_batches
from holdfast.runtime.api import DiskError, OutOfResources, Runtime
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.continuation import InvalidAppend
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.leader_epoch_cache import EpochEnd
from holdfast.storage.core.producer_state import Duplicate
from holdfast.storage.index import BLOCK_ENTRIES
from holdfast.storage.log import Log, OffsetOutOfRange
from tests.unit.storage.batches import batch, offsets, read_all

FOLDER = "/data/topic-0"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


async def new_log(
    config: LogConfig | None = None, runtime: Runtime | None = None, *, clean: bool = False
) -> tuple[Log, MemoryWorld]:
    made, world = memory_runtime()
    return await Log.open(runtime or made, FOLDER, config or LogConfig(), clean=clean), world


async def append(log: Log, count: int = 1, epoch: int = 0, **fields: int) -> None:
    data = batch(count, **fields)
    if log.needs_roll(len(data)):
        await log.roll()
    log.append_as_leader(data, epoch)


# --- lack of handles ---------------------------------------------------------------------------------


async def test_a_read_without_a_file_handle_is_refused_and_works_later() -> None:
    log, world = await new_log()
    await append(log, 3)
    world.disk.fail("read", ".log", errno.EMFILE)
    with pytest.raises(OutOfResources):
        log.read(0, 1000, 3)
    assert log.failure is None
    assert offsets(log) == [(0, 0)]


async def test_an_index_that_finds_no_handle_is_stored_later() -> None:
    log, world = await new_log(LogConfig(segment_bytes=1 << 20, index_interval_bytes=1))
    world.disk.fail("append", "index", errno.EMFILE, times=3)
    for _ in range(BLOCK_ENTRIES + 3):
        await append(log)
    await log.close(flush=True)
    again = await Log.open(log._runtime, FOLDER, LogConfig(), clean=True)
    assert again.log_end_offset == BLOCK_ENTRIES + 3
    assert again.recovery.scanned_bytes == 0


# --- append --------------------------------------------------------------------------------------------


async def test_the_leader_stamps_offset_and_epoch_and_nothing_else() -> None:
    log, _ = await new_log()
    data = batch(3, base_offset=77, leader_epoch=1)
    log.append_as_leader(batch(2), 4)
    appended = log.append_as_leader(memoryview(data), 5)
    assert appended[:4] == (2, 4, len(data), 3)
    (_, _), (header, stored) = iter_batches(read_all(log))
    assert (header.base_offset, header.leader_epoch) == (2, 5)
    assert bytes(stored)[16:] == data[16:]
    assert check_batch(stored).crc == check_batch(data).crc
    assert log.last_epoch == 5


async def test_a_batch_with_a_bad_crc_or_not_one_offset_a_record_is_refused() -> None:
    log, _ = await new_log()
    data = bytearray(batch(2))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_as_leader(data, 0)
    header = check_batch(batch(2))
    with pytest.raises(CorruptBatch):
        log.append_as_leader(batch(2), 0, header=header._replace(record_count=1))
    with pytest.raises(CorruptBatch):
        log.append_as_leader(batch(2) + batch(1), 0)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


async def test_a_follower_that_led_without_writing_takes_more_of_the_epoch_before() -> None:
    """R54, R81: its log is a prefix of the new leader's, whose epoch 3 is longer."""
    log, _ = await new_log()
    log.append_as_leader(batch(2), 3)
    log.start_epoch(4)
    log.append_as_follower(batch(2, base_offset=2, leader_epoch=3), leader_epoch=5)
    assert log.leader_epoch_cache.entries == ((3, 0),)
    assert log.end_offset_for_epoch(4) == EpochEnd(3, 4)


async def test_a_leader_never_appends_in_an_older_epoch() -> None:
    log, _ = await new_log()
    log.append_as_leader(batch(), 5)
    with pytest.raises(CorruptLog, match="epoch 5, later than the leader's 4"):
        log.append_as_leader(batch(), 4)


@pytest.mark.parametrize(
    ("records", "story"),
    [
        (batch(base_offset=3, leader_epoch=2), "expected 2"),
        (batch(base_offset=1, leader_epoch=2), "expected 2"),
        (batch(base_offset=2, leader_epoch=1), "epoch 1"),
        (batch(base_offset=2, leader_epoch=6), "epoch 6"),
        (batch(base_offset=2, leader_epoch=2) + batch(base_offset=4, leader_epoch=2), "expected 3"),
    ],
)
async def test_a_follower_takes_only_what_continues_its_log_up_to_the_epoch_of_its_fetch(
    records: bytes, story: str
) -> None:
    log, _ = await new_log()
    log.append_as_follower(batch(2, leader_epoch=2))
    with pytest.raises(InvalidAppend, match=story):
        log.append_as_follower(records, leader_epoch=5)
    assert log.log_end_offset == 2, "all or nothing (R84)"
    assert log.append_as_follower(batch(base_offset=2, leader_epoch=5), leader_epoch=5) is not None


async def test_a_follower_checks_the_crc_of_every_batch_before_it_takes_any() -> None:
    log, _ = await new_log()
    records = bytearray(batch() + batch(base_offset=1))
    records[-1] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_as_follower(records)
    assert log.size_bytes == 0


async def test_a_new_leader_notes_its_epoch_before_there_is_data() -> None:
    log, _ = await new_log()
    log.append_as_leader(batch(4), 1)
    log.start_epoch(3)
    assert log.end_offset_for_epoch(2) == EpochEnd(1, 4)
    assert log.end_offset_for_epoch(3) == EpochEnd(3, 4)
    assert log.last_epoch == 1, "the epoch of the last batch"
    await log.truncate_to(4)
    assert log.end_offset_for_epoch(3) == EpochEnd(1, 4), (
        "truncation takes it back, even when it cuts nothing"
    )


async def test_producers_are_remembered_across_a_clean_stop_and_a_kill() -> None:
    log, world = await new_log()
    retry = batch(2, producer_id=5, producer_epoch=0, base_sequence=0)
    await append(log)
    log.append_as_leader(retry, 0)
    await log.close(True)
    for clean in (True, False):
        runtime, _ = memory_runtime(disk=world.disk)
        log = await Log.open(runtime, FOLDER, LogConfig(), clean=clean)
        assert log.producer_state.check(check_batch(retry)) == Duplicate(1, 2, 1000)
        world.disk.process_kill()


# --- read ----------------------------------------------------------------------------------------------


async def test_reads_give_whole_batches_within_their_bounds() -> None:
    log, _ = await new_log()
    sizes = []
    for count in (2, 3, 1, 4):
        sizes.append(len(batch(count)))
        await append(log, count)
    ends = [0, 2, 5, 6, 10]
    everything = read_all(log)

    def part(first: int, last: int) -> bytes:
        return everything[sum(sizes[:first]) : sum(sizes[:last])]

    assert log.read(0, 1 << 20, 10) == everything
    assert log.read(3, 1 << 20, 10) == part(1, 4), "begins with the batch that holds the offset"
    assert log.read(0, 1 << 20, 5) == part(0, 2)
    assert log.read(0, 1 << 20, 4) == part(0, 1), "a batch is below the bound or not sent"
    assert log.read(2, sizes[1] + sizes[2] + 1, 10) == part(1, 3)
    assert log.read(2, 1, 10) == part(1, 2), "the first one whole"
    assert log.read(2, 1, 10, at_least_one=False) == b""
    assert log.read(2, 1, 4) == b"", "not even the first when it ends behind the bound"
    assert log.read(10, 100, 99) == b""
    for offset in (-1, 11):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, 10)
    assert ends[-1] == log.log_end_offset


async def test_every_offset_is_found_in_old_segments_after_a_restart_too() -> None:
    log, world = await new_log(SMALL)
    for number in range(40):
        await append(log, 1 + number % 3, size=number % 30)
    expected = offsets(log)
    await log.close(True)
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, SMALL, clean=True)
    assert len(log.segments) > 5
    assert offsets(log) == expected
    for offset in range(log.log_end_offset):
        base = max(found for found, _ in expected if found <= offset)
        (header, _), *_ = iter_batches(log.read(offset, 1, log.log_end_offset))
        assert header.base_offset == base


async def test_time_is_looked_up_by_the_first_batch_that_is_late_enough() -> None:
    log, _ = await new_log(SMALL)
    times = [1000, 1000, 3000, 2000, 2500, 3000, 9000, 9000, 9001]
    for timestamp_ms in times:
        await append(log, 2, timestamp_ms=timestamp_ms, size=60)
    for asked in (0, 1000, 1001, 2999, 3000, 3001, 9000, 9001, 9002):
        expected = next(((time, 2 * n) for n, time in enumerate(times) if time >= asked), None)
        header = await log.times.first_since(asked)
        assert (header and (header.max_timestamp, header.base_offset)) == expected
    assert await log.times.newest_ms() == 9001


# --- flush ---------------------------------------------------------------------------------------------


async def test_a_flush_covers_what_was_there_when_it_started() -> None:
    log, world = await new_log()
    await append(log, 3)
    world.disk.hold_flushes()
    flush = asyncio.ensure_future(log.flush())
    await settle()
    await append(log, 4)
    world.disk.release_flushes()
    assert await flush == 3
    assert log.flushed_offset == 3
    assert await log.flush() == 7


async def test_a_flush_that_comes_while_the_log_is_closed_finds_everything_durable() -> None:
    log, world = await new_log()
    await append(log, 3)
    world.disk.hold_flushes()
    close = asyncio.ensure_future(log.close(True))
    await settle()
    flush = asyncio.ensure_future(log.flush())
    await settle()
    world.disk.release_flushes()
    await close
    assert await flush == 3


async def test_concurrent_flushes_share_fsyncs() -> None:
    log, world = await new_log()
    await append(log)
    await log.flush()
    before = world.disk.flush_count
    flushes = []
    world.disk.hold_flushes()
    for _ in range(20):
        await append(log)
        flushes.append(asyncio.ensure_future(log.flush()))
        await asyncio.sleep(0)
    world.disk.release_flushes()
    for number, flush in enumerate(flushes):
        assert await flush >= number + 2
    assert world.disk.flush_count - before == 2


async def test_what_was_flushed_after_a_roll_survives_with_its_name() -> None:
    log, world = await new_log()
    await append(log)
    await log.flush()
    await log.roll()
    await append(log)
    assert await log.flush() == 2
    world.disk.power_loss()
    await settle()
    runtime, _ = memory_runtime(disk=world.disk)
    assert (await Log.open(runtime, FOLDER, SMALL, clean=False)).log_end_offset == 2


async def test_a_flush_stores_new_epochs_too() -> None:
    log, world = await new_log()
    await append(log, 3, epoch=1)
    await append(log, epoch=4)
    await log.flush()
    assert world.disk.durable_bytes(f"{FOLDER}/leader-epoch-checkpoint") == (
        b"0\n2\n1 0\n4 3\ncrc32c 647b19f1\n"
    )


async def test_a_full_segment_is_flushed_in_the_background_with_its_index_and_a_snapshot() -> None:
    log, world = await new_log(SMALL)
    while len(log.segments) < 2:
        await append(log, size=60)
    rolled_at = log.log_end_offset - 1
    await settle()
    assert log.flushed_offset >= rolled_at
    for suffix in (".log", ".index", ".timeindex"):
        assert world.disk.durable_bytes(f"{FOLDER}/{0:020}{suffix}")
    assert world.disk.durable_bytes(f"{FOLDER}/{rolled_at:020}.snapshot")


async def test_the_policy_says_when_to_flush() -> None:
    log, _ = await new_log(LogConfig(flush_messages=5))
    assert not log.append_as_leader(batch(4), 0).must_flush
    assert log.append_as_leader(batch(1), 0).must_flush
    await log.flush()
    assert not log.append_as_leader(batch(4), 0).must_flush
    log.config = LogConfig(flush_messages=1)
    assert log.append_as_leader(batch(1), 0).must_flush


async def test_a_flush_that_finds_its_records_cut_off_leaves_none_due() -> None:
    log, world = await new_log(LogConfig(flush_ms=100))
    log.append_as_leader(batch(3), 0)
    await log.truncate_to(0)
    await world.clock.advance(100)
    await log.flush()
    assert log.flush_policy.deadline_ms is None


# --- failures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["append", "flush"])
async def test_after_an_io_error_nothing_is_appended_or_counted_durable_any_more(operation: str) -> None:
    heard: list[DiskError] = []
    runtime, world = memory_runtime()
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False, on_failure=heard.append)
    await append(log)
    await log.flush()
    world.disk.fail(operation, ".log", errno.ENOSPC)

    async def append_and_flush() -> None:
        await append(log)
        await log.flush()

    with pytest.raises(DiskError):
        await append_and_flush()
    # The disk works again; the log must not.
    with pytest.raises(DiskError, match="No space"):
        await append(log)
    with pytest.raises(DiskError):
        await log.flush()
    assert log.flushed_offset == 1
    assert [error.errno for error in heard] == [errno.ENOSPC]
    with pytest.raises(DiskError):
        await log.close(True)


async def test_a_flush_that_ends_after_a_failure_does_not_count() -> None:
    log, world = await new_log()
    await append(log)
    world.disk.hold_flushes()
    flush = asyncio.ensure_future(log.flush())
    await settle()
    world.disk.fail("read", ".log")
    with pytest.raises(DiskError):
        log.read(0, 100, 1)
    world.disk.release_flushes()
    with pytest.raises(DiskError):
        await flush
    assert log.flushed_offset == 0


# --- roll and retention --------------------------------------------------------------------------------


async def test_a_log_rolls_by_size_and_by_age_but_never_while_empty() -> None:
    log, world = await new_log(LogConfig(segment_bytes=200, segment_ms=1000))
    assert not log.needs_roll(500)
    await append(log)
    assert log.needs_roll(200)
    assert not log.needs_roll(100)
    await world.clock.advance(999)
    assert not log.needs_roll(1)
    await world.clock.advance(1)
    assert log.needs_roll(1)
    await log.roll()
    await log.roll()
    assert len(log.segments) == 2
    assert not log.needs_roll(1)


async def test_a_log_rolls_when_its_index_is_full() -> None:
    log, _ = await new_log(LogConfig(index_interval_bytes=1, index_max_bytes=24))
    await append(log)
    await append(log)
    assert not log.needs_roll(1), "the first batch of a segment needs no entry"
    await append(log)
    assert log.needs_roll(1)


async def test_a_file_that_is_in_the_way_of_a_new_segment_ends_the_log_not_the_node() -> None:
    """An operator or a tool has put it there since the start: an error of the disk, which says what to do."""
    log, world = await new_log()
    await append(log)
    stranger = await world.disk.open(f"{FOLDER}/{1:020}.log", create=True)
    stranger.append([b"something"])
    with pytest.raises(DiskError, match="move the file away"):
        await log.roll()
    assert log.failure is not None
    assert log.failure.errno == errno.EEXIST


async def test_retention_by_time_deletes_old_segments_that_are_committed() -> None:
    log, world = await new_log(LogConfig(segment_bytes=100, retention_ms=1000))
    for timestamp_ms in (1000, 2000, 3000, 4000):
        await append(log, timestamp_ms=timestamp_ms)
    await log.flush()
    await settle()
    assert await log.delete_old_segments(3500, high_watermark=1) == 1
    assert log.log_start_offset == 1
    assert await log.delete_old_segments(4001, high_watermark=4) == 2
    assert offsets(log) == [(3, 0)]
    assert log.end_offset_for_epoch(0) == EpochEnd(0, 4)
    assert await log.delete_old_segments(9000, high_watermark=4) == 0, "the active one is rolled first"
    await settle()
    assert await log.delete_old_segments(9000, high_watermark=4) == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (4, 4, 1)
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)


async def test_a_log_whose_start_was_moved_loses_the_segments_below_it() -> None:
    log, world = await new_log(LogConfig(segment_bytes=200, retention_ms=None))
    for _ in range(6):
        await append(log)
    log.move_start(5)
    assert log.log_start_offset == 0, "only what is durable can be the beginning"
    await log.flush()
    await settle()
    log.move_start(5)
    log.move_start(3)
    assert log.log_start_offset == 5, "it never moves back"
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 1000, 6)
    assert offsets(log) == [(5, 0)]
    before = len(log.segments)
    deleted = await log.delete_old_segments(9000, high_watermark=6)
    assert (deleted, len(log.segments)) == (before - 1, 1)
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False, log_start_offset=5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)


async def test_a_quiet_log_that_is_never_flushed_by_its_policy_expires() -> None:
    """The default: no flush.messages, no flush.ms. The roll brings the flush."""
    log, _ = await new_log(LogConfig(retention_ms=1000))
    await append(log, timestamp_ms=1000)
    assert log.flushed_offset == 0
    assert await log.delete_old_segments(2000, high_watermark=1) == 0
    assert len(log.segments) == 1, "not old enough"
    assert await log.delete_old_segments(2001, high_watermark=1) == 0, "rolled, and its flush is on its way"
    await settle()
    assert await log.delete_old_segments(2001, high_watermark=1) == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (1, 1, 1)


async def test_a_quiet_log_rolls_by_age_and_only_once() -> None:
    log, world = await new_log(LogConfig(segment_ms=1000, retention_ms=None))
    await append(log)
    await world.clock.advance(999)
    await log.delete_old_segments(0, high_watermark=0)
    assert len(log.segments) == 1
    await world.clock.advance(1)
    for _ in range(2):
        await log.delete_old_segments(0, high_watermark=0)
        await settle()
    assert (len(log.segments), log.flushed_offset) == (2, 1)


async def test_a_log_that_holds_records_at_its_start_ages_from_there() -> None:
    log, world = await new_log(LogConfig(segment_ms=1000))
    await append(log)
    await log.close(flush=True)
    runtime, world = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(segment_ms=1000), clean=True)
    await world.clock.advance(1000)
    assert log.needs_roll(1)


async def test_deletions_that_come_back_in_any_order_after_a_crash_are_finished_at_the_next_start() -> None:
    """No sync between two of them: the oldest may come back without its neighbour, and that is no hole."""
    log, world = await new_log(LogConfig(segment_bytes=100, retention_ms=None, retention_bytes=150))
    for _ in range(6):
        await append(log)
    await log.flush()
    await settle()
    oldest = await world.disk.open(f"{FOLDER}/{0:020}.log", create=False)
    content = oldest.read_at(0, oldest.size)
    assert await log.delete_old_segments(1 << 50, high_watermark=6) == 4
    kept = read_all(log)
    again = await world.disk.open(f"{FOLDER}/{0:020}.log", create=True)
    again.append([content])
    await again.flush()
    runtime, _ = memory_runtime(disk=world.disk)
    for clean in (False, True):
        log = await Log.open(runtime, FOLDER, LogConfig(), clean=clean)
        assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (4, 6, kept)
        assert not await world.disk.exists(f"{FOLDER}/{0:020}.log")


async def test_folder_that_was_made_but_not_synced_by_a_start_before_is_durable() -> None:
    """Of the metadata log: a start that was killed between the two leaves a name that is only seen."""
    runtime, world = memory_runtime()
    await world.disk.make_folder("/metadata/log")
    log = await Log.open(runtime, "/metadata/log", LogConfig(), clean=False)
    log.append_as_leader(batch(2), 1)
    await log.flush()
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    assert (await Log.open(runtime, "/metadata/log", LogConfig(), clean=False)).log_end_offset == 2


async def test_producers_stay_known_when_a_log_is_cut_whose_beginning_was_deleted() -> None:
    """R94: else the retry of a batch that a deleted segment held would be written once more."""
    log, _ = await new_log(LogConfig(segment_bytes=100, retention_ms=None, retention_bytes=400))
    for producer_id, offset in ((1, 0), (2, 1), *((3, offset) for offset in range(2, 8))):
        await append(log, producer_id=producer_id, producer_epoch=0, base_sequence=offset)
    await log.flush()
    await settle()
    assert await log.delete_old_segments(1 << 50, high_watermark=8) > 1
    assert 2 <= log.log_start_offset < 5
    await log.truncate_to(5)
    known = {producer_id: [row[0] for row in rows] for producer_id, _, rows in log.producer_state.rows()}
    assert known == {1: [0], 2: [1], 3: [2, 3, 4]}


async def test_nothing_is_deleted_before_the_log_could_be_built_up_from_where_it_begins_then() -> None:
    """R94: the snapshot of a roll is written behind the flush; a crash before it would forget producers."""
    log, world = await new_log(LogConfig(segment_bytes=100, retention_ms=0))
    await append(log, producer_id=1, producer_epoch=0, base_sequence=0)
    await log.flush()
    world.disk.hold_flushes()
    await append(log, producer_id=2, producer_epoch=0, base_sequence=0)
    await settle()
    assert await log.delete_old_segments(1 << 50, high_watermark=1) == 0
    world.disk.release_flushes()
    await settle()
    assert await log.delete_old_segments(1 << 50, high_watermark=1) == 1
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False, log_start_offset=1)
    assert next(producer_id for producer_id, _, _ in log.producer_state.rows()) == 1


async def test_a_segment_takes_its_snapshot_with_it() -> None:
    log, world = await new_log(LogConfig(segment_bytes=100, retention_ms=None, retention_bytes=250))
    for _ in range(6):
        await append(log)
    await log.flush()
    await settle()

    async def snapshots() -> list[int]:
        names = await world.disk.listdir(FOLDER)
        return sorted(int(name[:20]) for name in names if name.endswith(".snapshot"))

    assert await snapshots() == [1, 2, 3, 4, 5], "one at the beginning of each, the first needs none"
    await log.delete_old_segments(1 << 50, high_watermark=6)
    assert await snapshots() == list(range(log.log_start_offset, 6))


async def test_retention_by_size_keeps_the_newest_segments() -> None:
    log, _ = await new_log(LogConfig(segment_bytes=100, retention_ms=None, retention_bytes=250))
    for _ in range(6):
        await append(log)
    await log.flush()
    await settle()
    size_bytes = log.size_bytes // 6
    await log.delete_old_segments(1 << 50, high_watermark=6)
    assert 250 <= log.size_bytes < 250 + size_bytes


async def test_what_is_not_flushed_is_not_deleted() -> None:
    log, world = await new_log(LogConfig(segment_bytes=100, retention_ms=0))
    world.disk.hold_flushes()
    for _ in range(3):
        await append(log)
    assert await log.delete_old_segments(1 << 50, high_watermark=3) == 0
    world.disk.release_flushes()


async def test_retention_waits_for_a_flush_that_uses_the_segment() -> None:
    log, world = await new_log(LogConfig(segment_bytes=100, index_interval_bytes=50, retention_ms=0))
    await append(log)
    await append(log)
    await log.flush()
    await settle()
    world.disk.hold_flushes()
    await log.roll()
    await settle()  # the index of the second segment is being flushed
    deletion = asyncio.ensure_future(log.delete_old_segments(1 << 50, high_watermark=2))
    await settle()
    assert (log.log_start_offset, len(log.segments)) == (0, 3)
    world.disk.release_flushes()
    assert await deletion == 1
    await settle()
    assert log.failure is None


# --- truncate ------------------------------------------------------------------------------------------


async def test_truncation_is_durable_before_anything_is_appended_behind_it() -> None:
    log, world = await new_log(SMALL)
    for _ in range(12):
        await append(log, 2, epoch=1, size=40)
    await log.flush()
    assert len(log.segments) > 3
    assert await log.truncate_to(5) == 4, "a batch across the border goes whole"
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, SMALL, clean=False)
    assert offsets(log) == [(0, 1), (2, 1)]


@pytest.mark.parametrize("offset", [3, 4])
async def test_checkpoints_kept_elsewhere_are_lowered_before_the_cut_and_flushed_offset_with_it(
    offset: int,
) -> None:
    """To where the log ends then: a recovery point within a batch that goes would be called damage later."""
    asked: list[tuple[int, int]] = []
    runtime, _ = memory_runtime()

    async def lower(offset: int) -> None:
        asked.append((offset, log.log_end_offset))

    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False, before_rewind=lower)
    await append(log, 3)
    await append(log, 3)
    await log.flush()
    await log.truncate_to(offset)
    assert asked == [(3, 6)]
    assert log.flushed_offset == 3


async def test_truncation_takes_producers_back_with_the_log() -> None:
    log, _ = await new_log(SMALL)
    for sequence in range(12):
        data = batch(producer_id=1, producer_epoch=0, base_sequence=sequence, size=40)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, 0)
    await settle()
    await log.truncate_to(7)
    header = check_batch(batch(producer_id=1, producer_epoch=0, base_sequence=7))
    assert log.producer_state.check(header) is None
    assert isinstance(log.producer_state.check(header._replace(base_sequence=6)), Duplicate)


async def test_a_snapshot_of_what_was_cut_off_is_never_used_again() -> None:
    log, world = await new_log()

    def send(producer_id: int, sequence: int) -> None:
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        log.append_as_leader(batch(**fields), 0)

    for sequence in range(4):
        send(1, sequence)
    await log.roll()
    await settle()  # the snapshot at offset 4 is written
    await log.truncate_to(1)
    for sequence in range(4):
        send(2, sequence)
    world.disk.process_kill()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False)
    kept = {producer_id: [row[0] for row in rows] for producer_id, _, rows in log.producer_state.rows()}
    assert kept == {1: [0], 2: [0, 1, 2, 3]}


async def test_a_cut_right_after_a_roll_leaves_no_snapshot_of_what_was_cut() -> None:
    """R94: the log grows over that offset again, and a start would believe the snapshot."""
    log, world = await new_log()
    for sequence in range(4):
        log.append_as_leader(batch(producer_id=1, producer_epoch=0, base_sequence=sequence), 0)
    await log.roll()
    await log.truncate_to(1)
    for sequence in range(5):
        log.append_as_leader(batch(producer_id=2, producer_epoch=0, base_sequence=sequence), 0)
    await settle()
    world.disk.process_kill()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False)
    kept = {producer_id: [row[0] for row in rows] for producer_id, _, rows in log.producer_state.rows()}
    assert kept == {1: [0], 2: [0, 1, 2, 3, 4]}


async def test_a_clean_stop_makes_a_cut_index_durable() -> None:
    log, world = await new_log(LogConfig(index_interval_bytes=50))
    for _ in range(8):
        await append(log)
    await log.flush()
    log._segments.active.index.store()
    await log.truncate_to(3)
    await log.close(True)
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=True)
    assert (log.recovery.scanned_bytes, log.log_end_offset) == (0, 3)


async def test_a_reset_log_begins_empty_somewhere_else() -> None:
    log, world = await new_log(SMALL)
    for _ in range(8):
        await append(log, size=60)
    await log.reset_to(1000)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (1000, 1000, 1000)
    assert log.last_epoch == -1
    assert log.end_offset_for_epoch(9) is None
    assert log.append_as_follower(batch(base_offset=1000, leader_epoch=3)) is not None
    await log.flush()
    world.disk.power_loss()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, SMALL, clean=False)
    assert (log.log_start_offset, offsets(log)) == (1000, [(1000, 3)])


async def test_a_reset_log_knows_no_producer_of_its_former_life() -> None:
    log, world = await new_log()
    log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, base_sequence=0), 0)
    await log.roll()
    await settle()  # the snapshot at offset 2 is written
    await log.reset_to(2)
    assert log.producer_state.producer_count == 0
    world.disk.process_kill()
    runtime, _ = memory_runtime(disk=world.disk)
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False)
    assert log.producer_state.producer_count == 0


async def test_appends_during_a_roll_are_our_own_bug() -> None:
    log, _ = await new_log()
    await append(log)
    roll = asyncio.ensure_future(log.roll())
    await asyncio.sleep(0)
    with pytest.raises(AssertionError, match="roll is under way"):
        log.append_as_leader(batch(), 0)
    await roll


async def test_a_log_that_is_closed_waits_also_for_a_flush_that_begins_as_the_last_one_ends() -> None:
    runtime, world = memory_runtime()
    log = await Log.open(runtime, "/data/topic-0", LogConfig(), clean=False, topic_id=b"t" * 16)
    log.append_as_leader(batch(), 0)
    await log.flush()
    log.append_as_leader(batch(), 0)
    world.disk.hold_flushes()

    async def flush_twice() -> None:
        await log.flush()
        await log.flush()

    flushing = asyncio.ensure_future(flush_twice())
    await settle()
    log.append_as_leader(batch(), 0)
    closing = asyncio.ensure_future(log.close(False))
    await settle()
    world.disk.release_flushes()
    await asyncio.gather(flushing, closing)
