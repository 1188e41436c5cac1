"""With any integers in a request, brokers and controllers go on: they serve, change ISRs and elect."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.metadata.image import TopicImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import API_OF_REQUEST, APIS
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    FeatureRange,
    ListenerEndpoint,
    OfflineTopic,
)
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetPartition,
)
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigResource,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
from holdfast.protocol.messages.elect_leaders import ElectionTopicPartitions, ElectLeadersRequest
from holdfast.protocol.messages.features import FeatureUpdate, UpdateFeaturesRequest
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest, ForgottenPartition
from holdfast.protocol.messages.groups import (
    GroupHeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    SyncGroupRequest,
)
from holdfast.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from holdfast.protocol.messages.offset_for_leader_epoch import EpochPartition, OffsetForLeaderEpochRequest
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest, InitProducerIdRequest
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    ResignQuorumLeaderRequest,
    UpgradeQuorumRequest,
    VoteRequest,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListedTopic,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, LogInfoTopic
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    ReplicaAssignment,
    TopicPartitionCursor,
)
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.protocol.schema.fields import FieldType, schema_of
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.rpc.channel import Channel
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.broker.cluster import CONTROLLER_PORT, Cluster, batch
from tests.unit.protocol.integers import extremes

Make = Callable[[Cluster], Any]

#: a topic apart from the one that must go on: what may be asked of a partition is done to that one
SPARE = "spare"


def topic_of(cluster: Cluster, name: str) -> TopicImage:
    topic = cluster.image.topic(name)
    assert topic is not None
    return topic


def spare(cluster: Cluster) -> bytes:
    return topic_of(cluster, SPARE).topic_id


def epoch_of(cluster: Cluster, broker_id: int) -> int:
    return cluster.image.brokers[broker_id].broker_epoch


def _fetch(cluster: Cluster, replica_id: int, **more: Any) -> FetchRequest:
    row = FetchPartition(spare(cluster), 0, 0, 0, -1, 0, 1000)
    broker_epoch = -1 if replica_id < 0 else epoch_of(cluster, replica_id)
    return FetchRequest(None, replica_id, broker_epoch, 0, 1, 1000, (row,), **more)


def _alter(cluster: Cluster) -> AlterPartitionRequest:
    """A proposal that is in force already, as broker 1 would make it."""
    topic = topic_of(cluster, "t")
    row = topic.partitions[0]
    assert row.leader is not None
    isr = tuple(IsrMember(id, -1 if id == row.leader else epoch_of(cluster, id)) for id in row.isr)
    part = AlterPartitionPartition(topic.topic_id, 0, row.leader_epoch, row.partition_epoch, isr, 0)
    return AlterPartitionRequest(row.leader, epoch_of(cluster, row.leader), (part,), -1, 1)


def _registration(cluster: Cluster) -> BrokerRegistrationRequest:
    listener = ListenerEndpoint("PLAINTEXT", "localhost", 9999)
    features = (FeatureRange("eligible.leader.replicas.version", 0, 1),)
    return BrokerRegistrationRequest(9, "cluster", b"i" * 16, (listener,), None, features, (b"d" * 16,), -1)


def _heartbeat(cluster: Cluster) -> BrokerHeartbeatRequest:
    offline = (OfflineTopic(spare(cluster), (7,)),)
    return BrokerHeartbeatRequest(3, epoch_of(cluster, 3), 5, False, False, offline)


#: a request that is in order, of every API, by name
REQUESTS: dict[str, Make] = {
    "produce": lambda c: ProduceRequest(1, 100, (ProducePartition(spare(c), 0, batch("x")),)),
    "consumer's fetch": lambda c: _fetch(c, -1),
    "fetch in a session": lambda c: _fetch(
        c, 2, session_id=1, session_epoch=1, forgotten=(ForgottenPartition(spare(c), 0),), voter_ids=(101,)
    ),
    "follower's fetch": lambda c: _fetch(c, 2, session_id=1 << 20),
    "list offsets": lambda c: ListOffsetsRequest((ListOffsetsPartition(spare(c), 0, 0, -1),)),
    "delete records": lambda c: DeleteRecordsRequest(100, (DeleteRecordsPartition(spare(c), 0, 0),)),
    "create topics": lambda c: CreateTopicsRequest(1000, True, (CreatableTopic("new", 1, 1, (), ()),)),
    "create topics with replicas": lambda c: CreateTopicsRequest(
        1000, True, (CreatableTopic("new", -1, -1, (ReplicaAssignment(0, (1, 2)),), ()),)
    ),
    "delete topics": lambda c: DeleteTopicsRequest(1000, ("none",)),
    "join group": lambda c: JoinGroupRequest(
        "g", 6000, 6000, "", None, "consumer", (JoinGroupProtocol("range", b"s"),), False, False
    ),
    "sync group": lambda c: SyncGroupRequest("g", 1, "m", None, None, None, ()),
    "group heartbeat": lambda c: GroupHeartbeatRequest("g", 1, "m", None),
    "commit offsets": lambda c: OffsetCommitRequest(
        "g", -1, "", None, (OffsetCommitPartition(spare(c), 0, 5, 0, "m"),)
    ),
    "fetch offsets": lambda c: OffsetFetchRequest("g", (OffsetPartition(spare(c), 0),)),
    "delete offsets": lambda c: OffsetDeleteRequest("g", (OffsetPartition(spare(c), 0),)),
    "init producer id": lambda c: InitProducerIdRequest(-1, -1),
    "next epoch of a producer id": lambda c: InitProducerIdRequest(0, 0),
    "offset for leader epoch": lambda c: OffsetForLeaderEpochRequest(
        -1, (EpochPartition(spare(c), 0, 0, 0),)
    ),
    "describe configs": lambda c: DescribeConfigsRequest((ConfigResource(2, SPARE, None),)),
    "alter configs": lambda c: IncrementalAlterConfigsRequest(
        True, (AlterConfigsResource(2, SPARE, (AlterableConfig("flush.ms", 0, "5"),)),)
    ),
    "create partitions": lambda c: CreatePartitionsRequest(
        1000, True, (CreatePartitionsTopic(SPARE, 2, (CreatePartitionsAssignment((1, 2, 3)),)),)
    ),
    "elect leaders": lambda c: ElectLeadersRequest(0, (ElectionTopicPartitions(SPARE, (0,), (1,)),), 1000),
    "reassign": lambda c: AlterPartitionReassignmentsRequest(
        1000, True, (ReassignableTopic(SPARE, (ReassignablePartition(0, (1, 2, 3)),)),)
    ),
    "list reassignments": lambda c: ListPartitionReassignmentsRequest(1000, (ListedTopic(SPARE, (0,)),)),
    "describe partitions": lambda c: DescribeTopicPartitionsRequest(
        (SPARE,), 10, TopicPartitionCursor(SPARE, 0)
    ),
    "update features": lambda c: UpdateFeaturesRequest(
        1000, True, (FeatureUpdate("eligible.leader.replicas.version", 1, 1),)
    ),
    "replica log info": lambda c: GetReplicaLogInfoRequest(1, (LogInfoTopic(spare(c), (0,)),)),
    "alter partition": _alter,
    "register": _registration,
    "heartbeat": _heartbeat,
    "unregister": lambda c: UnregisterBrokerRequest(9),
    "allocate producer ids": lambda c: AllocateProducerIdsRequest(3, epoch_of(c, 3)),
    "vote": lambda c: VoteRequest("cluster", 2, 102, 101, 1, 1, False),
    "begin quorum epoch": lambda c: BeginQuorumEpochRequest("cluster", 102, 2, 101),
    "add raft voter": lambda c: AddRaftVoterRequest(101, b"d" * 16),
    "remove raft voter": lambda c: RemoveRaftVoterRequest(101, b"d" * 16),
    "upgrade quorum": lambda c: UpgradeQuorumRequest(1),
    "fetch snapshot": lambda c: FetchSnapshotRequest("cluster", 102, 1, 1, 5, 0, 1 << 20, None),
    "resign quorum leader": lambda c: ResignQuorumLeaderRequest(1),
    "end quorum epoch": lambda c: EndQuorumEpochRequest("cluster", 101, 1, (101,)),
}


async def made() -> Cluster:
    cluster = await Cluster().boot()
    await cluster.topic(min_insync_replicas="2")
    await cluster.make_topic(SPARE, 1)
    await cluster.make_topic(OFFSETS_TOPIC, 1)
    await cluster.eventually(lambda: cluster.image.topic(SPARE) is not None)
    await cluster.in_sync(1, 2, 3)
    return cluster


async def send_all(cluster: Cluster, port: int, make: Make) -> int:
    """Every extreme of the request to this node, one after the other; how many it was."""
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    channel = Channel(runtime, "localhost", port, "test")
    count = 0
    for _, request in extremes(make(cluster)):
        if not channel.is_connected:
            channel = Channel(runtime, "localhost", port, "test")
            runtime.tasks.start("connect", channel.connect(1000))
            await settle()
        answer = channel.call_soon(request, 500)
        await cluster.advance(5)
        if answer.done():
            answer.exception()
        count += 1
    await cluster.advance(600)
    channel.abort()
    return count


async def assert_that_all_goes_on(cluster: Cluster) -> None:
    """Records are written and read, an ISR shrinks and grows, another leader is elected."""
    for machine in cluster.machines.values():
        assert machine.tasks._failure is None, f"broker {machine.id} has ended: {machine.tasks._failure}"
    assert cluster._controller_tasks._failure is None, "the controller has ended"
    await cluster.all_run()
    leader = await cluster.leader()
    assert (await cluster.produce(leader.id, batch("before"))).error_code == ErrorCode.NONE
    await leader.kill()
    heir = await cluster.leader(not_one_of=(leader.id,))
    assert (await cluster.produce(heir.id, batch("after"))).error_code == ErrorCode.NONE
    await leader.boot()
    await cluster.in_sync(1, 2, 3)
    assert heir.values()[-1] == "after"
    assert len(heir.values()) == len(leader.values())


def has_integers(cls: type) -> bool:
    def contains(type_: FieldType) -> bool:
        if type_.cls is not None:
            return has_integers(type_.cls)
        return type_.name.startswith("int") or (type_.of is not None and contains(type_.of))

    return any(contains(spec.type) for spec in schema_of(cls))


async def test_there_is_a_request_of_every_api_that_has_integers() -> None:
    cluster = await made()
    asked = {API_OF_REQUEST[type(make(cluster))].key for make in REQUESTS.values()}
    assert asked == {api.key for api in APIS.values() if has_integers(api.request)}
    await cluster.end()


@pytest.mark.parametrize("name", REQUESTS)
async def test_no_integer_of_a_request_does_lasting_harm(name: str) -> None:
    cluster = await made()
    count = 0
    for port in (CONTROLLER_PORT, (await cluster.leader()).port):
        count += await send_all(cluster, port, REQUESTS[name])
    assert count
    await assert_that_all_goes_on(cluster)
    await cluster.end()
