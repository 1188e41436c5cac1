"""What is kept of a damaged log: the prefix before the first invalid batch, made durable (A-22, R86)."""

import struct
from collections.abc import Callable

import pytest

from holdfast.protocol.record_batch import iter_batches
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch, offsets, read_all

FOLDER = "/data/topic-0"
ONE = LogConfig(index_interval_bytes=100)
MANY = LogConfig(segment_bytes=300, index_interval_bytes=100)
#: Batches of a log; 0-4 are kept when number 5 is damaged.
COUNT = 9


async def written(config: LogConfig) -> tuple[MemoryDisk, bytes]:
    """A flushed and cleanly closed log of COUNT batches of two records, epochs 3 to 7, and its bytes."""
    runtime, world = memory_runtime()
    log = await Log.open(runtime, FOLDER, config, clean=False)
    for number in range(COUNT):
        data = batch(2, size=20, timestamp_ms=1000 + number)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, 3 + number // 2)
    content = read_all(log)
    await log.close(True)
    return world.disk, content


async def reopen(disk: MemoryDisk, config: LogConfig, *, clean: bool = False, recovery_point: int = 0) -> Log:
    runtime, _ = memory_runtime(disk=disk)
    return await Log.open(runtime, FOLDER, config, clean=clean, recovery_point=recovery_point)


async def overwrite(disk: MemoryDisk, name: str, content: bytes) -> None:
    file = await disk.open(f"{FOLDER}/{name}", create=True)
    await file.truncate(0)
    file.append([content])
    await file.flush()
    await file.close()
    await disk.sync_folder(FOLDER)


async def content_of(disk: MemoryDisk, name: str) -> bytes:
    file = await disk.open(f"{FOLDER}/{name}", create=False)
    return file.read_at(0, file.size)


SIZE = len(batch(2, size=20))
START = 5 * SIZE


def zeros_in_the_body(content: bytes) -> bytes:
    return content[: START + 70] + bytes(SIZE - 70) + content[START + SIZE :]


def zeros_in_the_middle(content: bytes) -> bytes:
    return content[:START] + bytes(SIZE) + content[START + SIZE :]


def flipped_bit(content: bytes) -> bytes:
    return content[: START + SIZE - 1] + bytes([content[START + SIZE - 1] ^ 4]) + content[START + SIZE :]


def wrong_offset(content: bytes) -> bytes:
    return content[:START] + struct.pack(">q", 11) + content[START + 8 :]


def falling_epoch(content: bytes) -> bytes:
    return content[: START + 12] + struct.pack(">i", 2) + content[START + 16 :]


def older_magic(content: bytes) -> bytes:
    return content[: START + 16] + b"\1" + content[START + 17 :]


def huge_length(content: bytes) -> bytes:
    return content[: START + 8] + struct.pack(">i", (1 << 31) - 1) + content[START + 12 :]


def negative_length(content: bytes) -> bytes:
    return content[: START + 8] + struct.pack(">i", -5) + content[START + 12 :]


def a_lost_batch(content: bytes) -> bytes:
    return content[:START] + content[START + SIZE :]


def cut_in_the_header(content: bytes) -> bytes:
    return content[: START + 30]


def cut_in_the_body(content: bytes) -> bytes:
    return content[: START + SIZE - 1]


def zeros_at_the_tail(content: bytes) -> bytes:
    return content[:START] + bytes(2400)


DAMAGES = [
    zeros_in_the_body,
    zeros_in_the_middle,
    flipped_bit,
    wrong_offset,
    falling_epoch,
    older_magic,
    huge_length,
    negative_length,
    a_lost_batch,
    cut_in_the_header,
    cut_in_the_body,
    zeros_at_the_tail,
]


@pytest.mark.parametrize(("damage", "flushes"), [(bytes, 1), (zeros_in_the_body, 2)])
async def test_an_unclean_start_waits_for_the_disk_as_rarely_as_it_may(
    damage: Callable[[bytes], bytes], flushes: int
) -> None:
    """R86: once for the log before it is read, once more if it was cut; thousands of logs start at once."""
    disk, content = await written(ONE)
    await overwrite(disk, f"{0:020}.log", damage(content))
    epochs = await content_of(disk, "leader-epoch-checkpoint")
    before = disk.flush_count
    await reopen(disk, ONE)
    stored_again = epochs != await content_of(disk, "leader-epoch-checkpoint")
    assert disk.flush_count == before + flushes + stored_again


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_prefix_before_the_first_invalid_batch_is_kept(damage: Callable[[bytes], bytes]) -> None:
    disk, content = await written(ONE)
    damaged = damage(content)
    await overwrite(disk, f"{0:020}.log", damaged)
    log = await reopen(disk, ONE)
    assert read_all(log) == content[:START]
    assert log.log_end_offset == log.flushed_offset == 10
    assert log.recovery.reason is not None
    assert log.recovery.dropped_bytes == len(damaged) - START
    assert [entry.epoch for entry in log.leader_epoch_cache.entries] == [3, 4, 5]
    assert log.last_epoch == 5
    log.append_as_leader(batch(), 8)
    # The kept part and the cut are durable: a second crash changes nothing (R86).
    disk.power_loss()
    log = await reopen(disk, ONE)
    assert read_all(log) == content[:START]
    assert log.recovery.reason is None


