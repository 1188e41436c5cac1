"""Compaction writes small neighbours as one segment: what readers, retention and every next start find."""

from collections.abc import Awaitable, Callable, Coroutine
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from holdfast.protocol.record_batch import Record, encode_batch, iter_batches, parse_header
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import settle
from holdfast.storage import recovery
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.files import INDEX_SUFFIX, LOG_SUFFIX, offset_path, parse_offset_name
from holdfast.storage.folders import make_durably
from holdfast.storage.log import Log
from holdfast.storage.recovery import EpochSpan, may_be_of_one_log
from tests.cases import slow
from tests.unit.storage.batches import read_all
from tests.unit.storage.cleaning import (
    CONFIG,
    FOLDER,
    append,
    check_reads,
    clean,
    clean_while,
    keyed,
    latest,
    open_log,
    records,
    updates,
)
from tests.unit.storage.crashing_disk import Crash, CrashingDisk

#: two or three batches each
SMALL = replace(CONFIG, segment_bytes=250)
#: all of them
LARGE = replace(CONFIG, segment_bytes=4000)
EPOCHS = 3


async def made(disk: Any, config: LogConfig = LARGE, *, batches: int = 12) -> Log:
    """A log of small segments, of which compaction may now make larger ones."""
    log = await open_log(disk, SMALL)
    for epoch in range(EPOCHS):
        count = batches // EPOCHS
        await append(log, updates(epoch * count, count), epoch)
    log.config = config
    return log


async def bases(disk: Any) -> list[int]:
    """Of the segments in the folder."""
    found = [parse_offset_name(name, LOG_SUFFIX) for name in await disk.listdir(FOLDER)]
    return sorted(base for base in found if base is not None)


def starts(log: Log) -> list[int]:
    return log._segments.base_offsets


@pytest.mark.parametrize("clean_stop", [True, False])
async def test_neighbours_become_one_and_the_next_start_finds_it(clean_stop: bool) -> None:
    disk = MemoryDisk()
    log = await made(disk)
    before, old = records(log), starts(log)
    epochs, producers = log.leader_epoch_cache.entries, log.producer_state.rows()
    await clean(log)
    assert len(old) > 4
    assert starts(log) == await bases(disk) == [0, old[-1]]
    assert latest(records(log)) == latest(before)
    check_reads(log)
    found, end = records(log), log.log_end_offset
    await log.close(flush=clean_stop)
    log = await open_log(disk, LARGE, clean=clean_stop, recovery_point=end, durable_offset=end)
    assert starts(log) == [0, old[-1]]
    assert records(log) == found
    assert (log.leader_epoch_cache.entries, log.recovery.reason) == (epochs, None)
    last = {row[0]: row[2][-1][:4] for row in producers}
    assert {row[0]: row[2][-1][:4] for row in log.producer_state.rows()} == last
    check_reads(log)


async def test_segments_grow_up_to_the_size_that_one_may_have() -> None:
    config = replace(CONFIG, segment_bytes=700)
    log = await made(MemoryDisk(), config, batches=60)
    for _ in range(3):
        log.cleaning.clean_offset = 0
        await clean(log)
    sizes = [segment.size for segment in log._segments][:-1]
    assert max(sizes) <= 700
    # what stands side by side is too much for one
    assert all(one + other > 700 for one, other in pairwise(sizes))
    check_reads(log)


async def test_segments_whose_records_all_stay_are_merged_and_may_still_be_cut() -> None:
    disk = MemoryDisk()
    log = await open_log(disk, SMALL)
    await append(log, [keyed([(f"k{n}", "v")]) for n in range(12)])
    data, old = read_all(log), starts(log)
    log.config = LARGE
    await clean(log)
    assert starts(log) == [0, old[-1]]
    assert read_all(log) == data
    assert await log.truncate_to(5) == 5
    disk.power_loss()
    assert [one.offset for one in records(await open_log(disk, LARGE))] == list(range(5))


async def test_what_is_dirty_still_is_not_merged_with_what_is_clean() -> None:
    log = await made(MemoryDisk())
    while (await clean(log, memory_bytes=700)).read_bytes and log.cleaning.clean_offset < starts(log)[-1]:
        dirt = log.cleaning.dirt(log.config, log.flushed_offset, 0)
        assert dirt.start_offset <= log.cleaning.clean_offset <= dirt.end_offset
        inside = log._segments.holder_of(log.cleaning.clean_offset)
        assert inside.base_offset == dirt.start_offset
    assert len(starts(log)) == 2


# --- what goes on meanwhile ----------------------------------------------------------------------------


async def delete_below(log: Log) -> None:
    log.move_start(7)
    assert await log.delete_old_segments(0, log.log_end_offset)


