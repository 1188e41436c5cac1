"""Order, sequences and epochs of one partition (R90-R93, D12)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.core.batch import Batch, Compression, ProducerIdAndEpoch
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.protocol.record_batch import check_batch

FIRST = ProducerIdAndEpoch(7, 0)
SECOND = ProducerIdAndEpoch(7, 1)


def filled(serial: int, count: int = 1) -> Batch:
    batch = Batch("t", 0, serial, 10_000, Compression.NONE, 0, 1_000)
    for _ in range(count):
        assert batch.append(5, None, b"v%d" % serial, ())
    batch.tags = [(serial, index) for index in range(count)]
    return batch


def queue_of(*counts: int, idempotent: bool = True) -> PartitionQueue:
    queue = PartitionQueue("t", 0, idempotent=idempotent)
    queue.ready.extend(filled(serial, count) for serial, count in enumerate(counts))
    return queue


def take(queue: PartitionQueue, identity: ProducerIdAndEpoch = FIRST) -> Batch:
    batch = queue.next_batch(0, identity, leader_epoch=1)
    assert batch is not None
    return batch


def prove(queue: PartitionQueue) -> None:
    queue.acknowledged(take(queue))


def take_all(queue: PartitionQueue) -> list[Batch]:
    taken = []
    while (batch := queue.next_batch(0, FIRST, 1)) is not None:
        taken.append(batch)
    return taken


def test_sequences_count_records_and_are_in_the_bytes() -> None:
    queue = queue_of(3, 2, 1)
    sequences = []
    for _ in range(3):
        batch = take(queue)
        assert batch.payload is not None
        header = check_batch(batch.payload)
        assert (header.producer_id, header.producer_epoch) == FIRST
        sequences.append(header.base_sequence)
        queue.acknowledged(batch)
    assert sequences == [0, 3, 5]


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    queue = queue_of(1, 4, 1)
    prove(queue)
    queue._next_sequence = 2**31 - 2
    assert [batch.base_sequence for batch in take_all(queue)] == [2**31 - 2, 2]


def test_at_most_five_batches_are_in_flight() -> None:
    queue = queue_of(*[1] * 9)
    prove(queue)
    assert len(take_all(queue)) == 5
    queue.acknowledged(queue.sent[0])
    assert len(take_all(queue)) == 1


def test_none_is_sent_five_behind_one_without_answer() -> None:
    """Brokers know a producer's last five batches (R90): the head must be among them when it comes again."""
    queue = queue_of(*[1] * 9)
    prove(queue)
    head, *behind = take_all(queue)
    for batch in behind:
        queue.acknowledged(batch)  # the head's own request waits for another partition
    assert take_all(queue) == []
    queue.acknowledged(head)
    assert len(take_all(queue)) == 3


def test_the_log_of_a_topic_made_again_gets_batches_one_by_one_until_it_has_acknowledged_one() -> None:
    """It may take any sequence (R93): one sent behind others that it refuses overtakes them."""
    queue = queue_of(*[1] * 5)
    queue.go_to(b"old")
    prove(queue)
    first, second = take(queue), take(queue)
    queue.go_to(b"new")
    assert take_all(queue) == []
    queue.acknowledged(first)  # by the old log, late
    assert take_all(queue) == []
    assert queue.returned(second, second.attempt, refused=True)
    assert take_all(queue) == [second]
    queue.acknowledged(second)
    assert len(take_all(queue)) == 2


def test_until_the_first_acknowledgement_of_an_epoch_batches_go_one_by_one() -> None:
    queue = queue_of(1, 1, 1)
    first = take(queue)
    assert take_all(queue) == []
    queue.acknowledged(first)
    assert len(take_all(queue)) == 2


def test_without_identity_nothing_is_sent_and_one_is_asked_for() -> None:
    queue = queue_of(1)
    assert queue.next_batch(0, None, 1) is None
    assert queue.needs_identity


