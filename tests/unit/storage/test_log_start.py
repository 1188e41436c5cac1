"""A log that begins within a batch, because records were deleted (DeleteRecords)."""

from typing import Any

import pytest

from holdfast.runtime.api import DiskError, Runtime
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.continuation import BeginsWithinBatch, InvalidAppend
from holdfast.storage.log import Log, OffsetOutOfRange
from tests.unit.storage.batches import batch, offsets, read_all, stamped
from tests.unit.storage.crashing_disk import Crash, CrashingDisk

FOLDER = "/data/topic-0"
#: Two batches of ten records a segment.
CONFIG = LogConfig(segment_bytes=400, retention_ms=None)


async def open_log(disk: Any, start: int = 0, *, clean: bool = False) -> Log:
    runtime, _ = memory_runtime()
    on_disk = Runtime(runtime.clock, runtime.random, runtime.network, disk, runtime.tasks)
    return await Log.open(on_disk, FOLDER, CONFIG, clean=clean, log_start_offset=start)


async def make_log(disk: MemoryDisk, *epochs: int) -> Log:
    """A batch of ten records in each epoch."""
    log = await open_log(disk)
    for epoch in epochs:
        data = batch(10)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, epoch)
    await log.flush()
    await settle()
    return log


async def test_a_log_begins_within_a_batch_and_serves_that_whole() -> None:
    log = await make_log(MemoryDisk(), 0, 1, 1, 2)
    assert len(log.segments) > 1
    log.move_start(15)
    assert (log.log_start_offset, log.durable_start_offset) == (15, 0)
    log.start_stored(15)
    assert log.durable_start_offset == 15
    with pytest.raises(OffsetOutOfRange):
        log.read(14, 1 << 20, 40)
    assert offsets(log) == [(10, 1), (20, 1), (30, 2)]
    log.move_start(12)
    assert log.log_start_offset == 15


async def test_what_is_not_durable_is_no_beginning() -> None:
    log = await make_log(MemoryDisk(), 0)
    log.append_as_leader(batch(10), 0)
    log.move_start(15)
    assert log.log_start_offset == 0


@pytest.mark.parametrize("start", [5, 10, 15, 20, 25, 40])
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("clean", [False, True])
async def test_a_log_opens_where_it_was_told_to_begin(start: int, deletes: bool, clean: bool) -> None:
    """Whether segments below were deleted, after a clean stop and after a loss of power."""
    disk = MemoryDisk()
    log = await make_log(disk, 0, 1, 1, 2)
    log.move_start(start)
    if deletes:
        await log.delete_old_segments(0, high_watermark=40)
    before = log.log_start_offset, log.log_end_offset, read_all(log), log.last_epoch
    if clean:
        await log.close(flush=True)
    else:
        disk.power_loss()
    again = await open_log(disk, start, clean=clean)
    assert (again.log_start_offset, again.log_end_offset, read_all(again), again.last_epoch) == before
    assert again.durable_start_offset == start
    assert again.end_offset_for_epoch(2) == log.end_offset_for_epoch(2)


@pytest.mark.parametrize("cut", [15, 17, 12])
async def test_a_cut_within_the_first_batch_leaves_an_empty_log(cut: int) -> None:
    """It ends at its start, or where it was told to when that is lower; never below its start."""
    log = await make_log(MemoryDisk(), 0, 1, 1)
    log.move_start(15)
    await log.truncate_to(cut)
    end = min(cut, 15)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (end, end, b"")


async def test_a_cut_behind_the_first_batch_keeps_the_start() -> None:
    log = await make_log(MemoryDisk(), 0, 1, 1)
    log.move_start(15)
    await log.truncate_to(20)
    assert (log.log_start_offset, offsets(log)) == (15, [(10, 1)])


async def test_an_empty_log_says_when_it_is_to_begin_at_an_earlier_batch() -> None:
    """The leader's log begins within that batch, and it can only send it whole."""
    leader = await make_log(MemoryDisk(), 0, 1)
    log = await open_log(MemoryDisk())
    await log.reset_to(15)
    sent = leader.read(15, 1 << 20, 20)
    with pytest.raises(BeginsWithinBatch):
        log.append_as_follower(sent)
    with pytest.raises(InvalidAppend, match="expected 15"):
        log.append_as_follower(stamped([batch(5, base_offset=10, leader_epoch=1)]))
    await log.begin_within(sent, 1)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (15, 20, 20)
    assert (read_all(log), log.last_epoch, log.durable_start_offset) == (sent, 1, 10)
    with pytest.raises(InvalidAppend, match="expected 20"):
        log.append_as_follower(stamped([batch(10, base_offset=25, leader_epoch=1)]))


@pytest.mark.parametrize("how", Crash)
@pytest.mark.parametrize("stored_start", [10, 15])
async def test_a_crash_while_a_log_begins_within_a_batch_leaves_all_of_it_or_nothing(
    how: Crash, stored_start: int
) -> None:
    """Whether or not its start was stored again: what is stored is lowered before files change."""
    leader = await make_log(MemoryDisk(), 0, 1)
    sent = leader.read(15, 1 << 20, 20)
    found: set[tuple[int, int]] = set()
    step, was_done = 0, False
    while not was_done:
        crashing = CrashingDisk(MemoryDisk(), how=how)
        log = await open_log(crashing)
        await log.reset_to(15)
        crashing.crash_at = len(crashing.steps) + step
        step += 1
        try:
            await log.begin_within(sent, 1)
        except DiskError:
            assert crashing.is_dead
        was_done = not crashing.is_dead
        if was_done:
            crashing.crash()
        again = await open_log(crashing.inner, stored_start)
        found.add((again.log_start_offset, again.log_end_offset))
        assert read_all(again) in (b"", sent)
        assert again.last_epoch == (1 if read_all(again) else -1)
    assert step > 5
    assert found <= {(15, 15), (10, 10), (stored_start, 20)}
    assert (stored_start, 20) in found


async def test_segments_below_a_start_within_a_segment_are_deleted() -> None:
    log = await make_log(MemoryDisk(), *range(6))
    count = len(log.segments)
    log.move_start(35)
    assert await log.delete_old_segments(0, high_watermark=60) > 0
    assert len(log.segments) < count
    assert (log.log_start_offset, log.durable_start_offset <= 35) == (35, True)
    assert [entry.epoch for entry in log.leader_epoch_cache.entries] == [3, 4, 5]
