"""What a producer and a consumer have done so far, in numbers. All counters only grow; a rate is the
difference of two of them over the time between.

Owns the counters; who counts is the shell, once a batch and never once a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.client.core.batch import Batch
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.topic_names import TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """Of one producer, from its start on."""

    records_acknowledged: int
    #: ended without acknowledgement, and surely in no log
    records_refused: int
    #: ended without acknowledgement, and perhaps in a log
    records_unknown: int
    batches_acknowledged: int
    #: keys, values and headers with their encoding, before compression
    bytes_acknowledged: int
    requests_sent: int
    #: how often a batch was sent again
    batches_repeated: int
    #: from the first record of an acknowledged batch to its acknowledgement, the batching time included
    delivery_ms_sum: int
    delivery_ms_max: int
    #: of records that have no outcome now
    buffered_bytes: int


class ProducerCounters:
    """The counters of one producer."""

    __slots__ = (
        "_acknowledged",
        "_batches",
        "_bytes",
        "_delivery_ms_max",
        "_delivery_ms_sum",
        "_refused",
        "_repeated",
        "_unknown",
    )

    def __init__(self) -> None:
        self._acknowledged = self._refused = self._unknown = 0
        self._batches = self._bytes = self._repeated = 0
        self._delivery_ms_sum = self._delivery_ms_max = 0

    def complete(self, batch: Batch, now_ms: int) -> None:
        """The batch has its outcome."""
        self._repeated += max(0, batch.attempt - 1)
        if batch.outcome is DeliveryOutcome.FAIL:
            self._refused += batch.count
        elif batch.outcome is DeliveryOutcome.INFO:
            self._unknown += batch.count
        else:
            self._acknowledged += batch.count
            self._batches += 1
            self._bytes += batch.size_bytes
            waited_ms = now_ms - batch.created_ms
            self._delivery_ms_sum += waited_ms
            if waited_ms > self._delivery_ms_max:
                self._delivery_ms_max = waited_ms

    def metrics(self, requests_sent: int, buffered_bytes: int) -> ProducerMetrics:
        """As they are now."""
        return ProducerMetrics(
            records_acknowledged=self._acknowledged,
            records_refused=self._refused,
            records_unknown=self._unknown,
            batches_acknowledged=self._batches,
            bytes_acknowledged=self._bytes,
            requests_sent=requests_sent,
            batches_repeated=self._repeated,
            delivery_ms_sum=self._delivery_ms_sum,
            delivery_ms_max=self._delivery_ms_max,
            buffered_bytes=buffered_bytes,
        )


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """Of one consumer, from its start on."""

    #: taken out of what was fetched ahead; a seek may have skipped some of them since
    records_read: int
    batches_read: int
    #: as they came, so compressed
    bytes_read: int
    requests_sent: int
    #: fetched ahead and not read yet
    buffered_bytes: int
    #: by partition, records between the position and the high watermark; None while one of them is unknown
    lag: Mapping[TopicPartition, int | None]
