"""Questions about the future are answered by the rules that will decide it."""

import pytest

from controller.election import ElectionReason
from controller.what_if import NextLeader, after_stops, next_leader, registration_of, situation_of
from protocol.messages.topics import DescribedPartition
from tests.unit.cli.rows import led, partition

ALL = frozenset((1, 2, 3))


def ask(
    described: DescribedPartition, active: frozenset[int] = ALL, *, unclean: bool = False, logs: bool = False
) -> NextLeader:
    situation = situation_of(described, active.__contains__, elects_uncleanly=unclean, compares_logs=logs)
    return next_leader(registration_of(described), situation)


def test_the_next_leader_is_the_first_active_isr_member_in_order_of_assignment() -> None:
    """R12."""
    row = led(1, (1, 2, 3), replicas=(1, 3, 2))
    assert ask(row) == NextLeader(3, ElectionReason.ISR, ())
    assert ask(row, ALL - {3}) == NextLeader(2, ElectionReason.ISR, ())


def test_an_unfenced_elr_member_is_next_when_the_leader_is_alone_in_the_isr() -> None:
    """R11."""
    assert ask(led(1, (1,), (3,))) == NextLeader(3, ElectionReason.ELR, ())


def test_a_fenced_elr_member_is_waited_for() -> None:
    assert ask(led(1, (1,), (3,)), ALL - {3}) == NextLeader(None, None, (3,))
    assert ask(partition(), frozenset()) == NextLeader(None, None, (3,))


def test_nobody_is_next_when_only_the_leader_is_complete() -> None:
    assert ask(led(1, (1,), min_isr=1)) == NextLeader(None, None, ())


def test_without_elr_the_last_member_of_the_isr_is_waited_for() -> None:
    """F7: it stays in the ISR though it is fenced."""
    row = partition(isr=(2,), eligible_leader_replicas=None, last_known_elr=None, last_known_leader=-1)
    assert ask(row, ALL - {2}) == NextLeader(None, None, (2,))


@pytest.mark.parametrize(("logs", "expected"), [(False, 2), (True, None)])
def test_unclean_elections_take_any_active_replica_unless_logs_are_compared(
    logs: bool, expected: int | None
) -> None:
    """D8 Q8: with the recovery manager on nobody is elected by chance."""
    assert ask(led(1, (1,), min_isr=1), unclean=True, logs=logs).leader == expected


def test_clean_stops_leave_the_leavers_eligible_below_min_isr() -> None:
    """R5."""
    row = led(1, (1, 2, 3))
    situation = situation_of(row, ALL.__contains__)
    after = after_stops(registration_of(row), (1, 2), situation)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (1, 2))


def test_a_broker_that_is_not_in_the_isr_takes_nothing_away() -> None:
    row = led(1, (1, 2))
    before = registration_of(row)
    assert after_stops(before, (3,), situation_of(row, ALL.__contains__)) == before
