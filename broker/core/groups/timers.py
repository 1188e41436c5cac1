"""What is due when: calls that are made once a tick is late enough."""

import heapq
from collections.abc import Callable

#: The heap is made anew when it has more cancelled timers than wanted ones, and more than these.
_CANCELLED_MIN = 100


class Timer:
    """A call that was set; it can be cancelled."""

    __slots__ = ("_call", "_timers", "due_ms")

    def __init__(self, timers: "Timers", due_ms: int, call: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self._timers = timers
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not make the call, and keep nothing that it would need."""
        if self._call is not None:
            self._call = None
            self._timers.cancelled()

    def run(self) -> None:
        """Make the call."""
        call, self._call = self._call, None
        if call is not None:
            call()

    @property
    def is_cancelled(self) -> bool:
        """The call is not made."""
        return self._call is None


def cancel(timer: Timer | None) -> None:
    """Cancel it when there is one."""
    if timer is not None:
        timer.cancel()


class Timers:
    """Calls in order of their time; those of one moment in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        #: of those in the heap
        self._cancelled = 0

    def at(self, due_ms: int, call: Callable[[], None]) -> Timer:
        """Make this call at `due_ms` or a little later."""
        self._count += 1
        timer = Timer(self, due_ms, call)
        heapq.heappush(self._heap, (due_ms, self._count, timer))
        return timer

    def cancelled(self) -> None:
        """A timer is not wanted any more. Those are dropped together: each costs the same in the long run."""
        self._cancelled += 1
        if self._cancelled > max(_CANCELLED_MIN, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run(self, now_ms: int) -> None:
        """Make the calls that are due."""
        while self._heap and self._heap[0][0] <= now_ms:
            timer = heapq.heappop(self._heap)[2]
            if timer.is_cancelled:
                self._cancelled -= 1
            else:
                timer.run()

    def next_deadline_ms(self) -> int | None:
        """When to `run` next."""
        return self._heap[0][0] if self._heap else None