async def truncate(log: Log) -> None:
    await log.truncate_to(13)


async def reset(log: Log) -> None:
    await log.reset_to(100)


@pytest.mark.parametrize("act", [delete_below, truncate, reset])
@pytest.mark.parametrize(
    ("place", "step"), [*(("between slices", step) for step in range(1, 8, 2)), ("before a swap", 1)]
)
async def test_a_group_that_lost_a_segment_is_not_merged(
    act: Callable[[Log], Awaitable[None]], place: str, step: int
) -> None:
    disk = MemoryDisk()
    log = await made(disk)
    assert await clean_while(log, act, place, step)
    await settle()
    assert log.failure is None
    check_reads(log)
    assert starts(log) == await bases(disk)
    found, end = records(log), log.log_end_offset
    await log.flush()
    disk.power_loss()
    log = await open_log(disk, LARGE, log_start_offset=log.log_start_offset, durable_offset=end)
    assert records(log) == found


async def test_a_scrub_of_a_segment_that_is_merged_ends_and_the_next_one_reads_the_whole() -> None:
    log = await made(MemoryDisk())
    scrub = log.scrub(0)
    assert scrub is not None
    assert await scrub.step(100)
    await clean(log)
    assert scrub.is_over
    assert not await scrub.step(100)
    scrub = log.scrub(scrub.end_offset)
    assert scrub is not None
    while not scrub.is_over:
        await scrub.step(100)
    assert scrub.end_offset == starts(log)[-1]


@pytest.mark.parametrize("by", ["time", "size"])
async def test_retention_takes_a_merged_segment_when_all_of_it_is_over(by: str) -> None:
    disk = MemoryDisk()
    log = await made(disk)
    active_start = starts(log)[-1]
    newest_ms = max(segment.max_timestamp for segment in log._segments if segment.base_offset < active_start)
    await clean(log)
    limits: dict[str, Any] = {"retention_ms": 500} if by == "time" else {"retention_bytes": 0}
    log.config = replace(LARGE, retention_ms=None)
    assert await log.delete_old_segments(newest_ms + 501, log.log_end_offset) == 0
    log.config = replace(log.config, **limits)
    if by == "time":
        assert await log.delete_old_segments(newest_ms + 500, log.log_end_offset) == 0
    wall_ms = newest_ms + (501 if by == "time" else 0)
    assert await log.delete_old_segments(wall_ms, log.log_end_offset) == 1
    assert log.log_start_offset == active_start
    found, end = records(log), log.log_end_offset
    await settle()
    disk.power_loss()
    log = await open_log(disk, LARGE, log_start_offset=active_start, durable_offset=end)
    assert records(log) == [one for one in found if one.offset >= active_start]


# --- crashes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [Crash.POWER, *slow(Crash.POWER_AFTER_NAMES, Crash.KILL)])
@pytest.mark.parametrize("has_point", [True, *slow(False)])
async def test_a_crash_at_any_step_leaves_the_old_segments_or_the_new_one(
    how: Crash, has_point: bool
) -> None:
    """And a crash at any step of the start behind it."""
    crashes, was_done = 0, False
    seen = set[int]()
    while not was_done:
        crashing = CrashingDisk(MemoryDisk(), how=how)
        log = await made(crashing, batches=9)
        before, old, end = records(log), starts(log), log.log_end_offset
        epochs = log.leader_epoch_cache.entries
        crashing.crash_at = len(crashing.steps) + crashes
        try:
            await clean(log)
        except DiskError:
            assert crashing.is_dead
        was_done = not crashing.is_dead
        if was_done:
            crashing.crash()
        crashes += 1
        again, was_opened = 0, False
        while not was_opened:
            starting = CrashingDisk(deepcopy(crashing.inner), again, how=how)
            given: dict[str, Any] = {"recovery_point": end if has_point else 0, "durable_offset": end}
            try:
                await open_log(starting, LARGE, **given)
            except DiskError:
                assert starting.is_dead, "a crash is no damage"
            was_opened = not starting.is_dead
            if was_opened:
                starting.crash()
            again += 1
            opened = await open_log(starting.inner, LARGE, **given)
            story = f"after {crashing.steps[-3:]}, then {starting.steps[-3:]}"
            assert latest(records(opened)) == latest(before), story
            assert (opened.log_end_offset, opened.recovery.dropped_bytes) == (end, 0), story
            assert opened.leader_epoch_cache.entries == epochs, story
            if again == 1:
                check_reads(opened)
            assert await bases(starting.inner) == starts(opened), story
            assert starts(opened) in (old, [0, old[-1]]), story
            seen.add(len(starts(opened)))
    assert len(seen) == 2


