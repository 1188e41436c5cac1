"""Compaction of a log: what readers, followers and the next start find, and what it leaves alone."""

import errno
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from holdfast.protocol.record_batch import BatchHeader, iter_batches, parse_header, with_header
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import settle
from holdfast.storage import checkpoint, log_cleaning
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.core.files import (
    CLEANED_SUFFIX,
    CLEANER_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    parse_offset_name,
)
from holdfast.storage.log import Log
from holdfast.storage.log_cleaning import Uncleanable
from tests.cases import slow
from tests.unit.storage.batches import read_all
from tests.unit.storage.cleaning import (
    CONFIG,
    FOLDER,
    append,
    at_once,
    check_reads,
    clean,
    clean_while,
    keyed,
    latest,
    made,
    open_log,
    records,
    updates,
)
from tests.unit.storage.crashing_disk import Crash, CrashingDisk

EPOCHS = 4


async def test_readers_find_the_last_record_of_each_key_and_go_on_over_what_was_removed() -> None:
    _, log = await made(epochs=EPOCHS)
    before, size_bytes = records(log), log.size_bytes
    active_start = log._segments.active.base_offset
    counts = await clean(log)
    after = records(log)
    assert latest(after) == latest(before)
    assert [one for one in after if one.offset >= active_start] == [
        one for one in before if one.offset >= active_start
    ]
    closed = [one for one in after if one.offset < active_start]
    assert closed == sorted(latest([one for one in before if one.offset < active_start]).values())
    assert log.size_bytes < size_bytes * 2 // 3
    assert counts.removed_records == len(before) - len(after)
    check_reads(log)


@pytest.mark.parametrize("clean_stop", [True, False])
async def test_the_next_start_finds_the_cleaned_log_its_epochs_and_its_producers(clean_stop: bool) -> None:
    disk, log = await made(epochs=EPOCHS)
    epochs, producers = log.leader_epoch_cache.entries, log.producer_state.rows()
    await clean(log)
    found, end_offset = records(log), log.log_end_offset
    assert (log.leader_epoch_cache.entries, log.producer_state.rows()) == (epochs, producers)
    await log.close(flush=clean_stop)
    for name in await disk.listdir(FOLDER):
        if name.endswith(".snapshot"):  # the headers that are left tell the same
            await disk.unlink(f"{FOLDER}/{name}")
    log = await open_log(disk, clean=clean_stop, recovery_point=end_offset, durable_offset=end_offset)
    assert log.recovery.reason is None
    assert records(log) == found
    assert log.leader_epoch_cache.entries == epochs
    known = {row[0]: row[2] for row in log.producer_state.rows()}
    assert {producer: rows[-1][:4] for producer, rows in known.items()} == {
        row[0]: row[2][-1][:4] for row in producers
    }
    check_reads(log)


async def test_cleaning_again_changes_nothing_and_goes_on_with_what_is_new() -> None:
    _, log = await made()
    await clean(log)
    data = read_all(log)
    assert (await clean(log)).removed_records == 0
    assert read_all(log) == data
    await append(log, updates(24, 24))
    before = latest(records(log))
    await clean(log)
    assert latest(records(log)) == before
    check_reads(log)


async def test_nothing_above_the_high_watermark_is_removed() -> None:
    _, log = await made()
    before = records(log)
    await clean(log, kept_offset=20)
    border = max(base for base in log._segments.base_offsets if base <= 20)
    assert latest([one for one in records(log) if one.offset < border]) == latest(
        [one for one in before if one.offset < border]
    )
    assert [one for one in records(log) if one.offset >= border] == [
        one for one in before if one.offset >= border
    ]


async def test_a_small_map_takes_several_runs_to_the_same_end() -> None:
    _, log = await made()
    _, other = await made()
    await clean(other)
    offsets = [0]
    while (await clean(log, memory_bytes=500)).read_bytes and log.cleaning.clean_offset > offsets[-1]:
        offsets.append(log.cleaning.clean_offset)
    assert len(offsets) > 3
    assert records(log) == records(other)


