"""The ceiling of one replica: a durable upper bound of the log end that it shows to others (R68).

A follower shows its log end to the leader, and a leader counts its own: neither goes above the stored
ceiling. So no high watermark that counted this replica was above it, and when all replicas have lost their
tails the cluster still knows how much was committed at most. The ceiling is some seconds of traffic ahead of
the log end, so a sync is waited for only when traffic grows suddenly.
"""

from enum import Enum

#: A ceiling covers so many ms of traffic; one that is too high stays for as long.
AHEAD_MS = 5_000


class Urgency(Enum):
    """How soon a higher ceiling is needed."""

    NOT_NOW = 0
    #: the log's end approaches the ceiling
    SOON = 1
    #: the log's end is above the ceiling and must not be shown
    NOW = 2


class Ceiling:
    """The ceiling of one replica. Offsets are exclusive."""

    __slots__ = ("limit", "is_storing", "_ahead_min", "_promised", "_ahead", "_end", "_raised_ms")

    def __init__(self, ahead_min: int, stored: int) -> None:
        """`ahead_min`: fewest records between log end and ceiling; the bound is too high by that much in a
        quiet partition. `stored`: the ceiling on disk at the start, -1 for none."""
        self._ahead_min = ahead_min
        #: log ends up to here may be shown: the lower of the stored ceiling and the one being stored
        self.limit = stored
        self._promised = stored
        #: a new ceiling is being written
        self.is_storing = False
        # of the last ceiling: its distance from the end, that end, and the time; None before the first one
        self._ahead = 0
        self._end = stored
        self._raised_ms: int | None = None

    def urgency(self, end: int) -> Urgency:
        """How soon a log that ends there needs a higher ceiling."""
        if self.is_storing:
            return Urgency.NOT_NOW
        if end > self.limit:
            return Urgency.NOW
        return Urgency.SOON if end > self._end + self._ahead // 2 else Urgency.NOT_NOW

    def promise(self, end: int, now_ms: int, *, may_lower: bool) -> int:
        """The ceiling to store for a log that ends there; call `stored` when it is durable. It is lowered
        only if `may_lower`: all that is committed is in the log."""
        assert not self.is_storing
        self._ahead = self._ahead_of(end, now_ms)
        self._end, self._raised_ms = end, now_ms
        self._promised = end + self._ahead if may_lower else max(end + self._ahead, self._promised)
        # a lower ceiling counts before it is written, a higher one after
        self.limit = min(self.limit, self._promised)
        self.is_storing = True
        return self._promised

    def is_too_high(self, end: int, now_ms: int) -> bool:
        """The traffic is lower than when the ceiling was stored: a lower one would do."""
        return (
            not self.is_storing
            and (self._raised_ms is None or now_ms >= self._raised_ms + AHEAD_MS)
            and end + self._ahead_of(end, now_ms) < self._promised
        )

    def stored(self, offset: int) -> None:
        """A ceiling is durable; one of an earlier object for this replica changes nothing."""
        if self.is_storing and offset == self._promised:
            self.limit = offset
            self.is_storing = False

    def _ahead_of(self, end: int, now_ms: int) -> int:
        if self._raised_ms is None:
            return self._ahead_min
        moved = end - self._end
        in_time = moved * AHEAD_MS // max(1, now_ms - self._raised_ms)
        # one burst says little about the traffic to come
        return max(self._ahead_min, min(in_time, max(moved, 2 * self._ahead)))
