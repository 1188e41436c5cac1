"""The machine itself: what entry points give to a node. Only they and tools may import this.

Owns the event loop's choice (uvloop where there is one), signals, and the end of a process. Exceptions that
escape from a callback on the loop are our own bugs as much as those of a task, and stop the node as well.
"""

import asyncio
import gc
import importlib.util
import logging
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.runtime.api import Disk, Runtime
from holdfast.runtime.core.handle_lru import handle_limit
from holdfast.runtime.power.power_loss import TrackedDisk
from holdfast.runtime.real.disk import RealDisk, started_threads
from holdfast.runtime.real.network import RealNetwork
from holdfast.runtime.tasks import HeldTasks

#: New objects of Python between two collections of garbage cycles.
_COLLECT_AFTER = 10_000
#: What a whole collection may take; after a longer one its survivors are not looked at again.
_COLLECTION_MAX_NS = 5_000_000
#: Every so many, nothing is left out of the next one: a long pause, and all garbage is found.
_FREEZES = 16
#: A collection of this generation looks at everything.
_GENERATION_MAX = 2

_log = logging.getLogger("holdfast.runtime")


class RealClock:
    """`runtime.api.Clock`."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, duration_ms: float) -> None:
        await asyncio.sleep(duration_ms / 1000)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)


class RealRandom:
    """`runtime.api.Random`, seeded by the operating system."""

    def __init__(self) -> None:
        self._random = random.Random()

    def randint(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> bytes:
        return os.urandom(16)


class StopSignals:
    """SIGTERM and SIGINT as something to wait for. Create it inside the running event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._received: asyncio.Future[signal.Signals] = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        if not self._received.done():
            _log.info("received %s", number.name)
            self._received.set_result(number)

    @property
    def is_received(self) -> bool:
        return self._received.done()

    async def wait(self) -> signal.Signals:
        """Until this process is asked to stop; returns at once when that has happened already."""
        return await asyncio.shield(self._received)


def real_runtime(unsynced: str | None = None) -> Runtime:
    """The clock, network and disk of this machine.

    With `unsynced`, the disk keeps a journal in that folder of what a power loss would take.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files_max = None if soft == resource.RLIM_INFINITY else soft
    limit = None if open_files_max is None else handle_limit(open_files_max)
    disk: Disk = RealDisk(limit) if unsynced is None else TrackedDisk(unsynced, limit)
    tasks = HeldTasks(started_threads(1, "compute"))
    return Runtime(RealClock(), RealRandom(), RealNetwork(), disk, tasks, open_files_max)


async def until_stopped(runtime: Runtime, signals: StopSignals) -> BaseException | None:
    """Wait for a signal (returns None) or for the first task that fails (returns its exception)."""
    loop = asyncio.get_running_loop()
    waits = [loop.create_task(signals.wait()), loop.create_task(runtime.tasks.failure())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    failure = waits[1].result() if waits[1].done() else None
    for wait in waits:
        wait.cancel()
    assert failure is None or isinstance(failure, BaseException)
    return failure


def run(main: Callable[[Runtime], Coroutine[Any, Any, int]], *, unsynced: str | None = None) -> int:
    """Run `main` on a fresh event loop and `real_runtime(unsynced)`; returns its exit code."""
    if not __debug__:
        raise SystemExit("Holdfast relies on its assertions: run Python without -O and PYTHONOPTIMIZE")
    _allow_many_files()
    # By default 700 new objects start one. While metadata of ten thousand partitions is replayed, that took
    # half of the time, in pauses of up to 0.3 s.
    gc.set_threshold(_COLLECT_AFTER, 10, 10)
    with _signals_as_before(), asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_main(main, unsynced))


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """Give SIGINT and SIGTERM their handlers back: those of a closed event loop would swallow them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: another language has set it
                signal.signal(number, handler)


def keep_collections_short() -> None:
    """For a process that is a node: what lives for years is left out of collections of garbage cycles. Not
    for other programs, to which `gc.get_objects` and `gc.collect` must tell of everything."""
    gc.callbacks.append(ShortCollections())


class ShortCollections:
    """Keeps whole collections of garbage cycles short: what has survived a long one is left out of the next.

    Twenty thousand partitions are some 140 000 objects that live for years, and looking at them took 90 ms
    each time. Cycles that were alive then and become garbage are freed after `_FREEZES` of these.
    """

    def __init__(self, now_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._now_ns = now_ns
        self._begun_ns = 0
        self._freezes = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """For `gc.callbacks`."""
        if info["generation"] < _GENERATION_MAX:
            return
        if phase == "start":
            self._begun_ns = self._now_ns()
        elif self._now_ns() - self._begun_ns > _COLLECTION_MAX_NS:
            self._freezes += 1
            if self._freezes % _FREEZES:
                gc.freeze()
            else:
                gc.unfreeze()


def _allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one: logs and clients share them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _main(main: Callable[[Runtime], Coroutine[Any, Any, int]], unsynced: str | None) -> int:
    runtime = real_runtime(unsynced)
    assert isinstance(runtime.tasks, HeldTasks)
    runtime.tasks.adopt_callbacks()
    return await main(runtime)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, asyncio's elsewhere."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