def test_what_failed_is_sent_again_first_alone_and_unchanged() -> None:
    queue = queue_of(1, 2, 2, 1)
    prove(queue)
    second, third, fourth = take_all(queue)
    for batch in (second, third):
        assert queue.returned(batch, batch.attempt, refused=False)
    before = bytes(second.payload or b"")
    assert take_all(queue) == [second]  # the fourth is still in flight, the third must wait
    assert bytes(second.payload or b"") == before
    queue.acknowledged(fourth)
    queue.acknowledged(second)
    assert take_all(queue) == [third]


def test_new_batches_wait_while_an_older_one_has_to_be_repeated() -> None:
    queue = queue_of(1, 1, 1)
    prove(queue)
    head = take(queue)
    queue.returned(head, 1, refused=True)
    assert take(queue) is head
    assert take_all(queue) == []


def test_new_batches_do_not_overtake_one_that_came_back_behind_the_head() -> None:
    queue = queue_of(1, 1, 1)
    prove(queue)
    head, behind = take_all(queue)
    queue.ready.append(filled(9))
    queue.returned(behind, 1, refused=True)
    assert take_all(queue) == []
    queue.acknowledged(head)
    assert take_all(queue) == [behind]


def test_a_late_answer_to_an_older_attempt_does_not_end_the_newer_one() -> None:
    queue = queue_of(1)
    batch = take(queue)
    queue.returned(batch, 1, refused=False)
    assert take(queue) is batch
    assert not queue.returned(batch, 1, refused=True)
    assert batch.in_flight
    assert batch.unanswered == 1


def test_a_sent_batch_that_ends_without_acknowledgement_retires_the_epoch() -> None:
    queue = queue_of(1, 1, 1, 1)
    prove(queue)
    lost, behind = take(queue), take(queue)
    queue.gave_up(lost)
    queue.returned(behind, 1, refused=False)
    # What was sent under the old epoch is repeated under it; new batches wait.
    assert take(queue) is behind
    assert take_all(queue) == []
    queue.acknowledged(behind)
    assert queue.needs_identity
    assert queue.next_batch(0, FIRST, 1) is None
    fresh = take(queue, SECOND)
    assert fresh.base_sequence == 0
    assert check_batch(fresh.payload or b"").producer_epoch == 1


def test_a_batch_that_was_never_sent_leaves_no_gap() -> None:
    queue = queue_of(1, 1, 1)
    prove(queue)
    queue.gave_up(queue.ready[0])
    assert take(queue).base_sequence == 1
    assert not queue.retired


def test_halves_go_one_by_one_in_the_place_and_under_the_sequences_of_the_whole() -> None:
    queue = queue_of(1, 5, 2, 1)
    prove(queue)
    whole, behind, last = take_all(queue)
    for batch in (whole, behind, last):
        queue.returned(batch, 1, refused=True)
    first, second = queue.split(whole)
    assert [(half.count, half.base_sequence) for half in (first, second)] == [(2, 1), (3, 3)]
    for batch in (first, second, behind, last):
        assert take_all(queue) == [batch]
        assert check_batch(batch.payload or b"").base_sequence == batch.base_sequence
        queue.acknowledged(batch)
    assert queue.is_idle
    assert queue.batch_size_bytes == whole.size_bytes // 2


def test_after_a_gap_refused_batches_are_renumbered_and_unknown_ones_end() -> None:
    queue = queue_of(1, 2, 3, 1)
    prove(queue)
    gap, unknown, refused = take_all(queue)
    for batch, is_refusal in ((gap, True), (unknown, False), (refused, True)):
        queue.returned(batch, 1, refused=is_refusal)
    queue.broken = True
    assert queue.next_batch(0, FIRST, 1) is None
    assert queue.settle() == [unknown]
    again = take(queue, SECOND)
    assert again is gap
    assert again.base_sequence == 0
    header = check_batch(again.payload or b"")
    assert (header.producer_epoch, header.base_sequence) == (1, 0)
    queue.acknowledged(again)
    assert take(queue, SECOND) is refused
    assert refused.base_sequence == 2


