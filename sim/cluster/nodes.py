"""A node of a simulated cluster: a machine on which processes of the real broker or controller come and go.

Owns the life of one machine's processes: boot, clean stop, kill, power loss, pause. What runs in them is what
the entry points run (`broker.__main__`, `controller.__main__`), wired to a simulated runtime.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum

from holdfast.broker.__main__ import START_ERRORS, BrokerNode
from holdfast.broker.core.config import BrokerConfig
from holdfast.broker.core.events import Stop
from holdfast.controller.__main__ import raft_config
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.server import ControllerServer
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.raft.metadata_log import open_voters_log
from holdfast.runtime.api import DiskError, NetworkError, Runtime
from holdfast.runtime.tasks import HeldTasks
from holdfast.sim.machine.loop import Process, SimLoop
from holdfast.sim.machine.network import SimNetwork
from holdfast.sim.machine.runtime import HandlerDelay, Machine, SimClock, make_runtime
from holdfast.sim.machine.trace import Trace
from holdfast.storage.core.files import METADATA_FOLDER
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.meta_properties import LogDirRefused

#: where every node of its kind listens
BROKER_PORT = 9092
CONTROLLER_PORT = 9093


class State(Enum):
    """What a machine's process is doing."""

    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"


class Surroundings:
    """What all machines of a world share."""

    def __init__(self, loop: SimLoop, network: SimNetwork, trace: Trace, seed: str) -> None:
        self.loop = loop
        self.network = network
        self.trace = trace
        self.seed = seed
        #: time that passes inside of handles, in stories that have it
        self.handler_delay: HandlerDelay | None = None
        #: own bugs that nodes have met: (process, what)
        self.bugs: list[tuple[str, BaseException]] = []
        #: what looks at a node after each of its steps; asked when its process boots
        self.watch: Callable[[SimNode], Callable[[], None] | None] | None = None
        #: hears of a process that is about to end, and of power that is about to go (True)
        self.ending: Callable[[SimNode, bool], None] | None = None


