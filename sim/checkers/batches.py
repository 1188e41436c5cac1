"""The headers of a log's batches, which tell batches apart without decoding a record."""

from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from protocol.record_batch import iter_batches
from runtime.api import DiskError
from storage.log import Log

_last_offset = attrgetter("last_offset")


class BatchMark(NamedTuple):
    """What tells one batch from another: its place, its epoch, its content."""

    base_offset: int
    leader_epoch: int
    last_offset: int
    crc: int
    size_bytes: int
    #: -1 without an idempotent producer, like the others
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_sequence: int = -1


def marks(log: Log, start_offset: int, end_offset: int) -> list[BatchMark]:
    """The batches of a log from one offset on, below the other; fewer when its disk has failed."""
    found: list[BatchMark] = []
    offset = start_offset
    while offset < end_offset and log.failure is None:
        try:
            piece = log.read(offset, 1 << 30, end_offset)
        except DiskError:
            break
        for header, _ in iter_batches(piece):
            last_offset = header.base_offset + header.last_offset_delta
            found.append(
                BatchMark(
                    header.base_offset,
                    header.leader_epoch,
                    last_offset,
                    header.crc,
                    header.size_bytes,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                )
            )
        offset = found[-1].last_offset + 1
    return found


class History:
    """The batches of a log as they were appended; follows truncations."""

    __slots__ = ("_log", "_sizes", "batches", "cut", "end_offset", "start_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        self.batches: list[BatchMark] = []
        #: bytes from the start to the end of each batch
        self._sizes: list[int] = []
        #: what the last `follow` found to be gone, the last batch first
        self.cut: list[BatchMark] = []
        self.start_offset = log.log_start_offset
        self.end_offset = self.start_offset

    def follow(self) -> list[BatchMark]:
        """Catch up with the log; returns what is new. What is gone is in `cut`."""
        batches, end_offset = self.batches, self._log.log_end_offset
        cut: list[BatchMark] = []
        while batches and batches[-1].last_offset >= end_offset:
            cut.append(batches.pop())
            self._sizes.pop()
        if self._log.log_start_offset > self.end_offset or not batches:
            self.start_offset = self._log.log_start_offset
            self.end_offset = min(max(self.start_offset, self.end_offset), end_offset)
        else:
            self.end_offset = min(self.end_offset, end_offset)
        self.cut = cut
        new = marks(self._log, self.end_offset, end_offset)
        batches += new
        size_bytes = self._sizes[-1] if self._sizes else 0
        for batch in new:
            size_bytes += batch.size_bytes
            self._sizes.append(size_bytes)
        if new:
            self.end_offset = new[-1].last_offset + 1
        return new

    def bytes_below(self, offset: int) -> int:
        """Of the batches that end below an offset."""
        count = bisect_left(self.batches, offset, key=_last_offset)
        return self._sizes[count - 1] if count else 0
