"""Power losses at every step of what drops segments: what comes back is a log without holes (A-22, R86).

Names are changed from one end to the other and made durable by one sync. File systems that write them earlier
do so in the order of the changes, so a crash leaves all changes up to some step: here each step, with the
names as they were synced and with all changes kept.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runtime.api import DiskError, Runtime
from runtime.memory import memory_runtime, settle
from runtime.memory_disk import MemoryDisk
from storage.config import LogConfig
from storage.log import Log
from tests.unit.storage.batches import batch, read_all
from tests.unit.storage.crashing_disk import CrashingDisk

FOLDER = "/data/topic-0"
#: One batch a segment.
CONFIG = LogConfig(segment_bytes=100, index_interval_bytes=50, retention_ms=0)
COUNT = 6


async def open_log(disk: Any, log_start_offset: int = 0) -> Log:
    runtime, _ = memory_runtime()
    on_disk = Runtime(runtime.clock, runtime.random, runtime.network, disk, runtime.tasks)
    return await Log.open(on_disk, FOLDER, CONFIG, clean=False, log_start_offset=log_start_offset)


async def flushed_log(disk: Any) -> tuple[Log, bytes]:
    log = await open_log(disk)
    for number in range(COUNT):
        if number:
            await log.roll()
        # each by a producer of its own: the log knows as many as it has batches
        log.append_as_leader(batch(producer_id=number, producer_epoch=0, base_sequence=0), number)
    await log.flush()
    await settle()  # the snapshots are written
    return log, read_all(log)


async def forget_old(log: Log) -> None:
    assert await log.delete_old_segments(1 << 50, high_watermark=COUNT - 2) == COUNT - 2


async def cut(log: Log) -> None:
    assert await log.truncate_to(2) == 2


async def drop_all(log: Log) -> None:
    await log.reset_to(100)


def ends_as_before(log: Log, whole: bytes) -> bool:
    """Only a first part is missing, nothing at the end."""
    return log.log_end_offset == COUNT and whole.endswith(read_all(log)) and log.log_start_offset < COUNT - 1


def begins_as_before(log: Log, whole: bytes) -> bool:
    """Only a last part is missing, and not more than was to be cut."""
    return log.log_start_offset == 0 and whole.startswith(read_all(log)) and log.log_end_offset >= 2


def is_prefix_or_new(log: Log, whole: bytes) -> bool:
    return log.log_start_offset in (0, 100) and whole.startswith(read_all(log))


@pytest.mark.parametrize("keeps_names", [False, True])
@pytest.mark.parametrize(
    ("work", "is_sound"),
    [(forget_old, ends_as_before), (cut, begins_as_before), (drop_all, is_prefix_or_new)],
)
async def test_segments_that_come_back_after_a_crash_leave_no_hole(
    work: Callable[[Log], Awaitable[None]], is_sound: Callable[[Log, bytes], bool], keeps_names: bool
) -> None:
    crashes = 0
    while True:
        disk = MemoryDisk()
        crashing = CrashingDisk(disk, keeps_names=keeps_names)
        log, whole = await flushed_log(crashing)
        crashing.crash_at = len(crashing.steps) + crashes
        try:
            await work(log)
        except DiskError:
            assert crashing.is_dead
        else:
            disk.power_loss()
        log = await open_log(disk)
        assert is_sound(log, whole), f"after {crashing.steps[-3:]}"
        assert log.recovery.dropped_segments == 0 or work is not forget_old
        if not crashing.is_dead:
            break
        crashes += 1
    assert crashes >= 3 * 4


@pytest.mark.parametrize("keeps_names", [False, True])
@pytest.mark.parametrize("known_start", [0, 3], ids=["before the checkpoint", "after the checkpoint"])
async def test_a_crash_while_a_log_is_dropped_leaves_nothing_of_it_in_the_one_that_begins_anew(
    known_start: int, keeps_names: bool
) -> None:
    """R83, R94, I-18: the log may have gone another way than its leader's before it was dropped. Seed 10578
    of the simulator: a snapshot at the offset where the new one begins told it of the old one's producers."""
    begun = 0
    crash_at = 0
    while True:
        disk = MemoryDisk()
        crashing = CrashingDisk(disk, keeps_names=keeps_names)
        log, whole = await flushed_log(crashing)
        crashing.crash_at = len(crashing.steps) + crash_at
        try:
            await log.reset_to(3)
        except DiskError:
            assert crashing.is_dead
        else:
            disk.power_loss()
        log = await open_log(disk, known_start)
        story = f"after {crashing.steps[-3:]}"
        if log.last_epoch >= 0 or log.log_end_offset == 0:  # of the old one
            assert whole[log.log_start_offset * len(batch()) :].startswith(read_all(log)), story
            assert log.producer_state.producer_count == log.log_end_offset, story
        else:
            begun += 1
            assert (log.log_start_offset, log.log_end_offset) == (3, 3), story
            assert log.producer_state.producer_count == 0, story
            assert log.leader_epoch_cache.entries == (), story
            # in the leader's log an older epoch reaches further
            assert log.append_as_follower(batch(base_offset=3, leader_epoch=1)) is not None, story
        if not crashing.is_dead:
            break
        crash_at += 1
    assert begun > 1
