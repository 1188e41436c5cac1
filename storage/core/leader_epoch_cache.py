"""Which leader epoch wrote which offsets: the list that truncation by diverging epoch uses (R80, R85).

Owns the entries (epoch, start offset), rising in both, and the epoch of the record right below the log start:
a log that has become empty, by retention or by a power loss, is compared by that one. Touches no file; the
log stores both when `version` has changed. An epoch may have an entry without data: a new leader records
where it began (R54).
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the end of what was written in it, exclusive."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """The leader epochs of one log, oldest first."""

    __slots__ = ("_epochs", "_starts", "below", "version")

    def __init__(
        self, entries: Iterable[EpochEntry | tuple[int, int]] = (), below: EpochEntry | None = None
    ) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            assert not self._epochs or (epoch > self._epochs[-1] and start_offset > self._starts[-1])
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        #: epoch of the record right below `start_offset`, where the log begins; None when unknown
        self.below = below
        #: grows with every change
        self.version = 0

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(map(EpochEntry, self._epochs, self._starts))

    @property
    def latest(self) -> EpochEntry | None:
        """The newest entry, with or without data."""
        return EpochEntry(self._epochs[-1], self._starts[-1]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` writes from `start_offset` on, the log's end; True when entries changed.

        Entries at or above `start_offset` have no data and are dropped: the log was appended to in another
        epoch.
        """
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        self.truncate_from_end(start_offset)
        if self._epochs and self._epochs[-1] == epoch:
            return True  # this epoch continues where one without data was dropped
        assert not self._epochs or epoch > self._epochs[-1], (
            f"epoch {epoch} at {start_offset} falls behind {self._epochs[-1]} at {self._starts[-1]} (I-18)"
        )
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.version += 1
        return True

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None when that is before the first entry."""
        number = bisect_right(self._starts, offset) - 1
        return self._epochs[number] if number >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """The largest known epoch not above `epoch`, and its end (R80). None when all known epochs are above
        it: what that epoch wrote is no longer known."""
        number = bisect_right(self._epochs, epoch) - 1
        if number < 0:
            below = self.below
            return None if below is None or below.epoch > epoch else EpochEnd(*below)
        is_last = number + 1 == len(self._epochs)
        return EpochEnd(self._epochs[number], log_end_offset if is_last else self._starts[number + 1])

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that begin at `end_offset` or later."""
        while self._starts and self._starts[-1] >= end_offset:
            del self._starts[-1]
            del self._epochs[-1]
            self.version += 1

    def last_written(self, log_end_offset: int) -> int:
        """The epoch of the last record below `log_end_offset`, deleted or not; -1 when unknown."""
        epoch = self.epoch_at(log_end_offset - 1)
        if epoch is None and self.below is not None and self.below.start_offset == log_end_offset:
            return self.below.epoch
        return -1 if epoch is None else epoch

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that end at or before `start_offset`, but keep that of the record right below; the
        epoch that spans `start_offset` begins there now."""
        epoch = self.epoch_at(start_offset - 1)
        if epoch is None:
            return
        number = bisect_right(self._starts, start_offset) - 1
        del self._starts[:number]
        del self._epochs[:number]
        self._starts[0] = start_offset
        self.below = EpochEntry(epoch, start_offset)
        self.version += 1

    def clear(self) -> None:
        """Drop everything: the log starts again at another offset."""
        self._epochs.clear()
        self._starts.clear()
        self.below = None
        self.version += 1
