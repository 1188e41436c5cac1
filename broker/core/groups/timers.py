"""What is due when: calls that are made once a tick is late enough."""

import heapq
from collections.abc import Callable


class Timers:
    """Calls in order of their time; those of one moment in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, due_ms: int, call: Callable[[], None]) -> None:
        """Make this call at `due_ms` or a little later. It looks itself whether it is still wanted."""
        self._count += 1
        heapq.heappush(self._heap, (due_ms, self._count, call))

    def run(self, now_ms: int) -> None:
        """Make the calls that are due."""
        while self._heap and self._heap[0][0] <= now_ms:
            heapq.heappop(self._heap)[2]()

    def next_deadline_ms(self) -> int | None:
        """When to `run` next."""
        return self._heap[0][0] if self._heap else None
