"""What is appended to a log: whether batches from a leader continue it (R84), and the result."""

from typing import NamedTuple

from holdfast.protocol.record_batch import BatchHeader, Buffer, check_batches


class InvalidAppend(Exception):
    """Batches from a leader that do not continue this log; none of them was written (R84)."""


class BeginsWithinBatch(InvalidAppend):
    """The first batch for an empty log begins below it: deleted records come with those that are kept."""


class Appended(NamedTuple):
    """Result of an append. Offsets are inclusive."""

    base_offset: int
    last_offset: int
    size_bytes: int
    record_count: int
    #: the flush policy asks for a flush now
    must_flush: bool


class LogSpan(NamedTuple):
    """What the check needs to know of a log."""

    log_start_offset: int
    log_end_offset: int
    last_epoch: int


def check_continuation(records: Buffer, log: LogSpan, leader_epoch: int | None) -> list[BatchHeader]:
    """The headers of whole batches that continue the log. Each crc must be valid, offsets must continue the
    log, and epochs must not fall or be above `leader_epoch`. Raises: CorruptBatch, InvalidAppend."""
    headers: list[BatchHeader] = []
    start_offset, next_offset, last_epoch = log
    for header in check_batches(records):
        if header.base_offset != next_offset:
            if header.base_offset < next_offset == start_offset < header.next_offset:
                raise BeginsWithinBatch(f"batch at offset {header.base_offset}, begin there anew")
            raise InvalidAppend(f"batch at offset {header.base_offset}, expected {next_offset}")
        if header.leader_epoch < last_epoch or (
            leader_epoch is not None and header.leader_epoch > leader_epoch
        ):
            raise InvalidAppend(
                f"batch at offset {next_offset} has epoch {header.leader_epoch}, not {last_epoch} to "
                f"{leader_epoch}; fetch again with the present leader epoch"
            )
        next_offset, last_epoch = header.next_offset, header.leader_epoch
        headers.append(header)
    return headers
