"""ISR proposals on their way to the controller (R44, R45)."""

from collections.abc import Callable

import pytest

from holdfast.broker.core.replicas.alter_partition import RETRY_MS, AlterPartitionQueue
from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import RECOVERED

A, B = PartitionId(b"a" * 16, 0), PartitionId(b"b" * 16, 1)


def proposal(*isr: int, partition_epoch: int = 0) -> Proposal:
    return Proposal(isr, tuple(-1 if r == 1 else 10 * r for r in isr), 4, partition_epoch)


def test_one_request_carries_all_that_waits_and_names_broker_epochs() -> None:
    queue = AlterPartitionQueue()
    queue.submit(B, proposal(1, 3))
    queue.submit(A, proposal(1, 2))
    request = queue.next_request(1, 77, 3, 0)
    assert request is not None
    assert (request.broker_id, request.broker_epoch) == (1, 77)
    assert [row.topic_id for row in request.partitions] == [A.topic_id, B.topic_id]
    row = request.partitions[0]
    assert [(member.broker_id, member.broker_epoch) for member in row.new_isr] == [(1, -1), (2, 20)]
    assert (row.leader_epoch, row.partition_epoch) == (4, 0)
    assert row.leader_recovery_state == RECOVERED, "R56: said with the first proposal"


def test_one_request_in_flight() -> None:
    """R45."""
    queue = AlterPartitionQueue()
    queue.submit(A, proposal(1, 2))
    assert queue.next_request(1, 77, 3, 0) is not None
    queue.submit(B, proposal(1, 3))
    assert queue.next_request(1, 77, 3, 0) is None
    assert list(queue.take_in_flight()) == [A]
    assert queue.next_request(1, 77, 3, 0) is not None


def test_failed_request_is_repeated_after_a_pause() -> None:
    """R45: 50 ms after a request-level error."""
    queue = AlterPartitionQueue()
    queue.submit(A, proposal(1, 2))
    first = queue.next_request(1, 77, 3, 1000)
    queue.failed(1000)
    assert queue.next_request(1, 77, 3, 1000 + RETRY_MS - 1) is None
    assert queue.next_deadline_ms() == 1000 + RETRY_MS
    again = queue.next_request(1, 77, 3, 1000 + RETRY_MS)
    assert first is not None
    assert again is not None
    assert again.partitions == first.partitions


def test_every_request_has_a_higher_number_and_the_epoch_of_its_controller() -> None:
    """R44: what was sent before a request that the controller has heard must be void."""
    queue = AlterPartitionQueue()
    queue.submit(A, proposal(1, 2))
    first = queue.next_request(1, 77, 3, 1000)
    queue.failed(1000)
    again = queue.next_request(1, 77, 3, 1000 + RETRY_MS)
    queue.failed(1000)
    elsewhere = queue.next_request(1, 77, 4, 1000 + RETRY_MS)
    sent = [request for request in (first, again, elsewhere) if request is not None]
    assert [(r.controller_epoch, r.request_number) for r in sent] == [(3, 1), (3, 2), (4, 1)]


def test_a_broker_goes_on_above_a_number_that_was_taken_in_its_name() -> None:
    queue = AlterPartitionQueue()
    queue.submit(A, proposal(1, 2))
    assert queue.next_request(1, 77, 3, 1000) is not None
    queue.heard(1 << 40)
    queue.heard(-1)
    queue.failed(1000)
    again = queue.next_request(1, 77, 3, 1000 + RETRY_MS)
    assert again is not None
    assert again.request_number == (1 << 40) + 1


@pytest.mark.parametrize(
    "repeat", [lambda queue: queue.failed(0), lambda queue: queue.retry(queue.take_in_flight().items(), 0)]
)
def test_newer_proposal_wins_over_a_repeated_one(repeat: Callable[[AlterPartitionQueue], None]) -> None:
    """After an error as when another controller is to be asked."""
    queue = AlterPartitionQueue()
    queue.submit(A, proposal(1, 2))
    queue.next_request(1, 77, 3, 0)
    queue.submit(A, proposal(1, 2, 3, partition_epoch=1))
    repeat(queue)
    request = queue.next_request(1, 77, 3, RETRY_MS)
    assert request is not None
    assert [row.partition_epoch for row in request.partitions] == [1]


def test_closed_proposal_is_not_sent() -> None:
    queue = AlterPartitionQueue()
    queue.submit(A, proposal(1, 2))
    queue.withdraw(A)
    assert queue.next_request(1, 77, 3, 0) is None
    assert queue.next_deadline_ms() is None
