"""What a producer has to send, and how batches end: once, with bytes and order kept."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.batch import Batch, Compression, ProducerIdAndEpoch
from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.producer_identity import ProducerIdentity
from holdfast.client.core.record_accumulator import RecordAccumulator
from holdfast.client.core.sender_effects import Complete, Effect, SenderConfig
from holdfast.protocol.errors import ErrorCode

CONFIG = SenderConfig(
    acks=-1,
    idempotent=True,
    linger_ms=0,
    batch_size_bytes=1_000,
    request_size_bytes_max=1 << 20,
    compression=Compression.NONE,
    delivery_timeout_ms=10_000,
    stall_ms=500,
    retry=Backoff(20, 500),
)


class Bench:
    """An outbox and the effects that came of it."""

    def __init__(self) -> None:
        self.identity = ProducerIdentity(CONFIG.retry)
        self.box = RecordAccumulator(CONFIG, self.identity)
        self.effects: list[Effect] = []

    def open(self, partition: int, records: int = 1, now_ms: int = 0) -> tuple[PartitionQueue, Batch]:
        """A batch of so many records, due."""
        queue = self.box.queue("t", partition)
        batch = self.box.open_batch(queue, now_ms)
        for _ in range(records):
            self.box.buffered_bytes += batch.append(5, None, bytes(100), ())
        queue.due = True
        return queue, batch

    def send(self, queue: PartitionQueue) -> None:
        assert queue.next_batch(0, ProducerIdAndEpoch(7, 0), 1) is not None

    def ended(self) -> list[Batch]:
        return [effect.batch for effect in self.effects if isinstance(effect, Complete)]


def test_a_partition_has_one_queue() -> None:
    box = Bench().box
    assert box.queue("t", 0) is box.queue("t", 0)
    assert box.queue("t", 0) is not box.queue("t", 1)
    assert box.queue("t", 0).batch_size_bytes == 1_000


def test_batches_are_numbered_by_age_and_the_one_before_is_closed_for_good() -> None:
    bench = Bench()
    queue, first = bench.open(0, now_ms=3)
    _, second = bench.open(0, now_ms=4)
    assert (first.serial, second.serial, bench.box.newest_serial) == (1, 2, 2)
    assert (first.deadline_ms, second.deadline_ms) == (10_003, 10_004)
    assert (list(queue.ready), queue.open) == ([first], second)
    assert list(bench.box.incomplete) == [first, second]
    assert list(bench.box.ready) == [queue]
    assert bench.box.queue_of(first) is queue


def test_a_batch_that_is_given_up_ends_with_what_its_attempts_allow_and_gives_its_bytes_back() -> None:
    bench = Bench()
    unsent, sent = bench.open(0), bench.open(1)
    bench.send(sent[0])
    for queue, batch in (unsent, sent):
        bench.box.give_up(queue, batch, bench.effects, ErrorCode.REQUEST_TIMED_OUT, "too late")
    assert bench.ended() == [unsent[1], sent[1]]
    assert (unsent[1].outcome, sent[1].outcome) == (DeliveryOutcome.FAIL, DeliveryOutcome.INFO)
    assert (sent[1].error, sent[1].error_text) == (ErrorCode.REQUEST_TIMED_OUT, "too late")
    assert (bench.box.buffered_bytes, list(bench.box.incomplete)) == (0, [])


def test_halves_are_as_old_as_the_whole_and_their_bytes_are_counted_once() -> None:
    bench = Bench()
    queue, whole = bench.open(0, records=4)
    _, younger = bench.open(1)
    before = bench.box.buffered_bytes
    bench.send(queue)
    assert queue.returned(whole, 1, refused=True)
    bench.box.split(queue, whole)
    assert list(bench.box.incomplete) == [*queue.sent, younger]
    assert [half.count for half in queue.sent] == [2, 2]
    assert bench.box.buffered_bytes == before
    for half in list(queue.sent):
        bench.box.give_up(queue, half, bench.effects, None, "")
    bench.box.give_up(bench.box.queue("t", 1), younger, bench.effects, None, "")
    assert bench.box.buffered_bytes == 0


def test_a_queue_that_is_looked_at_again_waits_for_no_pause_and_no_identity() -> None:
    bench = Bench()
    queue, _ = bench.open(0)
    bench.box.held[queue] = bench.identity.waiting[queue] = None
    bench.box.look_again(queue)
    assert (bench.box.held, bench.identity.waiting, list(bench.box.ready)) == ({}, {}, [queue])


def test_who_is_stuck_asks_for_metadata() -> None:
    bench = Bench()
    queue, _ = bench.open(0)
    bench.box.stick(queue, bench.effects)
    assert list(bench.box.waiting_for_leader) == [queue]
    assert bench.effects == [RefreshMetadata()]


def test_after_a_batch_has_come_back_its_queue_goes_on_unless_a_pause_holds_it() -> None:
    bench = Bench()
    queue, _ = bench.open(0)
    queue.hold_until_ms = 50
    bench.box.held[queue] = None
    bench.box.returned(queue, bench.effects)
    assert (list(bench.box.held), list(bench.box.ready)) == ([queue], [])
    queue.hold_until_ms = 0
    bench.box.returned(queue, bench.effects)
    assert (list(bench.box.held), list(bench.box.ready)) == ([], [queue])


def test_behind_a_gap_nothing_is_settled_while_a_batch_is_in_flight() -> None:
    """R92: what was sent may be in a log; what never was is sent under the next epoch."""
    bench = Bench()
    queue, batch = bench.open(0)
    bench.send(queue)
    batch.error_text = "out of order"
    queue.broken = True
    bench.box.settle(queue, bench.effects)
    assert bench.ended() == []
    assert queue.returned(batch, 1, refused=False)
    bench.box.settle(queue, bench.effects)
    assert bench.ended() == [batch]
    assert batch.outcome is DeliveryOutcome.INFO
    assert "out of order" in batch.error_text
