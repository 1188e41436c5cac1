"""Reading closed segments again: damage anywhere in them is found, whole ones never look damaged."""

from collections.abc import Callable

import pytest

from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch

FOLDER = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=50)
#: four batches of two records in a segment, three segments, the last one active
SIZE = len(batch(2, size=100))
COUNT = 12

Change = Callable[[bytes], bytes]


async def made(*, epochs: bool = False) -> tuple[MemoryDisk, Log]:
    disk = MemoryDisk()
    runtime, _ = memory_runtime(disk=disk)
    log = await Log.open(runtime, FOLDER, CONFIG, clean=False)
    for number in range(COUNT):
        data = batch(2, size=100)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, number // 3 if epochs else 0)
    await log.flush()
    await settle()
    return disk, log


async def scrubbed(log: Log, slice_bytes: int = 1 << 20) -> list[int]:
    """Ends of the segments that were read."""
    ends, offset = list[int](), 0
    while (scrub := log.scrub(offset)) is not None:
        while not scrub.is_over:
            await scrub.step(slice_bytes)
        offset = scrub.end_offset
        ends.append(offset)
    return ends


@pytest.mark.parametrize("slice_bytes", [1, 61, SIZE - 1, SIZE, SIZE + 1, 1 << 20])
async def test_closed_segments_are_read_whole_in_slices_of_any_size(slice_bytes: int) -> None:
    _, log = await made(epochs=True)
    assert await scrubbed(log, slice_bytes) == [8, 16]
    assert log.failure is None


async def test_nothing_is_read_of_a_segment_that_is_not_flushed() -> None:
    disk = MemoryDisk()
    runtime, _ = memory_runtime(disk=disk)
    log = await Log.open(runtime, FOLDER, CONFIG, clean=False)
    log.append_as_leader(batch(2), 0)
    disk.hold_flushes()
    await log.roll()
    assert log.scrub(0) is None
    disk.release_flushes()


def flip(at: int, bit: int = 0) -> Change:
    return lambda content: content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


DAMAGE: dict[str, Change] = {
    "payload": flip(SIZE + 80),
    "base offset": flip(SIZE + 7),
    "length": flip(SIZE + 11),
    "length, larger than any batch": flip(SIZE + 8, 6),
    "length, negative": flip(SIZE + 8, 7),
    "epoch": flip(SIZE + 15),
    "magic": flip(SIZE + 16),
    "the last byte": flip(4 * SIZE - 1),
    "two batches changed places": lambda content: (
        content[SIZE : 2 * SIZE] + content[:SIZE] + content[2 * SIZE :]
    ),
    "a batch is missing at the end": lambda content: content[: 3 * SIZE] + bytes(SIZE),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("slice_bytes", [1, SIZE + 1, 1 << 20])
async def test_damage_is_found_and_costs_the_log(damage: str, slice_bytes: int) -> None:
    disk, log = await made()
    disk.rot(f"{FOLDER}/{8:020}.log", DAMAGE[damage])
    with pytest.raises(CorruptLog) as raised:
        await scrubbed(log, slice_bytes)
    assert raised.value.path == f"{FOLDER}/{8:020}.log"
    assert log.failure is raised.value


Act = Callable[[Log], object]


async def truncate(log: Log) -> None:
    await log.truncate_to(3)


async def truncate_and_write_again(log: Log) -> None:
    await log.truncate_to(2)
    log.append_as_leader(batch(1, size=300), 1)
    log.append_as_leader(batch(1, size=900), 1)
    await log.roll()


async def delete(log: Log) -> None:
    log.config = LogConfig(segment_bytes=1200, index_interval_bytes=50, retention_bytes=0)
    assert await log.delete_old_segments(0, log.log_end_offset)


async def reset(log: Log) -> None:
    await log.reset_to(50)


async def close(log: Log) -> None:
    await log.close(True)


@pytest.mark.parametrize("act", [truncate, truncate_and_write_again, delete, reset, close])
@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_what_the_log_gives_up_meanwhile_is_not_judged(
    act: Callable[[Log], object], steps: int
) -> None:
    _, log = await made()
    scrub = log.scrub(0)
    assert scrub is not None
    for _ in range(steps):
        await scrub.step(SIZE)
    runtime, _ = memory_runtime()
    reading = runtime.tasks.start("read", _ignore(scrub.step(SIZE)))
    await act(log)  # type: ignore[misc]
    await reading.wait()
    assert scrub.is_over
    assert log.failure is None


async def _ignore(work: object) -> None:
    await work  # type: ignore[misc]
