"""What one replica promises on disk: nobody is shown that it holds more (R68).

A follower shows its leader how far its log goes, a leader counts its own: neither passes the ceiling before a
higher one is stored. No high watermark that counted the replica was above, so when all have lost their tails
it is still known how much was committed at most. The promise runs ahead by some seconds of traffic: only
where that grows all at once somebody waits for a sync.
"""

from enum import Enum

#: As many records are promised ahead as come in so long; so long a promise that turned out too high stands.
AHEAD_MS = 5_000


class Urgency(Enum):
    """When more should be promised."""

    NOT_NOW = 0
    #: the log's end nears the ceiling
    SOON = 1
    #: it must not be shown
    NOW = 2


class Ceiling:
    """The promise of one replica. Offsets are exclusive."""

    __slots__ = ("limit", "is_storing", "_ahead_min", "_promised", "_ahead", "_end", "_raised_ms")

    def __init__(self, ahead_min: int, stored: int) -> None:
        """`ahead_min`: records that are promised ahead at least, by which the bound of a quiet partition is
        loose. `stored`: what is on disk from before, -1 for nothing."""
        self._ahead_min = ahead_min
        #: may be shown: what is on disk by now, whichever of two promises that is
        self.limit = stored
        self._promised = stored
        #: a promise is on its way to the disk
        self.is_storing = False
        # when it was promised last: how far ahead, of which end, and the time; None before the first time
        self._ahead = 0
        self._end = stored
        self._raised_ms: int | None = None

    def urgency(self, end: int) -> Urgency:
        """How much a log that ends there needs a higher promise."""
        if self.is_storing:
            return Urgency.NOT_NOW
        if end > self.limit:
            return Urgency.NOW
        return Urgency.SOON if end > self._end + self._ahead // 2 else Urgency.NOT_NOW

    def promise(self, end: int, now_ms: int, *, may_lower: bool) -> int:
        """The offset to be stored for a log that ends there; `stored` comes when it is durable. Lowered only
        when all that was committed is in the log."""
        assert not self.is_storing
        self._ahead = self._ahead_of(end, now_ms)
        self._end, self._raised_ms = end, now_ms
        self._promised = end + self._ahead if may_lower else max(end + self._ahead, self._promised)
        # a lower promise counts before it is written, a higher one after
        self.limit = min(self.limit, self._promised)
        self.is_storing = True
        return self._promised

    def is_too_high(self, end: int, now_ms: int) -> bool:
        """The traffic has ebbed, or was another process's: a tighter promise would do."""
        return (
            not self.is_storing
            and (self._raised_ms is None or now_ms >= self._raised_ms + AHEAD_MS)
            and end + self._ahead_of(end, now_ms) < self._promised
        )

    def stored(self, offset: int) -> None:
        """A promise is durable; one of a former replica changes nothing."""
        if self.is_storing and offset == self._promised:
            self.limit = offset
            self.is_storing = False

    def _ahead_of(self, end: int, now_ms: int) -> int:
        if self._raised_ms is None:
            return self._ahead_min
        moved = end - self._end
        in_time = moved * AHEAD_MS // max(1, now_ms - self._raised_ms)
        # one burst says little of what comes
        return max(self._ahead_min, min(in_time, max(moved, 2 * self._ahead)))
