"""Timers, and that a coordinator keeps nothing of members and groups that are gone."""

import gc

import pytest

from holdfast.broker.core.groups.group import Member
from holdfast.broker.core.groups.shard import GroupWrite
from holdfast.broker.core.groups.timers import Timers
from tests.unit.broker.groups.play import SUBSCRIPTION, Play


def test_calls_are_made_in_order_of_their_time_unless_they_are_cancelled() -> None:
    timers, made = Timers(), []
    for due_ms in (30, 10, 20):
        timers.at(due_ms, lambda due_ms=due_ms: made.append(due_ms))  # type: ignore[misc]
    timers.at(15, lambda: made.append(15)).cancel()
    timers.run(20)
    assert (made, timers.next_deadline_ms()) == ([10, 20], 30)


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    timers.at(5, lambda: None)
    for _ in range(10_000):
        timers.at(1_000_000, lambda: None).cancel()
    assert len(timers._heap) < 300


def test_a_timer_that_is_cancelled_as_it_runs_does_not_count() -> None:
    timers = Timers()
    first = timers.at(5, lambda: first.cancel())
    timers.run(5)
    assert timers._cancelled == 0


@pytest.mark.parametrize("how", ["leaves", "is deposed", "misses the rebalance"])
def test_nothing_is_kept_of_a_member_that_is_gone(how: str) -> None:
    play = Play()
    said = (("range", bytes([*SUBSCRIPTION])),)
    first, second = play.stable(2, session_ms=1_800_000, rebalance_ms=5_000, protocols=said)
    assert _kept(second, said[0][1])
    if how == "leaves":
        play.leave(second)
    elif how == "is deposed":
        play.depose()
    else:
        play.join(first, session_ms=1_800_000, rebalance_ms=5_000, protocols=(("range", b"new"),))
    play.pass_ms(5_000)  # the rebalance, and commits that are waited for
    assert not _kept(second, said[0][1])


def _kept(member_id: str, said: bytes) -> list[Member]:
    gc.collect()
    members = [one for one in gc.get_objects() if isinstance(one, Member) and one.member_id == member_id]
    return [one for one in members if one.protocols[0].metadata is said]


def test_ids_that_are_given_back_leave_no_timers() -> None:
    play = Play()
    for _ in range(300):
        pending = play.answers[play.join(needs_id=True, session_ms=1_800_000)].member_id
        assert play.leave(pending) == "NONE"
    assert len(play.coordinator._turn.timers._heap) < 200


def test_a_member_has_one_timer_however_often_its_timeout_changes() -> None:
    play = Play()
    (first,) = play.stable()
    for number in range(500):
        play.joined(play.join(first, session_ms=1_800_000 if number % 2 else 6_000))
        play.sync(first, number + 2, {})
        play.pass_ms(5_000)
    # its own, that of its assignment, and the cancelled ones that are not dropped yet
    assert len(play.coordinator._turn.timers._heap) < 210


def test_a_commit_that_is_answered_keeps_nothing() -> None:
    play = Play()
    for _ in range(500):
        assert play.commit_code(play.commit_offset(5, metadata="m" * 100)) == "NONE"
    assert len(play.coordinator._turn.timers._heap) < 210
    gc.collect()
    assert sum(isinstance(one, GroupWrite) for one in gc.get_objects()) < 10
