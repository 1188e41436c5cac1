"""What the observer knows of a log follows it through appends, cuts, resets and deletions."""

from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.sim.checks.observe.batches import BatchHistory, BatchMark
from holdfast.sim.checks.observe.observer import _end
from holdfast.sim.checks.observe.views import Property
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.sim.checks.histories import Scene, view_of
from tests.unit.storage.batches import batch

FOLDER = "/data/t-0"
SHORT = LogConfig(segment_bytes=100, retention_ms=None, retention_bytes=150)


async def new_log() -> Log:
    runtime, _ = memory_runtime()
    return await Log.open(runtime, FOLDER, SHORT, clean=False)


async def append(log: Log, *epochs: int) -> None:
    for epoch in epochs:
        await log.roll()
        log.append_as_leader(batch(2), epoch)
    await log.flush()
    await settle()


def places(batches: list[BatchMark]) -> list[tuple[int, int]]:
    return [(one.base_offset, one.leader_epoch) for one in batches]


async def test_it_follows_appends_and_cuts() -> None:
    log = await new_log()
    history = BatchHistory(log)
    await append(log, 1, 1, 2)
    assert places(history.follow()) == [(0, 1), (2, 1), (4, 2)]
    await log.truncate_to(2)
    assert history.follow() == []
    await append(log, 3)
    assert places(history.follow()) == [(2, 3)]
    assert (places(history.batches), history.end_offset) == ([(0, 1), (2, 3)], 4)


async def test_what_was_cut_is_told_once_the_last_batch_first() -> None:
    log = await new_log()
    history = BatchHistory(log)
    await append(log, 1, 1, 2)
    history.follow()
    await log.truncate_to(2)
    assert history.follow() == []
    assert places(history.cut) == [(4, 2), (2, 1)]
    assert (history.end_offset, history.bytes_below(2)) == (2, history.batches[0].size_bytes)


async def test_of_what_is_deleted_it_keeps_the_batches_and_not_the_bytes() -> None:
    log = await new_log()
    history = BatchHistory(log)
    await append(log, 1, 1, 2, 2)
    history.follow()
    size_bytes = history.bytes_below(8)
    await log.delete_old_segments(0, high_watermark=8)
    assert log.log_start_offset == 4
    assert places(history.batches) == [(0, 1), (2, 1), (4, 2), (6, 2)]
    assert history.bytes_below(8) == size_bytes // 2 == log.size_bytes


async def test_what_was_deleted_is_judged_by_the_wall_clock_of_that_time() -> None:
    """The clock may be set back between a deletion and the next look at the log, which deletes nothing."""
    log = await new_log()
    history = BatchHistory(log)
    await append(log, 1, 1, 2, 2)
    await log.delete_old_segments(9_000, high_watermark=8)
    await log.delete_old_segments(1_000, high_watermark=8)
    assert (history.expires_at_ms, log.log_start_offset) == (9_000, 4)


async def test_below_the_log_start_it_knows_what_was_committed() -> None:
    log = await new_log()
    await append(log, 1, 1, 2, 2)
    whole = BatchHistory(log)
    committed = whole.follow()
    await log.delete_old_segments(0, high_watermark=8)
    history = BatchHistory(log, committed[:3])
    assert places(history.follow()) == [(4, 2), (6, 2)]
    assert (history.batches, history.start_offset) == (committed, 0)
    unknown = BatchHistory(log)
    assert places(unknown.follow()) == [(4, 2), (6, 2)]
    assert (len(unknown.batches), unknown.start_offset) == (2, 4)


async def test_a_log_that_begins_anew_holds_what_was_committed_and_no_more_of_its_own() -> None:
    """R83: the leader has deleted up to 4; from 2 on the log was another one."""
    other = await new_log()
    await append(other, 1, 2, 2)
    committed = BatchHistory(other).follow()
    log = await new_log()
    history = BatchHistory(log, committed)
    await append(log, 1, 1, 1)
    history.follow()
    await log.reset_to(4)
    assert history.is_reset
    assert history.follow() == []
    assert history.has_begun_anew
    assert (history.batches, history.end_offset) == (committed[:2], 4)
    assert places(history.cut) == [(4, 1), (2, 1)]
    await append(log, 2)
    assert not history.is_reset
    assert places(history.follow()) == [(4, 2)]
    assert not history.has_begun_anew


async def test_a_log_that_begins_anew_where_it_ended_is_noticed_too() -> None:
    log = await new_log()
    history = BatchHistory(log)
    await append(log, 1)
    history.follow()
    await log.reset_to(2)
    assert history.is_reset
    history.follow()
    assert (history.start_offset, places(history.cut)) == (2, [(0, 1)])


async def test_when_its_log_dir_fails_what_was_dropped_is_no_more_what_the_next_process_must_find_a22() -> (
    None
):
    """R83; seed 81156 of the band over-budget: the leader's log starts where ours ended."""
    other = await new_log()
    await append(other, 1, 1)
    view = view_of(Scene(Property()), 1)
    view.log = log = await new_log()
    view.history = history = BatchHistory(log, committed := BatchHistory(other).follow())
    await append(log, 2, 2)
    history.follow()
    await log.reset_to(4)
    _end(view, is_cache_lost=False)
    assert history.batches == committed


async def test_a_reset_is_under_way_until_it_has_ended() -> None:
    """R83: a crash may leave any beginning of the log that was to be dropped."""
    runtime, _ = memory_runtime()
    seen: list[bool] = []

    async def noted(offset: int) -> None:
        seen.append(history.is_resetting)

    log = await Log.open(runtime, FOLDER, SHORT, clean=False, before_rewind=noted)
    history = BatchHistory(log)
    await append(log, 1)
    assert not history.is_resetting
    await log.reset_to(5)
    assert (seen, history.is_resetting) == ([True], False)
