"""Which large request of the listener is at work beside the event loop: one at a time, connections in turn.

Owns that order only. The thread also serves others, in the order in which they ask: so they wait for one
large request at most, however many there are.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class TurnsAside(Generic[T]):
    """Those of one listener. `T` stands for what waits."""

    def __init__(self) -> None:
        #: {connection id: what waits of it}, the next connection first
        self._waiting: dict[int, deque[T]] = {}
        self._is_taken = False

    def enter(self, connection_id: int, one: T) -> bool:
        """True when `one` has its turn now; else `leave` or `forget` returns it later."""
        if self._is_taken:
            self._waiting.setdefault(connection_id, deque()).append(one)
            return False
        self._is_taken = True
        return True

    def leave(self) -> T | None:
        """A turn is over; returns what has the next one, None when nothing waits."""
        connection_id = next(iter(self._waiting), None)
        if connection_id is None:
            self._is_taken = False
            return None
        ones = self._waiting.pop(connection_id)
        one = ones.popleft()
        if ones:  # behind the other connections
            self._waiting[connection_id] = ones
        return one

    def forget(self, connection_id: int) -> Sequence[T]:
        """The connection has ended; returns what waited of it, which gets no turn."""
        return self._waiting.pop(connection_id, ())
