"""Times are looked up among the batches behind the log start; other requests have their turns meanwhile."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from holdfast.protocol.record_batch import BatchHeader
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.machine import memory_runtime
from holdfast.storage import snapshots
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch

BATCHES = 100
#: of the batches: the newest first
TIMES = [5000 - number for number in range(BATCHES)]
#: where the log starts
START = 10
HEADERS_PER_TURN = 7


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "HEADERS_PER_TURN", HEADERS_PER_TURN)


def append(log: Log, *times: int) -> None:
    for time_ms in times:
        log.append_as_leader(batch(timestamp_ms=time_ms), 1)


async def log_from(start: int) -> Log:
    runtime, _ = memory_runtime()
    log = await Log.open(runtime, "/data/t-0", LogConfig(retention_ms=None), clean=False)
    append(log, *TIMES)
    await log.flush()
    log.move_start(start)
    return log


def place(header: BatchHeader | None) -> tuple[int, int] | None:
    return None if header is None else (header.max_timestamp, header.base_offset)


async def turns_of(lookup: Awaitable[Any]) -> tuple[Any, int]:
    """What a lookup finds, and how often others had their turn meanwhile."""
    task = asyncio.ensure_future(lookup)
    turns = -1
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return await task, turns


async def test_a_first_lookup_within_a_segment_is_made_in_turns_and_later_ones_need_none() -> None:
    log = await log_from(START)
    wanted = TIMES[0]  # which is deleted, so that all the headers are walked over
    found, turns = await turns_of(log.times.first_since(wanted))
    assert found is None
    assert turns >= (BATCHES - START) // HEADERS_PER_TURN
    for asked in range(TIMES[-1] - 1, TIMES[0] + 2):
        expected = next(((time, n) for n, time in enumerate(TIMES) if n >= START and time >= asked), None)
        found, turns = await turns_of(log.times.first_since(asked))
        assert (place(found), turns) == (expected, 0)
    assert await turns_of(log.times.newest_ms()) == (TIMES[START], 0)


async def test_only_what_was_appended_since_is_walked_over_by_the_next_lookup() -> None:
    log = await log_from(START)
    assert await log.times.newest_ms() == TIMES[START]
    append(log, *[1000] * HEADERS_PER_TURN, 4995)
    found, turns = await turns_of(log.times.newest_ms())
    assert found == 4995
    assert 0 < turns < (BATCHES - START) // HEADERS_PER_TURN
    assert place(await log.times.first_since(4991)) == (4995, BATCHES + HEADERS_PER_TURN)


async def test_a_lookup_ends_its_walk_at_the_first_batch_that_is_late_enough() -> None:
    log = await log_from(START)
    found, turns = await turns_of(log.times.first_since(TIMES[START]))
    assert (place(found), turns) == ((TIMES[START], START), 0)


async def test_a_later_log_start_and_a_truncation_are_looked_up_anew() -> None:
    log = await log_from(START)
    assert await log.times.newest_ms() == TIMES[START]
    log.move_start(50)
    assert await log.times.newest_ms() == TIMES[50]
    append(log, 4990)
    assert await log.times.newest_ms() == 4990
    await log.truncate_to(BATCHES)
    assert await log.times.newest_ms() == TIMES[50]
    append(log, 4980)
    assert place(await log.times.first_since(4951)) == (4980, BATCHES)


async def test_segments_below_the_log_start_have_no_part_in_it() -> None:
    log = await log_from(0)
    await log.roll()
    append(log, 1000, 1001)
    await log.flush()
    log.move_start(BATCHES)
    assert await log.times.newest_ms() == 1001
    assert await log.times.first_since(1002) is None
    log.move_start(log.log_end_offset)
    assert await log.times.newest_ms() == -1


async def test_a_segment_that_is_deleted_during_the_walk_has_no_part_in_it() -> None:
    log = await log_from(START)
    await log.roll()
    append(log, *[2000] * 30)
    await log.flush()
    lookup = asyncio.ensure_future(log.times.newest_ms())
    await asyncio.sleep(0)
    log.move_start(BATCHES + 10)
    while not await log.delete_old_segments(0, log.log_end_offset):
        await asyncio.sleep(0)
    assert await lookup == 2000


async def test_a_log_that_is_closed_during_the_walk_is_no_failure_of_its_disk() -> None:
    log = await log_from(START)
    task = asyncio.ensure_future(log.times.newest_ms())
    await asyncio.sleep(0)
    await log.close(flush=False)
    with pytest.raises(DiskError, match="was closed"):
        await task
    assert log.failure is None