class SimNode:
    """One machine. Subclasses say what its processes run."""

    def __init__(self, around: Surroundings, machine: Machine, node_id: int) -> None:
        self.node_id = node_id
        self.machine = machine
        self.state = State.DOWN
        self.boots = 0
        self.booted_ns = 0
        self.drift_ppm = 0
        self.wall_shift_ms = 0
        self._clock: SimClock | None = None
        self.process: Process
        self.tasks: HeldTasks
        #: exit code of the last process that ended by itself
        self.exit_code: int | None = None
        #: called in the kernel when a process has ended by itself
        self.on_exit: Callable[[SimNode], None] | None = None
        self._around = around
        self._asked_to_stop: asyncio.Future[None]

    @property
    def name(self) -> str:
        return self.machine.host.name

    @property
    def clock_ms(self) -> int:
        """What the clock of its last process shows; 0 before the first."""
        return 0 if self._clock is None else self._clock.shown_ns() // 1_000_000

    @property
    def is_up(self) -> bool:
        """It runs and was not asked to stop."""
        return self.state is State.RUNNING

    # --- what befalls it -------------------------------------------------------------------------------

    def boot(self) -> None:
        """Power on when it is off, then a new process."""
        assert self.state is State.DOWN, f"{self.name} is {self.state.value}"
        around = self._around
        self.boots += 1
        self.booted_ns = around.loop.now_ns
        self.machine.host.is_up = True
        self.process = around.loop.process(f"{self.name}.{self.boots}")
        self.exit_code = None
        self._forget()
        if around.watch is not None:
            self.process.after_step = around.watch(self)
        seed = f"{around.seed}:{self.name}:{self.boots}"
        runtime, self.tasks = make_runtime(
            around.network,
            self.machine,
            self.process,
            seed,
            drift_ppm=self.drift_ppm,
            wall_shift_ms=self.wall_shift_ms,
            handler_delay=around.handler_delay,
        )
        assert isinstance(runtime.clock, SimClock)
        self._clock = runtime.clock
        self.state = State.RUNNING
        around.trace.add("boot", self.process.name)
        self.process.call(self._begin, runtime, self.tasks)

    def stop(self) -> None:
        """SIGTERM. The process may take its time."""
        assert self.state is State.RUNNING
        self.state = State.STOPPING
        self._around.trace.add("stop", self.process.name)
        # Looked up by the process: one that was booted a moment ago has not begun yet.
        self.process.call(lambda: _resolve(self._asked_to_stop))

    def kill(self) -> None:
        """kill -9: no more code runs; the page cache lives, the host's kernel ends the connections."""
        self._around.trace.add("kill", self.process.name)
        self._end()

    def lose_power(self) -> None:
        """No more code runs, no peer is told, and the disk keeps what its personality leaves."""
        self._around.trace.add("power", f"{self.name} {self.machine.sim_disk.personality.value}")
        if self._around.ending is not None:
            self._around.ending(self, True)
        if self.state is not State.DOWN:
            self.process.kill()
            self.state = State.DOWN
        self._around.network.power_lost(self.machine.host)
        self.machine.sim_disk.power_loss()

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.state is State.RUNNING
        self._around.trace.add("pause", self.process.name)
        self.state = State.PAUSED
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        assert self.state is State.PAUSED
        self._around.trace.add("resume", self.process.name)
        self.state = State.RUNNING
        self.process.resume()

    def set_wall(self, shift_ms: int) -> None:
        """The machine's wall clock is off by so much from now on."""
        self._around.trace.add("clock", f"{self.name} off by {shift_ms / 3_600_000:g} h")
        self.wall_shift_ms = shift_ms
        if self._clock is not None:
            self._clock.wall_shift_ms = shift_ms

    def set_drift(self, drift_ppm: int) -> None:
        """The machine's clock runs faster by so much from now on."""
        self._around.trace.add("clock", f"{self.name} faster by {drift_ppm / 10_000:g} %")
        self.drift_ppm = drift_ppm
        if self._clock is not None:
            self._clock.set_drift(drift_ppm)

    def _end(self) -> None:
        if self._around.ending is not None:
            self._around.ending(self, False)
        self.process.kill()
        self._around.network.process_ended(self.process)
        self.machine.sim_disk.process_ended(self.process)
        self.state = State.DOWN

    def _exit(self, process: Process, code: int) -> None:
        """In the kernel: the process has ended by itself."""
        if process is self.process and self.state is not State.DOWN:
            self.exit_code = code
            self._around.trace.add("exit", f"{process.name} {code}")
            self._end()
            if self.on_exit is not None:
                self.on_exit(self)

    # --- inside the process ----------------------------------------------------------------------------

    def _begin(self, runtime: Runtime, tasks: HeldTasks) -> None:
        tasks.adopt_callbacks()
        self._asked_to_stop = asyncio.get_running_loop().create_future()
        tasks.start("main", self._main(runtime, tasks))

    async def _main(self, runtime: Runtime, tasks: HeldTasks) -> None:
        process, loop = self.process, self._around.loop
        code = await self._run(runtime, tasks)
        loop.at_ns(loop.now_ns, loop.kernel, self._exit, process, code)

    def _forget(self) -> None:
        """A new process is about to start: nothing of the last one counts any more."""

    async def _run(self, runtime: Runtime, tasks: HeldTasks) -> int:
        """What the entry point does; returns the exit code."""
        raise AssertionError("subclasses say")

    def _failed(self, failure: BaseException) -> int:
        """Of what keeps a node from starting, only disks go wrong later on too."""
        if not isinstance(failure, DiskError):
            self._around.bugs.append((self.process.name, failure))
        return 1

    async def _failure_or(
        self, tasks: HeldTasks, other: "asyncio.Future[Stop | None]"
    ) -> "Stop | BaseException | None":
        """The first failure of a task, or the other thing; both are awaited in order of creation."""
        ended: asyncio.Future[Stop | BaseException | None] = asyncio.get_running_loop().create_future()

        async def wait_for_failure() -> None:
            _resolve_with(ended, await tasks.failure())

        tasks.start("failure", wait_for_failure())
        other.add_done_callback(lambda done: _resolve_with(ended, done.result()))
        return await ended


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _resolve_with(
    future: "asyncio.Future[Stop | BaseException | None]", what: "Stop | BaseException | None"
) -> None:
    if not future.done():
        future.set_result(what)


