"""AlterPartition requests that come too late (R44): copies in some buffer, for another tenure."""

import pytest

from holdfast.controller.core.partitions.proposal_order import NUMBER_JUMP_MAX, ProposalOrder
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


def request(
    number: int, *, epoch: int = 5, broker_id: int = 1, broker_epoch: int = 10
) -> AlterPartitionRequest:
    return AlterPartitionRequest(broker_id, broker_epoch, (), epoch, number)


@pytest.fixture
def order() -> ProposalOrder:
    order = ProposalOrder()
    order.start(5)
    return order


def code(order: ProposalOrder, late: AlterPartitionRequest, registered_epoch: int = 10) -> int | None:
    answer = order.refusal(late, registered_epoch)
    return None if answer is None else answer.error_code


def test_rising_numbers_count_and_the_others_come_too_late(order: ProposalOrder) -> None:
    assert code(order, request(3)) is None
    assert code(order, request(4)) is None
    for number in (3, 4):
        assert code(order, request(number)) == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert code(order, request(1, broker_id=2)) is None, "each broker has its own numbers"


def test_numbers_begin_anew_with_a_registration(order: ProposalOrder) -> None:
    assert code(order, request(9)) is None
    assert code(order, request(1, broker_epoch=11), 11) is None
    assert code(order, request(1, broker_epoch=11), 11) == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_requests_of_other_registrations_are_for_others_to_refuse_and_count_for_nothing(
    order: ProposalOrder,
) -> None:
    """R40; they would void all that the broker sends from now on."""
    for broker_epoch in (-1, 9, 11, (1 << 63) - 1):
        assert code(order, request(7, broker_epoch=broker_epoch)) is None
    assert order.refusal(request(7), None) is None
    assert code(order, request(1)) is None


@pytest.mark.parametrize("number", [NUMBER_JUMP_MAX + 1, 1 << 62, (1 << 63) - 1])
def test_a_number_far_above_the_last_one_is_taken_for_none(order: ProposalOrder, number: int) -> None:
    assert code(order, request(number)) == ErrorCode.INVALID_REQUEST
    assert code(order, request(1)) is None
    assert code(order, request(NUMBER_JUMP_MAX)) is None
    assert code(order, request(2 * NUMBER_JUMP_MAX + 1)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("number", [0, -2, -(1 << 63)])
def test_numbers_below_the_first_one_come_too_late(order: ProposalOrder, number: int) -> None:
    assert code(order, request(number)) == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_who_comes_too_late_hears_above_which_number_to_go_on(order: ProposalOrder) -> None:
    assert code(order, request(70)) is None
    answer = order.refusal(request(3), 10)
    assert answer is not None
    assert answer.last_request_number == 70
    order.start(6)
    assert code(order, request(1, epoch=6)) is None, "numbers begin anew with a tenure"


def test_request_for_another_tenure_is_void(order: ProposalOrder) -> None:
    """A controller that led before, and leads again, has not heard what its followers answered meanwhile."""
    assert code(order, request(3)) is None
    order.start(7)
    assert code(order, request(4)) == ErrorCode.NOT_CONTROLLER
    assert code(order, request(4, epoch=7)) is None


def test_peers_that_know_of_neither_are_not_ordered(order: ProposalOrder) -> None:
    old = AlterPartitionRequest(1, 10, ())
    assert code(order, request(9)) is None
    assert code(order, old) is None


def test_copy_found_after_its_replica_was_unfenced_does_not_let_it_in() -> None:
    """The leader was told INELIGIBLE_REPLICA by a later copy, and has committed records without it since."""
    quorum = Quorum(make_config(min_insync_replicas="2"))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", -1, -1, (1, 2, 3))
    quorum.vanish(3)
    quorum.start_brokers(3)
    epochs = {broker_id: broker.broker_epoch for broker_id, broker in quorum.image.brokers.items()}
    row = AlterPartitionPartition(
        quorum.topic("t").topic_id,
        0,
        0,
        quorum.partition("t").partition_epoch,
        (IsrMember(1, -1), IsrMember(2, epochs[2]), IsrMember(3, epochs[3])),
        0,
    )
    quorum.vanish(3)
    later = AlterPartitionRequest(1, epochs[1], (row,), quorum.raft_epoch, 2)
    assert quorum.request(later).partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    assert not quorum.heartbeat(3).is_fenced
    copy = AlterPartitionRequest(1, epochs[1], (row,), quorum.raft_epoch, 1)
    assert quorum.request(copy).error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert quorum.partition("t").isr == (1, 2)
