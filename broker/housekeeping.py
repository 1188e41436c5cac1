"""Work that goes on beside everything else until a broker stops: at intervals, or by a clock of its own.

Owns the tasks, their pauses, and their end: a pause is cut short, what is being done is finished. Knows
nothing of what is done.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.runtime.api import Runtime, Task


class Housekeeping:
    """The tasks of one owner."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tasks: list[Task] = []
        self._intervals: list[Interval] = []
        self.is_stopping = False

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a loop of the owner's until it returns; it has to look at `is_stopping`, and to pause here."""
        self._tasks.append(self._runtime.tasks.start(name, work))

    def repeat(self, name: str, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this again and again, the first time after one interval."""
        self.start(name, self._repeat(interval_ms, work))

    async def _repeat(self, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await self.pause(interval_ms, Interval())
            if self.is_stopping:
                return
            await work()

    async def pause(self, duration_ms: float, interval: "Interval") -> None:
        """Sleep, but not longer than until `stop`, or until somebody ends the nap, before it began too."""
        if self.is_stopping:
            return
        timer = self._runtime.clock.call_later(duration_ms, interval.end)
        self._intervals.append(interval)
        await interval.is_over()
        self._intervals.remove(interval)
        timer.cancel()

    async def stop(self) -> None:
        """End all pauses, and wait until everybody has returned."""
        self.is_stopping = True
        for interval in self._intervals:
            interval.end()
        for task in self._tasks:
            await task.wait()


class Interval:
    """A pause that may be ended."""

    __slots__ = ("_over",)

    def __init__(self) -> None:
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """Harmless when it is over."""
        if not self._over.done():
            self._over.set_result(None)

    async def is_over(self) -> None:
        """Returns when it is."""
        await self._over
