"""Crashes at every step of what changes several files of a log, and at every step of the start after it.

What is left has no hole (A-22, R86), and knows itself: the leader epochs (I-18, R85) and the producers (R94)
of its batches, and no others. Names are changed from one end to the other and made durable by one sync; file
systems that write them earlier do so in the order of the changes.
"""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest

from holdfast.protocol.record_batch import iter_batches
from holdfast.runtime.api import DiskError, Runtime
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.cases import slow
from tests.unit.storage.batches import batch, read_all
from tests.unit.storage.crashing_disk import Crash, CrashingDisk

FOLDER = "/data/topic-0"
#: One batch a segment.
CONFIG = LogConfig(segment_bytes=100, index_interval_bytes=50, retention_ms=0)
COUNT = 6
#: where a log begins anew: far behind its end, or where it has a snapshot
ELSEWHERE, INSIDE = 100, 3


async def open_log(disk: Any, log_start_offset: int = 0) -> Log:
    runtime, _ = memory_runtime()
    on_disk = Runtime(runtime.clock, runtime.random, runtime.network, disk, runtime.tasks)
    return await Log.open(on_disk, FOLDER, CONFIG, clean=False, log_start_offset=log_start_offset)


def sent(number: int, leader_epoch: int = 0) -> bytes:
    """Each by a producer of its own: a log knows as many as it has batches."""
    return batch(
        base_offset=number, leader_epoch=leader_epoch, producer_id=number, producer_epoch=0, base_sequence=0
    )


async def flushed_log(disk: Any) -> tuple[Log, bytes]:
    log = await open_log(disk)
    for number in range(COUNT):
        if number:
            await log.roll()
        log.append_as_leader(sent(number), number)
    await log.flush()
    await settle()  # the snapshots are written
    return log, read_all(log)


async def nothing(log: Log) -> None:
    pass


async def forget_old(log: Log) -> None:
    assert await log.delete_old_segments(1 << 50, high_watermark=COUNT - 2) == COUNT - 2


async def forget_all(log: Log) -> None:
    """The first pass rolls; the next one deletes, when there is a snapshot to go on from."""
    for count in (COUNT - 1, 1):
        assert await log.delete_old_segments(1 << 50, high_watermark=COUNT) == count
        await settle()


async def cut(log: Log) -> None:
    assert await log.truncate_to(2) == 2


async def begin_elsewhere(log: Log) -> None:
    await log.reset_to(ELSEWHERE)


async def begin_inside(log: Log) -> None:
    await log.reset_to(INSIDE)


async def begin_at_the_end(log: Log) -> None:
    await log.reset_to(COUNT)


async def close(log: Log) -> None:
    log.append_as_leader(sent(COUNT), COUNT)
    await log.close(flush=True)


def ends_as_before(log: Log, whole: bytes) -> bool:
    """Only a first part is missing, nothing at the end."""
    return log.log_end_offset == COUNT and whole.endswith(read_all(log)) and log.log_start_offset < COUNT - 1


def knows_its_end(log: Log, whole: bytes) -> bool:
    """All may be missing: what is next is known, and what was last."""
    return log.log_end_offset == COUNT and whole.endswith(read_all(log)) and log.last_epoch == COUNT - 1


def begins_as_before(log: Log, whole: bytes) -> bool:
    """Only a last part is missing, and not more than was to be cut."""
    return log.log_start_offset == 0 and whole.startswith(read_all(log)) and log.log_end_offset >= 2


def is_prefix_or_new(log: Log, whole: bytes) -> bool:
    return log.log_start_offset in (0, INSIDE, ELSEWHERE) and whole.startswith(read_all(log))


def has_all(log: Log, whole: bytes) -> bool:
    return log.log_start_offset == 0 and read_all(log).startswith(whole)


def knows_itself(log: Log) -> bool:
    """Its epochs are those of its batches; its producers are, too, and those of what retention has deleted. A
    log that begins anew knows no producer, and has no epoch in which the next batch could fall behind."""
    headers = [header for header, _ in iter_batches(read_all(log))]
    epochs = [(header.leader_epoch, header.base_offset) for header in headers]
    is_new = log.last_epoch < 0 and log.log_start_offset > 0
    producers = 0 if is_new else log.log_end_offset
    if list(log.leader_epoch_cache.entries) != epochs or log.producer_state.producer_count != producers:
        return False
    # in the leader's log an older epoch may reach further
    return not is_new or log.append_as_follower(sent(log.log_end_offset, leader_epoch=1)) is not None


