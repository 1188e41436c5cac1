"""What operators ask of any broker: forwarded to the active controller, or answered from its image."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.broker.server import FORWARDED_APIS
from holdfast.controller.core.answers import WRITES
from holdfast.controller.core.operators.operations import OPERATIONS
from holdfast.controller.server import CORE_APIS
from holdfast.metadata import answer_steps
from holdfast.metadata.questions import QUESTION_APIS
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import API_OF_REQUEST
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
)
from holdfast.protocol.messages.features import FeatureUpdate, UpdateFeaturesRequest, UpgradeType
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest
from holdfast.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListedTopic,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ReplicaAssignment,
)
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.rpc.channel import CallRefused, Channel
from holdfast.runtime.memory.machine import memory_runtime
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch

NONE = ErrorCode.NONE
TOPIC = (2, "t")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = await Cluster().boot()
    yield made
    await made.end()


def test_every_write_of_operators_is_forwarded_by_brokers_and_taken_by_controllers() -> None:
    of_brokers = {
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
    writes = {API_OF_REQUEST[request].key for request in WRITES if request not in OPERATIONS}
    # the quorum's leader answers these, not the core
    of_quorum = {
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPGRADE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.RESIGN_QUORUM_LEADER,
    }
    assert set(FORWARDED_APIS) == writes - of_brokers | of_quorum
    assert set(CORE_APIS) == writes | set(QUESTION_APIS)


async def configured(cluster: Cluster, broker_id: int, name: str) -> tuple[str | None, int]:
    """(value, source) of a topic's key as a broker knows it."""
    question = DescribeConfigsRequest((ConfigResource(*TOPIC, (name,)),))
    (row,) = (await cluster.call(broker_id, question)).results
    return row.configs[0].value, row.configs[0].config_source


def hear_late(cluster: Cluster, broker_id: int, delay_ms: int) -> None:
    """This broker hears so much later than others what was committed."""
    server = cluster[broker_id].node.server
    hear = server.on_committed

    def later(*news: Any) -> None:
        cluster.clock.call_later(delay_ms, lambda: hear(*news))

    server.on_committed = later  # type: ignore[assignment,method-assign]


async def test_who_changes_something_through_a_broker_sees_it_there_at_once(cluster: Cluster) -> None:
    for broker_id, delay_ms in ((1, 0), (2, 40), (3, 400)):
        hear_late(cluster, broker_id, delay_ms)
        name = f"t-{broker_id}"
        topic = CreatableTopic(name, 1, 3, (), ())
        assert (await cluster.call(broker_id, CreateTopicsRequest(0, False, (topic,)))).topics[
            0
        ].error_code == NONE
        assert await listed(cluster, broker_id) == [name]
        change = AlterableConfig("min.insync.replicas", ConfigOperation.SET, "3")
        alter = IncrementalAlterConfigsRequest(False, (AlterConfigsResource(2, name, (change,)),))
        await cluster.call(broker_id, alter)
        question = DescribeConfigsRequest((ConfigResource(2, name, ("min.insync.replicas",)),))
        assert (await cluster.call(broker_id, question)).results[0].configs[0].value == "3"
        more = CreatePartitionsRequest(0, False, (CreatePartitionsTopic(name, 4, None),))
        await cluster.call(broker_id, more)
        (described,) = (await cluster.call(broker_id, MetadataRequest((name,)))).topics
        assert len(described.partitions) == 4
        await cluster.call(broker_id, DeleteTopicsRequest(0, (name,)))
        assert await listed(cluster, broker_id) == []


async def listed(cluster: Cluster, broker_id: int) -> list[str]:
    """The topics that a broker knows."""
    return [topic.name for topic in (await cluster.call(broker_id, MetadataRequest(None))).topics]


def min_isrs(cluster: Cluster) -> list[int]:
    """What the partition's replicas go by."""
    registrations = [machine.partition().registration for machine in cluster.machines.values()]
    return [-1 if registration is None else registration.min_isr for registration in registrations]


