"""Three voters and an observer on real clock, disk and sockets. Waits for events, never for time."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.raft.committed import CommittedEntry
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.driver import RaftDriver
from holdfast.raft.snapshot_files import SnapshotSource
from holdfast.rpc.server import Exchange, Server
from holdfast.runtime.real.machine import real_runtime
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.raft.cluster import ListSink

VOTERS = (1, 2, 3)
OBSERVER = 101
#: what voters and observers ask of a voter
APIS = (ApiKey.FETCH, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH)


class Owner:
    """A `RaftListener` that lets a test wait for what it hears."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.is_changed = asyncio.Event()

    def on_committed(self, entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        self.values += [entry.value for entry in entries]
        self.is_changed.set()

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        self.is_changed.set()

    def on_voters_wanted(self, raft_epoch: int) -> None:
        pass

    def snapshot_source(self) -> SnapshotSource | None:
        return None

    def snapshot_sink(self) -> ListSink:
        return ListSink()

    def on_snapshot(self, state: Any, offset: int) -> None:
        raise AssertionError("none is made")

    def on_later_snapshot(self, reason: str) -> None:
        raise AssertionError("none is made")

    async def holds(self, values: list[bytes]) -> None:
        while self.values != values:
            self.is_changed.clear()
            await self.is_changed.wait()


async def test_real_files_and_sockets_carry_a_quorum(tmp_path: Path) -> None:
    runtimes = {id: real_runtime() for id in (*VOTERS, OBSERVER)}
    owners = {id: Owner() for id in runtimes}
    logs: dict[int, Log] = {}
    drivers: dict[int, RaftDriver] = {}
    servers: dict[int, Server] = {}
    addresses: dict[int, tuple[str, int]] = {}

    def pass_on(id: int, exchange: Exchange) -> None:
        drivers[id].handlers()[exchange.api_key](exchange)

    for id in VOTERS:
        # The addresses must be known before the drivers are made: handlers come afterwards.
        servers[id] = Server(runtimes[id], id, "CONTROLLER", {key: partial(pass_on, id) for key in APIS})
        addresses[id] = ("127.0.0.1", await servers[id].start("127.0.0.1", 0))
    for id, runtime in runtimes.items():
        folder = str(tmp_path / str(id))
        logs[id] = await Log.open(runtime, f"{folder}/log", LogConfig(retention_ms=None), clean=False)
        # The node that leads first leads to the end of the test.
        config = RaftConfig(id, "test", addresses, folder, is_voter=id in VOTERS, fetch_timeout_ms=60_000)
        drivers[id] = RaftDriver(runtime, config, logs[id], owners[id])
    for driver in drivers.values():
        await driver.start()

    changed = asyncio.Event()
    for owner in owners.values():
        owner.is_changed = changed
    while not any(driver.is_leader for driver in drivers.values()):
        changed.clear()
        await changed.wait()
    for owner in owners.values():
        owner.is_changed = asyncio.Event()

    leader = next(driver for driver in drivers.values() if driver.is_leader)
    values = [b"value %d" % number for number in range(50)]
    for value in values:
        leader.append([value], leader.raft_epoch)
    for owner in owners.values():
        await owner.holds(values)

    for id in (OBSERVER, *VOTERS):
        await drivers[id].stop()
        if id in servers:
            await servers[id].close()
        await logs[id].close(flush=True)
        await runtimes[id].tasks.cancel_all()
