"""The proof of a clean stop is never there when it is not true (R33-R35, A-19, I-17)."""

import pytest

from runtime.api import DiskError
from runtime.memory_disk import MemoryDisk
from storage import checkpoint, clean_shutdown
from tests.unit.storage.crashing_disk import CrashingDisk

DIRS = ("/a", "/b")
FILES = [f"{path}/.holdfast_cleanshutdown" for path in DIRS]


async def disk_with_dirs() -> MemoryDisk:
    disk = MemoryDisk()
    for path in DIRS:
        await disk.make_folder(path)
    return disk


async def test_the_epoch_that_all_dirs_agree_on_is_taken_once() -> None:
    disk = await disk_with_dirs()
    await clean_shutdown.write(disk, DIRS, 7)
    assert disk.durable_bytes(FILES[0]) == b'{"version":0,"brokerEpoch":7}'
    assert await clean_shutdown.take(disk, DIRS) == 7
    assert await clean_shutdown.take(disk, DIRS) == -1


async def test_dirs_that_disagree_prove_nothing() -> None:
    disk = await disk_with_dirs()
    await clean_shutdown.write(disk, DIRS[:1], 7)
    assert await clean_shutdown.take(disk, DIRS) == -1
    await clean_shutdown.write(disk, DIRS[:1], 7)
    await clean_shutdown.write(disk, DIRS[1:], 8)
    assert await clean_shutdown.take(disk, DIRS) == -1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 30,
        "7",
        "{}",
        '{"version":1,"brokerEpoch":7}',
        '{"version":0,"brokerEpoch":"7"}',
        '{"version":0',
    ],
)
async def test_garbage_proves_nothing_and_is_removed(text: str) -> None:
    disk = await disk_with_dirs()
    await clean_shutdown.write(disk, DIRS, 7)
    await checkpoint.write_atomically(disk, FILES[1], text)
    assert await clean_shutdown.take(disk, DIRS) == -1
    assert disk.durable_bytes(FILES[0]) is None
    assert disk.durable_bytes(FILES[1]) is None


async def test_a_start_that_crashes_anywhere_in_take_never_leaves_a_proof_for_a_later_one() -> None:
    crash_at = 0
    while True:
        disk = await disk_with_dirs()
        await clean_shutdown.write(disk, DIRS, 7)
        crashing = CrashingDisk(disk, crash_at)
        try:
            assert await clean_shutdown.take(crashing, DIRS) == 7
        except DiskError:
            assert crashing.is_dead
            # Nothing was appended yet, so either reading is true; the next start decides it for good.
            assert await clean_shutdown.take(disk, DIRS) in (7, -1)
            assert await clean_shutdown.take(disk, DIRS) == -1
        else:
            disk.power_loss()
            assert await clean_shutdown.take(disk, DIRS) == -1
            if not crashing.is_dead:
                break
        crash_at += 1
    assert crash_at > 4


async def test_take_syncs_a_dir_whose_file_an_earlier_start_had_only_unlinked() -> None:
    disk = await disk_with_dirs()
    await clean_shutdown.write(disk, DIRS, 7)
    for path in FILES:
        await disk.unlink(path)  # an earlier start got as far as this and was killed
    assert await clean_shutdown.take(disk, DIRS) == -1
    disk.power_loss()
    assert await clean_shutdown.take(disk, DIRS) == -1
