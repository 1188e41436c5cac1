"""What a producer's counters make of the ends of batches."""

from holdfast.client.core.batch import Batch, Compression
from holdfast.client.core.metrics import ProducerCounters
from holdfast.client.core.outcomes import DeliveryOutcome


def ended(outcome: DeliveryOutcome, *, records: int = 1, attempts: int = 1, created_ms: int = 0) -> Batch:
    batch = Batch("t", 0, 1, 10_000, Compression.NONE, created_ms, created_ms + 1_000)
    for _ in range(records):
        batch.append(0, None, b"v", ())
    batch.attempt = attempts
    batch.finish(outcome)
    return batch


def test_records_count_by_what_became_of_them() -> None:
    counters = ProducerCounters()
    for outcome, records in (
        (DeliveryOutcome.OK, 2),
        (DeliveryOutcome.OK1, 3),
        (DeliveryOutcome.FAIL, 4),
        (DeliveryOutcome.INFO, 5),
    ):
        counters.complete(ended(outcome, records=records), now_ms=10)
    metrics = counters.metrics(requests_sent=6, buffered_bytes=7)
    assert metrics.records_acknowledged == 5
    assert metrics.records_refused == 4
    assert metrics.records_unknown == 5
    assert metrics.batches_acknowledged == 2
    assert metrics.bytes_acknowledged > 0
    assert (metrics.requests_sent, metrics.buffered_bytes) == (6, 7)


def test_the_time_to_the_acknowledgement_counts_from_the_first_record_of_a_batch() -> None:
    counters = ProducerCounters()
    counters.complete(ended(DeliveryOutcome.OK, created_ms=100), now_ms=130)
    counters.complete(ended(DeliveryOutcome.OK, created_ms=100), now_ms=110)
    counters.complete(ended(DeliveryOutcome.FAIL, created_ms=0), now_ms=900)
    metrics = counters.metrics(0, 0)
    assert (metrics.delivery_ms_sum, metrics.delivery_ms_max) == (40, 30)


def test_only_further_attempts_are_repetitions() -> None:
    counters = ProducerCounters()
    for attempts in (0, 1, 3):
        counters.complete(ended(DeliveryOutcome.INFO, attempts=attempts), now_ms=0)
    assert counters.metrics(0, 0).batches_repeated == 2
