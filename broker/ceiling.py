"""How far one leader's high watermark may move before more is promised on disk (R68).

A leader stores an offset that its high watermark does not pass until a higher one is stored. When all
replicas have lost their tails it is still known that no more than that was ever committed: an upper bound of
what the next election loses. The promise runs ahead by some seconds of traffic, so that an acknowledgement
waits for a sync only where the traffic grows all at once.
"""

from enum import Enum

#: As many records are promised ahead as come in so long; so long a promise that turned out too high stands.
AHEAD_MS = 5_000


class Urgency(Enum):
    """When more should be promised."""

    NOT_NOW = 0
    #: the traffic nears the ceiling
    SOON = 1
    #: the high watermark has to wait
    NOW = 2


class Ceiling:
    """The promise of one leader epoch. Offsets are exclusive."""

    __slots__ = ("limit", "is_storing", "_ahead_min", "_promised", "_ahead", "_end", "_raised_ms")

    def __init__(self, ahead_min: int, now_ms: int) -> None:
        """`ahead_min`: records that are promised ahead at least, by which the bound of a quiet partition is
        loose."""
        self._ahead_min = ahead_min
        #: the high watermark stays at or below: what is on disk by now, whichever of two promises that is
        self.limit = -1
        self._promised = -1
        #: a promise is on its way to the disk
        self.is_storing = False
        self._ahead = 0
        # when it was promised: the log's end, and the time
        self._end = 0
        self._raised_ms = now_ms

    def urgency(self, end: int) -> Urgency:
        """How much a log that ends there needs a higher promise."""
        if self.is_storing:
            return Urgency.NOT_NOW
        if end > self.limit:
            return Urgency.NOW
        return Urgency.SOON if end > self._end + self._ahead // 2 else Urgency.NOT_NOW

    def promise(self, end: int, now_ms: int) -> int:
        """The offset to be stored for a log that ends there; `stored` comes when it is durable."""
        assert not self.is_storing
        self._ahead = self._ahead_of(end, now_ms)
        self._end, self._raised_ms = end, now_ms
        self._promised = end + self._ahead
        # a lower promise counts before it is written, a higher one after
        self.limit = min(self.limit, self._promised)
        self.is_storing = True
        return self._promised

    def is_too_high(self, end: int, now_ms: int) -> bool:
        """The traffic has ebbed: a tighter promise would do."""
        return (
            not self.is_storing
            and now_ms >= self._raised_ms + AHEAD_MS
            and end + self._ahead_of(end, now_ms) < self._promised
        )

    def stored(self, offset: int) -> None:
        """A promise is durable; of one that another has replaced nothing follows."""
        if offset == self._promised:
            self.limit = offset
            self.is_storing = False

    def _ahead_of(self, end: int, now_ms: int) -> int:
        moved = end - self._end if self._promised >= 0 else 0
        in_time = moved * AHEAD_MS // max(1, now_ms - self._raised_ms)
        # one burst says little of what comes
        return max(self._ahead_min, min(in_time, max(moved, 2 * self._ahead)))