async def test_a_tombstone_goes_once_its_time_is_over() -> None:
    _, log = await made()
    await append(log, [keyed([("k0", None)])])
    await log.roll()
    await log.flush()
    await settle()
    await clean(log, wall_ms=1_000_000)
    assert latest(records(log))[b"k0"].value is None
    over_ms = 1_000_000 + CONFIG.delete_retention_ms
    log.cleaning.clean_offset = 0
    await clean(log, wall_ms=over_ms - 1)
    assert b"k0" in latest(records(log))
    log.cleaning.clean_offset = 0
    await clean(log, wall_ms=over_ms)
    assert b"k0" not in latest(records(log))
    check_reads(log)


# --- what comes in between -----------------------------------------------------------------------------


async def truncate(log: Log) -> None:
    await log.truncate_to(9)


async def truncate_and_write(log: Log) -> None:
    await log.truncate_to(9)
    await append(log, updates(30, 12), 1)


async def delete(log: Log) -> None:
    log.config = replace(CONFIG, retention_bytes=0)
    assert await log.delete_old_segments(0, log.log_end_offset)


async def reset(log: Log) -> None:
    await log.reset_to(100)


async def close(log: Log) -> None:
    await log.close(flush=False)


Act = Callable[[Log], Awaitable[None]]


@pytest.mark.parametrize("act", [truncate, truncate_and_write, delete, reset, close])
@pytest.mark.parametrize("step", range(1, 14, 3))
@pytest.mark.parametrize("place", ["between slices", "before a swap"])
async def test_what_the_log_gives_up_meanwhile_stays_given_up(act: Act, step: int, place: str) -> None:
    disk, log = await made()
    _, twin = await made()
    is_disturbed = await clean_while(log, act, place, step)
    await settle()
    if not is_disturbed:
        return  # it was over before
    await act(twin)
    if act is not close:
        assert log.failure is None
        assert [one.value for one in records(log)[-6:]] == [one.value for one in records(twin)[-6:]] or (
            # what was compacted already begins anew
            act is truncate and not records(log)
        )
        assert log.log_start_offset == twin.log_start_offset
        assert log.log_end_offset <= twin.log_end_offset
        check_reads(log)
        assert log.cleaning.clean_offset <= log.log_end_offset
    assert not [name for name in await disk.listdir(FOLDER) if name.endswith(CLEANED_SUFFIX)]


async def test_a_log_that_is_cut_below_what_was_compacted_begins_anew_and_another_is_cut_there() -> None:
    """As only an unclean election asks for it: what succeeded the removed records is cut."""
    for offset in range(1, 48):
        _, log = await made(epochs=EPOCHS)
        await clean(log)
        before, changed = records(log), log.cleaning.changed_offset
        end = await log.truncate_to(offset)
        assert (end == 0) if offset < changed else (changed <= end <= offset < end + 2)
        assert records(log) == [one for one in before if one.offset < end]
        assert log.last_epoch == (log.leader_epoch_cache.epoch_at(end - 1) if end else -1)
        await append(log, updates(50, 3), EPOCHS)
        check_reads(log)


@pytest.mark.parametrize("is_rewritten", [False, True])
async def test_a_cut_into_what_is_being_read_is_no_damage(
    is_rewritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaning, "SLICE_BYTES", 100)
    for step, offset in product(range(1, 20, 3), range(1, 24, 2)):
        _, log = await made()
        left = step

        async def pause(size_bytes: int, log: Log = log, offset: int = offset) -> bool:
            nonlocal left
            left -= 1
            if not left:
                await log.truncate_to(offset)
                if is_rewritten:
                    await append(log, updates(100, 10), 5)
            return True

        await clean(log, pause=pause)
        assert left <= 0
        assert log.failure is None
        check_reads(log)


