"""The proof of a clean stop is never there when it is not true (R33-R36, B25, A-19, I-17)."""

import json

import pytest

from holdfast.protocol.id_text import encode_id
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime
from holdfast.storage import checkpoint, clean_shutdown
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch
from tests.unit.storage.crashing_disk import CrashingDisk
from tests.unit.storage.marks import directory_id, prove, take_all

DIRS = ("/a", "/b")
FILES = [f"{path}/.holdfast_cleanshutdown" for path in DIRS]


async def disk_with_dirs() -> MemoryDisk:
    disk = MemoryDisk()
    for path in DIRS:
        await disk.make_folder(path)
    return disk


async def test_the_epoch_that_all_dirs_agree_on_is_taken_once() -> None:
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 7)
    content = disk.durable_bytes(FILES[0])
    assert content is not None
    assert json.loads(content) == {
        "version": 0,
        "brokerEpoch": 7,
        "directoryId": encode_id(directory_id("/a")),
        "logs": {},
    }
    assert await take_all(disk, DIRS) == 7
    assert await take_all(disk, DIRS) == -1


async def test_dirs_that_disagree_prove_nothing() -> None:
    disk = await disk_with_dirs()
    await prove(disk, DIRS[:1], 7)
    assert await take_all(disk, DIRS) == -1
    await prove(disk, DIRS[:1], 7)
    await prove(disk, DIRS[1:], 8)
    assert await take_all(disk, DIRS) == -1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 30,
        "7",
        "{}",
        '{"version":1,"brokerEpoch":7}',
        '{"version":0,"brokerEpoch":"7"}',
        '{"version":0,"brokerEpoch":7}',
        '{"version":0,"brokerEpoch":7,"directoryId":"Li4uLi4uLi4uLi4uLi8vYg","logs":{"t-0":1}}',
        '{"version":0',
    ],
)
async def test_garbage_proves_nothing_and_is_removed(text: str) -> None:
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 7)
    await checkpoint.write_atomically(disk, FILES[1], text)
    assert await take_all(disk, DIRS) == -1
    assert disk.durable_bytes(FILES[0]) is None
    assert disk.durable_bytes(FILES[1]) is None


async def test_a_start_that_crashes_anywhere_in_take_never_leaves_a_proof_for_a_later_one() -> None:
    crash_at = 0
    while True:
        disk = await disk_with_dirs()
        await prove(disk, DIRS, 7)
        crashing = CrashingDisk(disk, crash_at)
        try:
            assert await take_all(crashing, DIRS) == 7
        except DiskError:
            assert crashing.is_dead
            # Nothing was appended yet, so either reading is true; the next start decides it for good.
            assert await take_all(disk, DIRS) in (7, -1)
            assert await take_all(disk, DIRS) == -1
        else:
            disk.power_loss()
            assert await take_all(disk, DIRS) == -1
            if not crashing.is_dead:
                break
        crash_at += 1
    assert crash_at > 4


async def test_take_syncs_a_dir_whose_file_an_earlier_start_had_only_unlinked() -> None:
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 7)
    for path in FILES:
        await disk.unlink(path)  # an earlier start got as far as this and was killed
    assert await take_all(disk, DIRS) == -1
    disk.power_loss()
    assert await take_all(disk, DIRS) == -1


# --- whose mark it is ----------------------------------------------------------------------------------


async def test_mark_that_was_copied_from_another_dir_proves_nothing() -> None:
    """B25: it does not name this dir."""
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 7)
    text = await checkpoint.read_text(disk, FILES[0])
    assert text is not None
    await checkpoint.write_atomically(disk, FILES[1], text)
    assert await take_all(disk, DIRS) == -1


async def test_mark_from_before_the_last_registration_proves_nothing() -> None:
    """R36: an old mark came back under a dir that was written to since."""
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 7)
    for path in DIRS:
        await clean_shutdown.note_registration(disk, path, 9)
    disk.power_loss()
    assert await take_all(disk, DIRS) == -1


