"""Reassignments beyond the scenario files (R100-R105)."""

import pytest

from holdfast.controller.core.operators.operations import OperationResult, Reassign
from holdfast.protocol.errors import ErrorCode
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3, 4, 5)
    create(made, "t", -1, -1, (2, 1, 3))
    return made


def reassign(quorum: Quorum, *replicas: int, name: str = "t") -> ErrorCode:
    outcome: OperationResult = quorum.request(Reassign(name, 0, replicas))
    assert (outcome.error_message is None) == (outcome.error_code is ErrorCode.NONE)
    return outcome.error_code


def cancel(quorum: Quorum) -> ErrorCode:
    code: ErrorCode = quorum.request(Reassign("t", 0, None)).error_code
    return code


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9), (1, -1)])
def test_an_impossible_target_is_refused(quorum: Quorum, target: tuple[int, ...]) -> None:
    """R104."""
    assert reassign(quorum, *target) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_unknown_topic_is_refused(quorum: Quorum) -> None:
    assert reassign(quorum, 1, name="x") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_another_order_is_taken_at_once(quorum: Quorum) -> None:
    before = quorum.partition("t")
    assert reassign(quorum, 1, 2, 3) is ErrorCode.NONE
    after = quorum.partition("t")
    assert (after.replicas, after.leader, after.is_reassigning) == ((1, 2, 3), 2, False)
    assert after.leader_epoch == before.leader_epoch


def test_fewer_replicas_are_complete_at_once_when_enough_of_them_are_in_sync(quorum: Quorum) -> None:
    """R101: the condition is looked at with the first record too."""
    assert reassign(quorum, 1, 3) is ErrorCode.NONE
    after = quorum.partition("t")
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((1, 3), (1, 3), 1, 1)


def test_overlapping_reassignments_count_from_the_original_list(quorum: Quorum) -> None:
    """R105, B12: a cancel restores the list before the first of them, in its order."""
    assert reassign(quorum, 2, 1, 4) is ErrorCode.NONE
    assert reassign(quorum, 5, 1, 2) is ErrorCode.NONE
    moving = quorum.partition("t")
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((5, 1, 2, 3), (5,), (3,))
    assert moving.original_replicas == (2, 1, 3)
    assert cancel(quorum) is ErrorCode.NONE
    after = quorum.partition("t")
    assert (after.replicas, after.isr, after.is_reassigning) == ((2, 1, 3), (1, 2, 3), False)


def test_asking_for_the_original_list_ends_the_reassignment(quorum: Quorum) -> None:
    """B12."""
    reassign(quorum, 2, 1, 4)
    assert reassign(quorum, 2, 1, 3) is ErrorCode.NONE
    after = quorum.partition("t")
    assert (after.replicas, after.is_reassigning) == ((2, 1, 3), False)
    assert cancel(quorum) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_redirecting_may_not_cut_the_isr_below_min_isr(quorum: Quorum) -> None:
    """R103: as with a cancel, 4 may be the only one that has the records."""
    reassign(quorum, 2, 4, 5)
    quorum.alter("t", (2, 4))
    assert reassign(quorum, 2, 1, 5) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cancel(quorum) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert quorum.partition("t").isr == (2, 4)


def test_min_isr_follows_the_original_count_until_completion() -> None:
    """R109."""
    quorum = Quorum(make_config(min_insync_replicas="3"))
    quorum.start_brokers(1, 2, 3, 4)
    create(quorum, "t", -1, -1, (1, 2))
    reassign(quorum, 1, 2, 3, 4)
    assert quorum.partition("t").min_isr == 2
    quorum.alter("t", (1, 2, 3))
    assert quorum.partition("t").is_reassigning
    quorum.alter("t", (1, 2, 3, 4))
    after = quorum.partition("t")
    assert (after.min_isr, after.isr, after.is_reassigning) == (3, (1, 2, 3, 4), False)
