"""The only maker of PartitionChangeRecord: steps (R4), epochs (R2, R3), R7, R10, reassignment completion."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.core.partitions.election import ElectionMode, ElectionReason
from holdfast.controller.core.partitions.partition_change import (
    Assignment,
    ElectionContext,
    InvariantBroken,
    PartitionChange,
    RequestedChange,
    change_partition,
)
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import RECOVERED, RECOVERING

TOPIC_ID = bytes(15) + b"\x07"
FULL = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 4, 9, 2)
ALONE = replace(FULL, isr=(1,), elr=(2,))
LEADERLESS = replace(FULL, isr=(), elr=(), last_known_elr=(2, 3), leader=None, last_known_leader=3)


def context(
    *active: int, elr: bool = True, unclean: bool = False, min_insync_replicas: int = 2
) -> ElectionContext:
    mode = ElectionMode.UNCLEAN if unclean else ElectionMode.ONLINE
    return ElectionContext(lambda replica: replica in active, elr, min_insync_replicas, mode)


def made(
    before: PartitionRegistration, requested: RequestedChange, around: ElectionContext
) -> PartitionChange:
    change = change_partition(TOPIC_ID, 0, before, requested, around)
    assert change is not None
    assert before.merge(change.record) == change.after
    assert change.after.broken_invariants() == []
    return change


def test_nothing_wished_and_nothing_to_elect_makes_no_record() -> None:
    """R3."""
    assert change_partition(TOPIC_ID, 0, FULL, RequestedChange((3, 2, 1)), context(1, 2, 3)) is None
    assert change_partition(TOPIC_ID, 0, LEADERLESS, RequestedChange(), context(1)) is None


def test_a_shrink_moves_the_partition_epoch_only() -> None:
    """R8, A-11."""
    change = made(FULL, RequestedChange((1, 2)), context(1, 2, 3))
    assert (change.after.leader_epoch, change.after.partition_epoch) == (4, 10)
    assert change.record.leader is None
    assert change.reason is None
    assert change.dropped == ()


def test_an_elr_change_alone_moves_no_leader_epoch() -> None:
    """F12."""
    change = made(ALONE, RequestedChange((1,), unclean=(2,)), context(1, 3))
    assert (change.after.elr, change.after.last_known_elr) == ((), (2,))
    assert (change.after.leader, change.after.leader_epoch, change.after.partition_epoch) == (1, 4, 10)


def test_the_first_leaderless_moment_names_the_last_known_leader() -> None:
    """R7: later changes do not overwrite it."""
    gone = made(ALONE, RequestedChange(()), context()).after
    assert (gone.leader, gone.leader_epoch, gone.elr, gone.last_known_leader) == (None, 5, (1, 2), 1)
    later = made(gone, RequestedChange(unclean=(2,)), context()).after
    assert (later.leader_epoch, later.last_known_leader, later.last_known_elr) == (5, 1, (2,))
    led = made(later, RequestedChange(), context(1)).after
    assert (led.leader, led.leader_epoch, led.last_known_leader) == (1, 6, None)


def test_an_eligible_replica_leads_alone_and_keeps_the_others_eligible() -> None:
    """R13: no RECOVERING, last_known_elr kept."""
    before = replace(LEADERLESS, elr=(1, 2), last_known_elr=(3,), last_known_leader=1)
    change = made(before, RequestedChange(), context(2))
    assert (change.after.isr, change.after.elr, change.after.last_known_elr) == ((2,), (1,), (3,))
    assert change.after.leader_recovery_state == RECOVERED
    assert change.reason is ElectionReason.ELR


def test_an_unclean_election_wipes_both_sets_and_tells_whom_it_passed_over() -> None:
    """R10 with the manager off."""
    change = made(LEADERLESS, RequestedChange(), context(3))
    assert (change.after.isr, change.after.elr, change.after.last_known_elr) == ((3,), (), ())
    assert change.after.leader_recovery_state == RECOVERING
    assert change.reason is ElectionReason.LAST_KNOWN_LEADER
    assert change.dropped == (2,)
    passed_over = replace(LEADERLESS, elr=(1,), last_known_elr=(2,), last_known_leader=None)
    change = made(passed_over, RequestedChange(), context(3, unclean=True))
    assert change.dropped == (1, 2)
    assert change.reason is ElectionReason.UNCLEAN_RANDOM


def test_with_the_recovery_manager_an_unclean_election_keeps_the_seats() -> None:
    """D8.1, D8.4, F45: until the ISR reaches min ISR; no replica is trusted without a look at its log."""
    around = replace(context(1, 3), compares_logs=True)
    assert change_partition(TOPIC_ID, 0, LEADERLESS, RequestedChange(), around) is None
    before = replace(LEADERLESS, elr=(2,), last_known_elr=(3,))
    change = made(before, RequestedChange(designated=1), around)
    assert (change.after.isr, change.after.elr, change.after.last_known_elr) == ((1,), (), (2, 3))
    assert (change.after.leader_recovery_state, change.reason) == (RECOVERING, ElectionReason.DESIGNATED)
    enough = replace(around, min_insync_replicas=1)
    assert made(before, RequestedChange(designated=1), enough).after.last_known_elr == ()


def test_a_member_that_was_left_in_the_isr_without_elr_keeps_a_seat() -> None:
    """B9: ELR was switched on while the partition was leaderless."""
    before = replace(FULL, isr=(1,), leader=None)
    assert made(before, RequestedChange((), unclean=(1,)), context()).after.last_known_elr == (1,)
    around = replace(context(2), compares_logs=True)
    assert made(before, RequestedChange(designated=2), around).after.last_known_elr == (1,)


def test_an_ex_replica_is_forgotten_as_last_known_leader() -> None:
    """B28."""
    moved = RequestedChange(assignment=Assignment((1, 2)))
    after = made(LEADERLESS, moved, context()).after
    assert (after.last_known_leader, after.last_known_elr) == (None, (2,))


def test_without_elr_the_last_member_stays_in_the_isr() -> None:
    """F7: the partition is leaderless, and nothing is remembered."""
    before = replace(FULL, isr=(1,))
    after = made(before, RequestedChange(()), context(2, 3, elr=False)).after
    assert (after.isr, after.leader, after.elr, after.last_known_leader) == ((1,), None, (), None)
    back = made(after, RequestedChange(), context(1, 2, 3, elr=False))
    assert (back.after.leader, back.reason) == (1, ElectionReason.ISR)


def test_switching_elr_off_wipes_the_sets_with_the_next_change() -> None:
    before = replace(ALONE, last_known_elr=(3,))
    after = made(before, RequestedChange(), context(1, elr=False)).after
    assert (after.elr, after.last_known_elr) == ((), ())


def test_min_isr_follows_the_configuration_and_the_replica_count() -> None:
    """R109: lowered to the ISR's size it ends the promise at once; raised it keeps who is eligible."""
    lowered = made(ALONE, RequestedChange(), context(1, min_insync_replicas=1)).after
    assert (lowered.min_isr, lowered.elr) == (1, ())
    raised = made(ALONE, RequestedChange(), context(1, min_insync_replicas=9)).after
    assert (raised.min_isr, raised.elr) == (3, (2,))


