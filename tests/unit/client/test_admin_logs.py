"""Where the logs of one broker end, as tools ask: split requests, errors as values."""

import pytest

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError, RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import (
    LOG_INFO_ROWS_MAX,
    GetReplicaLogInfoResponse,
    LogInfoTopicResult,
    ReplicaLogInfo,
)
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.client.test_admin import admin, asked, play
from tests.unit.client.test_consumer import Play

__all__ = ["admin", "play"]

FOUND = ReplicaLog(
    broker_epoch=77, last_epoch=4, leader_epoch=6, end_offset=40, flushed_offset=30, high_watermark=25
)


def answer(play: Play, *rows: tuple[int, ErrorCode]) -> GetReplicaLogInfoResponse:
    replicas = tuple(
        ReplicaLogInfo(index, 4, 6, 40, 30, 25, code, None if code is ErrorCode.NONE else "why")
        for index, code in rows
    )
    result = LogInfoTopicResult(play.cluster.topic_ids["t"], replicas)
    return GetReplicaLogInfoResponse(0, None, 77, False, (result,))


async def test_a_fenced_broker_is_asked_itself_and_errors_of_rows_are_values(
    play: Play, admin: Admin
) -> None:
    """R71, R76."""
    play.cluster.add_topic("t", 3, leader_id=1)
    play.cluster.fenced.add(2)
    play.cluster.scripted = [answer(play, (0, ErrorCode.NONE), (2, ErrorCode.REPLICA_NOT_AVAILABLE))]
    wanted = [TopicPartition("t", 2), TopicPartition("t", 0)]
    assert await play.until(admin.get_replica_log_info(2, wanted)) == {
        TopicPartition("t", 0): FOUND,
        TopicPartition("t", 2): RowError(ErrorCode.REPLICA_NOT_AVAILABLE, "why"),
    }
    (request,) = play.cluster.brokers[2].asked(ApiKey.GET_REPLICA_LOG_INFO)
    assert request.broker_id == 2
    assert request.topic_partitions[0].partitions == (0, 2)


async def test_many_partitions_are_asked_for_in_parts(play: Play, admin: Admin) -> None:
    """R61."""
    count = LOG_INFO_ROWS_MAX + 5
    play.cluster.add_topic("t", count, leader_id=1)
    first = [(index, ErrorCode.NONE) for index in range(LOG_INFO_ROWS_MAX)]
    rest = [(index, ErrorCode.NONE) for index in range(LOG_INFO_ROWS_MAX, count)]
    play.cluster.scripted = [answer(play, *first), answer(play, *rest)]
    wanted = [TopicPartition("t", index) for index in range(count)]
    assert await play.until(admin.get_replica_log_info(1, wanted)) == dict.fromkeys(wanted, FOUND)
    sizes = [len(one.topic_partitions[0].partitions) for one in asked(play, ApiKey.GET_REPLICA_LOG_INFO)]
    assert sizes == [LOG_INFO_ROWS_MAX, 5]


async def test_who_cannot_be_asked_and_what_is_not_there_is_raised(play: Play, admin: Admin) -> None:
    play.cluster.add_topic("t", 1, leader_id=1)
    for broker_id, topic, code in (
        (9, "t", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(ClientError) as caught:
            await play.until(admin.get_replica_log_info(broker_id, [TopicPartition(topic, 0)]))
        assert caught.value.code is code
    refusal = GetReplicaLogInfoResponse(ErrorCode.BROKER_NOT_AVAILABLE, "this is broker 3", -1, False, ())
    play.cluster.scripted = [refusal]
    with pytest.raises(ClientError, match="this is broker 3"):
        await play.until(admin.get_replica_log_info(1, [TopicPartition("t", 0)]))
