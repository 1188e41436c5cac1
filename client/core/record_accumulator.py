"""What a producer has to send: its queues, what each of them waits for, and the batches without outcome.

Owns buffered bytes, the order in which batches began, and their ends: every batch is finished here, once.
When a queue may go on and which outcome a batch has, `client.core.sender` and `client.core.rerouter` decide.
Never knows brokers or requests.
"""

from holdfast.client.core.batch import Batch, Compression
from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.outcomes import DeliveryOutcome, outcome_without_ack
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.producer_identity import ProducerIdentity
from holdfast.client.core.sender_effects import Complete, Effect, SenderConfig
from holdfast.protocol.errors import ErrorCode


class RecordAccumulator:
    """Of one producer."""

    __slots__ = (
        "_config",
        "_identity",
        "buffered_bytes",
        "ready",
        "held",
        "incomplete",
        "newest_serial",
        "queues",
        "waiting_for_leader",
    )

    def __init__(self, config: SenderConfig, identity: ProducerIdentity) -> None:
        self._config = config
        self._identity = identity
        #: by topic and partition
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        #: bytes of all records without outcome, before compression
        self.buffered_bytes = 0
        #: of the youngest batch
        self.newest_serial = 0
        #: batches without outcome, oldest first
        self.incomplete: dict[Batch, None] = {}
        #: queues that may have something to send
        self.ready: dict[PartitionQueue, None] = {}
        #: queues that wait for a pause to end
        self.held: dict[PartitionQueue, None] = {}
        #: queues whose leader failed or is missing: metadata must bring news
        self.waiting_for_leader: dict[PartitionQueue, None] = {}

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition, made on first use."""
        found = self.queues.get((topic, partition))
        if found is None:
            config = self._config
            found = self.queues[topic, partition] = PartitionQueue(
                topic,
                partition,
                idempotent=config.idempotent,
                in_flight_max=config.in_flight_max,
                batch_size_bytes=config.batch_size_bytes,
            )
        return found

    def queue_of(self, batch: Batch) -> PartitionQueue:
        """The queue that the batch is in."""
        return self.queues[batch.topic, batch.partition]

    # --- batches --------------------------------------------------------------------------------------

    def open_batch(self, queue: PartitionQueue, now_ms: int) -> Batch:
        """Close the open batch of the queue, if any, and open another."""
        config = self._config
        self.newest_serial += 1
        batch = Batch(
            queue.topic,
            queue.partition,
            self.newest_serial,
            queue.batch_size_bytes,
            config.compression,
            now_ms,
            now_ms + config.delivery_timeout_ms,
        )
        if queue.open is not None:
            self.ready[queue] = None
        queue.roll(batch)
        self.incomplete[batch] = None
        return batch

    def split(self, queue: PartitionQueue, batch: Batch) -> None:
        """It was refused as too large: its halves take its place."""
        halves = queue.split(batch)
        self.buffered_bytes -= batch.size_bytes - _EMPTY_BATCH_BYTES
        self.buffered_bytes += sum(half.size_bytes - _EMPTY_BATCH_BYTES for half in halves)
        # They are as old as the whole was: time-outs and `flush` rely on the order.
        self.incomplete = {
            part: None for other in self.incomplete for part in (halves if other is batch else (other,))
        }

    def give_up(
        self, queue: PartitionQueue, batch: Batch, effects: list[Effect], code: ErrorCode | None, text: str
    ) -> None:
        """End a batch without acknowledgement; whether it may be in a log, its attempts say."""
        queue.gave_up(batch)
        self.finish(batch, outcome_without_ack(batch.unanswered), effects, code, text)

    def finish(
        self,
        batch: Batch,
        outcome: DeliveryOutcome,
        effects: list[Effect],
        error: ErrorCode | None = None,
        error_text: str = "",
        *,
        base_offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        """The batch has its outcome; its queue has let go of it."""
        self.buffered_bytes -= batch.size_bytes - _EMPTY_BATCH_BYTES
        assert self.buffered_bytes >= 0
        del self.incomplete[batch]
        batch.finish(
            outcome, base_offset=base_offset, leader_epoch=leader_epoch, error=error, error_text=error_text
        )
        effects.append(Complete(batch))

    # --- what queues wait for -------------------------------------------------------------------------

    def look_again(self, queue: PartitionQueue) -> None:
        """It waits for no pause and no identity any more, and may have something to send."""
        self.held.pop(queue, None)
        self._identity.waiting.pop(queue, None)
        self.ready[queue] = None

    def stick(self, queue: PartitionQueue, effects: list[Effect]) -> None:
        """Only news of its leader let it go on."""
        self.waiting_for_leader[queue] = None
        effects.append(RefreshMetadata())

    def returned(self, queue: PartitionQueue, effects: list[Effect]) -> None:
        """A batch of it has come back from a broker, acknowledged or not."""
        self.settle(queue, effects)
        if queue.hold_until_ms == 0 or queue not in self.held:
            self.look_again(queue)

    def settle(self, queue: PartitionQueue, effects: list[Effect]) -> None:
        """Once nothing is in flight behind a gap (R92): what may be in a log ends, the rest is sent under the
        next epoch."""
        if not queue.broken or queue.in_flight > 0:
            return
        for batch in queue.settle():
            code = batch.error or ErrorCode.UNKNOWN_SERVER_ERROR
            text = f"{queue.topic}-{queue.partition}: the log lost sight of its producer ({batch.error_text})"
            self.finish(batch, DeliveryOutcome.INFO, effects, code, text)


_EMPTY_BATCH_BYTES = Batch("", -1, 0, 1, Compression.NONE, 0, 0).size_bytes