async def test_zeros_behind_a_whole_log_are_no_loss() -> None:
    disk, content = await written(ONE)
    await overwrite(disk, f"{0:020}.log", content + bytes(548))
    assert read_all(await reopen(disk, ONE)) == content


async def test_segments_behind_the_bad_one_are_dropped() -> None:
    disk, content = await written(MANY)
    names = [name for name in await disk.listdir(FOLDER) if name.endswith(".log")]
    assert len(names) > 3
    await overwrite(disk, names[1], (await content_of(disk, names[1]))[:-1])
    log = await reopen(disk, MANY)
    kept = read_all(log)
    assert content.startswith(kept)
    assert len(log.segments) == 2
    assert log.recovery.dropped_segments == len(names) - 2
    disk.power_loss()
    assert read_all(await reopen(disk, MANY)) == kept


async def test_segments_behind_a_missing_one_are_dropped() -> None:
    disk, content = await written(MANY)
    names = [name for name in await disk.listdir(FOLDER) if name.endswith(".log")]
    await disk.unlink(f"{FOLDER}/{names[1]}")
    first = await content_of(disk, names[0])
    log = await reopen(disk, MANY)
    assert read_all(log) == first == content[: len(first)]


async def test_a_clean_start_scans_nothing() -> None:
    disk, content = await written(MANY)
    log = await reopen(disk, MANY, clean=True)
    assert log.recovery.scanned_bytes == 0
    assert read_all(log) == content


async def test_an_unclean_start_scans_from_the_segment_of_the_recovery_point_on() -> None:
    disk, content = await written(MANY)
    bases = [int(name[:20]) for name in await disk.listdir(FOLDER) if name.endswith(".log")]
    log = await reopen(disk, MANY, recovery_point=bases[-1] + 1)
    assert log.recovery.scanned_bytes == len(await content_of(disk, f"{bases[-1]:020}.log"))
    disk.process_kill()
    log = await reopen(disk, MANY, recovery_point=bases[-1])
    last_two = [len(await content_of(disk, f"{base:020}.log")) for base in bases[-2:]]
    assert log.recovery.scanned_bytes == sum(last_two)
    assert read_all(log) == content


async def test_a_segment_that_was_rolled_at_the_recovery_point_is_scanned() -> None:
    """The log was flushed up to its end, its index, of before a truncation, was not."""
    config = LogConfig(index_interval_bytes=0, retention_ms=None)
    disk = MemoryDisk()
    log = await reopen(disk, config)
    for size in (10, 60, 10, 10, 10):
        log.append_as_leader(batch(size=size), 0)
    await log.roll()
    await settle()
    await log.truncate_to(1)
    for size in (10, 60, 10, 10):
        log.append_as_leader(batch(size=size), 1)
    recovery_point = await log.flush()
    disk.hold_flushes()
    await log.roll()
    await settle()
    disk.power_loss()
    log = await reopen(disk, config, recovery_point=recovery_point)
    assert [header.base_offset for header, _ in iter_batches(log.read(2, 1, 5))] == [2]


