"""One queue per log: appends, truncations and rolls run in the order in which they were issued (D2).

Owns that order and nothing else. Synchronous work runs at once when the log is idle, so the common append
costs no task switch; during a roll or a truncation it waits. Slow work runs in a task of its own, so
cancelling the caller does not leave a truncation half done.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.runtime.api import Tasks

T = TypeVar("T")


class Serial:
    """Orders the work on one log."""

    __slots__ = ("_is_running", "_name", "_queue", "_tasks")

    def __init__(self, tasks: Tasks, name: str) -> None:
        self._tasks = tasks
        self._name = name
        #: waiting steps; each reports its result to its caller and never raises
        self._queue: deque[Callable[[], Coroutine[Any, Any, None] | None]] = deque()
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        """No work is under way or waiting: synchronous work would run at once."""
        return not self._is_running

    def submit(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run synchronous `work` and pass its result to `done`: before this returns if idle, else in turn. An
        exception of either goes to `failed`, which must not raise."""
        if self._is_running:
            self._queue.append(lambda: _run_now(work, done, failed))
        else:
            _run_now(work, done, failed)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Future[T]":
        """Run a coroutine in turn, as of this call; no other work on this log runs during it.

        The future gets its result or exception. Cancelling the future does not cancel the work.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def step() -> None:
            try:
                value = await work()
            except asyncio.CancelledError:
                result.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - passed on to the caller
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(value)

        self._queue.append(step)
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._name, self._drain())
        return result

    def put_first(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine that never raises before all that waits: the rest of synchronous work that is
        running now."""
        self._queue.appendleft(work)
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._name, self._drain())

    async def _drain(self) -> None:
        while self._queue:
            waits = self._queue.popleft()()
            if waits is not None:
                await waits
        self._is_running = False


def _run_now(work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
    try:
        done(work())
    except Exception as error:  # noqa: BLE001 - passed on to the caller
        failed(error)
