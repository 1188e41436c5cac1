"""Folders that a first start makes are there after the power was lost (A-21)."""

import errno

import pytest

from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime
from holdfast.storage.checkpoint import write_atomically
from holdfast.storage.core.config import LogConfig
from holdfast.storage.folders import make_durably
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from tests.unit.storage.batches import batch

DEEP = "/mount/holdfast/node/data"


async def test_all_folders_above_are_durable() -> None:
    disk = MemoryDisk()
    await make_durably(disk, DEEP)
    disk.power_loss()
    assert await disk.exists(DEEP)


async def test_what_a_stopped_start_made_is_made_durable_by_the_next_one() -> None:
    disk = MemoryDisk()
    await disk.make_folder(DEEP)
    await make_durably(disk, DEEP)
    disk.power_loss()
    assert await disk.exists(DEEP)


async def test_folders_that_are_not_ours_need_no_sync() -> None:
    disk = MemoryDisk()
    await disk.make_folder("/mount")
    disk.fail("sync_folder", "/", errno.EACCES)
    await make_durably(disk, DEEP)
    disk.power_loss()
    assert await disk.exists(DEEP)
    disk.fail("sync_folder", "/mount", errno.EIO)
    with pytest.raises(DiskError):
        await make_durably(disk, "/mount/other")


async def test_flushed_records_survive_the_first_start() -> None:
    runtime, world = memory_runtime()
    log = await Log.open(runtime, DEEP, LogConfig(), clean=False)
    log.append_as_leader(batch(2), 0)
    await log.flush()
    world.disk.power_loss()
    log = await Log.open(runtime, DEEP, LogConfig(), clean=False)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("is_second_try", [False, True])
async def test_log_dir_keeps_what_was_stored_in_it(is_second_try: bool) -> None:
    runtime, world = memory_runtime()
    if is_second_try:
        await world.disk.make_folder(DEEP)
    log_dir = await LogDir.open(runtime, DEEP, "cluster", 1)
    await write_atomically(runtime.disk, log_dir.file("kept"), "text")
    world.disk.power_loss()
    assert await runtime.disk.exists(log_dir.file("kept"))
    again = await LogDir.open(runtime, DEEP, "cluster", 1)
    assert again.directory_id == log_dir.directory_id
