"""Background loops of a broker: work at intervals, or on a schedule of its own, until the broker stops.

Owns the tasks, their pauses and their end: `stop` cuts pauses short and lets work under way finish. Knows
nothing about the work.
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
        """Run one of the owner's loops until it returns. The loop checks `is_stopping` and pauses with
        `pause`."""
        self._tasks.append(self._runtime.tasks.start(name, work))

    def repeat(self, name: str, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the work once per interval, the first time after one interval."""
        self.start(name, self._repeat(interval_ms, work))

    async def _repeat(self, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await self.pause(interval_ms, Interval())
            if self.is_stopping:
                return
            await work()

    async def pause(self, duration_ms: float, interval: "Interval") -> None:
        """Sleep, but not longer than until `stop`, or until the interval is ended, before it began too."""
        if self.is_stopping:
            return
        timer = self._runtime.clock.call_later(duration_ms, interval.end)
        self._intervals.append(interval)
        await interval.is_over()
        self._intervals.remove(interval)
        timer.cancel()

    async def stop(self) -> None:
        """End all pauses and wait until every task has returned."""
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
        """End the pause; does nothing when it is over."""
        if not self._over.done():
            self._over.set_result(None)

    async def is_over(self) -> None:
        """Return when the pause is over."""
        await self._over
