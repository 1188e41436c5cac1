"""Controllers that lost their metadata, or run with an older copy of it, must not make brokers delete what
they hold: whole clusters, and the stories that look alike but are in order."""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.storage.folders import make_durably
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch
from tests.unit.broker.test_failed_starts import exit_code, stopped_cluster


async def logs_of(machine: BrokerMachine) -> list[str]:
    return [name for name in await machine.disk.listdir("/data") if name.startswith("t-")]


async def copy_of(disk: MemoryDisk, folder: str = "/data", copy: MemoryDisk | None = None) -> MemoryDisk:
    """What a backup holds."""
    copy = copy or MemoryDisk()
    await make_durably(copy, folder)
    for name in await disk.listdir(folder):
        path = f"{folder}/{name}"
        try:
            source = await disk.open(path, create=False)
        except DiskError:
            await copy_of(disk, path, copy)
            continue
        target = await copy.open(path, create=True)
        target.append([source.read_at(0, source.size)])
        await target.close()
    return copy


async def with_empty_controllers(cluster: Cluster) -> MemoryDisk:
    """All brokers stand; the controller starts with an empty disk. The disk that it had."""
    disk = await cluster.stop_controller()
    await cluster.start_controller(MemoryDisk())
    return disk


async def restore(cluster: Cluster, disk: MemoryDisk) -> None:
    """What the brokers' last sentence tells the operator to do."""
    await cluster.stop_controller()
    await cluster.start_controller(disk)
    for machine in cluster.machines.values():
        await machine.disk.remove_folder("/metadata/__cluster_metadata-0")
        await machine.boot()
    await cluster.all_run()


async def test_brokers_end_when_the_controllers_begin_anew_and_nothing_is_lost(
    failures_logged: object,
) -> None:
    """However often a supervisor starts them: the new log grows past their last registrations meanwhile. With
    the controllers' metadata back they go on, and their stops count as clean (R36)."""
    cluster = await stopped_cluster()
    disk = await with_empty_controllers(cluster)
    for attempt in range(8):
        for machine in cluster.machines.values():
            assert await exit_code(cluster, machine, seed=10 * attempt + machine.id) == 1
            assert await logs_of(machine) == ["t-0"]
    assert cluster.image.brokers[2].broker_epoch > 20
    await restore(cluster, disk)
    await cluster.in_sync(1, 2, 3)
    assert all(machine.node.core.lifecycle.was_clean for machine in cluster.machines.values())
    assert all(machine.values() == ["one"] for machine in cluster.machines.values())
    await cluster.end()


async def test_brokers_end_when_the_controllers_go_back_to_an_older_copy(failures_logged: object) -> None:
    """It holds their registrations, but not the topic that was made after it."""
    cluster = await Cluster().boot()
    disk = await cluster.stop_controller()
    copy = await copy_of(disk)
    await cluster.start_controller(disk)
    await cluster.all_run()
    await cluster.topic(min_insync_replicas="2")
    await cluster.produce((await cluster.leader()).id, batch("one"))
    for machine in cluster.machines.values():
        await machine.stop()
    await cluster.stop_controller()
    await cluster.start_controller(copy)
    for attempt in range(5):
        for machine in cluster.machines.values():
            assert await exit_code(cluster, machine, seed=10 * attempt + machine.id) == 1
            assert await logs_of(machine) == ["t-0"]
    await restore(cluster, disk)
    await cluster.in_sync(1, 2, 3)
    assert all(machine.values() == ["one"] for machine in cluster.machines.values())
    await cluster.end()


async def test_killed_brokers_end_too(failures_logged: object) -> None:
    """Without a mark of a clean stop, there is still the note of the last registration."""
    cluster = await Cluster().boot()
    await cluster.topic(min_insync_replicas="2")
    await cluster.produce((await cluster.leader()).id, batch("one"))
    for machine in cluster.machines.values():
        await machine.kill()
    await with_empty_controllers(cluster)
    for attempt in range(4):
        assert await exit_code(cluster, cluster[2], seed=attempt) == 1
        assert await logs_of(cluster[2]) == ["t-0"]
    await cluster.end()


async def test_a_kill_right_after_the_wrong_registration_does_not_hide_it(failures_logged: object) -> None:
    """Only a registration that was found in the metadata is noted as the last one."""
    cluster = await stopped_cluster()
    await with_empty_controllers(cluster)
    machine = cluster[2]
    for _ in range(8):
        await machine.boot()
        await cluster.eventually(
            lambda: machine.node.core.lifecycle.is_registered or machine.node.stopped.done()
        )
        await machine.lose_power()
    assert await exit_code(cluster, machine) == 1
    assert await logs_of(machine) == ["t-0"]
    await cluster.end()


async def test_one_new_log_dir_of_two_does_not_hide_it(failures_logged: object) -> None:
    cluster = Cluster(1, log_dirs="/data,/data2")
    await cluster.boot()
    machine = cluster[1]
    await machine.stop()
    await machine.disk.remove_folder("/data2")
    await with_empty_controllers(cluster)
    await machine.boot()
    await cluster.eventually(machine.node.stopped.done)
    assert machine.node.stopped.result().is_failure
    assert "is not what this broker has seen" in machine.node.stopped.result().text
    await cluster.end()


async def test_what_was_deleted_while_a_broker_was_down_is_still_deleted() -> None:
    """All that it had: metadata is the right one, so it counts."""
    cluster = await Cluster().boot()
    await cluster.topic(min_insync_replicas="2")
    await cluster[3].stop()
    response = await cluster.call(1, DeleteTopicsRequest(5000, ("t",)))
    assert response.topics[0].error_code == ErrorCode.NONE
    await cluster[3].boot()
    await cluster.all_run()
    await cluster.advance(100)
    assert await logs_of(cluster[3]) == []
    await cluster.end()


async def test_a_broker_that_was_unregistered_comes_back(failures_logged: object) -> None:
    """Stopped or running."""
    cluster = await Cluster().boot()
    await cluster.topic(min_insync_replicas="2")
    await cluster[3].stop()
    for _ in range(2):
        response = await cluster.ask_controller(UnregisterBrokerRequest(3))
        assert response.error_code == ErrorCode.NONE
        if not cluster[3].is_running:
            await cluster[3].boot()
        await cluster.all_run()
        await cluster.in_sync(1, 2, 3)
    await cluster.end()