async def test_the_last_registration_outlives_the_mark() -> None:
    """R36: a process that stops before it registers may pass its predecessor's epoch on."""
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 7)
    assert await take_all(disk, DIRS) == 7
    disk.power_loss()
    for path in DIRS:
        await clean_shutdown.write(disk, path, clean_shutdown.Mark(7, directory_id(path)))
    assert await take_all(disk, DIRS) == 7


# --- what it vouches for -------------------------------------------------------------------------------


async def opened(
    disk: MemoryDisk, folder: str = "/a/t-0", topic_id: bytes = b"t" * 16, log_start_offset: int = 0
) -> Log:
    runtime, _ = memory_runtime(disk=disk)
    config = LogConfig(segment_bytes=300)
    return await Log.open(
        runtime, folder, config, clean=True, topic_id=topic_id, log_start_offset=log_start_offset
    )


async def filled(disk: MemoryDisk, folder: str, *epochs: int) -> Log:
    log = await opened(disk, folder)
    for epoch in epochs:
        if log.needs_roll(100):
            await log.roll()
        log.append_as_leader(batch(2), epoch)
    return log


async def test_digest_is_the_same_after_a_clean_stop_and_start() -> None:
    disk = MemoryDisk()
    log = await filled(disk, "/a/t-0", 1, 1, 1, 1, 3, 3)
    log.start_epoch(4)  # an epoch without data is forgotten by a start
    await log.close(True)
    before = clean_shutdown.digest(log)
    assert clean_shutdown.digest(await opened(disk)) == before


async def test_digest_differs_by_length_epochs_start_and_topic() -> None:
    """N-1: with the same epochs and ends the content is the same; else it need not be."""
    disk = MemoryDisk()
    logs = [
        await filled(disk, "/a/same-0", 1, 1, 2),
        await filled(disk, "/a/shorter-0", 1, 1),
        await filled(disk, "/a/later-0", 1, 1, 3),
        await filled(disk, "/a/earlier-0", 1, 2, 2),
        await opened(disk, "/a/topic-0", b"u" * 16),
        await opened(disk, "/a/empty-0"),
    ]
    await (await filled(disk, "/a/started-0", 1, 1, 2)).close(True)
    started = await opened(disk, "/a/started-0", log_start_offset=2)
    found = [clean_shutdown.digest(log) for log in [*logs, started]]
    assert len(set(found)) == len(found)
    assert clean_shutdown.digest(await filled(disk, "/a/twin-0", 1, 1, 2)) == found[0]


# --- the last registration -----------------------------------------------------------------------------


async def test_the_registration_that_metadata_holds_is_read_back() -> None:
    """Also behind one that was not found there yet."""
    disk = await disk_with_dirs()
    assert await clean_shutdown.read_registration(disk, DIRS[0]) == clean_shutdown.NEVER_REGISTERED
    await clean_shutdown.note_registration(disk, DIRS[0], 3)
    assert await clean_shutdown.read_registration(disk, DIRS[0]) == clean_shutdown.NEVER_REGISTERED
    found = clean_shutdown.Registration(7, b"i" * 16)
    await clean_shutdown.note_registration(disk, DIRS[0], 9, found)
    disk.power_loss()
    assert await clean_shutdown.read_registration(disk, DIRS[0]) == found


async def test_what_an_older_version_noted_is_a_registration_without_incarnation() -> None:
    disk = await disk_with_dirs()
    path = f"{DIRS[0]}/{clean_shutdown.REGISTRATION_NAME}"
    await checkpoint.write_atomically(disk, path, '{"version":0,"brokerEpoch":7}')
    assert await clean_shutdown.read_registration(disk, DIRS[0]) == clean_shutdown.Registration(7)
    await checkpoint.write_atomically(disk, path, "{")
    assert await clean_shutdown.read_registration(disk, DIRS[0]) == clean_shutdown.NEVER_REGISTERED
