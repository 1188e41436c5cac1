"""Snapshots as files: what is read of them, and what is left behind when work is given up (K15)."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.raft.snapshot_files import GivenUp, SnapshotFiles
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.runtime.real.machine import real_runtime

ID = SnapshotId(120, 7)
#: the largest that a request can ask for
FAR = (1 << 63) - 1


async def test_bytes_behind_the_end_of_a_real_file_are_none(tmp_path: Path) -> None:
    """pread refuses so large a position as if the disk had failed."""
    files = SnapshotFiles(real_runtime(), str(tmp_path))
    _, size_bytes = await files.write(ID, [1], {}, iter([b"value"]))
    for position in (size_bytes, size_bytes + 1, FAR):
        assert await files.read(ID, position, 100) == (size_bytes, b"")
    assert len((await files.read(ID, size_bytes - 3, 100))[1]) == 3
    await files.close()


# --- on a disk that the test plays ---------------------------------------------------------------------

FOLDER = "/metadata"


async def folder() -> MemoryDisk:
    disk = MemoryDisk()
    await disk.make_folder(FOLDER)
    return disk


async def test_a_snapshot_is_read_to_its_end_though_handles_are_short_for_a_while() -> None:
    disk = await folder()
    runtime, world = memory_runtime(disk=disk)
    files = SnapshotFiles(runtime, FOLDER)
    await files.write(ID, [1], {}, iter([b"value"]))
    disk.fail("read", ID.file_name, errno.EMFILE, times=3)
    check = asyncio.ensure_future(files.check(ID))
    while not check.done():
        await settle()
        await world.clock.advance(100)
    assert check.result()


async def test_a_download_that_begins_leaves_nothing_of_one_that_was_given_up() -> None:
    disk = await folder()
    files = SnapshotFiles(memory_runtime(disk=disk)[0], FOLDER)
    later = SnapshotId(240, 7)
    await files.save(ID, 0, b"abc")
    await files.save(later, 0, b"de")
    await files.save(later, 2, b"f")
    assert await disk.listdir(FOLDER) == [f"{later.file_name}.part"]
    await files.save(later, 0, b"x")
    await files.save(later, 1, b"y")
    assert await disk.listdir(FOLDER) == [f"{later.file_name}.part"]
    await files.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO], ids=["no handle", "failed"])
async def test_a_write_that_fails_leaves_no_file(number: int) -> None:
    disk = await folder()
    files = SnapshotFiles(memory_runtime(disk=disk)[0], FOLDER)
    disk.fail("append", ".tmp", number)
    with pytest.raises(DiskError):
        await files.write(ID, [1], {}, iter([b"value"]))
    assert await disk.listdir(FOLDER) == []
    await files.write(ID, [1], {}, iter([b"value"]))
    assert await disk.listdir(FOLDER) == [ID.file_name]


async def test_a_write_that_is_given_up_leaves_no_file() -> None:
    disk = await folder()
    files = SnapshotFiles(memory_runtime(disk=disk)[0], FOLDER)

    def values() -> Iterator[bytes]:
        yield b"value"
        raise GivenUp

    with pytest.raises(GivenUp):
        await files.write(ID, [1], {}, values())
    assert await disk.listdir(FOLDER) == []
