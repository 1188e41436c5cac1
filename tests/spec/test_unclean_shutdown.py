"""KIP-966, "Detection of an unclean shutdown", and what "Clean shutdown" says of the file."""

import json
from collections.abc import AsyncIterator

import pytest

from holdfast.broker.core.registration.lifecycle import Identity, Lifecycle
from holdfast.protocol.messages.broker_registration import BrokerRegistrationRequest
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.storage import clean_shutdown
from tests.spec.builders import run_script
from tests.unit.broker.cluster import Cluster, batch
from tests.unit.storage.marks import prove, take_all

DIRS = ("/a", "/b")
FILES = [f"{path}/{clean_shutdown.FILE_NAME}" for path in DIRS]


async def disk_with_dirs() -> MemoryDisk:
    disk = MemoryDisk()
    for path in DIRS:
        await disk.make_folder(path)
    return disk


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers and a controller over the in-memory runtime, one topic with min ISR 2."""
    made = await Cluster().boot()
    await made.topic(min_insync_replicas="2")
    yield made
    await made.end()


async def test_file_is_written_after_the_log_was_flushed(cluster: Cluster) -> None:
    """Detection of an unclean shutdown: the file appears after the flush, right before the end (A-19, R34).

    Kept in broker.log_manager, storage.clean_shutdown.
    """
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one"))
    await leader.stop()
    leader.disk.power_loss()
    await leader.boot()
    await cluster.in_sync(1, 2, 3)
    assert leader.node.core.lifecycle.was_clean
    assert leader.values() == ["one"]


async def test_broker_that_finds_no_file_does_not_take_its_log_for_complete(cluster: Cluster) -> None:
    """Detection of an unclean shutdown: only with the file the log is assumed to be complete (R35).

    Kept in storage.clean_shutdown, broker.log_manager.
    """
    leader = await cluster.leader()
    await cluster.produce(leader.id, batch("one"))
    await leader.lose_power()
    await leader.boot()
    await cluster.in_sync(1, 2, 3)
    assert leader.node.core.lifecycle.was_clean is False


async def test_broker_epoch_is_written_at_shutdown() -> None:
    """New behavior 1: during the shutdown the current broker epoch is written into the file (F20).

    Kept in storage.clean_shutdown.
    """
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 41)
    content = disk.durable_bytes(FILES[0])
    assert content is not None
    found = json.loads(content)
    assert (found["version"], found["brokerEpoch"]) == (0, 41)


async def test_broker_epoch_is_read_at_the_start() -> None:
    """New behavior 2: during the start the broker reads the epoch from the file (F20, R33).

    Kept in storage.clean_shutdown.
    """
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 41)
    assert await take_all(disk, DIRS) == 41


def test_epoch_of_the_file_goes_into_the_registration() -> None:
    """New behavior 2: and puts it into its registration request (F22).

    Kept in broker.core.registration.lifecycle.
    """
    identity = Identity(1, "c", b"i" * 16, (), None, (), (b"d" * 16,), previous_broker_epoch=41)
    life = Lifecycle(
        identity,
        heartbeat_ms=2000,
        registration_timeout_ms=60_000,
        controlled_shutdown=True,
        shutdown_timeout_ms=30_000,
        now_ms=0,
    )
    request = life.next_request(0, 0)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == 41


def test_same_epoch_as_in_the_registration_record_is_a_clean_shutdown() -> None:
    """New behavior 3: the controller compares with its record, the same epoch is a clean shutdown (F23, R32).

    Kept in controller.core.brokers.cluster_control.
    """
    scenario = run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=2
        fence 2
        register 2 clean
        => ok
        show t-0
        => t-0 elr=(2)
    """)
    quorum = scenario.quorum
    stored = quorum.image.brokers[2].broker_epoch
    assert quorum.register(2, stored).clean_shutdown


@pytest.mark.parametrize("difference", [-1, 1])
def test_any_other_epoch_is_an_unclean_shutdown(difference: int) -> None:
    """New behavior 3: an older or unknown epoch proves nothing (F23, R32).

    Kept in controller.core.brokers.cluster_control.
    """
    scenario = run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=2
        fence 2
    """)
    quorum = scenario.quorum
    stored = quorum.image.brokers[2].broker_epoch
    assert not quorum.register(2, stored + difference).clean_shutdown
    assert quorum.partition("t").elr == ()


async def test_broker_without_an_epoch_proves_nothing_at_its_next_start() -> None:
    """New behavior 4: a broker that stops before it received an epoch counts as unclean, -1 (F24).

    Kept in storage.clean_shutdown.
    """
    disk = await disk_with_dirs()
    assert await take_all(disk, DIRS) == -1
    mark = clean_shutdown.encode(clean_shutdown.Mark(-1, b"d" * 16))
    assert clean_shutdown.decode(mark) is None


async def test_file_is_gone_before_the_broker_serves(cluster: Cluster) -> None:
    """Note: the file is removed at the start, a later crash cannot look clean (F21, R35, I-17).

    Kept in storage.clean_shutdown.
    """
    disk = await disk_with_dirs()
    await prove(disk, DIRS, 41)
    await take_all(disk, DIRS)
    disk.power_loss()
    assert await take_all(disk, DIRS) == -1
    machine = cluster[1]
    await machine.stop()
    await machine.boot()
    await cluster.in_sync(1, 2, 3)
    await machine.lose_power()
    await machine.boot()
    await cluster.in_sync(1, 2, 3)
    assert machine.node.core.lifecycle.was_clean is False


async def test_epoch_must_be_the_same_in_all_log_dirs() -> None:
    """CleanShutdownFile: one file a log dir, they must agree (R33).

    Kept in storage.clean_shutdown.
    """
    disk = await disk_with_dirs()
    await prove(disk, DIRS[:1], 41)
    assert await take_all(disk, DIRS) == -1
