"""Whose turn it is when several connections have requests: that of the one that had the least of our time.

Owns the order only. Start-time fair queueing: a connection that waits gets an equal part of the time, and one
that asks seldom is next, however much others have queued.
"""

from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Members in the order in which they are served. One is in it once at most; the caller sees to that."""

    def __init__(self) -> None:
        #: (time it has had, number, who)
        self._heap: list[tuple[int, int, T]] = []
        self._number = 0
        #: what the one that was served last had had
        self._now = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, member: T, had_ns: int) -> None:
        """`had_ns`: what `take` or `charge` returned for it the last time, 0 for a new one."""
        self._number += 1
        heappush(self._heap, (max(had_ns, self._now), self._number, member))

    def take(self) -> T:
        """The one whose turn it is; it leaves the queue."""
        self._now, _, member = heappop(self._heap)
        return member

    def charge(self, had_ns: int, spent_ns: int) -> int:
        """What one has had, when it has now been served for `spent_ns`. Nothing is kept of what was long ago:
        while no other waited it was free."""
        return max(had_ns if self._heap else 0, self._now) + spent_ns
