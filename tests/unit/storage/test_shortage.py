"""Running out of handles or memory at any operation of a change of files: the change is made all the same."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from holdfast.runtime.api import OutOfResources
from holdfast.runtime.core.shortage import is_shortage
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch, offsets

FOLDER = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=1, retention_ms=None)
#: tries of the operation that meet the shortage
TRIES = 3


class ShortDisk(MemoryDisk):
    """Its operation number `short_at` finds no handle, or no memory, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.short_at: int | None = None
        self.errno = errno.EMFILE
        #: operations counted, "append /data/x"
        self.steps: list[str] = []
        self._tries = 0

    def begin(self, short_at: int | None, number: int) -> None:
        self.short_at, self.errno, self.steps, self._tries = short_at, number, [], TRIES

    def check_fault(self, operation: str, path: str) -> None:
        if len(self.steps) == self.short_at and self._tries and is_shortage(operation, self.errno):
            self._tries -= 1
            raise OutOfResources(path, operation, self.errno, os.strerror(self.errno))
        self.steps.append(f"{operation} {path}")
        super().check_fault(operation, path)


async def _append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        data = batch(2, producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, log.log_end_offset // 8)


async def _roll(log: Log) -> None:
    await log.roll()


async def _truncate(log: Log) -> None:
    await log.truncate_to(5)


async def _truncate_active(log: Log) -> None:
    await log.truncate_to(log.log_end_offset - 2)


async def _reset(log: Log) -> None:
    await log.reset_to(40)


async def _delete(log: Log) -> None:
    log.config = replace(CONFIG, retention_bytes=500)
    assert await log.delete_old_segments(0, log.log_end_offset)


async def _flush(log: Log) -> None:
    await log.roll()
    await log.flush()


async def _close(log: Log) -> None:
    await log.close(flush=True)


CHANGES: dict[str, Callable[[Log], Awaitable[None]]] = {
    "roll": _roll,
    "truncate to an early segment": _truncate,
    "truncate the active segment": _truncate_active,
    "reset": _reset,
    "delete old segments": _delete,
    "roll and flush": _flush,
    "close": _close,
}


async def _changed(
    change: Callable[[Log], Awaitable[None]], short_at: int | None, number: int
) -> tuple[object, list[str]]:
    """What a start finds after the change was made with a shortage, and the operations of the change."""
    made, world = memory_runtime()
    disk = ShortDisk()
    runtime = replace(made, disk=disk)
    log = await Log.open(runtime, FOLDER, CONFIG, clean=False)
    await _append(log, 12)
    await log.flush()
    await settle()
    disk.begin(short_at, number)
    await _pass_time_until_done(world, change(log))
    await settle()
    steps = list(disk.steps)
    assert log.failure is None
    await _pass_time_until_done(world, log.close(flush=True))
    again = await Log.open(runtime, FOLDER, CONFIG, clean=True)
    producers = again.producer_state.rows()
    entries = again.leader_epoch_cache.entries
    found = (again.log_start_offset, again.log_end_offset, offsets(again), producers, entries)
    return (found, again.recovery.scanned_bytes), steps


async def _pass_time_until_done(world: MemoryWorld, work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    while not task.done():
        await settle()
        await world.clock.advance(100)
    await task


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM], ids=["no handle", "no memory"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_files_that_meets_a_shortage_at_any_operation_is_made_whole(
    change: str, number: int
) -> None:
    expected, steps = await _changed(CHANGES[change], None, number)
    assert steps
    differ = []
    for short_at, step in enumerate(steps):
        try:
            found, _ = await _changed(CHANGES[change], short_at, number)
        except (AssertionError, OutOfResources) as error:
            differ.append((step, repr(error)))
            continue
        if found != expected:
            differ.append((step, repr(found)))
    assert differ == []
