"""The in-memory twin of the real runtime: a clock moved by hand, seeded randomness, and no machine beneath.

Owns the bundle for unit tests of shells: `runtime, world = memory_runtime(seed)`, then
`await world.clock.advance(ms)`. It runs on any asyncio event loop; nothing here waits for real time.
`runtime.memory.disk` and `runtime.memory.network` hold the parts that can be broken on purpose.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.network import MemoryNetwork
from holdfast.runtime.tasks import HeldTasks

_START_MS = 1_000_000
_EPOCH_MS = 1_700_000_000_000
#: turns of the loop after which work that never rests is a bug of the test
_TURNS_MAX = 100_000
#: turns given to a loop that does not tell whether it is idle
_TURNS_BLIND = 200


class ManualTimer:
    """`runtime.api.Timer`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None] | None) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """`runtime.api.Clock` that stands still until `advance` moves it."""

    def __init__(self) -> None:
        self._now_ns = _START_MS * 1_000_000
        #: (deadline ns, number, timer): equal deadlines run in the order in which they were set
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._timers_set = 0

    def now_ms(self) -> int:
        return self._now_ns // 1_000_000

    def now_ns(self) -> int:
        return self._now_ns

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.now_ms()

    async def sleep(self, duration_ms: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fire() -> None:
            if not wake.done():
                wake.set_result(None)

        timer = self.call_later(duration_ms, fire)
        try:
            await wake
        finally:
            timer.cancel()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        self._timers_set += 1
        deadline_ns = self._now_ns + max(0, round(delay_ms * 1_000_000))
        heappush(self._timers, (deadline_ns, self._timers_set, timer))
        return timer

    async def advance(self, duration_ms: float) -> None:
        """Move time on: run what is ready, then each due timer at its own time and all that follows."""
        end_ns = self._now_ns + round(duration_ms * 1_000_000)
        await settle()
        while self._timers and self._timers[0][0] <= end_ns:
            deadline_ns, _, timer = heappop(self._timers)
            self._now_ns = max(self._now_ns, deadline_ns)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
                await settle()
        self._now_ns = max(self._now_ns, end_ns)

    def next_deadline_ms(self) -> float | None:
        """Milliseconds from now to the first timer that is set."""
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        return (self._timers[0][0] - self._now_ns) / 1_000_000 if self._timers else None


async def settle() -> None:
    """Let the event loop run until nothing is left to do without time or the world moving on."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:
        for _ in range(_TURNS_BLIND):
            await asyncio.sleep(0)
        return
    for _ in range(_TURNS_MAX):
        await asyncio.sleep(0)
        if not ready:
            return
    raise AssertionError(f"the event loop was still busy after {_TURNS_MAX} turns")


class SeededRandom:
    """`runtime.api.Random`: the same draws for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def randint(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> bytes:
        return self._random.randbytes(16)


@dataclass(frozen=True, slots=True)
class MemoryWorld:
    """The same objects as in the `Runtime`, with the handles that a test needs."""

    clock: ManualClock
    random: SeededRandom
    network: MemoryNetwork
    disk: MemoryDisk
    tasks: HeldTasks


def memory_runtime(
    seed: int = 0,
    *,
    clock: ManualClock | None = None,
    network: MemoryNetwork | None = None,
    disk: MemoryDisk | None = None,
) -> tuple[Runtime, MemoryWorld]:
    """A runtime of its own, or one that shares clock, network or disk with another node's."""
    clock = clock or ManualClock()
    world = MemoryWorld(
        clock=clock,
        random=SeededRandom(seed),
        network=network or MemoryNetwork(clock),
        disk=disk or MemoryDisk(),
        tasks=HeldTasks(),
    )
    return Runtime(world.clock, world.random, world.network, world.disk, world.tasks), world
