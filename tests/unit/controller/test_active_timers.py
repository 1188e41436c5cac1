"""The timers of the active controller: unclean passes at multiples of the interval, records for idle logs."""

import pytest

from holdfast.controller.core.active_timers import ActiveTimers


def started(idle_interval_ms: int = 500) -> ActiveTimers:
    timers = ActiveTimers(1_000, idle_interval_ms)
    timers.start(2_300)
    return timers


def test_nothing_is_due_on_a_standby() -> None:
    timers = started()
    timers.stop()
    assert timers.next_deadline_ms() is None
    assert not timers.take_unclean_pass(99_000)
    assert not timers.take_noop(99_000)


def test_unclean_passes_are_due_at_multiples_of_the_interval_however_late_one_is() -> None:
    timers = started(0)
    assert timers.next_deadline_ms() == 3_000
    assert not timers.take_unclean_pass(2_999)
    assert timers.take_unclean_pass(4_700)
    assert not timers.take_unclean_pass(4_999)
    assert timers.next_deadline_ms() == 5_000


def test_an_append_puts_the_record_of_an_idle_log_off() -> None:
    timers = started()
    timers.appended(2_600)
    assert not timers.take_noop(3_099)
    assert timers.take_noop(3_100)
    assert timers.next_deadline_ms() == 3_000, "the unclean pass comes before the next one"
    assert not timers.take_noop(3_599)


@pytest.mark.parametrize("now_ms", [2_300, 99_000])
def test_an_idle_log_gets_no_record_where_none_is_wanted(now_ms: int) -> None:
    timers = started(0)
    timers.appended(2_300)
    assert not timers.take_noop(now_ms)
