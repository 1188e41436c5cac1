"""Finds the record of a time: one batch is read and, in slices, walked through.

Owns how long the event loop is held by that, and what is answered about a batch whose records cannot be read.
"""

from typing import NamedTuple

from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.record_batch import BatchHeader, CorruptBatch, record_times
from holdfast.runtime.api import Clock
from holdfast.storage.log import Log

#: Records that are passed before others have their turn.
SLICE_RECORDS = 1000
#: A batch that unpacks to more is not walked through: unpacking is one step.
UNPACKED_MAX_BYTES = 16 << 20


class FoundRecord(NamedTuple):
    """A record's timestamp and offset."""

    timestamp_ms: int
    offset: int


async def find_record(log: Log, timestamp_ms: int, clock: Clock) -> FoundRecord | None:
    """The first record at or after `timestamp_ms`; None when there is none.

    When the records of its batch cannot be read, the first offset of the batch: from there no record of that
    time is missed. Raises: DiskError.
    """
    header = log.times.split_batch()
    if header is not None and header.max_timestamp >= timestamp_ms:
        found = await _record_in(log, header, timestamp_ms, clock)
        if found is not None:
            return found
    return await _find_in_whole(log, timestamp_ms, clock)


async def find_newest(log: Log, clock: Clock) -> FoundRecord | None:
    """The first of the records that have the largest timestamp; None when no record has one.

    When the records of its batch cannot be read, the first offset of the batch. Raises: DiskError.
    """
    newest_ms = max(0, await log.times.newest_ms())
    header = log.times.split_batch()
    if header is not None and header.max_timestamp >= newest_ms:
        found = await _record_in(log, header, None, clock)
        if found is not None and found.timestamp_ms >= newest_ms:
            return found
    return await _find_in_whole(log, newest_ms, clock)


async def _find_in_whole(log: Log, timestamp_ms: int, clock: Clock) -> FoundRecord | None:
    """In the batches of which no record is deleted."""
    header = await log.times.first_since(timestamp_ms)
    if header is None:
        return None
    # without one: the header says that there is one, and what is read from its first offset on tells
    return await _record_in(log, header, timestamp_ms, clock) or _whole(header, header.base_offset)


async def _record_in(
    log: Log, header: BatchHeader, timestamp_ms: int | None, clock: Clock
) -> FoundRecord | None:
    """The first record of a batch at or after `timestamp_ms`; with None, the first of its newest ones.
    Deleted ones are passed over. The batch is read before others have their turn. Raises: DiskError."""
    start = max(header.base_offset, log.log_start_offset)
    batch = log.read(start, 1, header.next_offset)
    newest: FoundRecord | None = None
    try:
        for passed, (offset, time_ms) in enumerate(record_times(unpack_batch(batch, UNPACKED_MAX_BYTES)), 1):
            if offset >= start:
                if timestamp_ms is not None and time_ms >= timestamp_ms:
                    return FoundRecord(time_ms, offset)
                if timestamp_ms is None and (newest is None or time_ms > newest.timestamp_ms):
                    newest = FoundRecord(time_ms, offset)
            if passed % SLICE_RECORDS == 0:
                await clock.sleep(0)
    except CorruptBatch:
        return _whole(header, start)  # the consumer that reads it says so
    return newest


def _whole(header: BatchHeader, offset: int) -> FoundRecord:
    """Of a batch whose records are not known."""
    return FoundRecord(header.max_timestamp, offset)
