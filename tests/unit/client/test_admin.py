"""Administrative calls: any node, repeated where that is safe, content when an earlier attempt did it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    ReplicaAssignment,
    TopicConfig,
)
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerResponse
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.runtime.api import Connection, NetworkError
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_consumer import Play


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    yield Play(cluster)
    await settle()
    await world.tasks.cancel_all()


@pytest.fixture
async def admin(play: Play) -> AsyncIterator[Admin]:
    admin = Admin(play.cluster.bootstrap_servers, runtime=play.cluster.runtime)
    yield admin
    await admin.close()


def asked(play: Play, key: ApiKey) -> list[Any]:
    return [message for broker in play.cluster.brokers.values() for message in broker.asked(key)]


async def test_topics_are_created_listed_and_deleted(play: Play, admin: Admin) -> None:
    created = await play.until(admin.create_topic("b", 3, 3, configs={"min.insync.replicas": "2"}))
    assert created == (play.cluster.topic_ids["b"], 3, 2)
    await play.until(admin.create_topic("a", assignments={0: [1, 2]}))
    assert await play.until(admin.list_topics()) == ["a", "b"]
    await play.until(admin.delete_topic("b"))
    assert await play.until(admin.list_topics()) == ["a"]
    first, second = asked(play, ApiKey.CREATE_TOPICS)
    assert isinstance(first, CreateTopicsRequest)
    assert first.topics[0].configs == (TopicConfig("min.insync.replicas", "2"),)
    assert second.topics[0].assignments == (ReplicaAssignment(0, (1, 2)),)
    assert second.topics[0].num_partitions == -1


async def test_topics_are_created_in_portions_of_one_request(
    play: Play, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in partitions, or in values where these are more."""
    monkeypatch.setattr("holdfast.client.admin.CREATIONS_PER_REQUEST", 10)
    by_hand = tuple(ReplicaAssignment(index, (1, 2)) for index in range(9))
    topics = [
        CreatableTopic("a", 7, 1, (), ()),
        CreatableTopic("b", 3, 1, (), ()),
        CreatableTopic("c", 1, 1, (), ()),
        CreatableTopic("d", -1, -1, by_hand, ()),
        CreatableTopic("e", 11, 1, (), ()),
    ]
    assert [*await play.until(admin.create_topics(topics))] == ["a", "b", "c", "d", "e"]
    requests = asked(play, ApiKey.CREATE_TOPICS)
    assert [[row.name for row in request.topics] for request in requests] == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
    ]


async def test_nodes_that_are_starting_do_not_keep_anybody_from_the_others(play: Play, admin: Admin) -> None:
    """A broker may recover its logs for minutes."""
    play.cluster.add_topic("t", 1, leader_id=3)
    play.cluster.brokers[1].is_starting = play.cluster.brokers[2].is_starting = True
    created = await play.until(admin.create_topic("u", 1, 1), limit_ms=2000)
    assert created.topic_id == play.cluster.topic_ids["u"]
    other = Admin(play.cluster.bootstrap_servers, runtime=play.cluster.runtime)
    found = await play.until(other.list_offsets({("t", 0): -1}), limit_ms=2000)
    assert found == {("t", 0): (0, -1, 1)}
    await other.close()


async def test_a_refusal_is_raised_with_its_code(play: Play, admin: Admin) -> None:
    play.cluster.add_topic("t", 1)
    with pytest.raises(ClientError) as caught:
        await play.until(admin.create_topic("t", 1, 1))
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ClientError) as caught:
        await play.until(admin.delete_topic("missing"))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_node_that_only_refuses_the_connection_has_done_nothing(play: Play, admin: Admin) -> None:
    play.cluster.add_topic("t", 1)
    play.cluster.kill(1)
    with pytest.raises(ClientError) as caught:
        await play.until(admin.create_topic("t", 7, 1))
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    other = Admin(play.cluster.bootstrap_servers, runtime=play.cluster.runtime)
    with pytest.raises(ClientError) as caught:
        await play.until(other.delete_topic("missing"))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await other.close()


class Door:
    """Accepts and hangs up: a load balancer without anybody behind it. A `ConnectionHandler`."""

    def connection_made(self, connection: Connection) -> None:
        connection.abort()

    def bytes_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None: ...


async def test_a_node_that_hangs_up_at_once_has_done_nothing(play: Play) -> None:
    """The request was never sent, so the refusal of the next node is a refusal and no echo of success."""
    play.cluster.add_topic("t", 1)
    await play.cluster.runtime.network.listen("127.0.0.1", 9_999, Door)
    admin = Admin(f"127.0.0.1:9999,{play.cluster.bootstrap_servers}", runtime=play.cluster.runtime)
    with pytest.raises(ClientError) as caught:
        await play.until(admin.create_topic("t", 7, 1))
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    await admin.close()
    admin = Admin(f"127.0.0.1:9999,{play.cluster.bootstrap_servers}", runtime=play.cluster.runtime)
    with pytest.raises(ClientError) as caught:
        await play.until(admin.delete_topic("missing"))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await admin.close()


async def test_a_controller_that_is_not_active_is_no_failure(play: Play, admin: Admin) -> None:
    for broker in play.cluster.brokers.values():
        broker.errors[ApiKey.CREATE_TOPICS] = [ErrorCode.NOT_CONTROLLER] * 2
    await play.until(admin.create_topic("t", 1, 1))
    assert "t" in play.cluster.topics


