"""Snapshots of the metadata in a whole cluster: made by all, taken by who lags, applied as a difference."""

from collections.abc import AsyncIterator

import pytest

from holdfast.broker.core.events import ControllerChanged, DeleteLog, LogsLoaded, Started, Stop
from holdfast.broker.core.replicas.partition import Role
from holdfast.cli.inspect import metadata_log
from holdfast.cli.inspect.partition_story import story_of
from holdfast.metadata import history as history_module
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import NoOpRecord, RemoveTopicRecord, TopicRecord, UnfenceBrokerRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import BrokerRegistrationResponse
from holdfast.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from holdfast.raft.core.snapshot_format import parse_name
from holdfast.runtime.memory.disk import MemoryDisk
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, change, partition, register
from tests.unit.cli.test_metadata_log import read_log

METADATA = "/metadata/__cluster_metadata-0"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = await Cluster(metadata_log_max_record_bytes_between_snapshots="4000").boot()
    yield made
    await made.end()


async def churn(cluster: Cluster, rounds: int, broker_id: int = 1) -> None:
    """Topics come and go, asked of this broker."""
    for number in range(rounds):
        name = f"churn-{number}"
        made = await cluster.call(
            broker_id, CreateTopicsRequest(5000, False, (CreatableTopic(name, 20, 2, (), ()),))
        )
        assert made.topics[0].error_code == ErrorCode.NONE, made
        answer = await cluster.call(broker_id, DeleteTopicsRequest(5000, (name,)))
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
    await cluster.advance(1_500)


async def snapshot_count(disk: MemoryDisk, folder: str) -> int:
    return sum(parse_name(name) is not None for name in await disk.listdir(folder))


def log_start(machine: BrokerMachine) -> int:
    return machine.node._metadata_log.log_start_offset


async def same_images(cluster: Cluster) -> None:
    """Every running broker gets to the controller's image."""
    for machine in cluster.machines.values():
        if machine.is_running:
            await cluster.eventually(lambda machine=machine: machine.node.core.image == cluster.image)  # type: ignore[misc]
            assert hash(machine.node.core.image) == hash(cluster.image)


async def test_all_nodes_trim_their_logs_and_start_again_from_snapshots(cluster: Cluster) -> None:
    await cluster.topic()
    await churn(cluster, 8)
    await same_images(cluster)
    for machine in cluster.machines.values():
        assert await snapshot_count(machine.disk, METADATA) == 2
        assert log_start(machine) > 0
    for machine in cluster.machines.values():
        await machine.kill()
    disk = await cluster.stop_controller()
    assert await snapshot_count(disk, "/data/log") == 2
    await cluster.start_controller(disk)
    for machine in cluster.machines.values():
        await machine.boot()
    await cluster.all_run()
    await same_images(cluster)
    leader = await cluster.leader()
    await cluster.in_sync(1, 2, 3)
    await cluster.produce(leader.id, batch("a"))


@pytest.mark.parametrize("is_wiped", [True, False], ids=["wiped", "lagging"])
async def test_a_broker_behind_the_log_follows_from_the_snapshot_and_deletes_what_it_must(
    cluster: Cluster, is_wiped: bool
) -> None:
    """Its topic was deleted meanwhile, and no log tells it so any more."""
    await cluster.topic()
    gone = await cluster.make_topic("gone", 1)
    broker = cluster[3]
    await cluster.eventually(lambda: any(key.topic_id == gone for key in broker.node.core.partitions))
    await broker.kill()
    if is_wiped:
        await broker.disk.remove_folder("/metadata")
    await cluster.call(1, DeleteTopicsRequest(5000, ("gone",)))
    await churn(cluster, 8)
    await broker.boot()
    await cluster.all_run()
    await same_images(cluster)
    assert log_start(broker) > 0
    await cluster.eventually(
        lambda: all(key.topic_id != gone for key in broker.node.log_manager.logs), within_ms=5_000
    )
    await cluster.in_sync(1, 2, 3)


