"""Every implementation of the runtime, on every event loop that it meets, as one fixture called `world`."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

import pytest
import uvloop

from holdfast.localcluster.power import drivers
from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime
from holdfast.runtime.real.disk import RealDisk
from holdfast.runtime.real.machine import real_runtime
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.disk import SimDisk
from holdfast.sim.machine.loop import SimLoop, make_loop
from holdfast.sim.machine.network import SimNetwork
from holdfast.sim.machine.runtime import Machine, make_runtime
from holdfast.sim.machine.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class World(Protocol):
    """A runtime, and what a test must be able to do to the machine below it."""

    runtime: Runtime
    folder: str

    async def pass_time(self, duration_ms: float) -> None: ...

    async def silent_port(self) -> int:
        """A port of 127.0.0.1 that neither accepts nor refuses."""

    async def full_file(self) -> str:
        """A file that can be opened and takes no byte."""

    def lack_handles(self, operation: str, path: str, tries: int) -> None:
        """Let the next tries of an operation on the file find no file handle."""


class RealWorld:
    def __init__(self, folder: str, unsynced: str | None = None) -> None:
        self.runtime = real_runtime(unsynced)
        self.folder = folder
        self._sockets: list[socket.socket] = []
        self._patch = pytest.MonkeyPatch()

    async def pass_time(self, duration_ms: float) -> None:
        await self.runtime.clock.sleep(duration_ms)

    async def silent_port(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self._sockets.append(listener)
        address = listener.getsockname()
        # The kernel takes a few into the queue that no process empties; the next ones get no answer at all.
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(address)
            self._sockets.append(filler)
        return int(address[1])

    async def full_file(self) -> str:
        return "/dev/full"

    def lack_handles(self, operation: str, path: str, tries: int) -> None:
        assert isinstance(self.runtime.disk, RealDisk)
        self.runtime.disk._handles.close_some()
        # Another try follows when handles could be closed, and there are none.
        os_open, left = os.open, tries

        def scarce(wanted: str, flags: int, mode: int = 0o777) -> int:
            nonlocal left
            if wanted != path:
                return os_open(wanted, flags, mode)
            left -= 1
            if left == 0:
                self._patch.undo()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        self._patch.setattr(os, "open", scarce)

    def close(self) -> None:
        self._patch.undo()
        for opened in self._sockets:
            opened.close()


class InMemoryWorld:
    def __init__(self, runtime: Runtime, handles: MemoryWorld) -> None:
        self.runtime = runtime
        self.folder = "/data"
        self.handles = handles

    async def pass_time(self, duration_ms: float) -> None:
        await self.handles.clock.advance(duration_ms)

    async def silent_port(self) -> int:
        self.handles.network.cut_off(9)
        return 9

    async def full_file(self) -> str:
        self.handles.disk.fail("append", "/data/full", errno.ENOSPC)
        await (await self.runtime.disk.open("/data/full", create=True)).close()
        return "/data/full"

    def lack_handles(self, operation: str, path: str, tries: int) -> None:
        self.handles.disk.fail(operation, path, errno.EMFILE, tries)


class SimulatedWorld:
    """A host of its own on the simulated loop, whose latencies and schedule are drawn."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        choices, trace = Choices("contract"), Trace(lambda: loop.now_ns)
        network = SimNetwork(loop, choices.stream("net"), trace)
        self.machine = Machine(network.add_host("host"), SimDisk(loop, choices.stream("disk"), trace, "host"))
        process = loop.current
        self.runtime, self.tasks = make_runtime(network, self.machine, process, "contract:host:1")
        self.folder = "/data"

    async def pass_time(self, duration_ms: float) -> None:
        await self.runtime.clock.sleep(duration_ms)

    async def silent_port(self) -> int:
        self.machine.host.silent_ports.add(9)
        return 9

    async def full_file(self) -> str:
        self.machine.sim_disk.fail("append", "/data/full", errno.ENOSPC)
        await (await self.runtime.disk.open("/data/full", create=True)).close()
        return "/data/full"

    def lack_handles(self, operation: str, path: str, tries: int) -> None:
        self.machine.sim_disk.fail(operation, path, errno.EMFILE, tries)


class _PromptLoop(asyncio.SelectorEventLoop):
    """Whose threads have ended before anybody looks, as they may have from Python 3.14 on: its `wrap_future`
    takes over the state of what is done at once."""

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        ended: asyncio.Future[T] = self.create_future()
        try:
            ended.set_result(func(*args))
        except OSError as error:
            ended.set_exception(error)
        return ended


def _sim_loop() -> SimLoop:
    """A loop that stands in one process of its own, as a node does."""
    loop = make_loop(Choices("contract").stream("sched"), step_ns=1000)
    loop.current = loop.process("test")
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {
        "asyncio": asyncio.new_event_loop,
        "uvloop": uvloop.new_event_loop,
        "sim": _sim_loop,
        "prompt": _PromptLoop,
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """uvloop swallows the signal by which a time-out is usually told; a tracked disk is for real loops; only
    real disks have threads."""
    here = Path(__file__).parent
    items[:] = [item for item in items if item.path.parent != here or _is_wanted(item)]
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(60, method="thread"))


def _is_wanted(item: pytest.Item) -> bool:
    is_of_disk = item.path.name == "test_disk.py"
    if "[prompt-" in item.name:
        return is_of_disk and not item.name.endswith("-memory]")
    return not item.name.endswith("-tracked]") or (is_of_disk and "[sim-" not in item.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests of power losses run with the drivers that work here: say which do not."""
    for name in drivers.NAMES:
        if reason := drivers.why_not(name):
            terminalreporter.write_line(f"power loss {name} was not tested: {reason}")


@pytest.fixture(params=["machine", "memory", "tracked"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "machine" and isinstance(asyncio.get_running_loop(), SimLoop):
        simulated = SimulatedWorld()
        await simulated.runtime.disk.make_folder(simulated.folder)
        yield simulated
        await simulated.runtime.tasks.cancel_all()
        return
    if request.param == "memory":
        in_memory = InMemoryWorld(*memory_runtime(seed=7))
        await in_memory.runtime.disk.make_folder(in_memory.folder)
        yield in_memory
        await in_memory.runtime.tasks.cancel_all()
        return
    folder = tmp_path / "disk"
    folder.mkdir()
    real = RealWorld(str(folder), str(tmp_path / "unsynced") if request.param == "tracked" else None)
    yield real
    await real.runtime.tasks.cancel_all()
    real.close()
