"""The entry point: wiring, exit codes, and one clear line when it cannot start."""

import os
import signal

import pytest

from holdfast.controller.__main__ import raft_config, run
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.runtime.real.machine import StopSignals
from holdfast.runtime.tasks import HeldTasks
from holdfast.storage.core.files import METADATA_FOLDER
from holdfast.storage.log_dir import LogDir
from tests.unit.controller.harness import CLUSTER_ID, NODE_ID, make_config


async def test_a_controller_runs_until_a_signal_and_leaves_its_log_behind() -> None:
    runtime, world = memory_runtime()
    assert isinstance(runtime.tasks, HeldTasks)
    codes: list[int] = []

    async def main() -> None:
        codes.append(await run(make_config(), runtime, StopSignals()))

    outer = HeldTasks()
    task = outer.start("controller", main())
    await world.clock.advance(3000)
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(20):
        await world.clock.advance(100)
    await task.wait()
    assert codes == [0]
    assert "quorum-state" in await world.disk.listdir(f"/metadata/{METADATA_FOLDER}")


async def test_a_metadata_log_that_cannot_be_closed_is_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime, world = memory_runtime()
    codes: list[int] = []

    async def main() -> None:
        codes.append(await run(make_config(), runtime, StopSignals()))

    outer = HeldTasks()
    task = outer.start("controller", main())
    await world.clock.advance(3000)
    world.disk.fail("open", ".snapshot.tmp")
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(20):
        await world.clock.advance(100)
    await task.wait()
    assert codes == [1]
    assert "stopped, but" in caplog.text


async def test_a_folder_of_another_node_ends_the_start_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime, world = memory_runtime()
    await LogDir.open(runtime, "/metadata", CLUSTER_ID, NODE_ID + 1)
    other, _ = memory_runtime(disk=world.disk)
    await settle()
    assert await run(make_config(), other, StopSignals()) == 1
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    assert "cannot start" in caplog.text


async def test_a_quorum_that_cannot_work_ends_the_start(caplog: pytest.LogCaptureFixture) -> None:
    runtime, _ = memory_runtime()
    config = make_config(controller_quorum_fetch_timeout_ms="400")
    assert await run(config, runtime, StopSignals()) == 1
    assert "controller.quorum.fetch.timeout.ms" in caplog.text


def test_the_quorum_gets_its_part_of_the_configuration() -> None:
    quorum = raft_config(make_config(controller_quorum_election_timeout_ms="77"), "/f")
    assert (quorum.node_id, quorum.is_voter, quorum.folder, quorum.election_timeout_ms) == (
        NODE_ID,
        True,
        "/f",
        77,
    )