async def test_a_live_cluster_explains_from_its_snapshot_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "FETCH_BYTES", 700)  # many pieces
    await cluster.topic()
    leader = await cluster.leader()
    await leader.kill()
    other = await cluster.leader(not_one_of=(leader.id,))
    await churn(cluster, 8, broker_id=other.id)
    for port in (9100, other.port):
        log = await read_log(cluster, f"localhost:{port}")
        assert log.base is not None
        story = story_of(log.records, "t", 0, log.base)
        assert story.complaints == ()
        created, moved = story.steps[:2]
        assert created.before is None
        assert moved.decision is not None
        assert moved.after is not None
        assert moved.after.leader == other.id
        assert created.logged.timestamp_ms > 0
        delta = MetadataDelta(log.base.image)
        for logged in log.records:
            delta.replay(logged.record, logged.offset, 0)
        assert delta.apply().topics == cluster.image.topics


# --- a broker with roles -------------------------------------------------------------------------------


def test_what_a_snapshot_changes_is_applied_like_records() -> None:
    """It lagged behind the log: meanwhile another leads, and a second partition came."""
    harness = CoreHarness().join(partition(1))
    own = harness.core.lifecycle.broker_epoch
    between = [NoOpRecord()] * (own - 2)
    harness.snapshot(
        register(2, 0),
        register(3, 1),
        *between,
        register(1, own),
        UnfenceBrokerRecord(1, own),
        UnfenceBrokerRecord(2, 0),
        TopicRecord("t", TOPIC),
        partition(2, isr=(2, 3), leader_epoch=1, partition_epoch=3),
        partition(1, index=1),
    )
    assert harness.core.has_roles
    assert harness.partition.role is Role.FOLLOWER
    assert harness.partition.leader_epoch == 1
    assert harness.core.partitions[PartitionId(TOPIC, 1)].role is Role.LEADER


def test_a_topic_that_a_snapshot_does_not_have_is_deleted() -> None:
    harness = CoreHarness().join(partition(1))
    own = harness.core.lifecycle.broker_epoch
    was_here = (TopicRecord("t", TOPIC), partition(1), RemoveTopicRecord(TOPIC))
    harness.snapshot(*was_here, *([NoOpRecord()] * (own - 3)), register(1, own))
    assert harness.core.partitions == {}
    assert [effect.key for effect in harness.others if isinstance(effect, DeleteLog)] == [KEY]


def test_a_snapshot_of_other_metadata_ends_a_broker_with_roles_and_deletes_nothing() -> None:
    """The controllers were restored from a backup while it ran, and then made more of another metadata."""
    harness = CoreHarness().join(partition(1))
    own, image = harness.core.lifecycle.broker_epoch, harness.core.image
    harness.others.clear()
    harness.snapshot(*([NoOpRecord()] * own), register(1, own))
    (stop,) = harness.others
    assert isinstance(stop, Stop)
    assert stop.is_failure
    assert "1 of its 1 partitions were never assigned to it" in stop.text
    assert "No partition was deleted" in stop.text
    harness.metadata(RemoveTopicRecord(TOPIC))
    assert harness.core.image is image, "what comes after the snapshot is of the other metadata too"
    assert harness.others == [stop]
    assert KEY in harness.logs
    assert harness.core.lifecycle.broker_epoch == own, "its clean shutdown counts with the true metadata back"
    harness.tick(5_000)
    assert harness.calls == [], "no heartbeat, no registration"


def test_a_snapshot_that_has_dropped_assignments_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "ASSIGNMENTS_MAX", 0)
    harness = CoreHarness().join(partition(1))
    own = harness.core.lifecycle.broker_epoch
    was_here = (TopicRecord("t", TOPIC), partition(1), RemoveTopicRecord(TOPIC))
    harness.snapshot(*was_here, *([NoOpRecord()] * (own - 3)), register(1, own))
    assert [effect.key for effect in harness.others if isinstance(effect, DeleteLog)] == [KEY]


def test_a_broker_that_a_snapshot_does_not_know_has_no_role_any_more() -> None:
    harness = CoreHarness().join(partition(1))
    harness.snapshot(TopicRecord("t", TOPIC), partition(1))
    assert not harness.core.has_roles


def test_a_start_takes_its_roles_from_a_snapshot_and_the_log_behind_it() -> None:
    harness = CoreHarness()
    harness.snapshot(register(2, 0), register(3, 1), TopicRecord("t", TOPIC), partition(1))
    epoch = harness.metadata_offset
    harness.post(Started(), LogsLoaded({}, {}, {}), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, True))
    assert not harness.core.has_roles
    harness.metadata(register(1, epoch), change(leader=1))
    assert harness.core.has_roles
    assert harness.partition.leader_epoch == 1