REASSIGNING = replace(
    FULL,
    replicas=(1, 2, 4, 3),
    adding_replicas=(4,),
    removing_replicas=(3,),
    original_replicas=(1, 2, 3),
)


def test_a_reassignment_completes_with_the_isr_that_makes_it_possible() -> None:
    """R101, R102: a replica left, so the leader epoch grows although the leader stays."""
    assert change_partition(TOPIC_ID, 0, REASSIGNING, RequestedChange((1, 2, 3)), context(1, 2, 3, 4)) is None
    after = made(REASSIGNING, RequestedChange((1, 2, 3, 4)), context(1, 2, 3, 4)).after
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((1, 2, 4), (1, 2, 4), 1, 5)
    assert (after.adding_replicas, after.removing_replicas, after.original_replicas) == ((), (), None)


def test_a_reassignment_waits_until_min_isr_holds_without_the_leavers() -> None:
    before = replace(REASSIGNING, isr=(3,), leader=3)
    waiting = made(before, RequestedChange((3, 4)), context(1, 2, 3, 4)).after
    assert waiting.is_reassigning
    done = made(before, RequestedChange((2, 3, 4)), context(1, 2, 3, 4))
    assert (done.after.leader, done.after.isr, done.after.leader_epoch) == (2, (2, 4), 5)


def test_an_eligible_replica_that_leaves_the_assignment_is_not_kept() -> None:
    """B4; the leader epoch grows because a replica left (R4)."""
    after = made(ALONE, RequestedChange(assignment=Assignment((1, 3))), context(1, 3)).after
    assert (after.replicas, after.elr, after.leader, after.leader_epoch) == ((1, 3), (), 1, 5)


