"""A `runtime.api.Runtime` for one incarnation of one host, made of the simulated loop, network and disk.

Owns the process's clock, which may run too fast or too slow, and its random numbers, which are its own: they
depend on the seed, the host and the incarnation only, so that an edited tape leaves them alone.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from runtime.api import Runtime
from runtime.tasks import HeldTasks
from sim.disk import Platter, ProcessDisk
from sim.loop import Handle, Process, SimLoop
from sim.network import Host, ProcessNetwork, SimNetwork

_MS = 1_000_000
_EPOCH_MS = 1_700_000_000_000


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
        self._base_ns, self._since_ns = self.now_ns(), self._loop.now_ns
        self._drift_ppm = drift_ppm

    def now_ms(self) -> int:
        if not self._drift_ppm:
            return (self._base_ns + self._loop.now_ns - self._since_ns) // _MS
        return self.now_ns() // _MS

    def now_ns(self) -> int:
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
    platter: Platter


def make_runtime(
    network: SimNetwork,
    machine: Machine,
    process: Process,
    seed: str,
    *,
    drift_ppm: int = 0,
    wall_shift_ms: int = 0,
) -> tuple[Runtime, HeldTasks]:
    """The world as this process sees it, and its tasks."""
    tasks = HeldTasks()
    runtime = Runtime(
        SimClock(process, drift_ppm, wall_shift_ms),
        SimRandom(seed),
        ProcessNetwork(network, machine.host, process),
        ProcessDisk(machine.platter, process),
        tasks,
    )
    return runtime, tasks