async def test_configuration_set_through_one_broker_is_told_and_kept_by_the_others(cluster: Cluster) -> None:
    await cluster.topic(min_insync_replicas="2")
    change = AlterableConfig("min.insync.replicas", ConfigOperation.SET, "3")
    request = IncrementalAlterConfigsRequest(False, (AlterConfigsResource(*TOPIC, (change,)),))
    assert (await cluster.call(1, request)).responses[0].error_code == NONE
    await cluster.eventually(lambda: min_isrs(cluster) == [3, 3, 3])
    for broker_id in (1, 2, 3):
        assert await configured(cluster, broker_id, "min.insync.replicas") == ("3", ConfigSource.TOPIC)
    leader = await cluster.leader()
    follower = next(machine for machine in cluster.machines.values() if machine is not leader)
    await follower.stop()
    row = await cluster.produce(leader.id, batch("too few are left"))
    assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_partition_moves_with_its_records_and_leaves_nothing_behind(cluster: Cluster) -> None:
    """R100-R102."""
    by_hand = (ReplicaAssignment(0, (1, 2)),)
    made = await cluster.call(1, CreateTopicsRequest(0, False, (CreatableTopic("t", -1, -1, by_hand, ()),)))
    cluster.topic_id = made.topics[0].topic_id
    leader = await cluster.leader()
    for number in range(3):
        await cluster.produce(leader.id, batch(f"a{number}"))
    before = leader.bytes()
    move = ReassignableTopic("t", (ReassignablePartition(0, (3, 2)),))
    answer = await cluster.call(2, AlterPartitionReassignmentsRequest(0, False, (move,)))
    assert answer.responses[0].partitions[0].error_code == NONE
    listing = ListPartitionReassignmentsRequest(0, (ListedTopic("t", (0,)),))
    for _ in range(2000):
        if not (await cluster.call(3, listing)).topics and (await cluster.describe()).replicas == (3, 2):
            break
        await cluster.clock.advance(5)
    assert (await cluster.describe()).isr == (2, 3)
    assert (await cluster.leader(not_one_of=(1,))).id in (2, 3)
    assert cluster[3].bytes() == before
    await cluster.eventually(lambda: (cluster.topic_id, 0) not in cluster[1].node.log_manager.logs)


async def test_new_partitions_are_served(cluster: Cluster) -> None:
    await cluster.topic()
    request = CreatePartitionsRequest(0, False, (CreatePartitionsTopic("t", 3, None),))
    assert (await cluster.call(2, request)).results[0].error_code == NONE
    await cluster.eventually(lambda: len(cluster[1].node.core.partitions) == 3)
    leader = await cluster.leader(2)
    assert (await cluster.produce(leader.id, batch("x"), index=2)).error_code == NONE


async def test_a_preferred_replica_that_came_back_leads_again_when_asked(cluster: Cluster) -> None:
    await cluster.topic(min_insync_replicas="2")
    first = await cluster.leader()
    await first.kill()
    await cluster.leader(not_one_of=(first.id,))
    await first.boot()
    await cluster.in_sync(1, 2, 3)
    asked = (ElectionTopicPartitions("t", (0,), None),)
    answer = await cluster.call(first.id, ElectLeadersRequest(ElectionKind.PREFERRED, asked, 0))
    assert answer.replica_election_results[0].partition_results[0].error_code == NONE
    await cluster.eventually(lambda: first.partition().is_serving)


async def test_features_and_brokers_change_through_any_broker(cluster: Cluster) -> None:
    downgrade = FeatureUpdate(ELR_FEATURE, 0, UpgradeType.SAFE_DOWNGRADE)
    assert (await cluster.call(3, UpdateFeaturesRequest(0, False, (downgrade,)))).error_code == NONE
    await cluster[3].kill()
    assert (await cluster.call(1, UnregisterBrokerRequest(3))).error_code == NONE
    await cluster.eventually(lambda: len(cluster[2].node.core.image.brokers) == 2)
    answer = await cluster.call(2, DescribeClusterRequest())
    assert [row.broker_id for row in answer.brokers] == [1, 2]
    assert (ELR_FEATURE, 0) in [(row.name, row.finalized_level) for row in answer.features]


def is_in_sync(leader: BrokerMachine) -> bool:
    """The leader knows of a full ISR."""
    registration = leader.partition().registration
    return registration is not None and registration.isr == (1, 2, 3)


async def test_a_leader_that_is_unregistered_leads_no_more_and_registers_anew(cluster: Cluster) -> None:
    """B10, R24, R32: its next heartbeat is refused; as an unknown broker it proves nothing."""
    await cluster.topic(min_insync_replicas="2")
    first = await cluster.leader()
    await cluster.produce(first.id, batch("kept"))
    epoch = first.node.core.lifecycle.broker_epoch
    assert (await cluster.call(first.id, UnregisterBrokerRequest(first.id))).error_code == NONE
    second = await cluster.leader(not_one_of=(first.id,))
    await cluster.eventually(lambda: not first.partition().is_serving)
    await cluster.eventually(lambda: first.node.core.lifecycle.broker_epoch > epoch and is_in_sync(second))
    assert (await cluster.produce(second.id, batch("after"))).error_code == NONE
    await cluster.eventually(lambda: first.values() == second.values() == ["kept", "after"])


