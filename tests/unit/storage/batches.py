"""Batches for storage tests, and the slow reading of a log that everything else is compared with."""

from collections.abc import Sequence

from holdfast.protocol.record_batch import Record, encode_batch, iter_batches
from holdfast.storage.log import Log


def batch(
    record_count: int = 1,
    *,
    size: int = 10,
    timestamp_ms: int = 1000,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """One batch of records with one timestamp and values of `size` bytes."""
    records = [
        Record(base_offset + number, timestamp_ms, None, b"v" * size) for number in range(record_count)
    ]
    return encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def read_all(log: Log, max_bytes: int = 1 << 20) -> bytes:
    """Everything from the log start to its end, by as many reads as it takes."""
    parts: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes, log.log_end_offset)
        offset = [header.next_offset for header, _ in iter_batches(part)][-1]
        parts.append(part)
    return b"".join(parts)


def offsets(log: Log) -> list[tuple[int, int]]:
    """(base offset, leader epoch) of every batch in the log."""
    return [(header.base_offset, header.leader_epoch) for header, _ in iter_batches(read_all(log))]


def stamped(batches: Sequence[bytes]) -> bytes:
    """The batches one behind the other, as a leader sends them."""
    return b"".join(batches)
