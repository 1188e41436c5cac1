"""What a partition remembers of idempotent producers, so that a retried batch is stored once (R90-R94).

Owns the last five batches of each producer id. Built from batch headers only, on leader and followers alike,
so replicas with the same log have the same state. Touches no file; `rows` and `from_rows` make its snapshot.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import CONTROL, SEQUENCE_MODULUS, BatchHeader

#: Batches remembered per producer: as many as a client may have in flight (R90).
BATCHES_KEPT = 5
#: Producers remembered per partition; beyond that the one silent for longest is dropped.
PRODUCERS_MAX = 10_000


class KeptBatch(NamedTuple):
    """One appended batch of a producer; sequences and offsets are inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Duplicate(NamedTuple):
    """The batch was appended before: answer with these offsets, append nothing (R91)."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class Rejected(NamedTuple):
    """The batch must not be appended; the error to answer."""

    error_code: ErrorCode
    text: str


class _Producer:
    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        #: batches of this epoch, oldest first, at most BATCHES_KEPT; not empty once applied
        self.batches: list[KeptBatch] = []
        #: wall time of the `expire` that first found it silent; None if it has written since the last one
        self.seen_ms: int | None = None


class ProducerState:
    """All producers of one partition, the one silent for longest first."""

    __slots__ = ("_producers", "is_whole")

    def __init__(self, *, is_whole: bool = True) -> None:
        self._producers: dict[int, _Producer] = {}
        #: each producer that has a batch in the log, or had one that retention deleted, is known: none was
        #: dropped, and the log did not come without batches of others
        self.is_whole = is_whole

    @property
    def producers(self) -> Mapping[int, _Producer]:
        """{producer id: what is remembered of it}, the one silent for longest first."""
        return self._producers

    @property
    def producer_count(self) -> int:
        """Number of remembered producers."""
        return len(self._producers)

    def check(self, header: BatchHeader) -> Duplicate | Rejected | None:
        """Check whether a client's batch may be appended; None if it may. Changes nothing.

        ErrorCodes: INVALID_RECORD, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        first = header.base_sequence
        if first < 0 or header.producer_epoch < 0:
            return Rejected(
                ErrorCode.INVALID_RECORD,
                f"producer {producer_id} sent epoch {header.producer_epoch} and sequence {first}; "
                "a batch with a producer id needs both from 0 on",
            )
        known = self._producers.get(producer_id)
        if known is None:
            # R93: who may have been forgotten goes on with any sequence, others begin at 0. Else a second
            # batch would be taken while the first was refused, and that one never again (KAFKA-15591).
            return _out_of_order(header, 0) if first and self.is_whole else None
        if header.producer_epoch < known.epoch:
            return Rejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {known.epoch} here, not {header.producer_epoch}; "
                "a newer instance took over; get a new producer id",
            )
        if header.producer_epoch > known.epoch:
            if first == 0:
                return None
            return _out_of_order(header, 0)
        last_sequence = header.last_sequence
        for batch in known.batches:
            if batch.first_sequence == first and batch.last_sequence == last_sequence:
                return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
        expected = (known.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        return None if first == expected else _out_of_order(header, expected)

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Record a batch that is in the log at `base_offset`, on leader or follower; checks nothing (R94)."""
        producer_id = header.producer_id
        if producer_id < 0 and not header.record_count:
            self.is_whole = False  # compaction has joined batches of any producers
        if producer_id < 0 or header.attributes & CONTROL:
            return
        producer = self._producers.pop(producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _Producer(header.producer_epoch)
        producer.seen_ms = None
        batches = producer.batches
        batches.append(
            KeptBatch(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        self._producers[producer_id] = producer
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]
            self.is_whole = False

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Drop producers that were silent for `expiration_ms`; returns how many. Silence is measured from
        call to call, because the timestamps in batches are the client's and may be old."""
        silent: list[int] = []
        for producer_id, producer in self._producers.items():
            if producer.seen_ms is None:
                producer.seen_ms = wall_ms
            elif wall_ms - producer.seen_ms > expiration_ms:
                silent.append(producer_id)
        for producer_id in silent:
            del self._producers[producer_id]
        if silent:
            self.is_whole = False
        return len(silent)

    def ends(self) -> frozenset[tuple[int, int]]:
        """(producer id, last offset) of each batch that is known."""
        return frozenset(
            (producer_id, batch.last_offset)
            for producer_id, producer in self._producers.items()
            for batch in producer.batches
        )

    def rows(self) -> list[Any]:
        """The state as plain lists in order, for `from_rows`."""
        return [
            [producer_id, producer.epoch, [list(batch) for batch in producer.batches]]
            for producer_id, producer in self._producers.items()
        ]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]], *, is_whole: bool) -> "ProducerState":
        """The inverse of `rows`. Raises: ValueError or TypeError when the rows are not a snapshot."""
        state = cls(is_whole=is_whole)
        for producer_id, epoch, batches in rows:
            producer = _Producer(int(epoch))
            producer.batches = [KeptBatch(*map(int, batch)) for batch in batches]
            if not 0 < len(producer.batches) <= BATCHES_KEPT:
                raise ValueError(f"producer {producer_id} has {len(producer.batches)} batches")
            state._producers[int(producer_id)] = producer
        return state


def _out_of_order(header: BatchHeader, expected: int) -> Rejected:
    return Rejected(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
        f"expected {expected}; resend the batches before it, or get a new producer epoch",
    )
