"""When closed segments are read again, in which order, how fast, and what a restart remembers."""

import pytest

from holdfast.protocol.topic_names import TopicPartition
from holdfast.storage.checkpoint import decode_rows, encode_rows
from holdfast.storage.core.scrub_plan import PROGRESS_COLUMNS, STORE_MS, ScrubPace, ScrubPlan, ScrubProgress

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
INTERVAL_MS = 10_000
NOON = 1_700_000_000_000


NEVER = ScrubProgress()


def plan(progress: ScrubProgress = NEVER, bytes_per_second: int = 1000) -> ScrubPlan:
    return ScrubPlan(ScrubPace(INTERVAL_MS, bytes_per_second), progress)


def test_pass_goes_through_the_logs_by_name_and_is_complete_then() -> None:
    one = plan()
    assert one.wait_ms(NOON) == 0, "nothing was ever read"
    one.begin([C, A], NOON)
    assert one.next_log(NOON) == (A, 0)
    one.passed(40)
    assert one.next_log(NOON) == (C, 0)
    assert one.next_log(NOON + 700) is None
    assert one.progress == ScrubProgress(begun_ms=NOON, completed_ms=NOON + 700)


@pytest.mark.parametrize(
    ("elapsed_ms", "wait_ms"),
    [(0, INTERVAL_MS), (9_999, 1), (INTERVAL_MS, 0), (3 * INTERVAL_MS, 0), (-50 * INTERVAL_MS, INTERVAL_MS)],
)
def test_next_pass_begins_an_interval_after_the_last_one_began(elapsed_ms: int, wait_ms: int) -> None:
    """A wall clock that was set back costs one interval at most."""
    assert plan(ScrubProgress(NOON, NOON + 5)).wait_ms(NOON + elapsed_ms) == wait_ms


def test_clock_that_was_ahead_puts_off_no_further_pass() -> None:
    one = plan(ScrubProgress(NOON + 50 * INTERVAL_MS, NOON))
    assert one.wait_ms(NOON) == INTERVAL_MS
    assert one.wait_ms(NOON + INTERVAL_MS) == 0


@pytest.mark.parametrize("is_still_there", [True, False])
def test_restart_goes_on_where_the_pass_was(is_still_there: bool) -> None:
    before = plan()
    before.begin([A, B, C], NOON)
    before.next_log(NOON)
    before.next_log(NOON)
    before.passed(70)
    rows = decode_rows(encode_rows([before.progress.row()]), PROGRESS_COLUMNS)
    after = plan(ScrubProgress.of_rows(rows))
    assert after.wait_ms(NOON + 1) == 0
    after.begin([A, B, C] if is_still_there else [A, C], NOON + 1)
    assert after.next_log(NOON + 1) == ((B, 70) if is_still_there else (C, 0))
    assert after.progress.begun_ms == NOON


@pytest.mark.parametrize("rows", [None, [], [["1", "2", "-", "-1"]], [["x", "2", "-", "-1", "0"]]])
def test_progress_that_is_not_readable_is_none(rows: list[list[str]] | None) -> None:
    assert ScrubProgress.of_rows(rows) == ScrubProgress()


def test_pauses_keep_to_the_rate_and_time_without_reads_saves_up_nothing() -> None:
    one = plan(bytes_per_second=1000)
    assert one.pause_ms(500, now_ms=100) == 500
    assert one.pause_ms(500, now_ms=300) == 800, "it came too early"
    assert one.pause_ms(500, now_ms=60_000) == 500


def test_progress_is_stored_now_and_then() -> None:
    one = plan()
    stored_at = [now_ms for now_ms in range(0, 2 * STORE_MS + 1, 1000) if one.must_store(now_ms)]
    assert stored_at == [0, STORE_MS, 2 * STORE_MS]
