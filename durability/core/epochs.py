"""Which leader epochs records are of, found out with questions for the ends of epochs (R80).

A question is a leader epoch; the answer is the largest epoch in the leader's log not above it, and where that
epoch ends there; both -1 when there is none. Questions are put until there is none left.
"""

from collections.abc import Sequence
from typing import TypeAlias

#: (leader epoch, first offset), rising
Epochs: TypeAlias = tuple[tuple[int, int], ...]


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """The leader epoch of the record at `offset`, -1 when it is not known."""
    return max((epoch for epoch, first in epochs if first <= offset), default=-1)


class EpochWalk:
    """Finds the leader epochs of a leader's records from `begin` on, from the newest one downwards."""

    def __init__(self, begin: int, newest_epoch: int) -> None:
        self._begin = begin
        #: met, but where it begins is not known yet
        self._open_epoch = -1
        self._found: list[tuple[int, int]] = []
        self.question: int | None = newest_epoch if newest_epoch >= 0 else None

    @property
    def epochs(self) -> Epochs:
        """What was found, rising; the first one may begin before `begin`, which is given instead."""
        return tuple(reversed(self._found))

    def heard(self, epoch: int, end_offset: int) -> None:
        """The answer to `question`."""
        if self._open_epoch >= 0:
            # the end of the epoch before it is where the open one begins
            self._found.append((self._open_epoch, max(self._begin, end_offset)))
        if epoch < 0 or end_offset <= self._begin:
            self.question = None
            return
        self._open_epoch = epoch
        self.question = epoch - 1
        if epoch == 0:
            self._found.append((0, self._begin))
            self.question = None


class DivergenceCheck:
    """Finds up to where a leader's log holds what was read before `offset` (R81)."""

    def __init__(self, epochs: Epochs, offset: int) -> None:
        self._epochs = epochs
        #: what was read before it is in the leader's log
        self.agreed = offset
        self.question: int | None = epochs[-1][0] if epochs else None

    def heard(self, epoch: int, end_offset: int) -> None:
        """The answer to `question`."""
        asked, self.question = self.question, None
        read_to = next((first for later, first in self._epochs if later > epoch), self.agreed)
        self.agreed = min(self.agreed, read_to, end_offset if epoch >= 0 else read_to)
        if epoch == asked or epoch < 0:
            return
        # epochs that only the leader has, or only the reader: one further down may part earlier still
        known = [mine for mine, first in self._epochs if first < self.agreed]
        if known and known[-1] < epoch:
            self.question = known[-1]
