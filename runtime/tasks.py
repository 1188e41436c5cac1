"""Concurrent work that is named, held, and whose failure is reported. Serves every runtime.

Owns the set of running tasks in order of creation. A task that ends with an exception has met our own bug or
a dead disk; the entry point waits in `failure` and stops the node.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from holdfast.runtime.api import DiskError, Tasks

T = TypeVar("T")

_log = logging.getLogger("holdfast.tasks")


class HeldTask:
    """One piece of work."""

    __slots__ = ("_task",)

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def cancel(self) -> None:
        self._task.cancel()

    @property
    def is_done(self) -> bool:
        return self._task.done()

    async def wait(self) -> None:
        """Until the task has ended, however it ended; cancelling the wait leaves the task alone."""
        if self._task.done():
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: "asyncio.Task[None]") -> None:
            if not ended.done():
                ended.set_result(None)

        self._task.add_done_callback(wake)
        await ended


class HeldTasks:
    """`runtime.api.Tasks` on the running event loop."""

    def __init__(self, threads: Executor | None = None) -> None:
        """`threads`: what `compute` uses; None: the event loop's thread, the same order in every run."""
        self._threads = threads
        #: running tasks by number, so in order of creation
        self._running: dict[int, HeldTask] = {}
        self._started = 0
        self._failure: BaseException | None = None
        self._listeners: list[asyncio.Future[BaseException]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> HeldTask:
        task = asyncio.get_running_loop().create_task(work, name=name)
        number = self._started
        self._started += 1
        held = self._running[number] = HeldTask(task)
        task.add_done_callback(lambda task: self._ended(number, task))
        return held

    def _ended(self, number: int, task: "asyncio.Task[None]") -> None:
        del self._running[number]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._fail(f"task {task.get_name()} failed", error)

    async def compute(self, work: Callable[[], T]) -> T:
        """`work` on `threads`; without threads in a later turn of the event loop."""
        if self._threads is not None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        await asyncio.sleep(0)
        return work()

    def adopt_callbacks(self) -> None:
        """Treat exceptions of callbacks on the running event loop as failures too: they are reported nowhere
        else."""

        def hear(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            error = context.get("exception")
            if error is None or isinstance(error, OSError):
                # A socket's trouble, which the loop reports and survives: too many files, a host gone.
                _log.warning("event loop: %s: %s", context.get("message"), error)
            else:
                self._fail(str(context.get("message")), error)

        asyncio.get_running_loop().set_exception_handler(hear)

    def _fail(self, who: str, error: BaseException) -> None:
        if not isinstance(error, DiskError):  # the world's failure is one line of the entry point's
            _log.error("%s: %r", who, error, exc_info=error)
        if self._failure is None:
            self._failure = error
            for listener in self._listeners:
                if not listener.done():
                    listener.set_result(error)
            self._listeners.clear()

    async def failure(self) -> BaseException:
        if self._failure is not None:
            return self._failure
        listener: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._listeners.append(listener)
        return await listener

    async def cancel_all(self) -> None:
        """Cancel in order of creation and wait for all, also for what they start while they end. A task that
        calls this is not cancelled by itself."""
        caller = asyncio.current_task()
        while True:
            # A task that is done stays in the table until its callback has run in the next turn of the loop.
            others = [h for h in self._running.values() if h._task is not caller and not h.is_done]
            if not others:
                return
            for held in others:
                held.cancel()
            for held in others:
                await held.wait()


def fail_node(tasks: Tasks, name: str, error: BaseException) -> None:
    """Report an error of a callback as the failure of a task of that name, so that the entry point stops."""
    tasks.start(name, _raise(error))


async def _raise(error: BaseException) -> None:
    raise error
