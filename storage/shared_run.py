"""Slow work that many wait for at the same time: who asks during a run is served by the next one."""

import asyncio
from collections.abc import Awaitable, Callable


class SharedRun:
    """Of one kind of work. A call returns when a run that began after it has ended."""

    __slots__ = ("_done", "_running", "_wanted")

    def __init__(self) -> None:
        self._running = asyncio.Lock()
        #: calls, and how many of them are served
        self._wanted = self._done = 0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, or wait until another call has done it. Raises: what the own work raises."""
        self._wanted += 1
        number = self._wanted
        async with self._running:
            if self._done < number:
                covered = self._wanted
                await work()
                self._done = covered
