"""Which requests of a connection wait for an answer, which answer belongs to which, and what times out.

Owns correlation ids and deadlines; never sends, never reads a clock. An answer that comes after its deadline
belongs to no request and is told apart from one that was never asked for (N-4: matched by identity, not
content).
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

#: Correlation ids run from 1 to this, both inclusive, and start again.
CORRELATION_ID_MAX = (1 << 31) - 1

T = TypeVar("T")


class UnknownCorrelation(Exception):
    """An answer to a question that was never asked: the peer is broken."""


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """One unanswered request."""

    item: T
    sent_ms: int
    deadline_ms: int


class InFlight(Generic[T]):
    """Unanswered requests of one connection, in the order in which they were sent."""

    __slots__ = ("_deadline_ms", "_has_wrapped", "_last_id", "_waiting")

    def __init__(self, last_id: int = 0) -> None:
        self._waiting: dict[int, Waiting[T]] = {}
        self._last_id = last_id
        self._has_wrapped = False
        #: no request times out before this; None when none waits. May be early, never late.
        self._deadline_ms: int | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def take_id(self) -> int:
        """A fresh id for a request without an answer."""
        while True:
            if self._last_id == CORRELATION_ID_MAX:
                self._last_id = 0
                self._has_wrapped = True
            self._last_id += 1
            if self._last_id not in self._waiting:
                return self._last_id

    def add(self, item: T, now_ms: int, deadline_ms: int) -> int:
        """A fresh id under which `item` waits until `deadline_ms`, exclusive."""
        correlation_id = self.take_id()
        self._waiting[correlation_id] = Waiting(item, now_ms, deadline_ms)
        if self._deadline_ms is None or deadline_ms < self._deadline_ms:
            self._deadline_ms = deadline_ms
        return correlation_id

    def answer(self, correlation_id: int) -> T | None:
        """The request that this answers, which waits no more; None when it is too late for it.

        Raises: UnknownCorrelation when no such request was ever sent.
        """
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is not None:
            return waiting.item
        if not self._has_wrapped and not 0 < correlation_id <= self._last_id:
            raise UnknownCorrelation(f"correlation id {correlation_id} was never sent")
        return None

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` again; None when nothing waits."""
        return self._deadline_ms if self._waiting else None

    def oldest_ms(self) -> int | None:
        """When the oldest unanswered request was sent; None when nothing waits."""
        return next((one.sent_ms for one in self._waiting.values()), None)

    def expire(self, now_ms: int) -> list[Waiting[T]]:
        """The requests whose deadline has come, oldest first; they wait no more."""
        expired = {key: one for key, one in self._waiting.items() if one.deadline_ms <= now_ms}
        for key in expired:
            del self._waiting[key]
        self._deadline_ms = min((one.deadline_ms for one in self._waiting.values()), default=None)
        return list(expired.values())

    def drain(self) -> list[T]:
        """All that wait, oldest first; nothing waits afterwards."""
        items = [one.item for one in self._waiting.values()]
        self._waiting.clear()
        self._deadline_ms = None
        return items
