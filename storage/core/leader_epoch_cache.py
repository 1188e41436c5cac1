"""Which leader epoch wrote which offsets: the list that truncation by diverging epoch goes by (R80, R81,
R85).

Owns the entries (epoch, start offset), strictly rising in both (I-18), and the epoch of the record right
below the log start: a log of which nothing is left, by retention or by a power loss, is compared by it. Never
touches a file; the log stores both when `version` has moved. An epoch may have an entry without data (R54): a
new leader notes where it began.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class EpochEntry(NamedTuple):
    """An epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """An epoch and the end of what was written in it, exclusive."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """Epochs of one log, oldest first."""

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
        #: the epoch of the record right below `start_offset`, where the log begins; None when nobody knows
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
        """Note that `epoch` writes from `start_offset`, the end of the log, on; True when entries changed.

        Entries at or above `start_offset` have no data and give way: the log was appended to in another
        epoch.
        """
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        self.truncate_from_end(start_offset)
        if self._epochs and self._epochs[-1] == epoch:
            return True  # it goes on where an epoch without data has given way
        assert not self._epochs or epoch > self._epochs[-1], (
            f"epoch {epoch} at {start_offset} falls behind {self._epochs[-1]} at {self._starts[-1]} (I-18)"
        )
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.version += 1
        return True

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None when it lies before the first entry."""
        number = bisect_right(self._starts, offset) - 1
        return self._epochs[number] if number >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """The largest known epoch not above `epoch`, and where it ends (R80). None when every known epoch is
        above it: what that epoch wrote is not known any more."""
        number = bisect_right(self._epochs, epoch) - 1
        if number < 0:
            below = self.below
            return None if below is None or below.epoch > epoch else EpochEnd(*below)
        is_last = number + 1 == len(self._epochs)
        return EpochEnd(self._epochs[number], log_end_offset if is_last else self._starts[number + 1])

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at `end_offset` or later."""
        while self._starts and self._starts[-1] >= end_offset:
            del self._starts[-1]
            del self._epochs[-1]
            self.version += 1

    def last_written(self, log_end_offset: int) -> int:
        """The epoch of the last record below `log_end_offset`, deleted or not; -1 when nobody knows."""
        epoch = self.epoch_at(log_end_offset - 1)
        if epoch is None and self.below is not None and self.below.start_offset == log_end_offset:
            return self.below.epoch
        return -1 if epoch is None else epoch

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at `start_offset` or before, but for that of the record right below; the one
        that spans it begins there now."""
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
        """Forget everything: the log starts anew somewhere else."""
        self._epochs.clear()
        self._starts.clear()
        self.below = None
        self.version += 1
