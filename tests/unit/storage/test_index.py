"""The sparse index against a plain list, across the border between memory and file."""

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime
from holdfast.storage.core.config import LogConfig
from holdfast.storage.index import BLOCK_ENTRIES, IndexEntry, SegmentIndex
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch

FOLDER = "/d"


def entries(count: int) -> list[IndexEntry]:
    return [IndexEntry(3 + 7 * number, 10 + 100 * number, 1000 + number // 3) for number in range(count)]


async def filled(count: int) -> tuple[SegmentIndex, MemoryDisk]:
    disk = MemoryDisk()
    await disk.make_folder(FOLDER)
    index = await SegmentIndex.open(disk, FOLDER, 0)
    for entry in entries(count):
        index.add(entry)
    return index, disk


async def test_lookups_find_the_last_entry_at_or_below() -> None:
    count = 2 * BLOCK_ENTRIES + 77
    index, _ = await filled(count)
    known = entries(count)
    for offset in range(0, 7 * count + 20, 11):
        place = bisect_right(known, offset, key=lambda entry: entry.relative_offset)
        assert index.floor_of_offset(offset) == (known[place - 1] if place else None)
        assert index.count_below(offset) == sum(entry.relative_offset < offset for entry in known)
    for position in range(0, 100 * count + 20, 333):
        place = bisect_right(known, position, key=lambda entry: entry.position)
        assert index.floor_of_position(position) == (known[place - 1] if place else None)
    for timestamp in range(999, 1002 + count // 3):
        earlier = [entry for entry in known if entry.max_timestamp_before < timestamp]
        assert index.floor_of_timestamp(timestamp) == (earlier[-1] if earlier else None)


@settings(max_examples=30)
@given(st.integers(0, 2 * BLOCK_ENTRIES + 9), st.integers(0, 2 * BLOCK_ENTRIES + 9), st.booleans())
async def test_a_cut_index_goes_on_where_it_was_cut(count: int, kept: int, is_stored: bool) -> None:
    index, disk = await filled(count)
    kept = min(count, kept)
    if is_stored:
        index.store()
    index.forget_from(kept)
    await index.trim()
    added = IndexEntry(1_000_000, 2_000_000, 5_000_000)
    index.add(added)
    expected = [*entries(kept), added]
    assert [index.entry(number) for number in range(len(index))] == expected
    await index.flush()
    await index.close()
    again = await SegmentIndex.open(disk, FOLDER, 0)
    assert [again.entry(number) for number in range(len(again))] == expected
    assert again.is_sound(2_000_001)
    assert not again.is_sound(2_000_000), "the last entry must point into the log"


async def test_a_lookup_in_a_log_never_scans_more_than_one_interval() -> None:
    runtime, _ = memory_runtime()
    log = await Log.open(runtime, "/d/t-0", LogConfig(index_interval_bytes=500), clean=False)
    positions, largest = [], 0
    for number in range(200):
        positions.append(log.size_bytes)
        data = batch(size=number % 90)
        largest = max(largest, len(data))
        log.append_as_leader(data, 0)
    index = log._segments.active.index
    for offset, position in enumerate(positions):
        entry = index.floor_of_offset(offset)
        assert position - (entry.position if entry else 0) <= 500 + largest
    assert len(index) >= log.size_bytes // (500 + 2 * largest)
