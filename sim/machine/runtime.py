"""A `runtime.api.Runtime` for one incarnation of one host, made of the simulated loop, network and disk.

Owns the process's clock, which may run too fast or too slow, and its random numbers, which are its own: they
depend on the seed, the host and the incarnation only, so that an edited tape leaves them alone.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.runtime.api import Runtime
from holdfast.runtime.tasks import HeldTasks
from holdfast.sim.machine.choices import Stream
from holdfast.sim.machine.connections import Host
from holdfast.sim.machine.disk import ProcessDisk, SimDisk
from holdfast.sim.machine.loop import Handle, Process, SimLoop
from holdfast.sim.machine.network import ProcessNetwork, SimNetwork

_MS = 1_000_000
_EPOCH_MS = 1_700_000_000_000
#: of a strained world: at most so many calls of clocks between two of which time passes: some 50 a second
_CALLS_BETWEEN = 90
#: so many tenths of a millisecond at most; one in so many takes longer
_STRAIN_NS = 100_000
_SHORT, _LONG, _LONG_ONE_IN = 21, 201, 20


class SimClock:
    """`runtime.api.Clock`. `drift_ppm` makes it run faster, `wall_shift_ms` moves the label only."""

    def __init__(self, process: Process, drift_ppm: int = 0, wall_shift_ms: int = 0) -> None:
        self._loop: SimLoop = process.loop
        self._process = process
        self._drift_ppm = drift_ppm
        self.wall_shift_ms = wall_shift_ms
        #: the world's time, and this clock's, when it began to run as it does
        self._since_ns = self._base_ns = 0

    def set_drift(self, drift_ppm: int) -> None:
        """Run at another speed from now on; timers that are set stay."""
        self._base_ns, self._since_ns = self.shown_ns(), self._loop.now_ns
        self._drift_ppm = drift_ppm

    def now_ms(self) -> int:
        if not self._drift_ppm:
            return (self._base_ns + self._loop.now_ns - self._since_ns) // _MS
        return self.shown_ns() // _MS

    def now_ns(self) -> int:
        return self.shown_ns()

    def shown_ns(self) -> int:
        """As `now_ns`, for those who look from outside of the process: no time passes over it."""
        passed_ns = self._loop.now_ns - self._since_ns
        if self._drift_ppm:
            passed_ns += passed_ns * self._drift_ppm // 1_000_000
        return self._base_ns + passed_ns

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.now_ms() + self.wall_shift_ms

    async def sleep(self, duration_ms: float) -> None:
        wake: asyncio.Future[None] = self._loop.create_future()
        timer = self.call_later(duration_ms, lambda: None if wake.done() else wake.set_result(None))
        try:
            await wake
        finally:
            timer.cancel()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Handle:
        delay_ns = max(0, int(delay_ms * _MS))
        if self._drift_ppm:
            delay_ns = delay_ns * 1_000_000 // (1_000_000 + self._drift_ppm)
        return self._loop.at_ns(self._loop.now_ns + delay_ns, self._process, callback)


class HandlerDelay:
    """Time that passes inside of handles: real ones take some. Without it two looks at the clock in one
    handle never differ, and timers that are set by one handle never become due apart.

    One for all processes of a world, as they share its one thread: one that takes time holds up all.
    """

    def __init__(self, loop: SimLoop, stream: Stream) -> None:
        self._loop = loop
        self._draw = stream.draw
        self._calls_left = _CALLS_BETWEEN

    def feel(self) -> None:
        """A handle looks at its clock, or sets a timer."""
        self._calls_left -= 1
        if self._calls_left > 0:
            return
        draw = self._draw
        self._calls_left = _CALLS_BETWEEN - draw(_CALLS_BETWEEN)
        longest = _LONG if draw(_LONG_ONE_IN) == _LONG_ONE_IN - 1 else _SHORT
        self._loop.now_ns += draw(longest) * _STRAIN_NS


class DelayedClock(SimClock):
    """A clock on which time passes also while a handle runs: now and then, when it is asked."""

    def __init__(
        self, process: Process, handler_delay: HandlerDelay, drift_ppm: int = 0, wall_shift_ms: int = 0
    ) -> None:
        super().__init__(process, drift_ppm, wall_shift_ms)
        self._feel = handler_delay.feel

    def now_ms(self) -> int:
        self._feel()
        return super().now_ms()

    def now_ns(self) -> int:
        self._feel()
        return super().now_ns()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Handle:
        self._feel()
        return super().call_later(delay_ms, callback)


class SimRandom:
    """`runtime.api.Random`."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def randint(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> bytes:
        return self._random.randbytes(16)


@dataclass(frozen=True, slots=True)
class Machine:
    """A host with its disk."""

    host: Host
    sim_disk: SimDisk


def make_runtime(
    network: SimNetwork,
    machine: Machine,
    process: Process,
    seed: str,
    *,
    drift_ppm: int = 0,
    wall_shift_ms: int = 0,
    handler_delay: HandlerDelay | None = None,
) -> tuple[Runtime, HeldTasks]:
    """The world as this process sees it, and its tasks."""
    tasks = HeldTasks()
    runtime = Runtime(
        SimClock(process, drift_ppm, wall_shift_ms)
        if handler_delay is None
        else DelayedClock(process, handler_delay, drift_ppm, wall_shift_ms),
        SimRandom(seed),
        ProcessNetwork(network, machine.host, process),
        ProcessDisk(machine.sim_disk, process),
        tasks,
    )
    return runtime, tasks