async def test_the_others_go_when_the_new_one_has_its_name_durably() -> None:
    """Also on a file system that makes names durable in another order."""
    crashing = CrashingDisk(MemoryDisk())
    log = await made(crashing)
    first, *others, _ = starts(log)
    begun = len(crashing.steps)
    await clean(log)
    steps = crashing.steps[begun:]
    named = steps.index(f"rename {offset_path(FOLDER, first, LOG_SUFFIX)}.cleaned")
    gone = min(steps.index(f"unlink {offset_path(FOLDER, base, INDEX_SUFFIX)}") for base in others)
    assert f"sync_folder {FOLDER}" in steps[named:gone]
    assert steps[-1] == f"sync_folder {FOLDER}"


async def left_behind(disk: MemoryDisk, gone: int = 0) -> list[int]:
    """A stopped log, of whose merged segments all but the oldest `gone` are there still: these."""
    log = await made(disk)
    old = {
        name: disk.durable_bytes(f"{FOLDER}/{name}") or b""
        for name in await disk.listdir(FOLDER)
        if name.endswith(LOG_SUFFIX)
    }
    await clean(log)
    await log.close(flush=True)
    merged = [name for name in sorted(old) if not await disk.exists(f"{FOLDER}/{name}")]
    for name in merged[gone:]:
        file = await disk.open(f"{FOLDER}/{name}", create=True)
        file.append([old[name]])
        await file.flush()
        await file.close()
    await disk.sync_folder(FOLDER)
    return [int(name.removesuffix(LOG_SUFFIX)) for name in merged[gone:]]


@pytest.mark.parametrize("gone", range(3))
async def test_segments_within_a_merged_one_are_deleted_by_the_next_start(gone: int) -> None:
    disk = MemoryDisk()
    left = await left_behind(disk, gone)
    assert left
    log = await open_log(disk, LARGE, clean=True)
    assert not set(left) & set(await bases(disk))
    check_reads(log)


async def overlapping(
    end_offset: int, *, cut_bytes: int = 0, epoch: int = 1, outer_end: int = 10
) -> MemoryDisk:
    """A stopped log of offsets 0 to `outer_end`, with a segment of `epoch` from 5 to `end_offset`."""
    disk = MemoryDisk()
    files = {0: batches_between(0, outer_end), 5: batches_between(5, end_offset, epoch)}
    files[5] = files[5][: len(files[5]) - cut_bytes]
    await make_durably(disk, FOLDER)
    for base_offset, content in files.items():
        file = await disk.open(offset_path(FOLDER, base_offset, LOG_SUFFIX), create=True)
        file.append([content])
        await file.flush()
        await file.close()
    await disk.sync_folder(FOLDER)
    return disk


def batches_between(start: int, end: int, epoch: int = 1) -> bytes:
    """Of a record each, all of one epoch."""
    return b"".join(
        encode_batch([Record(offset, 1, b"k", b"v")], base_offset=offset, leader_epoch=epoch)
        for offset in range(start, end)
    )


@pytest.mark.parametrize("clean_stop", [True, False])
@pytest.mark.parametrize(("epoch", "is_damage"), [(0, True), (1, False), (2, True)])
async def test_a_segment_within_another_one_that_is_of_another_epoch_is_damage(
    epoch: int, is_damage: bool, clean_stop: bool
) -> None:
    """Compaction removes batches and keeps the epochs of the others, so it is none that was merged."""
    disk = await overlapping(8, epoch=epoch)
    if is_damage:
        with pytest.raises(CorruptLog, match="segment 5 should begin at 10"):
            await open_log(disk, LARGE, clean=clean_stop)
        assert await bases(disk) == [0, 5]
    else:
        log = await open_log(disk, LARGE, clean=clean_stop)
        assert (log.log_end_offset, await bases(disk)) == (10, [0])


def test_what_was_removed_of_a_segment_fits_between_what_is_left() -> None:
    left = [EpochSpan(1, 0, 5), EpochSpan(3, 9, 12)]
    assert may_be_of_one_log([EpochSpan(1, 3, 6), EpochSpan(2, 6, 9), EpochSpan(3, 9, 10)], left)
    assert not may_be_of_one_log([EpochSpan(2, 4, 6)], left)
    assert not may_be_of_one_log([EpochSpan(2, 6, 10)], left)
    assert not may_be_of_one_log([EpochSpan(4, 6, 9)], left)