async def test_a_log_that_ends_below_its_start_begins_anew_at_the_start() -> None:
    disk, _ = await written(ONE)
    runtime, _ = memory_runtime(disk=disk)
    log = await Log.open(runtime, FOLDER, ONE, clean=False, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    log.append_as_leader(batch(), 9)
    assert offsets(log) == [(500, 9)]


# --- indexes -------------------------------------------------------------------------------------------

INDEX_DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[:-3],
    "zeros": lambda content: bytes(len(content)),
    "zeros at the end": lambda content: content + bytes(24),
    "doubled": lambda content: content + content,
    "of a longer log": lambda content: content + struct.pack(">IIIIII", *([0x7FFFFFFF] * 6)),
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", list(INDEX_DAMAGES))
@pytest.mark.parametrize("clean", [True, False])
async def test_an_index_that_is_missing_or_not_sound_is_made_anew(
    suffix: str, damage: str, clean: bool
) -> None:
    disk, content = await written(ONE)
    name = f"{0:020}{suffix}"
    before = await content_of(disk, name)
    assert len(before) >= 3 * 8
    damaged = INDEX_DAMAGES[damage](before)
    if damaged is None:
        await disk.unlink(f"{FOLDER}/{name}")
    else:
        await overwrite(disk, name, damaged)
    log = await reopen(disk, ONE, clean=clean)
    assert read_all(log) == content
    await log.close(True)
    assert await content_of(disk, name) == before


async def test_a_sound_index_that_belongs_to_other_bytes_is_noticed_at_the_tail() -> None:
    disk, content = await written(ONE)
    shorter = content[:SIZE] + content[2 * SIZE :]
    await overwrite(disk, f"{0:020}.log", shorter)
    log = await reopen(disk, ONE)
    assert read_all(log) == content[:SIZE]


# --- epochs and leftovers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "garbage",
        "0\n0\n",
        "0\n1\n3 0\n",
        "0\n2\n3 0\n9 4\n",
        "0\n5\n3 0\n4 4\n5 8\n6 13\n7 16\n",
        "0\n2\n4 0\n3 4\n",
        "0\n6\n3 0\n4 4\n5 8\n6 12\n7 16\n9 18\n",
    ],
)
@pytest.mark.parametrize("clean", [True, False])
async def test_epochs_that_disagree_with_the_log_are_rebuilt(text: str | None, clean: bool) -> None:
    disk, _ = await written(MANY)
    if text is None:
        await disk.unlink(f"{FOLDER}/leader-epoch-checkpoint")
    else:
        await overwrite(disk, "leader-epoch-checkpoint", text.encode())
    log = await reopen(disk, MANY, clean=clean)
    assert log.leader_epoch_cache.entries == ((3, 0), (4, 4), (5, 8), (6, 12), (7, 16))
    assert await content_of(disk, "leader-epoch-checkpoint") == (
        b"0\n5\n3 0\n4 4\n5 8\n6 12\n7 16\ncrc32c 769701ad\n"
    )


async def test_leftovers_of_a_crash_are_no_obstacle() -> None:
    disk, content = await written(ONE)
    await overwrite(disk, "leader-epoch-checkpoint.tmp", b"half")
    await overwrite(disk, f"{99:020}.index", b"12345")
    await overwrite(disk, f"{99:020}.snapshot", b"{}")
    log = await reopen(disk, ONE)
    assert read_all(log) == content
    names = await disk.listdir(FOLDER)
    assert f"{99:020}.index" not in names
    assert f"{99:020}.snapshot" not in names, "a snapshot above the end must never be believed later"


async def test_bytes_of_a_failed_flush_are_not_believed_by_the_next_process() -> None:
    """A-20 across a restart: the page cache has them, the disk has zeros, no later flush would write them."""
    runtime, world = memory_runtime()
    log = await Log.open(runtime, FOLDER, ONE, clean=False)
    log.append_as_leader(batch(2), 1)
    await log.flush()
    log.append_as_leader(batch(2), 1)
    world.disk.fail("flush", ".log")
    with pytest.raises(DiskError):
        await log.flush()
    world.disk.process_kill()
    again = await reopen(world.disk, ONE)
    assert offsets(again) == [(0, 1)]
    again.append_as_leader(batch(2), 2)
    await again.flush()
    content = read_all(again)
    world.disk.power_loss()
    assert read_all(await reopen(world.disk, ONE)) == content


async def test_segments_that_are_whole_and_not_of_one_log_are_an_error_of_the_disk() -> None:
    """I-18: epochs never fall with the offset. A tool may have mixed files, that is no bug of this node."""
    runtime, world = memory_runtime()
    log = await Log.open(runtime, FOLDER, LogConfig(), clean=False)
    log.append_as_leader(batch(2), 5)
    await log.close(True)
    other = await Log.open(runtime, "/data/other-0", LogConfig(), clean=False, log_start_offset=2)
    other.append_as_leader(batch(1), 4)
    await other.close(True)
    for name in await world.disk.listdir("/data/other-0"):
        if name.startswith(f"{2:020}"):
            file = await world.disk.open(f"/data/other-0/{name}", create=False)
            await overwrite(world.disk, name, file.read_at(0, file.size))
    with pytest.raises(DiskError, match="epoch 4 at offset 2 falls behind 5"):
        await reopen(world.disk, LogConfig(), clean=True)
