"""The event loop of a simulated world: virtual time, a seeded choice of who runs next, processes that die.

Owns time, the ready handles of every process and what is due when. Inside one process handles run in the
order in which they became ready, as every asyncio loop promises; which process runs next is drawn. Time moves
by the small cost of each handle, and jumps to the next timer when nothing is ready.

A process that is killed runs no more code, not even that of `finally`: its handles are dropped, its tasks and
what they hold are kept until `dispose`, so that the garbage collector closes no coroutine during the run.
"""

import asyncio
import gc
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from heapq import heapify, heappop, heappush
from types import CoroutineType
from typing import Any, TypeVar

from holdfast.sim.machine.choices import Stream

T = TypeVar("T")

START_NS = 1_000_000_000_000
#: The cycle collector runs at these handles and at no other time, so that it disturbs equal runs equally.
_HANDLES_PER_COLLECTION = 1_000_000
_CANCELLED_MAX = 4096
#: so many handles within so much virtual time are no process's work: a healthy cluster has one in ten of that
_LIVELOCK_HANDLES = 200_000
_LIVELOCK_NS = 8_000_000_000


class Deadlock(AssertionError):
    """Nothing is ready and no timer is set, but the run is not over. The text lists who waits for what."""


class Livelock(AssertionError):
    """A process tries the same thing over and over without a pause."""


