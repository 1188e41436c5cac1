"""What the raft node knows of its log: where epochs start, where the log ends, how much is durable.

Owns positions, never bytes. It is the log after all effects issued so far; the shell's log follows it.
Compares logs by epochs and ends (R80, R81).
"""

from bisect import bisect_right
from collections.abc import Iterable

from holdfast.raft.core.quorum import LogPosition

#: `last_epoch` of an empty log, as on the wire.
NO_EPOCH = -1
#: Start of a log that is whole.
BEGINNING = LogPosition(NO_EPOCH, 0)


class LogShape:
    """Epochs and offsets of one log, which starts at offset 0 or at a snapshot."""

    __slots__ = ("_epochs", "_starts", "flushed_offset", "log_end_offset", "start")

    def __init__(
        self, epoch_starts: Iterable[tuple[int, int]], log_end_offset: int, start: LogPosition = BEGINNING
    ) -> None:
        """`epoch_starts`: `(epoch, first offset)`, ascending; `start`: the snapshot that the log begins at,
        BEGINNING for a whole log. What recovery left in the log is durable."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        #: where the log begins: the offset (inclusive), and the epoch of the batch before it
        self.start = BEGINNING
        #: exclusive
        self.log_end_offset = 0
        for epoch, start_offset in epoch_starts:
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        self.log_end_offset = log_end_offset
        assert self._epochs == sorted(set(self._epochs)), "epochs rise"
        if start != BEGINNING:
            self.trim_to(start)
        #: records below survive a crash; exclusive, never above `log_end_offset`
        self.flushed_offset = log_end_offset
        assert not self._starts or (
            self._starts[0] == self.start.end_offset and self._starts[-1] < log_end_offset
        ), "a log begins at its start and each epoch in it has a batch"

    @property
    def last_epoch(self) -> int:
        """Epoch of the last batch, also of one below the start; NO_EPOCH for a log that never had one."""
        return self._epochs[-1] if self._epochs else self.start.last_epoch

    @property
    def position(self) -> LogPosition:
        """The position that is compared with other logs (K5)."""
        return LogPosition(self.last_epoch, self.log_end_offset)

    def append(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """Record a batch `[base_offset, end_offset)`. Epochs never fall as offsets rise (I-18)."""
        assert base_offset == self.log_end_offset, (
            f"batch at {base_offset}, log ends at {self.log_end_offset}"
        )
        assert epoch >= self.last_epoch, f"batch of epoch {epoch} behind epoch {self.last_epoch}"
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(base_offset)
        self.log_end_offset = end_offset

    def truncate_to(self, end_offset: int) -> None:
        """Remove everything from `end_offset` on."""
        assert self.start.end_offset <= end_offset <= self.log_end_offset, "a cut makes the log shorter"
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)

    def trim_to(self, start: LogPosition) -> None:
        """Forget everything below a snapshot: the log begins there from now on (K15)."""
        offset = start.end_offset
        assert self.start.end_offset <= offset <= self.log_end_offset, "a log is trimmed within itself"
        while len(self._starts) > 1 and self._starts[1] <= offset:
            del self._starts[0], self._epochs[0]
        if self._starts and offset == self.log_end_offset:
            del self._starts[0], self._epochs[0]
        elif self._starts:
            self._starts[0] = offset
        self.start = start

    def reset_to(self, start: LogPosition) -> None:
        """An empty log that begins at a snapshot (K14)."""
        self._epochs, self._starts = [], []
        self.start = start
        self.log_end_offset = self.flushed_offset = start.end_offset

    def epoch_below(self, end_offset: int) -> int:
        """Epoch of the batch before `end_offset`, which is not below the start."""
        if end_offset == self.start.end_offset:
            return self.start.last_epoch
        return self._epochs[bisect_right(self._starts, end_offset - 1) - 1]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch in the log not above `epoch`, and its end (exclusive); (NO_EPOCH, 0) when there
        is none (R80). The epoch of the batch below the start counts."""
        index = bisect_right(self._epochs, epoch)
        end_offset = self._starts[index] if index < len(self._starts) else self.log_end_offset
        if index > 0:
            return self._epochs[index - 1], end_offset
        if NO_EPOCH < self.start.last_epoch <= epoch:
            return self.start.last_epoch, end_offset
        return NO_EPOCH, 0

    def needs_snapshot(self, last_fetched_epoch: int, fetch_offset: int) -> bool:
        """True for a follower whose log ends where this one cannot be compared with it any more (K14)."""
        start = self.start
        if start == BEGINNING:
            return False
        return (
            fetch_offset < start.end_offset
            or (fetch_offset == start.end_offset and last_fetched_epoch != start.last_epoch)
            or last_fetched_epoch < start.last_epoch
        )

    def diverging_point(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where a follower's log that ends at `fetch_offset` diverges from this one: (epoch, end offset);
        None when it is a prefix of this log (R80)."""
        if fetch_offset == 0:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch != last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def truncation_point(self, epoch: int, leader_end_offset: int) -> int:
        """Where to truncate this log, given the leader's diverging epoch and that epoch's end (R81).

        The leader's end is a limit only for an epoch that this log has too (A-16): the end of another epoch
        lies inside batches of this log.
        """
        own_epoch, own_end_offset = self.end_offset_for_epoch(epoch)
        return min(own_end_offset, leader_end_offset) if own_epoch == epoch else own_end_offset
