"""R11-R13: the decision table, and its slow second version."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.core.partitions.election import (
    Candidates,
    Elected,
    Election,
    ElectionMode,
    ElectionReason,
    NoLeader,
    Rejection,
    elect,
)


def candidates(
    active: tuple[int, ...],
    isr: tuple[int, ...] = (),
    elr: tuple[int, ...] = (),
    leader: int | None = None,
    known: int | None = None,
    replicas: tuple[int, ...] = (1, 2, 3),
    trusts_known: bool = True,
    last_known: tuple[int, ...] = (),
) -> Candidates:
    return Candidates(
        replicas,
        isr,
        elr,
        leader,
        known,
        lambda replica: replica in active,
        lambda replica: Rejection.FENCED,
        trusts_known,
        last_known_elr=last_known,
    )


def outcome(given_: Candidates, mode: ElectionMode) -> Election:
    """Who leads and by which rule, without those who were passed over."""
    election = elect(given_, mode)
    return replace(election, rejected=())


ONLINE, UNCLEAN, PREFERRED = ElectionMode.ONLINE, ElectionMode.UNCLEAN, ElectionMode.PREFERRED
ISR, ELR, KNOWN = ElectionReason.ISR, ElectionReason.ELR, ElectionReason.LAST_KNOWN_LEADER


@pytest.mark.parametrize(
    ("mode", "given_", "election"),
    [
        # the present leader stays while it may
        (ONLINE, candidates((1, 2, 3), (1, 2, 3), leader=3), Elected(3, ISR)),
        # else the first ISR member in assignment order, not the lowest id
        (ONLINE, candidates((1, 2), (1, 2), leader=3, replicas=(3, 2, 1)), Elected(2, ISR)),
        # a fenced ISR member is passed over
        (ONLINE, candidates((3,), (1, 3), leader=1), Elected(3, ISR)),
        # an ELR member leads only when the ISR is empty (F11)
        (ONLINE, candidates((2,), (1,), elr=(2,), leader=1), NoLeader()),
        (ONLINE, candidates((2, 3), elr=(2, 3), replicas=(1, 3, 2)), Elected(3, ELR)),
        # fenced ELR members are waited for
        (ONLINE, candidates((1,), elr=(2, 3), known=1), NoLeader()),
        # the last known leader, once none is eligible (D8.8), if active and assigned (KAFKA-19522, B28)
        (ONLINE, candidates((1, 2), known=2), Elected(2, KNOWN)),
        (ONLINE, candidates((1,), known=2), NoLeader()),
        (ONLINE, candidates((1, 9), known=9), NoLeader()),
        (ONLINE, candidates((1, 2), known=2, trusts_known=False), NoLeader()),
        # any active replica in assignment order, only where the topic allows that
        (ONLINE, candidates((3, 1), replicas=(2, 3, 1)), NoLeader()),
        (UNCLEAN, candidates((3, 1), replicas=(2, 3, 1)), Elected(3, ElectionReason.UNCLEAN_RANDOM)),
        (UNCLEAN, candidates((3,), elr=(1, 2)), Elected(3, ElectionReason.UNCLEAN_RANDOM)),
        (UNCLEAN, candidates((1, 2), known=2), Elected(2, KNOWN)),
        (UNCLEAN, candidates((1, 2), (2,)), Elected(2, ISR)),
        (UNCLEAN, candidates(()), NoLeader()),
        # preferred: replicas[0] if it is in the ISR, else as online; never the unclean step
        (PREFERRED, candidates((1, 2), (1, 2), leader=2), Elected(1, ElectionReason.PREFERRED)),
        (PREFERRED, candidates((1, 2), (2,), leader=2), Elected(2, ISR)),
        (PREFERRED, candidates((1, 2), (1, 2), leader=1), Elected(1, ISR)),
        (PREFERRED, candidates((3,)), NoLeader()),
    ],
)
def test_decision_table(mode: ElectionMode, given_: Candidates, election: Election) -> None:
    assert outcome(given_, mode) == election


FENCED = Rejection.FENCED


@pytest.mark.parametrize(
    ("mode", "given_", "rejected"),
    [
        # replicas behind the leader in the order of preference were not asked
        (ONLINE, candidates((1, 2, 3), (1, 2, 3), leader=1), ()),
        (ONLINE, candidates((2, 3), (1, 2, 3), leader=1), ((1, FENCED),)),
        # the present leader comes first, wherever it stands in the assignment
        (ONLINE, candidates((2,), (2, 3), leader=3), ((3, FENCED), (1, FENCED))),
        (ONLINE, candidates((1, 2, 3), (3,)), ((1, Rejection.NOT_IN_ISR), (2, Rejection.NOT_IN_ISR))),
        (ONLINE, candidates((1, 3), elr=(3,)), ((1, Rejection.NOT_ELIGIBLE), (2, FENCED))),
        (ONLINE, candidates((1, 2), (1, 2), leader=9), ((9, Rejection.NOT_ASSIGNED),)),
        # no replica leads: all of them, each with its own reason
        (
            ONLINE,
            candidates((1, 2), elr=(3,), last_known=(2,)),
            ((1, Rejection.NOT_ELIGIBLE), (2, Rejection.UNCLEAN_SHUTDOWN), (3, FENCED)),
        ),
        # who is elected without proof is not among the rejected
        (UNCLEAN, candidates((2, 3)), ((1, FENCED), (3, Rejection.NOT_ELIGIBLE))),
        (ONLINE, candidates((2, 3), known=3), ((1, FENCED), (2, Rejection.NOT_ELIGIBLE))),
        (PREFERRED, candidates((1, 2), (2,), leader=2), ((1, Rejection.NOT_IN_ISR),)),
        (PREFERRED, candidates((1, 2), (1, 2), leader=2), ()),
    ],
)
def test_who_was_passed_over_and_why(
    mode: ElectionMode, given_: Candidates, rejected: tuple[tuple[int, Rejection], ...]
) -> None:
    assert elect(given_, mode).rejected == rejected


def test_why_the_designated_replica_may_not_lead_is_told_of_it_alone() -> None:
    designated = (3, ElectionReason.DESIGNATED)
    assert elect(replace(candidates((1, 2)), designated=designated), ONLINE).rejected == ((3, FENCED),)


@pytest.mark.parametrize("why", [FENCED, Rejection.IN_CONTROLLED_SHUTDOWN, Rejection.UNREGISTERED])
def test_what_is_the_matter_with_an_inactive_replica_is_told(why: Rejection) -> None:
    given_ = replace(candidates((2,), (1, 2), leader=1), why_inactive=lambda replica: why)
    assert elect(given_, ONLINE) == Elected(2, ISR, ((1, why),))


def test_elections_of_incomplete_replicas_may_lose_records() -> None:
    assert {reason for reason in ElectionReason if reason.is_unclean} == {
        KNOWN,
        ElectionReason.UNCLEAN_RANDOM,
        ElectionReason.DESIGNATED,
        ElectionReason.LONGEST_LOG,
    }


@pytest.mark.parametrize(
    ("given_", "reason"),
    [
        (candidates((2, 3), elr=(2,)), ElectionReason.DESIGNATED),
        (candidates((2, 3), elr=(3,)), ELR),  # D8.5
        (candidates((1, 2)), None),
        (candidates((1, 3), replicas=(1, 2)), None),
    ],
)
def test_the_designated_replica_leads_or_none(given_: Candidates, reason: ElectionReason | None) -> None:
    """R18: other replicas that could lead are not asked."""
    decision = outcome(replace(given_, designated=(3, ElectionReason.DESIGNATED)), UNCLEAN)
    assert decision == (NoLeader() if reason is None else Elected(3, reason))


ids = st.lists(st.integers(1, 4), unique=True, max_size=4).map(tuple)


def ranking(given_: Candidates, mode: ElectionMode) -> list[Elected]:
    """All replicas that could be meant, best first: each step of R12 spelled out for each replica."""
    active = [replica for replica in given_.replicas if given_.is_active(replica)]
    complete = [
        Elected(replica, ISR if replica in given_.isr else ELR)
        for replica in active
        if replica in (given_.isr or given_.elr)
    ]
    found = [one for one in complete if one.leader == given_.leader] + complete
    if mode is PREFERRED:
        found = [
            Elected(one.leader, ElectionReason.PREFERRED)
            for one in complete
            if one.leader == given_.replicas[0] != given_.leader and one.reason is ISR
        ] + found
    if given_.trusts_last_known_leader and not given_.isr and not given_.elr:
        found += [Elected(replica, KNOWN) for replica in active if replica == given_.last_known_leader]
    if mode is UNCLEAN:
        found += [Elected(replica, ElectionReason.UNCLEAN_RANDOM) for replica in active]
    return found


@given(
    replicas=st.permutations([1, 2, 3, 4]),
    isr=ids,
    elr=ids,
    active=ids,
    leader_index=st.integers(0, 4),
    known=st.none() | st.integers(1, 5),
    trusts_known=st.booleans(),
    mode=st.sampled_from(list(ElectionMode)),
)
def test_the_elected_is_the_best_of_the_ranking_and_always_active(
    replicas: list[int],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    active: tuple[int, ...],
    leader_index: int,
    known: int | None,
    trusts_known: bool,
    mode: ElectionMode,
) -> None:
    leader = isr[leader_index] if leader_index < len(isr) else None
    given_ = candidates(active, isr, elr, leader, known, tuple(replicas), trusts_known)
    expected = ranking(given_, mode)
    assert outcome(given_, mode) == (expected[0] if expected else NoLeader())
    election = elect(given_, mode)
    passed_over = {replica for replica, _ in election.rejected}
    if isinstance(election, NoLeader):
        assert passed_over.issuperset(replicas)
    else:
        assert election.leader not in passed_over
    for replica, why in election.rejected:
        assert (why is FENCED) == (replica not in active)