def test_a_record_names_only_what_changed() -> None:
    """Ten thousand partitions may move at once, so nothing is said twice."""
    record = made(REASSIGNING, RequestedChange((1, 2)), context(1, 2, 3, 4)).record
    unchanged = (
        record.leader,
        record.replicas,
        record.adding_replicas,
        record.removing_replicas,
        record.original_replicas,
        record.elr,
        record.last_known_elr,
        record.last_known_leader,
        record.leader_recovery_state,
        record.min_isr,
    )
    assert record.isr == (1, 2)
    assert set(unchanged) == {None}


def test_a_leader_that_leaves_with_its_seat_is_no_last_known_leader() -> None:
    """B28: it could not be elected again, and nothing could be asked about it."""
    after = made(FULL, RequestedChange((2,), assignment=Assignment((2, 3))), context()).after
    assert (after.leader, after.last_known_leader) == (None, None)


def test_losing_a_candidate_below_min_isr_is_refused() -> None:
    """R9's third clause, for AlterPartition, fencing and unfencing (D7)."""
    with pytest.raises(InvariantBroken, match=r": isr and elr lost a member below min_isr \(R9\)$"):
        change_partition(
            TOPIC_ID, 0, ALONE, RequestedChange((1,), unclean=(2,), keeps_candidates=True), context(1)
        )


def test_a_replica_that_is_gone_when_the_record_is_made_is_not_elected() -> None:
    """D7: what is checked does not rest on what was decided from; every broken rule is told."""
    answers = iter([False, False, True, False])
    around = replace(context(), is_active=lambda replica: next(answers))
    requested = RequestedChange((2,), unclean=(1, 3), keeps_candidates=True)
    with pytest.raises(InvariantBroken, match=r"elected 2, which is not active; isr and elr lost a member"):
        change_partition(TOPIC_ID, 0, FULL, requested, around)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fence", "unfence", "unclean", "alter", "elect", "min", "forget"]),
        st.integers(1, 4),
        st.sets(st.integers(1, 4)),
    ),
    max_size=25,
)


@given(STEPS, st.booleans(), st.booleans())
def test_every_sequence_of_changes_keeps_the_invariants(
    steps: list[tuple[str, int, set[int]]], elr: bool, unclean: bool
) -> None:
    """I-6, A-9 to A-13 on random histories of one partition."""
    partition = PartitionRegistration((1, 2, 3, 4), (1, 2, 3, 4), 1, 0, 0, 2)
    active = {1, 2, 3, 4}
    min_insync = 2
    for kind, broker, others in steps:
        requested = RequestedChange()
        if kind in ("fence", "unclean", "forget"):
            active.discard(broker)
            requested = RequestedChange(
                tuple(r for r in partition.isr if r != broker),
                unclean=(broker,) if kind == "unclean" else (),
                forgotten=(broker,) if kind == "forget" else (),
                keeps_candidates=kind == "fence",
            )
        elif kind == "unfence":
            active.add(broker)
            requested = RequestedChange(keeps_candidates=True)
        elif kind == "alter":
            if partition.leader is None:
                continue
            members = (others & active) | {partition.leader}
            if partition.leader_recovery_state == RECOVERING:
                requested = RequestedChange(
                    tuple(members), leader_recovery_state=RECOVERED, keeps_candidates=True
                )
            else:
                requested = RequestedChange(tuple(members), keeps_candidates=True)
        elif kind == "min":
            min_insync = broker
        before = partition
        change = change_partition(
            TOPIC_ID,
            0,
            before,
            requested,
            context(*active, elr=elr, unclean=unclean, min_insync_replicas=min_insync),
        )
        if change is None:
            continue
        partition = change.after
        assert partition.broken_invariants() == []
        assert before.merge(change.record) == partition
        assert partition.partition_epoch == before.partition_epoch + 1
        assert partition.leader_epoch == before.leader_epoch + (change.record.leader is not None)
        assert partition.leader is None or partition.leader in active
        assert (partition.leader == before.leader) or change.record.leader is not None
        if elr and partition.leader is None:
            assert partition.isr == ()
            assert not active & set(partition.elr), "an eligible active replica must lead"
        if partition.leader is not None and before.leader != partition.leader:
            was_complete = set(before.isr + before.elr)
            is_unclean = change.reason is not None and change.reason.is_unclean
            assert is_unclean or partition.leader in was_complete
            if is_unclean:
                assert partition.leader_recovery_state == RECOVERING
            else:
                assert partition.leader_recovery_state == before.leader_recovery_state
