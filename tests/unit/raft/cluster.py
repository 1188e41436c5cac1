"""Real drivers, servers and logs in one process, on the in-memory runtime: a common clock, a disk each.

Owns what a machine is to a test: it can boot, stop, be killed, lose its power. Nothing waits for real time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.protocol.messages.quorum import AddRaftVoterRequest, AddRaftVoterResponse
from holdfast.protocol.schema.fields import WrittenLater
from holdfast.raft.committed import CommittedEntry
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.driver import RaftDriver
from holdfast.raft.snapshot_files import SnapshotSource
from holdfast.rpc.channel import Channel
from holdfast.rpc.server import Server
from holdfast.runtime.api import Connection, ConnectionHandler, Listener, NetworkError, Runtime, Timer
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import ManualClock, SeededRandom, memory_runtime, settle
from holdfast.runtime.memory.network import MemoryNetwork
from holdfast.runtime.tasks import HeldTasks
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log

FOLDER = "/metadata"


class MortalClock:
    """The common clock as one process sees it: its timers die with it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.is_dead = False

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def sleep(self, duration_ms: float) -> None:
        await self._clock.sleep(duration_ms)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        def fire() -> None:
            if not self.is_dead:
                callback()

        return self._clock.call_later(delay_ms, fire)


class MortalNetwork:
    """The common network as one process sees it: its connections are reset when it dies."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._connections: list[Connection] = []
        self._is_dead = False

    async def listen(self, host: str, port: int, handler: Callable[[], ConnectionHandler]) -> Listener:
        return await self._network.listen(host, port, handler)

    async def connect(
        self, host: str, port: int, handler: ConnectionHandler, timeout_ms: float
    ) -> Connection:
        if self._is_dead:
            raise NetworkError("this process is dead")
        connection = await self._network.connect(host, port, handler, timeout_ms)
        self._connections.append(connection)
        return connection

    def die(self) -> None:
        self._is_dead = True
        for connection in self._connections:
            connection.abort()


class Recorder:
    """A `RaftListener` that keeps what it is told."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        #: values of the snapshot that was taken over, and its end
        self.loaded: list[bytes] = []
        self.loaded_offset = 0
        #: it does not know what snapshots hold, and why, as it was told
        self.is_of_earlier_build = False
        self.later_snapshot: str | None = None
        #: committed offset of each call
        self.offsets: list[int] = []
        self.leaders: list[tuple[int | None, int, int | None]] = []
        #: called after each change of leader
        self.react: Callable[[int | None, int, int | None], None] = lambda *_: None
        #: gives the quorum's own record its place; set by who has the driver
        self.append_voters: Callable[[int], int] = lambda _: 0

    @property
    def values(self) -> list[bytes]:
        """All committed ones: of the snapshot, and those that were handed over after it."""
        return self.loaded + [entry.value for entry in self.entries]

    def snapshot_source(self) -> SnapshotSource | None:
        if self.later_snapshot is not None:
            return None
        offset = max([self.loaded_offset, *self.offsets[-1:]])
        return SnapshotSource(offset, iter(self.values)) if offset else None

    def snapshot_sink(self) -> "ListSink | LaterSink":
        return LaterSink() if self.is_of_earlier_build else ListSink()

    def on_snapshot(self, state: list[bytes], offset: int) -> None:
        self.loaded, self.loaded_offset, self.entries, self.offsets = state, offset, [], []

    def on_later_snapshot(self, reason: str) -> None:
        self.later_snapshot = reason

    def on_committed(self, entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        self.entries += entries
        self.offsets.append(committed_offset)

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        self.leaders.append((leader_id, raft_epoch, epoch_start_offset))
        self.react(leader_id, raft_epoch, epoch_start_offset)

    def on_voters_wanted(self, raft_epoch: int) -> None:
        self.append_voters(raft_epoch)


class LaterSink:
    """Of a build that is earlier than the one that made the snapshot."""

    def take(self, values: Sequence[bytes], /) -> None:
        raise WrittenLater("a later build wrote it")

    def state(self, offset: int, /) -> Any:
        raise AssertionError("there were no values")


class ListSink:
    """A snapshot of values is those values."""

    def __init__(self) -> None:
        self._values: list[bytes] = []

    def take(self, values: Sequence[bytes], /) -> None:
        self._values += values

    def state(self, offset: int, /) -> list[bytes]:
        return self._values


class Machine:
    """One member: its disk outlives its processes."""

    def __init__(
        self,
        cluster: "Cluster",
        node_id: int,
        *,
        is_voter: bool,
        log_config: LogConfig,
        joins: bool = False,
    ) -> None:
        self.id = node_id
        self.disk = MemoryDisk()
        self.recorder = Recorder()
        self.tasks = HeldTasks()
        self._cluster = cluster
        self._is_voter = is_voter
        self._joins = joins
        self._log_config = log_config
        self._clock = MortalClock(cluster.clock)
        self._network = MortalNetwork(cluster.network)
        self.driver: RaftDriver = None  # type: ignore[assignment]  # boot makes it
        self.log: Log = None  # type: ignore[assignment]
        self.server: Server | None = None
        self.is_running = False
        #: its next processes do not know what snapshots hold
        self.is_of_earlier_build = False
        self._boots = 0

    @property
    def config(self) -> RaftConfig:
        return RaftConfig(
            self.id,
            "test",
            self._cluster.voters,
            FOLDER,
            self._is_voter,
            snapshot_bytes=self._cluster.snapshot_bytes,
            joins=self._joins,
            joins_as=f"localhost:{9000 + self.id}"
            if self._joins and self._cluster.is_joined_by_itself
            else None,
        )

    async def boot(self, *, clean: bool = False) -> None:
        """A new process on this machine's disk."""
        self._clock = MortalClock(self._cluster.clock)
        self._network = MortalNetwork(self._cluster.network)
        self.tasks = HeldTasks()
        self.recorder = Recorder()
        self.recorder.is_of_earlier_build = self.is_of_earlier_build
        self._boots += 1
        random = SeededRandom(self.id + 1_000 * (self._boots - 1))
        runtime = Runtime(self._clock, random, self._network, self.disk, self.tasks)
        self.log = await Log.open(
            runtime, f"{FOLDER}/log", self._log_config, clean=clean, may_begin_later=True
        )
        self.driver = RaftDriver(runtime, self.config, self.log, self.recorder)
        self.recorder.append_voters = self.driver.append_voters
        if self._is_voter:
            self.server = Server(runtime, self.id, "CONTROLLER", self.driver.handlers())
            await self.server.start(*self._cluster.addresses[self.id])
        await self.driver.start()
        self.is_running = True

    async def stop(self) -> None:
        """As an entry point does it."""
        self.is_running = False
        await self.driver.stop()
        if self.server is not None:
            await self.server.close()
        await self.log.close(flush=True)

    async def kill(self) -> None:
        """kill -9: the page cache lives, connections are reset, the port refuses."""
        self.is_running = False
        self._clock.is_dead = True
        self._network.die()
        if self._is_voter:
            self._cluster.network.kill(self._cluster.addresses[self.id][1])
        await self.tasks.cancel_all()
        await settle()
        await self.tasks.cancel_all()
        self.disk.process_kill()

    async def lose_power(self) -> None:
        """As `kill`, and what was not flushed is gone."""
        await self.kill()
        self.disk.power_loss()


class Cluster:
    """Voters 1, 2, ..., controllers that may join them behind, and observers 101, 102, ..."""

    def __init__(
        self,
        voter_count: int = 3,
        observer_count: int = 0,
        log_config: LogConfig | None = None,
        snapshot_bytes: int | None = None,
        joiner_count: int = 0,
        *,
        is_joined_by_itself: bool = False,
    ) -> None:
        self.snapshot_bytes = snapshot_bytes
        #: the joiners make themselves voters
        self.is_joined_by_itself = is_joined_by_itself
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        log_config = log_config or LogConfig(retention_ms=None)
        self.voters = {id: ("localhost", 9000 + id) for id in range(1, voter_count + 1)}
        joiners = range(voter_count + 1, voter_count + 1 + joiner_count)
        self.addresses = self.voters | {id: ("localhost", 9000 + id) for id in joiners}
        self.machines = {
            id: Machine(self, id, is_voter=id in self.addresses, log_config=log_config, joins=id in joiners)
            for id in [*self.addresses, *range(101, 101 + observer_count)]
        }

    def __getitem__(self, node_id: int) -> Machine:
        return self.machines[node_id]

    async def boot(self) -> Machine:
        """Start all and wait for a leader; returns it."""
        for machine in self.machines.values():
            await machine.boot()
        return await self.leader(within_ms=1_000)

    async def leader(self, within_ms: int) -> Machine:
        """Let time pass until one running voter leads and has committed its LeaderChange."""
        for _ in range(0, within_ms + 1, 5):
            await settle()
            for machine in self.machines.values():
                if machine.is_running and machine.driver.is_leader:
                    driver = machine.driver
                    if driver.committed_offset == driver.log_end_offset:
                        return machine
            await self.clock.advance(5)
        raise AssertionError(f"no leader within {within_ms} ms")

    async def readmit(
        self, leader: Machine, voter_id: int, directory_id: bytes | None = None
    ) -> AddRaftVoterResponse:
        """The answer to an operator who takes in the new disk of a voter."""
        answer: AddRaftVoterResponse = await self.ask(leader, AddRaftVoterRequest(voter_id, directory_id))
        return answer

    async def ask(self, machine: Machine, request: Any) -> Any:
        """The answer to an operator."""
        return await self.answer_of(await self.begin(machine, request))

    async def begin(self, machine: Machine, request: Any) -> asyncio.Future[Any]:
        """Ask as an operator, and do not wait."""
        runtime, _ = memory_runtime(clock=self.clock, network=self.network)
        channel = Channel(runtime, *self.addresses[machine.id], "operator")
        await channel.connect(1_000)
        call = channel.call_soon(request, 5_000)
        call.add_done_callback(lambda _: channel.close())
        return call

    async def answer_of(self, call: asyncio.Future[Any]) -> Any:
        """Let time pass until there is one."""
        while not call.done():
            await settle()
            await self.clock.advance(10)
        return call.result()

    async def stop(self) -> None:
        """Stop what runs."""
        for machine in self.machines.values():
            if machine.is_running:
                await machine.kill()
