"""Looks up times in one log, among the batches that begin at its start or later.

Owns how long the event loop is held by that: where the log starts within a segment, the headers behind the
start are walked over in turns, and the segment remembers what they said. The log goes on meanwhile.
"""

import errno
from collections.abc import Callable

from holdfast.protocol.record_batch import BatchHeader
from holdfast.runtime.api import DiskError
from holdfast.storage import snapshots
from holdfast.storage.log_guard import LogGuard
from holdfast.storage.segment_list import SegmentList
from holdfast.storage.turn import next_turn


class LogTimes:
    """Timestamps of one log, as its batches' headers have them."""

    def __init__(self, segments: SegmentList, guard: LogGuard, log_start: Callable[[], int]) -> None:
        self._segments = segments
        self._guard = guard
        self._log_start = log_start

    async def first_since(self, timestamp_ms: int) -> BatchHeader | None:
        """The first batch with a record at or after `timestamp_ms`; None when there is none. Raises:
        DiskError."""
        start = await self._walked(timestamp_ms)
        with self._guard.failing():
            return self._segments.find_timestamp(timestamp_ms, start)

    async def newest_ms(self) -> int:
        """The largest timestamp of all batches that have records, -1 when none has one. Raises: DiskError."""
        return self._segments.newest_from(await self._walked(None))

    def split_batch(self) -> BatchHeader | None:
        """The batch that the log start lies within, so that some of its records are deleted; None when it
        lies between two, or within an empty one. Raises: DiskError."""
        self._check_open()
        with self._guard.failing():
            header = self._segments.split_by(self._log_start())
        return header if header is not None and header.record_count else None

    async def _walked(self, timestamp_ms: int | None) -> int:
        """The log start, from which times can be looked up until others have their turn. Raises:
        DiskError."""
        while True:
            self._check_open()
            start, count = self._log_start(), snapshots.HEADERS_PER_TURN
            with self._guard.failing():
                if not self._segments.walk_times(start, timestamp_ms, count):
                    return start
            await next_turn()

    def _check_open(self) -> None:
        if self._guard.is_closed:  # meanwhile, as the broker stops or the topic is deleted
            raise DiskError(self._guard.folder, "look up a time", errno.ECANCELED, "the log was closed")