async def test_how_far_it_was_compacted_is_known_to_the_next_start_until_the_log_is_cut() -> None:
    for offset in (None, *range(0, 49, 4)):
        disk, log = await made()
        await clean(log)
        await log.cleaning.store()
        known = log.cleaning.clean_offset, log.cleaning.changed_offset
        assert known[0] == known[1] > 0
        if offset is not None:
            await log.truncate_to(offset)
            await append(log, updates(100, 24), 1)  # what was cut has grown again
        disk.power_loss()
        log = await open_log(disk)
        is_kept = offset is None or offset >= known[1]
        assert (log.cleaning.clean_offset, log.cleaning.changed_offset) == (known if is_kept else (0, 0))
        await log.close(flush=False)


async def test_a_cut_after_a_crash_within_a_cleaning_empties_the_log_as_well() -> None:
    disk, log = await made()

    async def in_turn(change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await change()
        disk.power_loss()

    with suppress(DiskError):
        await clean(log, in_turn=in_turn)
    disk.power_loss()
    log = await open_log(disk)
    assert len(records(log)) < 48
    assert log.cleaning.clean_offset == 0
    assert await log.truncate_to(20) == 0


@pytest.mark.parametrize("text", ["", "0\n1\n7 x\n", "0\n0\n", "0\n1\n49 9\n"])
async def test_a_checkpoint_that_is_none_of_this_log_is_dropped(text: str) -> None:
    disk, log = await made()
    await log.close(flush=True)
    await checkpoint.write_atomically(disk, f"{FOLDER}/{CLEANER_CHECKPOINT}", text)
    log = await open_log(disk, clean=True)
    assert (log.cleaning.clean_offset, log.cleaning.changed_offset) == (0, 0)
    assert CLEANER_CHECKPOINT not in await disk.listdir(FOLDER)


async def test_a_copy_of_a_compacted_log_may_not_know_all_producers() -> None:
    _, leader = await made(0)
    batches = [keyed([("p", "1")], producer_id=7, sequence=n) for n in range(2)]
    await append(leader, [*batches, keyed([("p", "3")]), *updates(1, 20)])
    go_on = parse_header(keyed([("p", "9")], producer_id=7, sequence=2))
    leader.producer_state.expire(0, 10)
    leader.producer_state.expire(100, 10)
    await clean(leader)
    disk = MemoryDisk()
    follower = await open_log(disk)
    await follow(leader, follower, 300)
    assert leader.producer_state.check(go_on) is None
    assert follower.producer_state.check(go_on) is None
    await follower.close(flush=False)
    for name in await disk.listdir(FOLDER):
        if name.endswith(".snapshot"):
            await disk.unlink(f"{FOLDER}/{name}")
    assert (await open_log(disk)).producer_state.check(go_on) is None


async def test_a_file_that_was_read_is_closed_before_another_takes_its_name() -> None:
    disk, log = await made()
    opened, handles = disk.open, list[Any]()

    async def noted(path: str, *, create: bool) -> Any:
        file = await opened(path, create=create)
        if path.endswith(".log"):
            closing, entry = file.close, [path, False]

            async def close() -> None:
                entry[1] = True
                await closing()

            file.close = close  # type: ignore[method-assign]
            handles.append(entry)
        return file

    disk.open = noted  # type: ignore[method-assign]

    async def in_turn(change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert handles
        assert all(is_closed for _, is_closed in handles)
        await change()

    await clean(log, in_turn=in_turn)


# --- followers -----------------------------------------------------------------------------------------


async def follow(leader: Log, follower: Log, max_bytes: int, until: int | None = None) -> None:
    end = leader.log_end_offset if until is None else until
    while follower.log_end_offset < end:
        data = leader.read(follower.log_end_offset, max_bytes, leader.log_end_offset, verify=True)
        if follower.needs_roll(len(data)):
            await follower.roll()
        assert follower.append_as_follower(data) is not None
    await follower.flush()
    await settle()


@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize(
    ("leader_cleans", "follower_cleans"), list(product(["before", "between", "never"], ["between", "never"]))
)
async def test_a_follower_continues_from_any_leader_cleaned_or_not(
    leader_cleans: str, follower_cleans: str, max_bytes: int
) -> None:
    for until in range(0, 48, 5):
        _, leader = await made(epochs=EPOCHS)
        whole = latest(records(leader))
        follower = await open_log(MemoryDisk())
        if leader_cleans == "before":
            await clean(leader)
        await follow(leader, follower, max_bytes, until)
        if leader_cleans == "between":
            await clean(leader)
        if follower_cleans == "between":
            await clean(follower)
        await follow(leader, follower, max_bytes)
        assert follower.log_end_offset == leader.log_end_offset
        assert latest(records(follower)) == whole
        assert follower.leader_epoch_cache.entries == leader.leader_epoch_cache.entries
        assert {row[0]: row[2][-1][:4] for row in follower.producer_state.rows()} == {
            row[0]: row[2][-1][:4] for row in leader.producer_state.rows()
        }
        check_reads(follower)


async def test_a_follower_begins_where_its_leader_does_within_emptied_batches() -> None:
    _, leader = await made()
    await clean(leader)
    emptied = next(one for one, _ in iter_batches(read_all(leader)) if one.last_offset_delta > 2)
    start = emptied.base_offset + 1
    leader.move_start(start)
    follower = await open_log(MemoryDisk())
    await follower.reset_to(start)
    await follow(leader, follower, 300)
    assert records(follower) == records(leader)
    check_reads(follower)


async def test_a_time_is_looked_up_among_the_records_that_are_left() -> None:
    log = await open_log(MemoryDisk())
    await append(log, [keyed([("a", f"v{n}")], time_ms=9000 if n == 3 else 1000 + n) for n in range(12)])
    await clean(log)
    for time_ms in (1000, 1003, 1008, 1011, 5000, 9000):
        expected = [one for one in records(log) if one.timestamp_ms >= time_ms]
        found = await log.times.first_since(time_ms)
        assert ([] if found is None else [found.base_offset]) == [one.offset for one in expected[:1]]


#: of a record that is left
NEWEST_MS = 1023


def newest(log: Log) -> int:
    return max(one.timestamp_ms for one in records(log))


async def with_a_removed_newest() -> tuple[MemoryDisk, Log]:
    """A cleaned log without its newest record; only the header is left of the batch that had it."""
    disk = MemoryDisk()
    log = await open_log(disk, replace(CONFIG, segment_bytes=1000))
    times = [9000 if n == 2 else 1000 + n for n in range(24)]
    await append(log, [keyed([("a" if n < 4 else f"k{n}", "v")], time_ms=ms) for n, ms in enumerate(times)])
    await clean(log)
    assert newest(log) == NEWEST_MS
    return disk, log


@pytest.mark.parametrize("clean_stop", [True, False])
async def test_the_newest_record_is_one_that_is_left(clean_stop: bool) -> None:
    disk, log = await with_a_removed_newest()
    assert await log.times.newest_ms() == NEWEST_MS
    await log.close(flush=clean_stop)
    log = await open_log(disk, clean=clean_stop)
    assert await log.times.newest_ms() == NEWEST_MS


async def test_times_are_found_by_an_index_of_an_earlier_build_which_counts_emptied_batches() -> None:
    disk, log = await with_a_removed_newest()
    headers = [header for header, _ in iter_batches(read_all(log))]
    await log.close(flush=True)
    for name in await disk.listdir(FOLDER):
        base = parse_offset_name(name, TIME_INDEX_SUFFIX)
        if base is not None:
            disk.rot(f"{FOLDER}/{name}", partial(of_all_batches, headers, base))
    log = await open_log(disk, clean=True)
    for time_ms in (9000, NEWEST_MS, 1000, 1004):
        found = await log.times.first_since(time_ms)
        first = next((one.offset for one in records(log) if one.timestamp_ms >= time_ms), None)
        assert (None if found is None else found.base_offset) == first
    assert await log.times.newest_ms() == NEWEST_MS


def of_all_batches(headers: list[BatchHeader], base: int, index: bytes) -> bytes:
    """A time index with the largest timestamps of all batches before."""
    entries = []
    for _, relative in struct.iter_unpack(">qI", index):
        before = [one.max_timestamp for one in headers if base <= one.base_offset < base + relative]
        entries.append(struct.pack(">qI", max(before), relative))
    assert entries or not index
    return b"".join(entries)


# --- trouble -------------------------------------------------------------------------------------------


async def test_damage_costs_the_log_and_is_named() -> None:
    disk, log = await made()
    path = f"{FOLDER}/{0:020}.log"
    disk.rot(path, lambda content: content[:150] + bytes([content[150] ^ 1]) + content[151:])
    with pytest.raises(CorruptLog) as raised:
        await clean(log)
    assert raised.value.path == path
    assert log.failure is raised.value


async def test_damage_in_what_was_compacted_before_is_found_as_well() -> None:
    disk, log = await made()
    await clean(log)
    await append(log, updates(24, 24))
    path = f"{FOLDER}/{0:020}.log"
    disk.rot(path, lambda content: content[:50] + bytes([content[50] ^ 1]) + content[51:])
    with pytest.raises(CorruptLog) as raised:
        await clean(log)
    assert raised.value.path == path
    assert log.failure is raised.value


async def test_records_that_cannot_be_read_leave_the_log_as_it_is() -> None:
    disk = MemoryDisk()
    log = await open_log(disk)
    (header, data), *_ = iter_batches(keyed([("a", "1")]))
    bad = with_header(header, bytes(len(data) - 61))
    await append(log, [*updates(0, 6), bad, *updates(6, 6)])
    before = read_all(log)
    with pytest.raises(Uncleanable):
        await clean(log)
    assert log.failure is None
    assert read_all(log) == before


@pytest.mark.parametrize("operation", ["append", "flush", "open"])
async def test_a_full_disk_ends_the_cleaning_and_nothing_else(operation: str) -> None:
    disk, log = await made()
    before = records(log)
    disk.fail(operation, CLEANED_SUFFIX, errno.ENOSPC)
    with pytest.raises(DiskError):
        await clean(log)
    assert log.failure is None
    assert records(log) == before
    assert not [name for name in await disk.listdir(FOLDER) if name.endswith(CLEANED_SUFFIX)]
    await clean(log)
    assert latest(records(log)) == latest(before)
    assert len(records(log)) < len(before)


@pytest.mark.parametrize("how", [Crash.POWER, *slow(Crash.POWER_AFTER_NAMES, Crash.KILL)])
async def test_a_crash_at_any_step_and_again_in_the_start_leaves_every_last_record(how: Crash) -> None:
    crashes, was_done = 0, False
    while not was_done:
        crashing = CrashingDisk(MemoryDisk(), how=how)
        log = await open_log(crashing)
        for epoch in range(2):
            await append(log, updates(epoch * 5, 5), epoch)
        before, end = records(log), log.log_end_offset
        epochs = log.leader_epoch_cache.entries
        crashing.crash_at = len(crashing.steps) + crashes
        try:
            await clean(log, in_turn=at_once)
        except DiskError:
            assert crashing.is_dead
        was_done = not crashing.is_dead
        if was_done:
            crashing.crash()
        crashes += 1
        again, was_opened = 0, False
        while not was_opened:
            starting = CrashingDisk(deepcopy(crashing.inner), again, how=how)
            given: dict[str, Any] = {"recovery_point": end, "durable_offset": end}
            try:
                await open_log(starting, **given)
            except DiskError:
                assert starting.is_dead
            was_opened = not starting.is_dead
            if was_opened:
                starting.crash()
            again += 1
            opened = await open_log(starting.inner, **given)
            story = f"after {crashing.steps[-3:]}, then {starting.steps[-3:]}"
            assert latest(records(opened)) == latest(before), story
            assert (opened.log_end_offset, opened.recovery.dropped_bytes) == (end, 0), story
            assert opened.leader_epoch_cache.entries == epochs, story
            check_reads(opened)
            names = await starting.inner.listdir(FOLDER)
            assert not [name for name in names if name.endswith(CLEANED_SUFFIX)], story
    assert crashes > 15
