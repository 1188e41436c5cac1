"""What `Producer.submit` returns: the future of one record, and where an acknowledged one is.

Owns nothing: it reads the outcome from the record's batch, also behind splits.
"""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import ProduceFailed
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.topic_names import TopicPartition


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is."""

    topic: str
    partition: int
    #: -1 with acks 0
    offset: int
    #: of the leader that appended it; -1 with acks 0
    leader_epoch: int
    #: that the record carries, in ms since 1970
    timestamp_ms: int


class Delivery:
    """The future of one record: `await` it, or ask.

    Awaiting it may be cancelled, which changes nothing for the record, and repeated, also by several tasks.
    """

    __slots__ = ("_index", "_timestamp_ms", "_whole")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._whole = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def _batch(self) -> Batch:
        # Look behind splits, once: the record is in one of the halves.
        while self._whole.halves is not None:
            first, second = self._whole.halves
            if self._index < first.count:
                self._whole = first
            else:
                self._whole, self._index = second, self._index - first.count
        return self._whole

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes."""
        return TopicPartition(self._batch.topic, self._batch.partition)

    def done(self) -> bool:
        """True once there is an outcome."""
        return self._batch.is_done

    def result(self) -> RecordMetadata:
        """Where the record is. Raises: ProduceFailed; asyncio.InvalidStateError before `done`."""
        batch = self._batch
        if batch.outcome is None:
            raise asyncio.InvalidStateError("the record has no outcome yet")
        if batch.outcome in (DeliveryOutcome.OK, DeliveryOutcome.OK1):
            offset = batch.base_offset if batch.base_offset < 0 else batch.base_offset + self._index
            return RecordMetadata(
                batch.topic, batch.partition, offset, batch.leader_epoch, self._timestamp_ms
            )
        batch.is_told = True
        may_be_appended = batch.outcome is DeliveryOutcome.INFO
        raise ProduceFailed(batch.error_text, batch.error, may_be_appended=may_be_appended)

    def add_done_callback(self, callback: "Callable[[Delivery], None]") -> None:
        """Call back with this delivery once it is done; at once when it is.

        What it raises later goes to the event loop's exception handler.
        """
        if self._batch.is_done:
            callback(self)
        else:
            self._batch.waiters.append((self._index, partial(callback, self)))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            # One future for each waiter: cancelling one must not cancel the others.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._batch.waiters.append((self._index, partial(wake, waiter)))
            yield from waiter
        return self.result()


def wake(waiter: "asyncio.Future[None]") -> None:
    """End a wait, unless the waiter gave up."""
    if not waiter.done():
        waiter.set_result(None)
