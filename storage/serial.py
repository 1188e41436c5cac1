"""One queue per log: Append, Truncate and Roll run in the order in which they were issued (D2).

Owns the order and nothing else. Synchronous work runs at once when nothing is under way, so the common append
costs no task switch; behind a roll or a truncation it waits its turn. Slow work runs in a task of its own: a
submitter that is cancelled does not leave a truncation half done.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.runtime.api import Tasks

T = TypeVar("T")


class Serial:
    """The order of one log's effects."""

    __slots__ = ("_is_running", "_name", "_queue", "_tasks")

    def __init__(self, tasks: Tasks, name: str) -> None:
        self._tasks = tasks
        self._name = name
        #: steps that wait; each ends by telling its submitter and never raises
        self._queue: deque[Callable[[], Coroutine[Any, Any, None] | None]] = deque()
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        """Nothing is under way or waiting: synchronous work would run at once."""
        return not self._is_running

    def submit(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run synchronous `work` and hand its result to `done`: before this returns when idle, else in its
        turn. What either of them raises goes to `failed`, which raises nothing."""
        if self._is_running:
            self._queue.append(lambda: _run_now(work, done, failed))
        else:
            _run_now(work, done, failed)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Future[T]":
        """Run a coroutine in its turn, which is taken by this call; nothing else of this log runs meanwhile.

        The future has its result or exception. Cancelling it leaves the work to its end.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def step() -> None:
            try:
                value = await work()
            except asyncio.CancelledError:
                result.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - handed on to the submitter, whole
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

    async def _drain(self) -> None:
        while self._queue:
            waits = self._queue.popleft()()
            if waits is not None:
                await waits
        self._is_running = False


def _run_now(work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
    try:
        done(work())
    except Exception as error:  # noqa: BLE001 - handed on to the submitter, whole
        failed(error)
