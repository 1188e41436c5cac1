"""Finds the record of a time: one batch is read and, in slices, walked through.

Owns how long the event loop is held by that, and what is answered about a batch whose records cannot be read.
"""

from typing import NamedTuple

from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.record_batch import CorruptBatch, parse_header, record_times
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
    batch = log.batch_for_timestamp(timestamp_ms)
    if batch is None:
        return None
    log_start_offset = log.log_start_offset
    try:
        passed = 0
        for offset, time_ms in record_times(unpack_batch(batch, UNPACKED_MAX_BYTES)):
            if time_ms >= timestamp_ms and offset >= log_start_offset:
                return FoundRecord(time_ms, offset)
            passed += 1
            if passed % SLICE_RECORDS == 0:
                await clock.sleep(0)
    except CorruptBatch:
        pass  # the consumer that reads it says so
    header = parse_header(batch)
    return FoundRecord(header.max_timestamp, max(header.base_offset, log_start_offset))
