"""The producer's batches of one partition, from the first record to the outcome.

Owns order, sequences and epochs (R90-R93, D12): no batch is sent more than five behind one without answer,
and all are sent and sent again in the order of their sequences. Never knows brokers, requests or other
partitions.

  state of the queue      may send
  nothing sent            the oldest batch, after taking an identity if it has none or its own is retired
  proven, all in flight   the next batch, up to the limit from the oldest without answer
  not proven              nothing while one is in flight: a log that forgot it takes any first sequence (R93);
                          so too once the topic was made again: its new log knows nothing of what was proven
  head to be repeated     the head alone, until it is acknowledged
  head refused as too large  its halves one by one, in its place and under its sequences
  retired                 only repetitions; a new epoch starts when nothing sent is left
  broken                  nothing until no batch is in flight; then `settle`
"""

from collections import deque

from holdfast.client.core.batch import NO_IDENTITY, Batch, ProducerIdAndEpoch
from holdfast.protocol.record_batch import SEQUENCE_MODULUS

BATCH_SIZE_BYTES = 256 << 10
#: R90: brokers remember the last five batches of a producer in each partition.
IN_FLIGHT_MAX = 5


class PartitionQueue:
    """Batches of one partition."""

    __slots__ = (
        "_in_flight",
        "_leader_epoch",
        "_limit",
        "_next_number",
        "_next_sequence",
        "_proven",
        "batch_size_bytes",
        "broken",
        "due",
        "failures",
        "hold_until_ms",
        "idempotent",
        "identity",
        "open",
        "partition",
        "ready",
        "retired",
        "sent",
        "stale_epoch",
        "topic",
        "topic_id",
        "trouble",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        idempotent: bool,
        in_flight_max: int = IN_FLIGHT_MAX,
        batch_size_bytes: int = BATCH_SIZE_BYTES,
    ) -> None:
        assert 1 <= in_flight_max <= IN_FLIGHT_MAX or not idempotent
        self.topic = topic
        self.partition = partition
        #: of the log that batches go to now; empty before the first
        self.topic_id = b""
        #: of the leader that batches go to now
        self._leader_epoch = -1
        self.idempotent = idempotent
        self._limit = in_flight_max
        #: for new batches; less than was asked for once one was refused as too large
        self.batch_size_bytes = batch_size_bytes
        #: the batch that records are added to
        self.open: Batch | None = None
        #: the open batch need not wait for more records
        self.due = False
        #: sealed against records, not sent, in order
        self.ready: deque[Batch] = deque()
        #: sent and without outcome, ascending by sequence
        self.sent: list[Batch] = []
        self._in_flight = 0
        #: under which `sent` was and will be sent
        self.identity: ProducerIdAndEpoch | None = None if idempotent else NO_IDENTITY
        self._next_sequence = 0
        #: of the next batch that is sent for the first time under its sequence
        self._next_number = 0
        #: a batch of this identity was acknowledged by this log
        self._proven = not idempotent
        #: no new batch under this identity: a sent one ended without acknowledgement
        self.retired = False
        #: the head was refused for a gap that no repetition can fill
        self.broken = False
        #: failed attempts since the last acknowledgement, and when the next may start
        self.failures = 0
        self.hold_until_ms = 0
        #: leader epoch that failed; a later one ends the hold. -1: the leader is fine
        self.stale_epoch = -1
        #: what last kept it from sending, for people
        self.trouble = ""

    @property
    def in_flight(self) -> int:
        """Batches waiting for an answer."""
        return self._in_flight

    @property
    def is_idle(self) -> bool:
        """True when it holds no record without outcome."""
        return not self.sent and not self.ready and self.open is None

    @property
    def needs_identity(self) -> bool:
        """True when only a new identity lets it go on."""
        return (
            self.idempotent
            and not self.sent
            and (self.identity is None or self.retired)
            and (bool(self.ready) or (self.open is not None and self.due))
        )

    def waiting_for_identity(self) -> list[Batch]:
        """Batches that would leave if there were an identity, oldest first."""
        if not self.needs_identity:
            return []
        return [*self.ready, self.open] if self.open is not None and self.due else list(self.ready)

    # --- filling --------------------------------------------------------------------------------------

    def roll(self, batch: Batch) -> None:
        """Close the open batch to records and make `batch` the open one."""
        if self.open is not None:
            self.close()
        self.open = batch
        self.due = False

    def close(self) -> None:
        """Close the open batch to records."""
        assert self.open is not None
        self.ready.append(self.open)
        self.open = None
        self.due = False

    # --- sending --------------------------------------------------------------------------------------

    def go_to(self, topic_id: bytes) -> None:
        """Batches go to the log of this topic from now on."""
        if topic_id != self.topic_id:
            self.topic_id = topic_id
            self._proven = not self.idempotent

    def leave_identity(self) -> bool:
        """No batch under this identity any more, repetitions neither: another producer has it now. True when
        there was one; then `settle` as soon as nothing is in flight."""
        if not self.idempotent or self.identity is None:
            return False
        self.retired = True
        self.broken = bool(self.sent)
        return True

    def next_batch(self, now_ms: int, identity: ProducerIdAndEpoch | None, leader_epoch: int) -> Batch | None:
        """The batch to send now, marked as sent, or None. `identity` is the producer's newest."""
        if self.hold_until_ms > now_ms or self.broken:
            return None
        if leader_epoch != self._leader_epoch:
            # Its log may know nothing of us: cut by an unclean election, or by retention before the copy.
            self._leader_epoch = leader_epoch
            self._proven = not self.idempotent
        sent = self.sent
        if sent:
            head = sent[0]
            if not head.in_flight:
                return self._mark(head, leader_epoch, is_head=True)
            if self.retired or self._in_flight < len(sent) or head.attempt > 1:
                return None
            # A broker that has the head must still know it when it comes again, also behind later batches
            # (R90).
            reach = self._next_number - head.number if self.idempotent else self._in_flight
            if reach >= (self._limit if self._proven else 1):
                return None
        if not self.ready:
            if self.open is None or not self.due:
                return None
            self.close()
        if self.idempotent and (self.identity is None or self.retired):
            assert not sent, "what was sent keeps its identity until it has its outcome"
            if identity is None or identity == self.identity:
                return None
            self.identity = identity
            self._next_sequence = 0
            self._proven = False
            self.retired = False
        batch = self.ready.popleft()
        assert self.identity is not None
        if self.idempotent:
            batch.seal(self.identity, self._next_sequence)
            self._next_sequence = (self._next_sequence + batch.count) % SEQUENCE_MODULUS
        else:
            batch.seal(NO_IDENTITY, -1)
        batch.number = self._next_number
        self._next_number += 1
        sent.append(batch)
        return self._mark(batch, leader_epoch, is_head=len(sent) == 1)

    def _mark(self, batch: Batch, leader_epoch: int, *, is_head: bool) -> Batch:
        assert not batch.in_flight and not batch.is_done
        batch.in_flight = True
        batch.attempt += 1
        batch.unanswered += 1
        batch.sent_as_head = is_head
        batch.sent_epoch = leader_epoch
        batch.sent_topic_id = self.topic_id
        self._in_flight += 1
        assert not self.idempotent or self._in_flight <= IN_FLIGHT_MAX
        return batch

    # --- answers --------------------------------------------------------------------------------------

    def acknowledged(self, batch: Batch) -> None:
        """It is in the log: forget it."""
        self._remove(batch)
        sent_to = batch.sent_topic_id, batch.sent_epoch
        self._proven = self._proven or sent_to == (self.topic_id, self._leader_epoch)
        self.failures = 0
        self.hold_until_ms = 0
        self.stale_epoch = -1

    def returned(self, batch: Batch, attempt: int, *, refused: bool) -> bool:
        """That attempt failed, `refused` before the append or with unknown effect. True when it was the last
        attempt, so that the batch has to be sent again."""
        if refused:
            batch.unanswered -= 1
            assert batch.unanswered >= 0
        if attempt != batch.attempt or not batch.in_flight:
            return False
        batch.in_flight = False
        self._in_flight -= 1
        return True

    def gave_up(self, batch: Batch) -> None:
        """It ends without acknowledgement. If it was sent its sequence leaves a gap, so the epoch is over."""
        if batch in self.sent:
            self._remove(batch)
            self.retired = self.idempotent
        elif batch is self.open:
            self.open = None
            self.due = False
        else:
            self.ready.remove(batch)

    def split(self, batch: Batch) -> tuple[Batch, Batch]:
        """It was refused as too large, by every node that was asked: its halves take its place."""
        assert not batch.in_flight
        at, sequence = self.sent.index(batch), batch.base_sequence
        assert self.identity is not None
        halves = batch.split()
        for half in halves:
            half.seal(self.identity, sequence)
            half.number = batch.number
            if self.idempotent:
                sequence = (sequence + half.count) % SEQUENCE_MODULUS
        self.sent[at : at + 1] = halves
        self.batch_size_bytes = min(self.batch_size_bytes, batch.size_bytes // 2)
        return halves

    def settle(self) -> list[Batch]:
        """After a gap: queue again what no log holds, under the next epoch; returns the batches whose fate is
        unknown, which end here. Needs `broken` and nothing in flight."""
        assert self.broken and self._in_flight == 0
        unknown = [batch for batch in self.sent if batch.unanswered > 0]
        self.ready.extendleft(batch for batch in reversed(self.sent) if batch.unanswered == 0)
        self.sent.clear()
        self.broken = False
        self.retired = True
        return unknown

    def _remove(self, batch: Batch) -> None:
        self.sent.remove(batch)
        if batch.in_flight:
            batch.in_flight = False
            self._in_flight -= 1