@pytest.mark.parametrize("clean_stop", [True, False])
@pytest.mark.parametrize("flushed", [0, 10, 15])
async def test_a_segment_that_begins_within_another_one_and_goes_on_behind_it_is_damage(
    clean_stop: bool, flushed: int
) -> None:
    """No crash leaves that, so that nothing of it is cut, flushed or not."""
    disk = await overlapping(15)
    with pytest.raises(CorruptLog, match="segment 5 should begin at 10"):
        await open_log(disk, LARGE, clean=clean_stop, recovery_point=flushed)
    assert await bases(disk) == [0, 5]


@pytest.mark.parametrize(("flushed", "is_damage"), [(0, False), (8, False), (9, True), (10, True)])
async def test_the_torn_end_of_a_segment_within_another_one_was_flushed_or_is_of_no_account(
    flushed: int, is_damage: bool
) -> None:
    """It may have gone on; what was not flushed may have been torn by the crash that stopped the merge."""
    disk = await overlapping(9, cut_bytes=1)
    if is_damage:
        with pytest.raises(CorruptLog, match="segment 5 should begin at 10"):
            await open_log(disk, LARGE, clean=False, recovery_point=flushed)
        assert await bases(disk) == [0, 5]
    else:
        log = await open_log(disk, LARGE, clean=False, recovery_point=flushed)
        assert (log.log_end_offset, await bases(disk)) == (10, [0])


async def test_a_damaged_header_makes_no_merged_segment_of_its_own() -> None:
    """Its last batch says that it ends where a later segment begins; nothing is deleted."""
    disk = MemoryDisk()
    log = await made(disk)
    first, second, third, *_ = starts(log)
    headers = [header for header, _ in iter_batches(read_all(log)) if header.base_offset < second]
    await log.close(flush=True)
    position = sum(header.size_bytes for header in headers[:-1])
    delta = third - 1 - headers[-1].base_offset
    disk.rot(
        offset_path(FOLDER, first, LOG_SUFFIX),
        lambda content: content[: position + 23] + delta.to_bytes(4, "big") + content[position + 27 :],
    )
    changed = disk.durable_bytes(offset_path(FOLDER, first, LOG_SUFFIX)) or b""
    assert parse_header(changed, position).next_offset == third
    known = await bases(disk)
    with pytest.raises(CorruptLog, match="should begin at"):
        await open_log(disk, LARGE, clean=True)
    assert await bases(disk) == known


async def test_a_segment_that_ends_within_another_one_holds_none() -> None:
    disk = MemoryDisk()
    log = await made(disk)
    first, second, third, *_ = starts(log)
    within = next(one.next_offset for one, _ in iter_batches(read_all(log)) if one.base_offset == second)
    assert within < third
    data = b"".join(bytes(one) for header, one in iter_batches(read_all(log)) if header.base_offset < within)
    await log.close(flush=True)
    disk.rot(offset_path(FOLDER, first, LOG_SUFFIX), lambda content: data)
    known = await bases(disk)
    with pytest.raises(CorruptLog, match="should begin at"):
        await open_log(disk, LARGE, clean=True)
    assert await bases(disk) == known


async def test_a_group_is_not_merged_when_the_epochs_come_to_begin_within_it() -> None:
    log = await made(MemoryDisk())
    before = starts(log)

    async def in_turn(change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        log.leader_epoch_cache.truncate_from_start(before[1] + 1)
        await change()

    await clean(log, in_turn=in_turn)
    assert starts(log) == before


async def test_nothing_is_merged_into_a_segment_that_begins_below_the_epochs() -> None:
    """A start takes what lies below the epochs for what retention was deleting."""
    disk = MemoryDisk()
    log = await made(disk)
    old = starts(log)
    log.move_start(old[1] + 1)
    start, end = log.log_start_offset, log.log_end_offset
    await log.close(flush=True)
    log = await open_log(disk, LARGE, clean=True, log_start_offset=start)
    await clean(log)
    assert starts(log) == [*old[:3], old[-1]]
    check_reads(log)
    await log.close(flush=True)
    log = await open_log(disk, LARGE, clean=True, log_start_offset=start)
    assert (log.log_start_offset, log.log_end_offset) == (start, end)
    check_reads(log)


async def test_of_a_merged_segment_no_more_is_read_for_one_within_it_than_lies_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop in the midst of a deletion may leave many of them."""
    disk = await overlapping(8, outer_end=500)
    chunks = 0

    async def counted() -> None:
        nonlocal chunks
        chunks += 1

    monkeypatch.setattr(recovery, "SCAN_BYTES", 200)
    monkeypatch.setattr(recovery, "next_turn", counted)
    log = await open_log(disk, LARGE, clean=True)
    assert (log.log_end_offset, await bases(disk)) == (500, [0])
    assert 0 < chunks < 20
    await log.close(flush=True)