async def test_a_standby_controller_is_left_for_the_others(play: Play, admin: Admin) -> None:
    """Controllers do not forward: who bootstraps from them must find the active one among them."""
    play.cluster.brokers[1].errors[ApiKey.CREATE_TOPICS] = [ErrorCode.NOT_CONTROLLER] * 1000
    play.cluster.brokers[3].errors[ApiKey.CREATE_TOPICS] = [ErrorCode.NOT_CONTROLLER] * 1000
    await play.until(admin.create_topic("t", 1, 1), limit_ms=2000)
    assert "t" in play.cluster.topics


async def test_a_voter_that_does_not_lead_is_left_for_the_others(play: Play, admin: Admin) -> None:
    """DescribeQuorum is answered by the quorum's leader only."""
    play.cluster.brokers[1].errors[ApiKey.DESCRIBE_QUORUM] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
    play.cluster.brokers[3].errors[ApiKey.DESCRIBE_QUORUM] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
    quorum = await play.until(admin.describe_quorum(timeout_ms=2_000), limit_ms=2_500)
    assert quorum.high_watermark == 10


async def test_a_topic_whose_creation_was_answered_into_the_void_counts_as_created(
    play: Play, admin: Admin
) -> None:
    play.cluster.brokers[1].answers_lost = 1
    created = await play.until(admin.create_topic("t", 1, 1))
    assert created == (play.cluster.topic_ids["t"], None, None)
    assert len(asked(play, ApiKey.CREATE_TOPICS)) == 2


async def test_a_broker_that_lost_the_controllers_answer_is_no_proof_that_nothing_was_done(
    play: Play, admin: Admin
) -> None:
    """The broker forwards: its connection to the controller may break after the request was carried out."""
    play.cluster.brokers[1].outcomes_unknown = 1
    created = await play.until(admin.create_topic("t", 1, 1))
    assert created == (play.cluster.topic_ids["t"], None, None)


async def test_a_topic_whose_deletion_was_answered_into_the_void_counts_as_deleted(
    play: Play, admin: Admin
) -> None:
    play.cluster.add_topic("t", 1)
    play.cluster.brokers[1].answers_lost = 1
    await play.until(admin.delete_topic("t"))
    assert len(asked(play, ApiKey.DELETE_TOPICS)) == 2


async def test_descriptions_follow_cursors_until_they_are_complete(play: Play, admin: Admin) -> None:
    play.cluster.add_topic("a", 5)
    play.cluster.add_topic("b", 1)
    play.cluster.add_topic("c", 2)
    described = await play.until(admin.describe_topics())
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in described] == [
        ("a", [0, 1, 2, 3, 4]),
        ("b", [0]),
        ("c", [0, 1]),
    ]
    assert len(asked(play, ApiKey.DESCRIBE_TOPIC_PARTITIONS)) > 3


async def test_unknown_topics_are_described_by_their_error(play: Play, admin: Admin) -> None:
    (found,) = await play.until(admin.describe_topics(["missing"]))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_cluster_quorum_and_offsets(play: Play, admin: Admin) -> None:
    play.cluster.add_topic("t", 1)
    assert (await play.until(admin.describe_cluster())).controller_id == 101
    assert (await play.until(admin.describe_quorum())).raft_epoch == 5
    found = await play.until(admin.list_offsets({("t", 0): -1}))
    assert found == {("t", 0): (0, -1, 1)}


async def test_ends_of_leader_epochs_are_asked_of_the_leader_until_it_is_found(
    play: Play, admin: Admin
) -> None:
    play.cluster.add_topic("t", 2, leader_id=3)
    first = play.cluster.topics["t"][0]
    first.append(memoryview(encode_batch([Record(0, 1, None, b"x")], base_offset=0, leader_epoch=0)))
    found = await play.until(admin.epoch_ends({("t", 0): 5, ("t", 1): 5}))
    assert found == {("t", 0): (1, 1), ("t", 1): (-1, -1)}
    # another one leads, and the old leader is dead: what is remembered of it does not count
    play.cluster.move_leader("t", 0, 1)
    play.cluster.move_leader("t", 1, 2)
    play.cluster.kill(3)
    play.cluster.brokers[1].errors[ApiKey.OFFSET_FOR_LEADER_EPOCH] = [ErrorCode.FENCED_LEADER_EPOCH]
    found = await play.until(admin.epoch_ends({("t", 0): 0, ("t", 1): 0}))
    assert found == {("t", 0): (-1, -1), ("t", 1): (-1, -1)}
    play.cluster.kill(1)
    with pytest.raises(TimedOut, match="ends of leader epochs were not to be had within 500 ms"):
        await play.until(admin.epoch_ends({("t", 0): 0}, timeout_ms=500))


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_broker_that_an_earlier_attempt_unregistered_is_unregistered(
    play: Play, admin: Admin, is_lost: bool
) -> None:
    gone = UnregisterBrokerResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, "there is no broker 7")
    play.cluster.scripted = [UnregisterBrokerResponse(0, None), gone][not is_lost :]
    play.cluster.brokers[1].answers_lost = int(is_lost)
    if is_lost:
        await play.until(admin.unregister_broker(7))
        return
    with pytest.raises(ClientError, match="no broker 7") as caught:
        await play.until(admin.unregister_broker(7))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_dead_nodes_are_passed_over_and_a_dead_cluster_is_said_to_be_dead(
    play: Play, admin: Admin
) -> None:
    play.cluster.kill(1)
    play.cluster.kill(2)
    assert await play.until(admin.list_topics()) == []
    play.cluster.kill(3)
    with pytest.raises(TimedOut, match="did not succeed within 1000 ms"):
        await play.until(admin.list_topics(timeout_ms=1_000))
