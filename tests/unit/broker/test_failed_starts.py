"""A start that fails before the broker has registered costs no proof: it is passed on (R36)."""

import asyncio
from typing import Any

import pytest

from holdfast.broker.__main__ import run
from holdfast.broker.core.config import BrokerConfig
from holdfast.broker.log_manager import LogManager
from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.machine import SeededRandom
from holdfast.runtime.tasks import HeldTasks
from holdfast.storage import meta_properties
from holdfast.storage.folders import make_durably
from tests.unit.broker.cluster import COMMON, BrokerMachine, Cluster, batch
from tests.unit.raft.cluster import MortalClock, MortalNetwork

CONTROLLER_PORT = 9100


class NoSignals:
    """Signals of a process that is left alone."""

    async def wait(self) -> None:
        await asyncio.get_running_loop().create_future()


async def exit_code(
    cluster: Cluster, machine: BrokerMachine, metadata_dir: str = "/metadata", *, seed: int = 7
) -> int:
    """Of a process on the machine that comes to nothing."""
    clock, network, tasks = MortalClock(cluster.clock), MortalNetwork(cluster.network), HeldTasks()
    runtime = Runtime(clock, SeededRandom(seed), network, machine.disk, tasks)
    config, _ = BrokerConfig.from_properties(
        {
            **COMMON,
            "node.id": str(machine.id),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://localhost:{machine.port}",
            "log.dirs": "/data",
            "metadata.log.dir": metadata_dir,
        }
    )
    codes = []

    async def main() -> None:
        codes.append(await run(config, runtime, NoSignals()))  # type: ignore[arg-type]

    running = HeldTasks().start("run", main())
    await cluster.eventually(lambda: running.is_done, within_ms=120_000)
    clock.is_dead = True
    await tasks.cancel_all()
    network.die()
    cluster.network.kill(machine.port)
    machine.disk.process_kill()
    (code,) = codes
    return code


async def stopped_cluster() -> Cluster:
    """All brokers have stopped in order, with a record."""
    cluster = await Cluster().boot()
    await cluster.topic(min_insync_replicas="2")
    await cluster.produce((await cluster.leader()).id, batch("one"))
    for machine in cluster.machines.values():
        await machine.stop()
    return cluster


async def registers_cleanly(cluster: Cluster, machine: BrokerMachine) -> None:
    """The next start of the machine has the proof still; ends the cluster."""
    await machine.boot()
    await cluster.eventually(lambda: machine.node.core.lifecycle.is_registered)
    assert machine.node.core.lifecycle.was_clean is True
    await cluster.end()


async def test_controllers_that_come_too_late_cost_no_proof(failures_logged: object) -> None:
    cluster = await stopped_cluster()
    machine = cluster[2]
    cluster.network.cut_off(CONTROLLER_PORT)
    assert await exit_code(cluster, machine) == 1
    cluster.network.mend(CONTROLLER_PORT)
    await registers_cleanly(cluster, machine)


async def test_a_port_that_is_taken_costs_no_proof(failures_logged: object) -> None:
    cluster = await stopped_cluster()
    machine = cluster[2]
    stranger = await cluster.network.listen("localhost", machine.port, asyncio.Protocol)  # type: ignore[arg-type]
    assert await exit_code(cluster, machine) == 1
    await stranger.close()
    await registers_cleanly(cluster, machine)


async def test_a_metadata_dir_of_another_node_costs_no_proof(failures_logged: object) -> None:
    cluster = await stopped_cluster()
    machine = cluster[2]
    await make_durably(machine.disk, "/other")
    await meta_properties.ensure(machine.disk, "/other", COMMON["holdfast.cluster.id"], 77, b"o" * 16)
    assert await exit_code(cluster, machine, "/other") == 1
    await registers_cleanly(cluster, machine)


async def test_a_metadata_dir_that_fails_costs_no_proof(failures_logged: object) -> None:
    cluster = await stopped_cluster()
    machine = cluster[2]
    machine.disk.fail("listdir", "/metadata/__cluster_metadata-0")
    assert await exit_code(cluster, machine) == 1
    await registers_cleanly(cluster, machine)


async def test_a_metadata_log_without_its_beginning_costs_no_proof() -> None:
    """K15: a broker fetches all of it again, and no log of a partition is touched."""
    cluster = await stopped_cluster()
    machine = cluster[2]
    folder = "/metadata/__cluster_metadata-0"
    await machine.disk.rename(f"{folder}/{0:020}.log", f"{folder}/{7:020}.log")
    await registers_cleanly(cluster, machine)


async def test_a_slash_at_its_end_makes_no_other_dir_of_the_metadata_dir() -> None:
    """The dir is locked for its logs already: as a dir of another process it would be refused."""
    cluster = Cluster(1, metadata_log_dir="/data/")
    await cluster.boot()
    assert "__cluster_metadata-0" in await cluster[1].disk.listdir("/data")
    await cluster.end()


class LastListener:
    """While it closes the load ends, behind the last event that the core takes."""

    def __init__(self, machine: BrokerMachine, gate: asyncio.Event) -> None:
        self._machine, self._gate = machine, gate

    async def close(self) -> None:
        self._gate.set()
        assert self._machine.node._loading is not None
        await self._machine.node._loading.wait()


async def test_a_stop_while_logs_load_renews_no_proof_that_they_belie(
    monkeypatch: pytest.MonkeyPatch, failures_logged: object
) -> None:
    """B25: no broker has reported the log that is missing, and the controller had believed the proof."""
    cluster = await stopped_cluster()
    machine = cluster[2]
    await machine.disk.remove_folder("/data/t-0")
    await machine.disk.sync_folder("/data")
    gate, load = asyncio.Event(), LogManager.load

    async def load_late(self: LogManager, *given: Any) -> Any:
        await gate.wait()
        return await load(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "load", load_late)
        await machine.boot()
        await cluster.eventually(lambda: machine.node.core.lifecycle.is_registered)
    assert machine.node.core.lifecycle.was_clean is True
    machine.node._listeners.append(LastListener(machine, gate))  # type: ignore[arg-type]
    await machine.stop()
    await machine.boot()
    await cluster.eventually(lambda: machine.node.core.lifecycle.is_registered)
    assert machine.node.core.lifecycle.was_clean is False
    await cluster.end()
