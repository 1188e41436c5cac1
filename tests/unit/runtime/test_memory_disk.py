"""D10: a process kill keeps the page cache, a power loss keeps only what was flushed under a synced name."""

import asyncio
import errno

import pytest

from holdfast.runtime.api import DiskError, FileMissing
from holdfast.runtime.memory.disk import MemoryDisk, MemoryFile


@pytest.fixture
async def disk() -> MemoryDisk:
    disk = MemoryDisk()
    await disk.make_folder("/data")
    return disk


async def written(disk: MemoryDisk, path: str, data: bytes, *, sync_name: bool = True) -> MemoryFile:
    file = await disk.open(path, create=True)
    file.append([data])
    await file.flush()
    if sync_name:
        await disk.sync_folder("/data")
    return file


async def content(disk: MemoryDisk, path: str) -> bytes:
    return (await disk.open(path, create=False)).read_at(0, 1000)


async def test_power_loss_drops_bytes_that_were_not_flushed(disk: MemoryDisk) -> None:
    file = await written(disk, "/data/log", b"flushed")
    file.append([b"lost"])
    disk.power_loss()
    assert await content(disk, "/data/log") == b"flushed"


async def test_process_kill_keeps_bytes_that_were_not_flushed(disk: MemoryDisk) -> None:
    file = await disk.open("/data/log", create=True)
    file.append([b"cached"])
    disk.process_kill()
    assert await content(disk, "/data/log") == b"cached"


async def test_files_of_the_ended_process_are_dead_and_its_locks_free(disk: MemoryDisk) -> None:
    file = await written(disk, "/data/log", b"x")
    await disk.lock_folder("/data")
    disk.process_kill()
    with pytest.raises(DiskError, match="killed"):
        file.append([b"y"])
    await disk.lock_folder("/data")


async def test_name_is_lost_without_a_sync_of_its_folder(disk: MemoryDisk) -> None:
    await written(disk, "/data/log", b"flushed", sync_name=False)
    assert disk.durable_bytes("/data/log") is None
    disk.power_loss()
    with pytest.raises(FileMissing):
        await disk.open("/data/log", create=False)


async def test_new_folder_is_lost_without_a_sync_of_its_parent(disk: MemoryDisk) -> None:
    await disk.make_folder("/data/t-0")
    await written(disk, "/data/t-0/log", b"x", sync_name=False)
    await disk.sync_folder("/data/t-0")
    disk.power_loss()
    assert await disk.listdir("/data") == []


async def test_unlinked_file_comes_back_without_a_sync_of_its_folder(disk: MemoryDisk) -> None:
    await written(disk, "/data/marker", b"clean")
    await disk.unlink("/data/marker")
    disk.power_loss()
    assert await content(disk, "/data/marker") == b"clean"
    await disk.unlink("/data/marker")
    await disk.sync_folder("/data")
    disk.power_loss()
    assert await disk.listdir("/data") == []


async def test_rename_is_durable_with_the_sync_only_and_shows_what_was_flushed(disk: MemoryDisk) -> None:
    await written(disk, "/data/checkpoint", b"old")
    await written(disk, "/data/checkpoint.tmp", b"new")
    await disk.rename("/data/checkpoint.tmp", "/data/checkpoint")
    assert disk.durable_bytes("/data/checkpoint") == b"old"
    await disk.sync_folder("/data")
    disk.power_loss()
    assert await content(disk, "/data/checkpoint") == b"new"
    assert await disk.listdir("/data") == ["checkpoint"]


async def test_renamed_file_that_was_not_flushed_is_empty_after_power_loss(disk: MemoryDisk) -> None:
    (await disk.open("/data/a.tmp", create=True)).append([b"never flushed"])
    await disk.rename("/data/a.tmp", "/data/a")
    await disk.sync_folder("/data")
    disk.power_loss()
    assert await content(disk, "/data/a") == b""


async def test_flush_covers_only_what_was_there_when_it_started_a21(disk: MemoryDisk) -> None:
    file = await written(disk, "/data/log", b"")
    file.append([b"before"])
    disk.hold_flushes()
    flush = asyncio.create_task(file.flush())
    await asyncio.sleep(0)
    file.append([b"after"])
    assert disk.durable_bytes("/data/log") == b""
    disk.release_flushes()
    await flush
    assert disk.durable_bytes("/data/log") == b"before"
    await file.flush()
    assert disk.durable_bytes("/data/log") == b"beforeafter"


async def test_truncation_is_durable_with_the_next_flush_only(disk: MemoryDisk) -> None:
    file = await written(disk, "/data/log", b"0123456789")
    await file.truncate(4)
    assert disk.durable_bytes("/data/log") == b"0123456789"
    file.append([b"x"])
    await file.flush()
    disk.power_loss()
    assert await content(disk, "/data/log") == b"0123x"


async def test_power_loss_during_a_flush_fails_it_and_keeps_nothing_of_it(disk: MemoryDisk) -> None:
    file = await written(disk, "/data/log", b"old")
    file.append([b"new"])
    disk.hold_flushes()
    flush = asyncio.create_task(file.flush())
    await asyncio.sleep(0)
    disk.power_loss()
    with pytest.raises(DiskError):
        await flush
    assert await content(disk, "/data/log") == b"old"


async def test_bytes_of_a_flush_that_the_end_of_its_process_cut_short_are_flushed_by_the_next_one(
    disk: MemoryDisk,
) -> None:
    """The page cache outlives a process, and knows what was not written yet."""
    file = await disk.open("/data/log", create=True)
    await disk.sync_folder("/data")
    file.append([b"before"])
    disk.hold_flushes()
    flush = asyncio.ensure_future(file.flush())
    await asyncio.sleep(0)
    disk.process_kill()
    with pytest.raises(DiskError, match="killed"):
        await flush
    again = await disk.open("/data/log", create=False)
    again.append([b" after"])
    await again.flush()
    disk.power_loss()
    assert await content(disk, "/data/log") == b"before after"


async def test_failed_flush_loses_its_bytes_although_a_later_one_succeeds_a20(disk: MemoryDisk) -> None:
    file = await written(disk, "/data/log", b"good")
    file.append([b"bad"])
    disk.fail("flush", "/log", errno.EIO)
    with pytest.raises(DiskError) as raised:
        await file.flush()
    assert raised.value.errno == errno.EIO
    with pytest.raises(DiskError):
        file.append([b"more"])
    again = await disk.open("/data/log", create=False)
    again.append([b"later"])
    await again.flush()
    disk.power_loss()
    assert await content(disk, "/data/log") == b"good\0\0\0later"


async def test_planned_faults_hit_the_named_operation_and_path_as_often_as_asked(disk: MemoryDisk) -> None:
    disk.fail("rename", "a.tmp", errno.ENOSPC, times=2)
    await written(disk, "/data/a.tmp", b"")
    for _ in range(2):
        with pytest.raises(DiskError, match="rename /data/a.tmp"):
            await disk.rename("/data/a.tmp", "/data/a")
    await disk.rename("/data/a.tmp", "/data/a")