async def test_a_large_answer_is_encoded_beside_the_event_loop_and_is_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.make_topic("many", 7)
    small = await cluster.call(1, MetadataRequest(None))
    computed = []
    tasks = cluster[1].tasks
    compute = tasks.compute

    async def counted(work: Callable[[], Any]) -> Any:
        computed.append(work)
        return await compute(work)

    monkeypatch.setattr(tasks, "compute", counted)
    monkeypatch.setattr(answer_steps, "ROWS_A_STEP", 2)
    assert await cluster.call(1, MetadataRequest(None)) == small
    assert len(computed) == 1


async def test_a_broker_that_is_ending_answers_nothing_from_its_image_and_forwards_nothing(
    cluster: Cluster,
) -> None:
    """N-2: what it knows may be old."""
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, "localhost", cluster[1].port, "test")
    connecting = runtime.tasks.start("connect", channel.connect(1000))
    await cluster.eventually(lambda: connecting.is_done)
    cluster[1].node.server.end()
    questions = (
        ListPartitionReassignmentsRequest(0, None),
        UnregisterBrokerRequest(3),
        GetReplicaLogInfoRequest(1, ()),
    )
    answers = [channel.call_soon(question, 1000) for question in questions]
    await cluster.eventually(lambda: all(answer.done() for answer in answers))
    for answer in answers:
        error = answer.exception()
        assert isinstance(error, CallRefused)
        assert error.error_code is ErrorCode.BROKER_NOT_AVAILABLE
    channel.abort()


async def test_after_its_core_raised_a_broker_ends_and_answers_nothing(
    cluster: Cluster, failures_logged: list[str]
) -> None:
    """A-20: its state is unknown, so no answer would be true."""
    await cluster.topic()
    machine = await cluster.leader()
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, "localhost", machine.port, "test")
    connecting = runtime.tasks.start("connect", channel.connect(1000))
    await cluster.eventually(lambda: connecting.is_done)
    await machine.fail()
    questions = (
        ProduceRequest(-1, 1000, (ProducePartition(cluster.topic_id, 0, batch("lost")),)),
        DescribeClusterRequest(),
        UnregisterBrokerRequest(3),
        GetReplicaLogInfoRequest(1, ()),
    )
    answers = [channel.call_soon(question, 1000) for question in questions]
    end_offset = machine.partition().log.log_end_offset
    await cluster.advance(500)
    assert not any(answer.done() for answer in answers)
    assert machine.partition().log.log_end_offset == end_offset
    assert len(failures_logged) == 1
    channel.abort()


async def test_a_write_with_acks_0_that_a_broker_without_roles_refuses_ends_its_connection(
    cluster: Cluster,
) -> None:
    """It starts, or ends: no client would read a refusal, and its sender would go on."""
    await cluster.topic()
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, "localhost", cluster[1].port, "test")
    connecting = runtime.tasks.start("connect", channel.connect(1000))
    await cluster.eventually(lambda: connecting.is_done)
    cluster[1].node.server.end()
    channel.send(ProduceRequest(0, 1000, (ProducePartition(cluster.topic_id, 0, batch("lost")),)))
    await cluster.eventually(lambda: not channel.is_connected)


async def test_an_answer_to_a_follower_takes_no_more_than_it_may_however_large_batches_are() -> None:
    """Rows of one batch each could outgrow a frame, again and again: it would never catch up."""
    cluster = await Cluster(replica_fetch_max_bytes="100").boot()
    await cluster.topic(9)
    await cluster[3].kill()
    await cluster.advance(200)
    core = cluster[1].node.core
    led = [key.partition_index for key, partition in core.partitions.items() if partition.is_serving]
    assert len(led) > 2
    for index in led:
        await cluster.produce(1, batch("x" * 900), index=index)
    rows = tuple(FetchPartition(cluster.topic_id, index, -1, 0, -1, -1, 100) for index in led)
    epoch = cluster.image.brokers[3].broker_epoch
    got: list[int] = []
    for number in range(len(led)):
        listed = () if number else rows
        request = FetchRequest(None, 3, epoch, 500, 1, 1500, listed, 1 << 40, number)
        answer = await cluster.call(1, request)
        assert sum(len(row.records) for row in answer.partitions) <= 1500
        got += [row.partition_index for row in answer.partitions if len(row.records)]
    assert got == led
    await cluster.end()


async def test_a_consumer_that_wants_no_bytes_gets_one_batch_not_one_a_partition(cluster: Cluster) -> None:
    await cluster.topic(9)
    core = cluster[1].node.core
    led = [key.partition_index for key, partition in core.partitions.items() if partition.is_serving]
    for index in led:
        await cluster.produce(1, batch("x"), index=index)
    rows = tuple(FetchPartition(cluster.topic_id, index, -1, 0, -1, -1, 1 << 20) for index in led)
    answer = await cluster.call(1, FetchRequest(None, -1, -1, 100, 1, 0, rows))
    assert [len(row.records) > 0 for row in answer.partitions] == [True, *([False] * (len(led) - 1))]
