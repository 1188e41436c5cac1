"""The producer's decisions: what to send where and when, and what each answer means.

Owns requests in flight and the state of connections as reported. Queues and batches are
`client.core.record_accumulator`'s, and what news of leaders mean for them is `client.core.rerouter`'s. Takes
events and `now_ms`, returns effects, never does anything. Rules: D9 (at once on a reset, pauses
only on repeat), D12 and R90-R93 (idempotence, with `partition_queue`).
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from holdfast.client.core.batch import Batch, ProducerIdAndEpoch
from holdfast.client.core.broker_link import BrokerLink, Link
from holdfast.client.core.effects import Connect, RefreshMetadata
from holdfast.client.core.errors import code_of
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.outcomes import DeliveryOutcome, Reaction, reaction_to, refused_before_append
from holdfast.client.core.partition_queue import IN_FLIGHT_MAX, PartitionQueue
from holdfast.client.core.produce_packing import Packing, Request
from holdfast.client.core.producer_identity import ProducerIdentity
from holdfast.client.core.record_accumulator import RecordAccumulator
from holdfast.client.core.rerouter import Rerouter
from holdfast.client.core.sender_effects import Effect, SendBatches, SenderConfig
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.produce import ProducePartitionResponse, ProduceResponse

# --- state ---------------------------------------------------------------------------------------------


class _Broker(BrokerLink):
    __slots__ = ("waiting",)

    def __init__(self) -> None:
        super().__init__()
        #: queues to look at again once the link is up
        self.waiting: dict[PartitionQueue, None] = {}


class Sender:
    """All decisions of one producer."""

    def __init__(self, config: SenderConfig, cache: MetadataCache) -> None:
        assert config.in_flight_max <= IN_FLIGHT_MAX or not config.idempotent
        self._config = config
        self._cache = cache
        self._identity = ProducerIdentity(config.retry)
        self._accumulator = RecordAccumulator(config, self._identity)
        self._rerouter = Rerouter(cache, self._accumulator, self._identity)
        self._brokers: dict[int, _Broker] = {}
        #: open batches in order of their linger deadline
        self._lingering: deque[tuple[int, PartitionQueue, Batch]] = deque()
        self._requests: dict[int, Request] = {}
        self._request_id = 0
        self._stall_check_ms = 0

    # --- reading --------------------------------------------------------------------------------------

    @property
    def accumulator(self) -> RecordAccumulator:
        """What it has to send. Read only: while a queue is `ready`, `drain` could find something new."""
        return self._accumulator

    @property
    def buffered_bytes(self) -> int:
        """Bytes of all records without outcome, before compression."""
        return self._accumulator.buffered_bytes

    @property
    def identity(self) -> ProducerIdAndEpoch | None:
        """Id and epoch of new batches; None before the first was given."""
        return self._identity.newest

    @property
    def newest_serial(self) -> int:
        """Serial of the youngest batch."""
        return self._accumulator.newest_serial

    @property
    def oldest_incomplete_serial(self) -> int:
        """Serial of the oldest batch without outcome; above `newest_serial` when there is none."""
        for batch in self._accumulator.incomplete:
            return batch.serial
        return self._accumulator.newest_serial + 1

    @property
    def busy_topics(self) -> frozenset[str]:
        """Topics with records that have no outcome yet."""
        return frozenset(batch.topic for batch in self._accumulator.incomplete)

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition, made on first use."""
        return self._accumulator.queue(topic, partition)

    def is_available(self, queue: PartitionQueue) -> bool:
        """False while the partition has no leader that answers."""
        return (
            queue not in self._accumulator.waiting_for_leader
            and self._cache.leader(queue.topic, queue.partition).broker_id >= 0
        )

    # --- records --------------------------------------------------------------------------------------

    def append(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        tag: Any,
    ) -> Batch | None:
        """Add a record to the open batch; None when there is none with room: `open_batch`, then again."""
        batch = queue.open
        if batch is None:
            return None
        size = batch.append(timestamp_ms, key, value, headers)
        if size == 0:
            return None
        self._accumulator.buffered_bytes += size
        if tag is not None:
            batch.tags.append(tag)
        return batch

    def open_batch(self, queue: PartitionQueue, now_ms: int) -> None:
        """Close the open batch of the partition, if any, and open another."""
        batch = self._accumulator.open_batch(queue, now_ms)
        if self._config.linger_ms > 0:
            self._lingering.append((now_ms + self._config.linger_ms, queue, batch))
        else:
            queue.due = True
            self._accumulator.ready[queue] = None

    def close_batch(self, queue: PartitionQueue) -> None:
        """Close the open batch of the partition, if any: it is full."""
        if queue.open is not None:
            queue.close()
            self._accumulator.ready[queue] = None

    def hurry(self) -> None:
        """Send what is there without waiting for the linger time."""
        for _, queue, batch in self._lingering:
            if queue.open is batch:
                queue.due = True
                self._accumulator.ready[queue] = None
        self._lingering.clear()

    def give_up_all(self, text: str) -> list[Effect]:
        """End every batch without acknowledgement: the producer closes."""
        effects: list[Effect] = []
        for batch in list(self._accumulator.incomplete):
            code = batch.error or ErrorCode.REQUEST_TIMED_OUT
            self._accumulator.give_up(self._accumulator.queue_of(batch), batch, effects, code, text)
        return effects

    def want_identity(self) -> None:
        """Take an identity before the first record needs it."""
        if self._config.idempotent:
            self._identity.want()

    # --- the drain ------------------------------------------------------------------------------------

    def drain(self, now_ms: int) -> list[Effect]:
        """Everything that is to be done now."""
        effects: list[Effect] = []
        self._expire(now_ms, effects)
        self._end_linger(now_ms)
        self._end_holds(now_ms)
        if self._accumulator.ready:
            self._send(now_ms, effects)
        question = self._identity.question(now_ms)
        if question is not None:
            effects.append(question)
        if self._is_stalled(now_ms):
            self._stall_check_ms = now_ms + self._config.stall_ms
            effects.append(RefreshMetadata())
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `drain` should be called at the latest although nothing happened."""
        deadlines: list[int] = []
        while self._lingering and self._lingering[0][1].open is not self._lingering[0][2]:
            self._lingering.popleft()
        if self._lingering:
            deadlines.append(self._lingering[0][0])
        for batch in self._accumulator.incomplete:
            deadlines.append(batch.deadline_ms)
            break
        deadlines.extend(queue.hold_until_ms for queue in self._accumulator.held)
        question_ms = self._identity.next_deadline_ms()
        if question_ms is not None:
            deadlines.append(question_ms)
        for request in self._requests.values():
            deadlines.append(max(request.sent_ms + self._config.stall_ms, self._stall_check_ms))
            break
        return min(deadlines, default=None)

    def _expire(self, now_ms: int, effects: list[Effect]) -> None:
        # All batches have the same time to live, so the oldest expires first.
        while self._accumulator.incomplete:
            batch = next(iter(self._accumulator.incomplete))
            if batch.deadline_ms > now_ms:
                return
            queue = self._accumulator.queue_of(batch)
            error, trouble = batch.error, batch.error_text or queue.trouble
            if queue.needs_identity and self._identity.trouble:
                error, trouble = self._identity.error, self._identity.trouble
            reason = trouble or "no broker took it"
            patience_ms = self._config.delivery_timeout_ms
            text = f"{queue.topic}-{queue.partition}: not acknowledged within {patience_ms} ms ({reason})"
            self._accumulator.give_up(queue, batch, effects, error or ErrorCode.REQUEST_TIMED_OUT, text)
            self._accumulator.settle(queue, effects)
            self._accumulator.look_again(queue)

    def _end_linger(self, now_ms: int) -> None:
        lingering = self._lingering
        while lingering and lingering[0][0] <= now_ms:
            _, queue, batch = lingering.popleft()
            if queue.open is batch:
                queue.due = True
                self._accumulator.ready[queue] = None

    def _end_holds(self, now_ms: int) -> None:
        if self._accumulator.held:
            for queue in [queue for queue in self._accumulator.held if queue.hold_until_ms <= now_ms]:
                self._accumulator.look_again(queue)

    def _is_stalled(self, now_ms: int) -> bool:
        for request in self._requests.values():
            return now_ms >= max(request.sent_ms + self._config.stall_ms, self._stall_check_ms)
        return False

    def _send(self, now_ms: int, effects: list[Effect]) -> None:
        #: by broker, in the order in which they were met
        packings: dict[int, Packing] = {}
        queues = list(self._accumulator.ready)
        self._accumulator.ready.clear()
        for queue in queues:
            if queue.is_idle:
                continue
            if queue.hold_until_ms > now_ms:
                self._accumulator.held[queue] = None
                continue
            leader = self._cache.leader(queue.topic, queue.partition)
            if leader.broker_id < 0:
                self._accumulator.stick(queue, effects)
                continue
            broker = self._broker(leader.broker_id)
            if not broker.is_up:
                self._wait_for_link(queue, broker, leader.broker_id, now_ms, effects)
                continue
            view = self._cache.topic(queue.topic)
            assert view is not None, "who has a leader is known"
            queue.go_to(view.topic_id)
            packing = packings.get(leader.broker_id)
            if packing is None:
                packing = packings[leader.broker_id] = Packing(self._config.request_size_bytes_max)
            packing.take(queue, now_ms, self.identity, leader.leader_epoch)
            if queue.needs_identity:
                self._identity.waiting[queue] = None
        for broker_id, packing in packings.items():
            for parts in packing.requests():
                self._request_id += 1
                self._requests[self._request_id] = Request(broker_id, now_ms, parts)
                batches = tuple(part.batch for part in parts)
                effects.append(SendBatches(self._request_id, broker_id, batches))

    def _wait_for_link(
        self, queue: PartitionQueue, broker: _Broker, broker_id: int, now_ms: int, effects: list[Effect]
    ) -> None:
        if broker.begin(now_ms):
            effects.append(Connect(broker_id))
        elif broker.state is Link.DOWN:
            # Known to be dead: news of another leader must end this wait, too.
            queue.hold_until_ms = max(queue.hold_until_ms, broker.retry_ms)
            queue.stale_epoch = self._cache.leader(queue.topic, queue.partition).leader_epoch
            self._accumulator.held[queue] = None
            self._accumulator.stick(queue, effects)
            return
        broker.waiting[queue] = None

    def _broker(self, broker_id: int) -> _Broker:
        found = self._brokers.get(broker_id)
        if found is None:
            found = self._brokers[broker_id] = _Broker()
        return found

    # --- events: connections, metadata, identity ------------------------------------------------------

    def connected(self, broker_id: int) -> None:
        """The connection stands."""
        broker = self._broker(broker_id)
        broker.connected()
        for queue in broker.waiting:
            self._accumulator.ready[queue] = None
        broker.waiting.clear()

    def connect_failed(self, broker_id: int, now_ms: int, text: str) -> list[Effect]:
        """The connection was refused, or no answer came: look for other leaders, and pause before the next
        try."""
        broker = self._broker(broker_id)
        broker.failed(now_ms, self._config.retry)
        effects: list[Effect] = []
        for queue in broker.waiting:
            epoch = self._cache.leader(queue.topic, queue.partition).leader_epoch
            self._trouble(queue, now_ms, effects, stale_epoch=epoch)
            queue.trouble = text
        broker.waiting.clear()
        return effects

    def _leave_dead_links(self) -> None:
        # An attempt to connect to a silent host takes seconds; its partitions may be led elsewhere by now.
        for broker_id, broker in self._brokers.items():
            for queue in list(broker.waiting):
                if self._cache.leader(queue.topic, queue.partition).broker_id != broker_id:
                    del broker.waiting[queue]
                    self._accumulator.ready[queue] = None

    def disconnected(self, broker_id: int) -> None:
        """The connection is gone; its requests are reported one by one with `request_failed`."""
        self._broker(broker_id).lost()

    def metadata_changed(self, now_ms: int) -> list[Effect]:
        """A metadata answer was merged into the cache, or none could be had."""
        effects: list[Effect] = []
        if self._rerouter.follow(effects):
            effects.append(RefreshMetadata())
        self._leave_dead_links()
        if self._config.idempotent or self._config.acks == 0:
            self._rerouter.take_back(self._requests.values(), effects)
        return effects

    def identity_given(self, identity: ProducerIdAndEpoch) -> None:
        """A fresh id or a new epoch."""
        for queue in self._identity.given(identity):
            self._accumulator.look_again(queue)

    def identity_failed(self, now_ms: int, code: ErrorCode | None, text: str) -> list[Effect]:
        """No broker gave one: try again after a pause. What waits for it fails when the refusal is final."""
        self._identity.failed(now_ms, code, text)
        effects: list[Effect] = []
        if self._identity.is_refused:
            for queue in list(self._identity.waiting):
                for batch in queue.waiting_for_identity():
                    reason = f"{queue.topic}-{queue.partition}: {self._identity.trouble}"
                    self._accumulator.give_up(queue, batch, effects, code, reason)
                self._accumulator.look_again(queue)  # it waits no more, until there is another record
        return effects

    # --- events: answers ------------------------------------------------------------------------------

    def written(self, request_id: int) -> list[Effect]:
        """acks 0: the bytes are on their way, not kept here any more; that is all that will be known."""
        assert self._config.acks == 0
        effects: list[Effect] = []
        for queue, batch, attempt in self._requests.pop(request_id).parts:
            if batch.is_done or batch.attempt != attempt:
                continue  # a slow connection: its time was over, or another leader's had come
            queue.acknowledged(batch)
            self._accumulator.finish(batch, DeliveryOutcome.OK1, effects)
            self._accumulator.ready[queue] = None
        return effects

    def answered(self, request_id: int, response: ProduceResponse, now_ms: int) -> list[Effect]:
        """The broker answered; rows are in the order of the request."""
        request = self._requests.pop(request_id)
        effects: list[Effect] = []
        rows = response.partitions
        for index, (queue, batch, attempt) in enumerate(request.parts):
            if batch.is_done:
                continue
            if index >= len(rows) or rows[index].partition_index != batch.partition:
                self._unknown(queue, batch, attempt, now_ms, effects, "the answer has no row for it")
                continue
            self._judge(queue, batch, attempt, rows[index], now_ms, effects)
        return effects

    def request_failed(self, request_id: int, now_ms: int, text: str, *, was_sent: bool) -> list[Effect]:
        """No answer will come: time-out, lost connection, or (`was_sent` False) it was never written."""
        request = self._requests.pop(request_id)
        effects: list[Effect] = []
        for queue, batch, attempt in request.parts:
            if batch.is_done:
                continue
            if was_sent:
                self._unknown(queue, batch, attempt, now_ms, effects, text)
            elif queue.returned(batch, attempt, refused=True):
                batch.error, batch.error_text = ErrorCode.NETWORK_EXCEPTION, text
                self._trouble(queue, now_ms, effects, stale_epoch=batch.sent_epoch)
                self._accumulator.returned(queue, effects)
        return effects

    def request_refused(self, request_id: int, now_ms: int, code: ErrorCode, text: str) -> list[Effect]:
        """The whole request was refused, by the broker or before it was written, and nothing was done."""
        if reaction_to(code) not in (Reaction.TOO_LARGE, Reaction.HOPELESS):
            return self.request_failed(request_id, now_ms, text, was_sent=False)
        # No repetition helps: that is a verdict on each of its batches.
        rows = (
            ProducePartitionResponse(bytes(16), part.batch.partition, code, text, -1, -1, -1, -1)
            for part in self._requests[request_id].parts
        )
        return self.answered(request_id, ProduceResponse(tuple(rows)), now_ms)

    def _unknown(
        self,
        queue: PartitionQueue,
        batch: Batch,
        attempt: int,
        now_ms: int,
        effects: list[Effect],
        text: str,
    ) -> None:
        if not queue.returned(batch, attempt, refused=False):
            return
        batch.error, batch.error_text = ErrorCode.NETWORK_EXCEPTION, text
        self._trouble(queue, now_ms, effects, stale_epoch=batch.sent_epoch)
        self._accumulator.returned(queue, effects)

    def _judge(
        self,
        queue: PartitionQueue,
        batch: Batch,
        attempt: int,
        row: ProducePartitionResponse,
        now_ms: int,
        effects: list[Effect],
    ) -> None:
        code = code_of(row.error_code)
        reaction = reaction_to(code)
        if reaction is Reaction.APPENDED:
            self._accumulator.waiting_for_leader.pop(queue, None)
            queue.acknowledged(batch)
            outcome = DeliveryOutcome.OK if self._config.acks == -1 else DeliveryOutcome.OK1
            self._accumulator.finish(
                batch, outcome, effects, base_offset=row.base_offset, leader_epoch=row.leader_epoch
            )
            self._accumulator.returned(queue, effects)
            return
        as_head = batch.sent_as_head
        was_last = queue.returned(batch, attempt, refused=refused_before_append(reaction))
        batch.error, batch.error_text = code, row.error_message or code.name
        if not was_last:
            return
        if reaction is Reaction.TOO_LARGE and batch.count > 1 and batch.unanswered == 0:
            self._accumulator.split(queue, batch)
        elif reaction in (Reaction.TOO_LARGE, Reaction.HOPELESS):
            self._accumulator.give_up(queue, batch, effects, code, batch.error_text)
        elif reaction is Reaction.FENCED:
            self._identity.fenced(queue.identity)
            queue.broken = True
        elif reaction is Reaction.GAP:
            # Behind another batch the gap is that batch, and closes when it is sent again (R92).
            queue.broken = queue.broken or (as_head and batch is queue.sent[0])
        elif reaction in (Reaction.REFUSED_BY_OTHER, Reaction.UNKNOWN_MOVED):
            # Of the topic that the answer is about: one of its name may have been made since.
            if self._cache.note_leader(
                queue.topic, row.topic_id, queue.partition, row.leader_id, row.leader_epoch
            ):
                queue.failures += 1
            else:
                self._trouble(queue, now_ms, effects, stale_epoch=batch.sent_epoch)
        else:
            self._trouble(queue, now_ms, effects, stale_epoch=-1)
        self._accumulator.returned(queue, effects)

    def _trouble(
        self, queue: PartitionQueue, now_ms: int, effects: list[Effect], *, stale_epoch: int
    ) -> None:
        # One failure of the connection returns many batches at once and counts once.
        if queue.hold_until_ms <= now_ms:
            queue.failures += 1
            queue.hold_until_ms = now_ms + self._config.retry.pause_ms(queue.failures)
        self._accumulator.held[queue] = None
        leader = self._cache.leader(queue.topic, queue.partition)
        if stale_epoch >= 0 and leader.leader_epoch <= stale_epoch:
            queue.stale_epoch = stale_epoch
            self._accumulator.waiting_for_leader[queue] = None
            effects.append(RefreshMetadata())
        elif stale_epoch >= 0:
            queue.hold_until_ms = 0  # the news are here already
