"""Open ISR proposals of this broker: one in flight a partition, one AlterPartition request in flight a
broker (R45).

Owns the queue and the retries; what an answer means for a partition is `Partition.alter_answered` (R44).
Everything that piles up while a request is under way goes out together with the next one.
"""

from collections.abc import Iterable

from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)

#: Pause after a request that failed as a whole (R45).
RETRY_MS = 50
#: Most partitions of one request; the others follow in the next.
PARTITIONS_MAX = 1000


class AlterPartitionQueue:
    """Proposals that wait, and those that are under way."""

    __slots__ = ("_in_flight", "_last_number", "_not_before_ms", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[PartitionId, Proposal] = {}
        #: {partition: proposal} of the request under way, None for no request
        self._in_flight: dict[PartitionId, Proposal] | None = None
        self._not_before_ms = 0
        #: requests are numbered, so that a copy in some buffer is void once a later one was heard
        self._last_number = 0

    @property
    def is_in_flight(self) -> bool:
        """A request is under way."""
        return self._in_flight is not None

    def submit(self, key: PartitionId, proposal: Proposal) -> None:
        """Ask for this ISR. A waiting older proposal of the partition is replaced."""
        self._waiting[key] = proposal

    def withdraw(self, key: PartitionId) -> None:
        """The partition has no open proposal any more: do not send a waiting one."""
        self._waiting.pop(key, None)

    def clear(self) -> None:
        """Forget everything: our registration is over."""
        self._waiting.clear()
        self._in_flight = None

    def next_request(
        self, broker_id: int, broker_epoch: int, controller_epoch: int, now_ms: int
    ) -> AlterPartitionRequest | None:
        """The request to send now, None when there is nothing to send or it is not the time."""
        if self._in_flight is not None or not self._waiting or now_ms < self._not_before_ms:
            return None
        keys = sorted(self._waiting)[:PARTITIONS_MAX]
        self._in_flight = {key: self._waiting.pop(key) for key in keys}
        rows = tuple(_row(key, proposal) for key, proposal in self._in_flight.items())
        self._last_number += 1
        return AlterPartitionRequest(broker_id, broker_epoch, rows, controller_epoch, self._last_number)

    def take_in_flight(self) -> dict[PartitionId, Proposal]:
        """The request was answered: what it had asked for, by partition."""
        in_flight = self._in_flight
        assert in_flight is not None
        self._in_flight = None
        return in_flight

    def failed(self, now_ms: int) -> None:
        """The request failed as a whole: everything waits again, for RETRY_MS."""
        for key, proposal in self.take_in_flight().items():
            self._waiting.setdefault(key, proposal)
        self._not_before_ms = now_ms + RETRY_MS

    def retry(self, proposals: Iterable[tuple[PartitionId, Proposal]], now_ms: int) -> None:
        """Send these again after RETRY_MS."""
        for key, proposal in proposals:
            self._waiting.setdefault(key, proposal)
            self._not_before_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int | None:
        """When `next_request` may have something to send."""
        return self._not_before_ms if self._waiting and self._in_flight is None else None


def _row(key: PartitionId, proposal: Proposal) -> AlterPartitionPartition:
    # R56: a leader is RECOVERED at once, and says so with the next proposal.
    return AlterPartitionPartition(
        topic_id=key.topic_id,
        partition_index=key.partition_index,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        new_isr=tuple(IsrMember(r, e) for r, e in zip(proposal.isr, proposal.broker_epochs, strict=True)),
        leader_recovery_state=0,
    )
