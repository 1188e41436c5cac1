"""The headers of a log's batches, which tell batches apart without decoding a record."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from holdfast.protocol.record_batch import BatchHeader, iter_batches
from holdfast.runtime.api import DiskError
from holdfast.storage.core.log_tap import LogTap
from holdfast.storage.log import Log

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
    max_timestamp: int = -1


def mark_of(header: BatchHeader) -> BatchMark:
    """The mark of a batch with that header."""
    return BatchMark(
        header.base_offset,
        header.leader_epoch,
        header.base_offset + header.last_offset_delta,
        header.crc,
        header.size_bytes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.max_timestamp,
    )


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
            found.append(mark_of(header))
        offset = found[-1].last_offset + 1
    return found


class BatchHistory(LogTap):
    """The batches of a log as they were appended; follows truncations. Of what is deleted below the log start
    it knows what was committed there: `batches` begins with the first record of the partition all the same.
    """

    __slots__ = (
        "_committed",
        "_former_ms",
        "_log",
        "_resets_from",
        "_sizes",
        "batches",
        "cut",
        "end_offset",
        "expires_at_ms",
        "has_begun_anew",
        "is_resetting",
        "looked_at_ms",
        "start_offset",
    )

    def __init__(self, log: Log, committed: Sequence[BatchMark] = ()) -> None:
        self._log = log
        #: of the partition; grows
        self._committed = committed
        self.batches: list[BatchMark] = []
        #: bytes from the start to the end of each batch
        self._sizes: list[int] = []
        #: what the last `follow` found to be gone, the last batch first
        self.cut: list[BatchMark] = []
        #: where `batches` begins: 0, unless it is not known what was committed below the log start
        self.start_offset = 0
        self.end_offset = 0
        #: the last `follow` has found a log that was dropped, to begin where its leader's does (R83)
        self.has_begun_anew = False
        #: a reset was begun and has not ended: a crash, or a disk, may end it at any of its steps
        self.is_resetting = False
        #: the wall clock by which retention looks now, or has deleted last
        self.expires_at_ms = self._former_ms = -1
        #: the same, also when nothing was to be deleted
        self.looked_at_ms = -1
        #: cuts of the log before the reset that was asked for
        self._resets_from: int | None = None
        self._begin()
        log.taps.append(self)

    # --- LogTap ----------------------------------------------------------------------------------------

    def reset_begins(self) -> None:
        self._resets_from = self._log.truncation_count
        self.is_resetting = True

    def reset_ended(self) -> None:
        self.is_resetting = False

    def retention_begins(self, wall_ms: int) -> None:
        self._former_ms, self.expires_at_ms = self.expires_at_ms, wall_ms
        self.looked_at_ms = wall_ms

    def retention_ended(self, deleted_count: int) -> None:
        if not deleted_count:
            # a wall clock may have been set back since the last time that it deleted something
            self.expires_at_ms = self._former_ms

    # --- what it knows ---------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        """Of the last batch, deleted or not; -1 when nothing is kept of them and the log has begun anew. As
        the log says where it is not known what was committed."""
        below = self._log.leader_epoch_cache.below
        if not self.batches:
            return -1 if below is None else below.epoch
        is_deleted = self.batches[-1].last_offset < self._log.log_start_offset
        return -1 if is_deleted and below is None else self.batches[-1].leader_epoch

    @property
    def is_reset(self) -> bool:
        """The log was dropped since the last `follow`."""
        return self._resets_from is not None and self._log.truncation_count > self._resets_from

    @property
    def is_behind(self) -> bool:
        """The log was dropped since the last `follow`, wherever it ends now, or ends elsewhere."""
        return self.end_offset != self._log.log_end_offset or self.is_reset

    def _begin(self) -> None:
        """At the log start, behind what was committed."""
        start, committed = self._log.log_start_offset, self._committed
        count = bisect_left(committed, start, key=_last_offset)
        reached = committed[count - 1].last_offset + 1 if count else 0
        is_inside = count < len(committed) and committed[count].base_offset <= start
        is_known = reached == start or is_inside
        self.batches[:] = committed[:count] if is_known else []
        self._sizes[:] = accumulate(batch.size_bytes for batch in self.batches)
        self.start_offset = 0 if is_known else start
        self.end_offset = start

    def follow(self) -> list[BatchMark]:
        """Catch up with the log; returns what is new. What is gone is in `cut`."""
        batches, end_offset = self.batches, self._log.log_end_offset
        cut: list[BatchMark] = []
        self.has_begun_anew = self.is_reset
        if self.has_begun_anew:
            self._resets_from = None
        while batches and batches[-1].last_offset >= end_offset:
            cut.append(batches.pop())
            self._sizes.pop()
        if self.has_begun_anew or not batches:
            had = batches[:]
            self._begin()
            pairs = zip(had, batches, strict=False)
            same = next((at for at, (one, now) in enumerate(pairs) if one != now), len(batches))
            cut += reversed(had[same:])
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
        """Of the batches that end below an offset, and are not deleted."""
        return self._bytes_to(offset) - self._bytes_to(self._log.log_start_offset)

    def _bytes_to(self, offset: int) -> int:
        count = bisect_left(self.batches, offset, key=_last_offset)
        return self._sizes[count - 1] if count else 0
