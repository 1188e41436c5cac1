"""What one answer to a fetch holds: which rows get records, how many, and which wait for the next answer.

Owns the budget of an answer. Logs are read by what is given in; an error of a log costs its row.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.broker.core.events import ReadRow
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import EpochEndOffset, FetchPartitionResponse
from holdfast.protocol.schema.fields import Buffer

_NO_RECORDS = memoryview(b"")


class LogReader(Protocol):
    """Reads logs, which are known here by what `log_of` returns."""

    def log_of(self, key: PartitionId) -> Any | None:
        """The log of a partition; None when there is none that can be used."""

    def read(self, log: Any, row: ReadRow, max_bytes: int, *, at_least_one: bool) -> Buffer | ErrorCode:
        """Whole batches from the row's offset on, up to `max_bytes`, or one that is larger if it shall be at
        least one; or why there are none."""

    def sent(self, log: Any, row: ReadRow, size_bytes: int) -> None:
        """So many bytes are in the answer."""


class FetchFill:
    """One answer."""

    def __init__(self, reader: LogReader, max_bytes: int, room_bytes: int | None) -> None:
        """`room_bytes`: what there is room for in this process, None for any. Without room, because others do
        not take their answers, a consumer hears that there is nothing."""
        self._reader = reader
        self._left = max_bytes if room_bytes is None else min(max_bytes, room_bytes)
        #: nothing was read so far, and the first batch may be larger than what is left
        self._is_first = room_bytes is None or room_bytes > 0
        #: rows that had no room: who has not had a turn is first in the next answer
        self.omitted: list[PartitionId] = []
        #: bytes of throttled replicas
        self.throttled_bytes = 0

    def fill(self, wanted: Sequence[ReadRow]) -> tuple[FetchPartitionResponse, ...]:
        """The rows of the answer."""
        rows: list[FetchPartitionResponse] = []
        for row in wanted:
            error_code, records = row.error_code, _NO_RECORDS
            if row.max_bytes:
                read = None if self.omitted else self._read(row, self._left, is_first=self._is_first)
                if read is None:
                    self.omitted.append(PartitionId(row.topic_id, row.partition_index))
                    continue
                error_code, records = read
                self._is_first = self._is_first and not records
                self._left -= min(self._left, len(records))
                if row.is_throttled:
                    self.throttled_bytes += len(records)
            diverging = row.diverging
            rows.append(
                FetchPartitionResponse(
                    row.topic_id,
                    row.partition_index,
                    error_code,
                    row.high_watermark,
                    row.log_start_offset,
                    row.log_end_offset,
                    None if diverging is None else EpochEndOffset(diverging[0], diverging[1]),
                    row.leader_id,
                    row.leader_epoch,
                    records,
                )
            )
        return tuple(rows)

    def _read(self, row: ReadRow, left: int, *, is_first: bool) -> tuple[int, Any] | None:
        """(error code, records); None when a follower's row has no room."""
        log = self._reader.log_of(PartitionId(row.topic_id, row.partition_index))
        if log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR, _NO_RECORDS
        is_follower = row.log_end_offset >= 0
        # A follower's row is closed by its answer, so it gets a whole batch or stays due.
        at_least_one = is_first or is_follower
        if is_follower and not left:
            return None
        records = self._reader.read(log, row, min(row.max_bytes, left), at_least_one=at_least_one)
        if isinstance(records, ErrorCode):
            return records, _NO_RECORDS
        was_there = row.fetch_offset < row.end_offset and is_first
        if not records and (is_follower or was_there):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, _NO_RECORDS  # cut meanwhile: we lead no more
        if is_follower and len(records) > left and not is_first:
            return None
        self._reader.sent(log, row, len(records))
        return row.error_code, records