class Handle:
    """Something to run once, in a process. Also the timers of the loop."""

    __slots__ = ("args", "callback", "process")

    def __init__(
        self, process: "Process", callback: Callable[..., Any] | None, args: tuple[Any, ...]
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args

    def cancel(self) -> None:
        """Forget the callback; harmless when it has run already."""
        self.callback = None
        self.process.loop._cancelled += 1

    def cancelled(self) -> bool:
        return self.callback is None


class Process:
    """One process's share of the loop: what is ready in it, and its tasks."""

    __slots__ = (
        "_exception_handler",
        "_live_tasks",
        "after_step",
        "is_dead",
        "is_paused",
        "is_runnable",
        "loop",
        "name",
        "ready",
        "tasks",
    )

    def __init__(self, loop: "SimLoop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.ready: deque[Handle] = deque()
        #: in `loop._runnable`
        self.is_runnable = False
        self.is_dead = False
        self.is_paused = False
        #: in order of creation; those that have ended are dropped now and then
        self.tasks: list[asyncio.Task[Any]] = []
        self._live_tasks = 0
        #: looks at the process after each of its steps, outside of its code
        self.after_step: Callable[[], None] | None = None
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    def call(self, callback: Callable[..., Any], *args: Any) -> Handle:
        """Run `callback` in this process, after what is ready in it. The way in for all code outside."""
        handle = Handle(self, callback, args)
        self.push(handle)
        return handle

    def push(self, handle: Handle) -> None:
        if self.is_dead:
            return
        self.ready.append(handle)
        if not self.is_runnable and not self.is_paused:
            self.is_runnable = True
            self.loop._runnable.append(self)

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """Hold a task until it has ended."""
        self.tasks.append(task)
        if len(self.tasks) > 2 * self._live_tasks + 64 and not self.is_dead:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._live_tasks = len(self.tasks)

    def kill(self) -> None:
        """Run no more code of this process."""
        self.is_dead = True
        self._unqueue()
        self.loop._graveyard.append(self)

    def pause(self) -> None:
        """SIGSTOP: nothing runs; what becomes ready waits, timers that come due too."""
        self.is_paused = True
        self._unqueue()

    def resume(self) -> None:
        """SIGCONT."""
        self.is_paused = False
        if self.ready and not self.is_dead and not self.is_runnable:
            self.is_runnable = True
            self.loop._runnable.append(self)

    def _unqueue(self) -> None:
        if self.is_runnable:
            self.is_runnable = False
            self.loop._runnable.remove(self)


class SimLoop(asyncio.AbstractEventLoop):
    """`choose` draws who runs next; `step_ns` is what a handle costs of the virtual time."""

    def __init__(self, choose: Stream, step_ns: int = 0) -> None:
        self.now_ns = START_NS
        self.step_ns = step_ns
        #: handles that ran
        self.steps = 0
        #: a run that needs more never comes to rest
        self.steps_max = sys.maxsize
        self._looked_ns = START_NS
        self._choose = choose.draw
        self._runnable: list[Process] = []
        #: (due, number, what): timers of one instant fire in the order in which they were set
        self._timers: list[tuple[int, int, Handle]] = []
        self._timers_set = 0
        self._cancelled = 0
        self._graveyard: list[Process] = []
        self._processes: list[Process] = []
        self._is_running = False
        self._is_stopping = False
        self._is_closed = False
        #: the world below the processes: links, disks, faults
        self.kernel = self.process("kernel")
        self.current = self.kernel

    def process(self, name: str) -> Process:
        """A new process. The first is the kernel."""
        process = Process(self, name)
        self._processes.append(process)
        return process

    # --- for the world ---------------------------------------------------------------------------------

    def at_ns(self, due_ns: int, process: Process, callback: Callable[..., Any], *args: Any) -> Handle:
        """Run `callback` in `process` once time has come to `due_ns`."""
        handle = Handle(process, callback, args)
        self._timers_set += 1
        heappush(self._timers, (due_ns, self._timers_set, handle))
        return handle

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run until `is_over`, which is asked before each handle. Raises: Deadlock, Livelock."""
        assert not self._is_running, "the loop runs already"
        runnable, timers, choose = self._runnable, self._timers, self._choose
        outer, caller = events._get_running_loop(), self.current
        was_collecting = gc.isenabled()
        gc.disable()
        self._is_running = True
        events._set_running_loop(self)
        try:
            while not is_over():
                if timers and timers[0][0] <= self.now_ns:
                    self._move_due()
                    if is_over():
                        break
                if not runnable:
                    self._jump()
                    continue
                count = len(runnable)
                index = choose(count) if count > 1 else 0
                process = runnable[index]
                ready = process.ready
                handle = ready.popleft()
                if not ready:
                    process.is_runnable = False
                    last = runnable.pop()
                    if last is not process:
                        runnable[index] = last
                callback = handle.callback
                if callback is None:
                    continue
                self.current = process
                try:
                    callback(*handle.args)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001  told to the process's own handler
                    self._callback_failed(process, callback, error)
                if process.after_step is not None:
                    process.after_step()
                self.now_ns += self.step_ns
                self.steps += 1
                if self.steps % _HANDLES_PER_COLLECTION == 0:
                    gc.collect()
                if self.steps % _LIVELOCK_HANDLES == 0:
                    self._look_for_livelock()
        finally:
            self.current = caller
            self._is_running = False
            events._set_running_loop(outer)
            if was_collecting:
                gc.enable()

    def _jump(self) -> None:
        """Nothing is ready: on to the next timer."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heappop(timers)
        if not timers:
            raise Deadlock(f"nothing is ready and no timer is set:\n{self.pending()}")
        self.now_ns = max(self.now_ns, timers[0][0])

    def _move_due(self) -> None:
        """All that is due becomes ready together; the kernel's part happens at once."""
        timers, now_ns, kernel = self._timers, self.now_ns, self.kernel
        self.current = kernel
        while timers and timers[0][0] <= now_ns:
            handle = heappop(timers)[2]
            if handle.callback is None:
                continue
            if handle.process is kernel:
                callback, handle.callback = handle.callback, None
                callback(*handle.args)
            else:
                handle.process.push(handle)
        if self._cancelled > _CANCELLED_MAX:
            self._cancelled = 0
            timers[:] = [entry for entry in timers if entry[2].callback is not None]
            heapify(timers)

    def _callback_failed(self, process: Process, callback: object, error: BaseException) -> None:
        name = getattr(callback, "__qualname__", type(callback).__name__)
        context = {"message": f"exception in callback {name}", "exception": error}
        if process._exception_handler is None:
            raise error
        process._exception_handler(self, context)

    def pending(self) -> str:
        """Every pending task with the place where it waits, one a line."""
        return "\n".join(
            f"  {process.name}: {task.get_name()} at {await_site(task)}"
            for process in self._processes
            if not process.is_dead
            for task in process.tasks
            if not task.done()
        )

    def dispose(self) -> None:
        """The run is over: close what is left, in order, with everything fenced."""
        for process in self._processes:
            process.is_dead = True
        outer = events._get_running_loop()
        events._set_running_loop(self)
        try:
            self._close_tasks()
        finally:
            events._set_running_loop(outer)
        for process in self._processes:
            process.ready.clear()
        self._timers.clear()
        self._runnable.clear()
        self._graveyard.clear()
        self._is_closed = True

    def _close_tasks(self) -> None:
        """What is closed may start something else on its way out: that is closed, too."""
        closed: set[asyncio.Task[Any]] = set()
        while left := [task for process in self._processes for task in process.tasks if task not in closed]:
            closed.update(left)
            for task in left:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine = task.get_coro()
                    assert coroutine is not None
                    with suppress(Exception):  # what dies with the world may complain
                        coroutine.close()

    # --- asyncio.AbstractEventLoop ---------------------------------------------------------------------

    def time(self) -> float:
        return self.now_ns / 1e9

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Run after what is ready in the process that is running now."""
        process = self.current
        handle = Handle(process, callback, args)
        if process.is_runnable:
            process.ready.append(handle)
        else:
            process.push(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.at_ns(self.now_ns + max(0, int(delay * 1e9)), self.current, callback, *args)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.at_ns(int(when * 1e9), self.current, callback, *args)

    def _timer_handle_cancelled(self, handle: object) -> None:
        pass

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None, **_: Any
    ) -> "asyncio.Task[T]":
        # The default name would come from a counter that outlives the run.
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name or "task")
        self.current.adopt(task)
        return task

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def set_exception_handler(self, handler: Any) -> None:
        """For the process that is running now."""
        self.current._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self.current._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Called by futures whose exception no task took, when they are collected: no event of the world."""

    def _look_for_livelock(self) -> None:
        if self.steps >= self.steps_max:
            raise Livelock(f"L-4 no rest: {self.steps} handles and no end; {self.pending()}")
        looked_ns, self._looked_ns = self._looked_ns, self.now_ns
        if self.now_ns - looked_ns < _LIVELOCK_NS:
            raise Livelock(
                f"L-4 livelock: {_LIVELOCK_HANDLES} handles in {(self.now_ns - looked_ns) / 1e9:.1f} virtual "
                f"seconds; {self.pending()}"
            )

    def run_until_complete(self, future: Any) -> Any:
        """Run until it is done; returns its result."""
        if isinstance(future, CoroutineType):
            future = self.create_task(future, name="main")
        self.run(future.done)
        return future.result()

    def run_forever(self) -> None:
        self._is_stopping = False
        self.run(lambda: self._is_stopping)

    def stop(self) -> None:
        self._is_stopping = True

    def close(self) -> None:
        if not self._is_closed:
            self.dispose()

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        pass


def make_loop(choose: Stream, step_ns: int = 0) -> SimLoop:
    """A loop; what it does not implement of asyncio's interface belongs to the real network and processes."""
    return SimLoop(choose, step_ns)  # type: ignore[abstract]


def await_site(task: "asyncio.Task[Any]") -> str:
    """`file:line function` of the innermost await."""
    awaited: Any = task.get_coro()
    site = "its start"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            site = f"{'/'.join(code.co_filename.split('/')[-2:])}:{frame.f_lineno} {code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return site
