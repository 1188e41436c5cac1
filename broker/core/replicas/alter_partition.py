"""ISR proposals on their way to the controller: one open per partition, one request in flight per broker
(R45).

Owns the queue and the retries; `Partition.alter_answered` decides what an answer means (R44). Proposals that
come while a request is under way go out together in the next one.
"""

from collections.abc import Iterable

from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)

#: Pause in ms after a request that failed as a whole (R45).
RETRY_MS = 50
#: Most partitions of one request; the others follow in the next.
PARTITIONS_MAX = 1000


class AlterPartitionQueue:
    """Proposals that wait and proposals under way."""

    __slots__ = ("_controller_epoch", "_in_flight", "_last_number", "_not_before_ms", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[PartitionId, Proposal] = {}
        #: {partition: proposal} of the request under way, None for no request
        self._in_flight: dict[PartitionId, Proposal] | None = None
        self._not_before_ms = 0
        #: requests to a controller epoch are numbered: the controller drops a delayed copy of an earlier one
        self._last_number = 0
        self._controller_epoch = -1

    @property
    def is_in_flight(self) -> bool:
        """A request is under way."""
        return self._in_flight is not None

    def submit(self, key: PartitionId, proposal: Proposal) -> None:
        """Queue a proposal. It replaces an older queued one of the partition."""
        self._waiting[key] = proposal

    def withdraw(self, key: PartitionId) -> None:
        """Drop the queued proposal of a partition that has no open one any more."""
        self._waiting.pop(key, None)

    def clear(self) -> None:
        """Drop all proposals: the registration is over."""
        self._waiting.clear()
        self._in_flight = None

    def next_request(
        self, broker_id: int, broker_epoch: int, controller_epoch: int, now_ms: int
    ) -> AlterPartitionRequest | None:
        """The request to send now, None when there is nothing to send or a pause is under way."""
        if self._in_flight is not None or not self._waiting or now_ms < self._not_before_ms:
            return None
        keys = sorted(self._waiting)[:PARTITIONS_MAX]
        self._in_flight = {key: self._waiting.pop(key) for key in keys}
        rows = tuple(_row(key, proposal) for key, proposal in self._in_flight.items())
        if controller_epoch != self._controller_epoch:
            self._controller_epoch, self._last_number = controller_epoch, 0
        self._last_number += 1
        return AlterPartitionRequest(broker_id, broker_epoch, rows, controller_epoch, self._last_number)

    def take_in_flight(self) -> dict[PartitionId, Proposal]:
        """End the request under way; returns its proposals by partition."""
        in_flight = self._in_flight
        assert in_flight is not None
        self._in_flight = None
        return in_flight

    def heard(self, last_number: int) -> None:
        """The controller has had a request with this number, in this broker's name: go on above it."""
        self._last_number = max(self._last_number, last_number)

    def failed(self, now_ms: int) -> None:
        """The request failed as a whole: queue its proposals again, after RETRY_MS."""
        for key, proposal in self.take_in_flight().items():
            self._waiting.setdefault(key, proposal)
        self._not_before_ms = now_ms + RETRY_MS

    def retry(self, proposals: Iterable[tuple[PartitionId, Proposal]], now_ms: int) -> None:
        """Send these proposals again after RETRY_MS."""
        for key, proposal in proposals:
            self._waiting.setdefault(key, proposal)
            self._not_before_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int | None:
        """When `next_request` may have something to send."""
        return self._not_before_ms if self._waiting and self._in_flight is None else None


def _row(key: PartitionId, proposal: Proposal) -> AlterPartitionPartition:
    # R56: a new leader ends RECOVERING at once and reports that with its next proposal.
    return AlterPartitionPartition(
        topic_id=key.topic_id,
        partition_index=key.partition_index,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        new_isr=tuple(IsrMember(r, e) for r, e in zip(proposal.isr, proposal.broker_epochs, strict=True)),
        leader_recovery_state=0,
    )
