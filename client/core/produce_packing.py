"""Packs batches for one broker into produce requests.

Owns which batch goes into which request: those of a partition into different ones, in their order, since a
request takes one batch of each.
"""

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.client.core.batch import Batch, ProducerIdAndEpoch
from holdfast.client.core.partition_queue import PartitionQueue


class Part(NamedTuple):
    """One batch of a request, and the number of the attempt: a later one makes this answer old."""

    queue: PartitionQueue
    batch: Batch
    attempt: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request without answer."""

    broker_id: int
    sent_ms: int
    parts: tuple[Part, ...]


class _Load:
    __slots__ = ("parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.size_bytes = 0

    def has_room(self, size_bytes: int, limit_bytes: int) -> bool:
        return not self.parts or self.size_bytes + size_bytes <= limit_bytes


class Packing:
    """The requests to one broker in the making."""

    __slots__ = ("_limit_bytes", "_loads")

    def __init__(self, limit_bytes: int) -> None:
        #: of the batches in a request
        self._limit_bytes = limit_bytes
        self._loads: list[_Load] = []

    def take(
        self, queue: PartitionQueue, now_ms: int, identity: ProducerIdAndEpoch | None, leader_epoch: int
    ) -> None:
        """All that the queue may send now."""
        position = 0
        while (batch := queue.next_batch(now_ms, identity, leader_epoch)) is not None:
            assert batch.payload is not None
            size = len(batch.payload)
            while position < len(self._loads) and not self._loads[position].has_room(size, self._limit_bytes):
                position += 1
            if position == len(self._loads):
                self._loads.append(_Load())
            load = self._loads[position]
            load.parts.append(Part(queue, batch, batch.attempt))
            load.size_bytes += size
            position += 1

    def requests(self) -> list[tuple[Part, ...]]:
        """What each request holds, in the order in which they are to be sent."""
        return [tuple(load.parts) for load in self._loads]