async def crash_in(
    work: Callable[[Log], Awaitable[None]], how: Crash, step: int, before: Callable[[Log], Awaitable[None]]
) -> tuple[CrashingDisk, bytes, bool]:
    """Crash at a step of the work on a flushed log, or right behind it: the disk, what was in the log, and
    whether the work was done. `before` is done to the log without a crash."""
    crashing = CrashingDisk(MemoryDisk(), how=how)
    log, whole = await flushed_log(crashing)
    await before(log)
    crashing.crash_at = len(crashing.steps) + step
    try:
        await work(log)
    except DiskError:
        assert crashing.is_dead
    was_done = not crashing.is_dead
    if was_done:
        crashing.crash()
    return crashing, whole, was_done


@pytest.mark.parametrize("how", [Crash.POWER, *slow(Crash.POWER_AFTER_NAMES, Crash.KILL)])
@pytest.mark.parametrize(
    ("work", "is_sound"),
    [
        (cut, begins_as_before),
        *slow(
            (forget_old, ends_as_before),
            (forget_all, knows_its_end),
            (begin_elsewhere, is_prefix_or_new),
            (begin_inside, is_prefix_or_new),
            (close, has_all),
        ),
    ],
)
async def test_a_log_is_sound_and_knows_itself_whenever_it_crashes_and_crashes_again(
    work: Callable[[Log], Awaitable[None]], is_sound: Callable[[Log, bytes], bool], how: Crash
) -> None:
    crashes, was_done = 0, False
    while not was_done:
        crashing, whole, was_done = await crash_in(work, how, crashes, nothing)
        crashes += 1
        again, was_opened = 0, False
        while not was_opened:
            starting = CrashingDisk(deepcopy(crashing.inner), again, how=how)
            try:
                await open_log(starting)
            except DiskError:
                assert starting.is_dead
            was_opened = not starting.is_dead
            if was_opened:
                starting.crash()
            again += 1
            log = await open_log(starting.inner)
            story = f"after {crashing.steps[-3:]}, then {starting.steps[-3:]}"
            assert is_sound(log, whole), story
            assert log.recovery.dropped_segments == 0 or work not in (forget_old, forget_all), story
            assert knows_itself(log), story
    assert crashes >= 7


@pytest.mark.parametrize("how", Crash)
async def test_a_crash_while_a_log_is_dropped_leaves_nothing_of_it_in_the_one_that_begins_anew(
    how: Crash,
) -> None:
    """R83, R94, I-18: the log may have gone another way than its leader's before it was dropped. Here a
    checkpoint of its start has been written before the crash."""
    crashes, begun, was_done = 0, 0, False
    while not was_done:
        crashing, whole, was_done = await crash_in(begin_inside, how, crashes, nothing)
        crashes += 1
        log = await open_log(crashing.inner, INSIDE)
        story = f"after {crashing.steps[-3:]}"
        assert log.log_start_offset == INSIDE, story
        if log.last_epoch >= 0:  # of the old one, which reaches as far
            assert read_all(log) in whole, story
            assert log.producer_state.producer_count == log.log_end_offset, story
        else:
            begun += 1
            assert log.log_end_offset == INSIDE, story
            assert knows_itself(log), story
    assert begun > 1


@pytest.mark.parametrize("how", Crash)
async def test_an_expired_log_that_begins_anew_forgets_what_it_had(how: Crash) -> None:
    """I-9: also where it begins anew at the very offset at which it ended. A crash leaves the old log, or
    none."""
    step, was_done = 0, False
    while not was_done:
        crashing, _, was_done = await crash_in(begin_at_the_end, how, step, before=forget_all)
        step += 1
        log = await open_log(crashing.inner, COUNT)
        assert (log.log_start_offset, log.log_end_offset) == (COUNT, COUNT)
        assert log.last_epoch == -1 or (not was_done and log.last_epoch == COUNT - 1)
        assert knows_itself(log)
    assert step >= 7