def test_a_batch_that_may_be_in_a_log_never_changes_its_sequence() -> None:
    batch = take(queue_of(1))
    with pytest.raises(AssertionError):
        batch.seal(SECOND, 0)


def test_a_hold_stops_everything_until_it_ends() -> None:
    queue = queue_of(1)
    queue.hold_until_ms = 100
    assert queue.next_batch(99, FIRST, 1) is None
    assert queue.next_batch(100, FIRST, 1) is not None


def test_the_open_batch_goes_out_only_when_it_is_due() -> None:
    queue = PartitionQueue("t", 0, idempotent=True)
    queue.roll(filled(0))
    assert queue.next_batch(0, FIRST, 1) is None
    queue.due = True
    assert queue.next_batch(0, FIRST, 1) is not None
    assert queue.open is None


def test_without_idempotence_there_are_no_sequences_and_no_probation() -> None:
    queue = queue_of(1, 1, idempotent=False)
    sent = [queue.next_batch(0, None, 1), queue.next_batch(0, None, 1)]
    assert [batch.base_sequence for batch in sent if batch is not None] == [-1, -1]


class Log:
    """R90-R93 in a few lines, for a broker whose answers may get lost."""

    def __init__(self) -> None:
        self.values: list[tuple[int, int]] = []
        self.epoch = -1
        self.last: list[tuple[int, int]] = []

    def append(self, batch: Batch) -> bool:
        header = check_batch(batch.payload or b"")
        if header.producer_epoch > self.epoch:
            if header.base_sequence:
                return False
            self.epoch, self.last = header.producer_epoch, []
        elif header.producer_epoch < self.epoch:
            return False
        span = (header.base_sequence, header.last_sequence)
        if span in self.last[-5:]:
            return True
        if self.last and span[0] != self.last[-1][1] + 1:
            return False
        self.last.append(span)
        self.values += batch.tags
        return True


@given(st.lists(st.sampled_from(["ok", "lost", "refused", "too large", "expired", "late"]), max_size=60))
def test_with_any_fates_each_batch_is_written_at_most_once_and_in_order(fates: list[str]) -> None:
    """Answers are lost or late, batches expire or are split. The log shows no repetition and no step back."""
    queue = queue_of(*[4] * 12)
    log, identity, acknowledged = Log(), FIRST, []
    lingering: list[Batch] = []
    for fate in fates:
        if queue.needs_identity and queue.retired and queue.identity == identity:
            identity = ProducerIdAndEpoch(7, identity.producer_epoch + 1)
        for batch in lingering[:1] if fate == "late" else ():
            if not batch.is_done and batch.payload is not None:
                log.append(batch)
            lingering.remove(batch)
        while (taken := queue.next_batch(0, identity, 1)) is not None:
            lingering.append(taken)
        flying = [batch for batch in queue.sent if batch.in_flight]
        if not flying or fate == "late":
            continue
        batch = flying[0]
        if fate == "expired":
            queue.gave_up(batch)
        elif fate == "lost":
            log.append(batch)
            queue.returned(batch, batch.attempt, refused=False)
        elif fate in ("refused", "too large") and batch in lingering:
            lingering.remove(batch)  # a copy that was refused is not appended later
            queue.returned(batch, batch.attempt, refused=True)
            if fate == "too large" and batch.count > 1 and batch.unanswered == 0:
                queue.split(batch)
        elif not log.append(batch):
            if batch in lingering:
                lingering.remove(batch)
            queue.returned(batch, batch.attempt, refused=True)
            queue.broken = queue.broken or batch.sent_as_head
        else:
            acknowledged += batch.tags
            queue.acknowledged(batch)
        if queue.broken and queue.in_flight == 0:
            queue.settle()
    assert log.values == sorted(set(log.values))
    assert set(acknowledged) <= set(log.values)