class SimBroker(SimNode):
    """A machine that runs brokers."""

    def __init__(
        self, around: Surroundings, machine: Machine, node_id: int, properties: Mapping[str, str]
    ) -> None:
        super().__init__(around, machine, node_id)
        self._config, warnings = BrokerConfig.from_properties(properties)
        assert not warnings, warnings
        #: the running broker, and the last one of a machine that is down; None before the first
        self.node: BrokerNode | None = None

    @property
    def is_ready(self) -> bool:
        """It is unfenced and serves."""
        return self.is_up and self.node is not None and hasattr(self.node, "core") and self.node.is_ready()[0]

    def _forget(self) -> None:
        self.node = None

    async def _run(self, runtime: Runtime, tasks: HeldTasks) -> int:
        node = self.node = BrokerNode(self._config, runtime)
        try:
            await node.start()
        except START_ERRORS:
            return 1
        self._asked_to_stop.add_done_callback(lambda _: node.want_shutdown())
        outcome = await self._failure_or(tasks, node.stopped)  # type: ignore[arg-type]
        if isinstance(outcome, BaseException):
            return self._failed(outcome)
        assert outcome is not None
        if outcome.is_failure:
            return self._failed(RuntimeError(outcome.text))
        try:
            await node.stop()
        except DiskError:
            return 1
        return 0


class SimController(SimNode):
    """A machine that runs controllers."""

    def __init__(
        self, around: Surroundings, machine: Machine, node_id: int, properties: Mapping[str, str]
    ) -> None:
        super().__init__(around, machine, node_id)
        self._config, warnings = ControllerConfig.from_properties(properties, {})
        assert not warnings, warnings
        self.server: ControllerServer | None = None
        #: the metadata log of the running process
        self.log: Log | None = None

    @property
    def is_active(self) -> bool:
        """It leads the quorum and has applied its log."""
        return self.is_up and self.server is not None and self.server.core.is_active

    def _forget(self) -> None:
        self.server = self.log = None

    async def _run(self, runtime: Runtime, tasks: HeldTasks) -> int:
        config = self._config
        try:
            log_dir = await LogDir.open(runtime, config.metadata_log_dir, config.cluster_id, config.node_id)
            folder = log_dir.file(METADATA_FOLDER)
            log = await open_voters_log(runtime, folder)
            server = ControllerServer(runtime, config, raft_config(config, folder), log)
            self.server, self.log = server, log
            await server.start()
        except (DiskError, NetworkError, LogDirRefused, BadQuorumState):
            return 1
        outcome = await self._failure_or(tasks, self._asked_to_stop)  # type: ignore[arg-type]
        if isinstance(outcome, BaseException):
            return self._failed(outcome)
        await server.stop()
        await tasks.cancel_all()
        if server.failure is not None:
            return self._failed(server.failure)
        try:
            await log.close(flush=True)
        except DiskError:
            return 1
        return 0


class SimClient(SimNode):
    """A machine that runs one client program."""

    def __init__(
        self,
        around: Surroundings,
        machine: Machine,
        node_id: int,
        program: "Callable[[Runtime], asyncio.Future[None] | object]",
    ) -> None:
        super().__init__(around, machine, node_id)
        self._program = program

    async def _run(self, runtime: Runtime, tasks: HeldTasks) -> int:
        work = self._program(runtime)
        await work  # type: ignore[misc]
        return 0
