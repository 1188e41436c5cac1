"""Questions about the future are answered by the rules that will decide it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.core.brokers.what_if import (
    NextLeader,
    after_stops,
    context_of,
    next_leader,
    registration_of,
)
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.headroom import headroom
from holdfast.protocol.messages.topics import DescribedPartition
from tests.unit.cli.rows import led, partition

ALL = frozenset((1, 2, 3))


def ask(
    described: DescribedPartition, active: frozenset[int] = ALL, *, unclean: bool = False, logs: bool = False
) -> NextLeader:
    context = context_of(described, active.__contains__, elects_uncleanly=unclean, compares_logs=logs)
    return next_leader(registration_of(described), context)


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


def test_no_replica_is_next_when_only_the_leader_is_complete() -> None:
    assert ask(led(1, (1,), min_isr=1)) == NextLeader(None, None, ())


def test_without_elr_the_last_member_of_the_isr_is_waited_for() -> None:
    """F7: it stays in the ISR though it is fenced."""
    row = partition(isr=(2,), eligible_leader_replicas=None, last_known_elr=None, last_known_leader=-1)
    assert ask(row, ALL - {2}) == NextLeader(None, None, (2,))


@pytest.mark.parametrize(("logs", "expected"), [(False, 2), (True, None)])
def test_unclean_elections_take_any_active_replica_unless_logs_are_compared(
    logs: bool, expected: int | None
) -> None:
    """D8.8: with the recovery manager on no replica is elected by chance."""
    assert ask(led(1, (1,), min_isr=1), unclean=True, logs=logs).leader == expected


def test_clean_stops_leave_the_leavers_eligible_below_min_isr() -> None:
    """R5."""
    row = led(1, (1, 2, 3))
    context = context_of(row, ALL.__contains__)
    after = after_stops(registration_of(row), (1, 2), context)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (1, 2))


def test_a_broker_that_is_not_in_the_isr_takes_nothing_away() -> None:
    row = led(1, (1, 2))
    before = registration_of(row)
    assert after_stops(before, (3,), context_of(row, ALL.__contains__)) == before


@st.composite
def sound_rows(draw: st.DrawFn) -> tuple[DescribedPartition, frozenset[int]]:
    """A partition with a leader as the rules leave it, and who is unfenced: the whole ISR and some others."""
    replicas = tuple(draw(st.permutations(range(1, draw(st.integers(1, 5)) + 1))))
    min_isr = draw(st.integers(1, len(replicas)))
    isr = tuple(sorted(draw(st.sets(st.sampled_from(replicas), min_size=1))))
    others = [replica for replica in replicas if replica not in isr]
    elr: tuple[int, ...] = ()
    if others and len(isr) < min_isr:
        elr = tuple(sorted(draw(st.sets(st.sampled_from(others), max_size=min_isr - len(isr)))))
    unfenced = set(isr) | (draw(st.sets(st.sampled_from(others))) if others else set())
    row = led(draw(st.sampled_from(isr)), isr, elr, replicas=replicas, min_isr=min_isr)
    return row, frozenset(unfenced)


@given(sound_rows(), st.randoms(use_true_random=False))
def test_the_formulas_of_headroom_are_what_the_rules_of_the_controller_lead_to(
    drawn: tuple[DescribedPartition, frozenset[int]], chance: Random
) -> None:
    """`online` brokers may stop in any order and one leads, `writes` ISR members and min ISR is kept."""
    row, unfenced = drawn
    numbers = headroom(row.isr, row.eligible_leader_replicas or (), row.min_isr, unfenced.__contains__)
    context = context_of(row, unfenced.__contains__)
    complete = [r for r in (*row.isr, *(row.eligible_leader_replicas or ())) if r in unfenced]
    chance.shuffle(complete)
    partition = registration_of(row)
    stopped: list[int] = []
    for replica in complete:
        stopped.append(replica)
        partition = after_stops(partition, stopped, context)
        assert (partition.leader is not None) == (len(stopped) <= numbers.online)
    members = list(row.isr)
    chance.shuffle(members)
    for count in range(1, len(members) + 1):
        after = after_stops(registration_of(row), members[:count], context)
        # an ELR member that takes over is a new member of the ISR
        if not set(after.isr) - set(row.isr):
            assert (len(after.isr) >= row.min_isr) == (count <= numbers.writes)
