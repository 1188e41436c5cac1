"""What a broker says of its logs, row by row."""

from dataclasses import dataclass, replace

import pytest
from immutables import Map

from holdfast.broker.core.requests.log_info import Replica, answer_log_info
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import (
    LOG_INFO_ROWS_ASKED_MAX,
    LOG_INFO_ROWS_MAX,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopic,
    ReplicaLogInfo,
)

TOPIC, OTHER = b"t" * 16, b"o" * 16
LEADERLESS = PartitionRegistration((1, 2, 3), (), None, 6, 9, 2, last_known_elr=(1, 2))
ELSEWHERE = replace(LEADERLESS, replicas=(2, 3))


@dataclass
class Log:
    log_start_offset: int = 0
    durable_start_offset: int = 0
    log_end_offset: int = 40
    flushed_offset: int = 30
    last_epoch: int = 4

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self.last_epoch, self.log_end_offset


OPEN = Replica(Log(), True, 6, 25, 60)
FOLLOWER = ReplicaLogInfo(0, 4, 6, 40, 30, 25, ErrorCode.NONE, None, 60)


def image_of(registration: PartitionRegistration) -> MetadataImage:
    topic = TopicImage("t", TOPIC, Map({0: registration}))
    return replace(MetadataImage(), topics=Map({TOPIC: topic}))


def ask(
    registration: PartitionRegistration = LEADERLESS,
    replica: Replica | None = OPEN,
    topics: tuple[LogInfoTopic, ...] = (LogInfoTopic(TOPIC, (0,)),),
    broker_id: int = 1,
) -> GetReplicaLogInfoResponse:
    request = GetReplicaLogInfoRequest(broker_id, topics)
    return answer_log_info(request, image_of(registration), 1, 77, lambda key: replica)


def test_a_replica_without_a_leader_tells_what_is_in_its_log_and_what_it_knows() -> None:
    """R66: the epoch of the last batch, not of metadata."""
    answer = ask()
    assert (answer.error_code, answer.broker_epoch, answer.has_more_data) == (ErrorCode.NONE, 77, False)
    assert answer.topics[0].topic_id == TOPIC
    assert answer.topics[0].partitions == (FOLLOWER,)


@pytest.mark.parametrize(
    ("image_epoch", "role_epoch", "told"),
    [(6, 6, 6), (6, -1, 6), (6, 7, 7), (8, -1, 8)],
    ids=["same", "no role", "an AlterPartition answer came first", "roles were dropped"],
)
def test_the_leader_epoch_is_the_latest_that_the_broker_has_heard_of(
    image_epoch: int, role_epoch: int, told: int
) -> None:
    """R62: an older one is asked again, and a log that the role still changes must not look as new."""
    answer = ask(replace(LEADERLESS, leader_epoch=image_epoch), OPEN._replace(leader_epoch=role_epoch))
    assert answer.topics[0].partitions[0].current_leader_epoch == told


@pytest.mark.parametrize(
    ("registration", "replica", "key", "code"),
    [
        (LEADERLESS, OPEN, (OTHER, 0), ErrorCode.UNKNOWN_TOPIC_ID),
        (LEADERLESS, OPEN, (TOPIC, 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ELSEWHERE, OPEN, (TOPIC, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        # still loading, or failed
        (LEADERLESS, None, (TOPIC, 0), ErrorCode.REPLICA_NOT_AVAILABLE),
        # a truncation is under way: the end may still shrink
        (LEADERLESS, OPEN._replace(is_settled=False), (TOPIC, 0), ErrorCode.REPLICA_NOT_AVAILABLE),
    ],
)
def test_what_cannot_be_compared_is_told_as_an_error_with_its_index(
    registration: PartitionRegistration, replica: Replica | None, key: tuple[bytes, int], code: ErrorCode
) -> None:
    """B23; all of them may be asked again."""
    answer = ask(registration, replica, (LogInfoTopic(key[0], (key[1],)),))
    (row,) = answer.topics[0].partitions
    assert answer.topics[0].topic_id == key[0]
    assert (row.partition, row.error_code) == (key[1], code)
    assert (row.last_written_leader_epoch, row.log_end_offset, row.high_watermark) == (-1, -1, -1)
    assert row.error_message
    assert code.is_retriable


def test_rows_beyond_the_limit_are_named_and_the_answer_says_that_there_are_some() -> None:
    """R61, B23."""
    first, second = LOG_INFO_ROWS_MAX - 2, 5
    topics = (
        LogInfoTopic(TOPIC, (0,) * first),
        LogInfoTopic(TOPIC, (0,) * second),
        LogInfoTopic(OTHER, (3,)),
    )
    answer = ask(topics=topics)
    assert answer.has_more_data
    codes = [[row.error_code for row in topic.partitions] for topic in answer.topics]
    limit = ErrorCode.REQUEST_LIMIT_REACHED
    assert codes == [[ErrorCode.NONE] * first, [ErrorCode.NONE] * 2 + [limit] * 3, [limit]]
    assert answer.topics[2].partitions[0].partition == 3


def test_exactly_as_many_as_allowed_leave_nothing_behind() -> None:
    answer = ask(topics=(LogInfoTopic(TOPIC, (0,) * LOG_INFO_ROWS_MAX),))
    assert not answer.has_more_data
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.NONE}


def test_another_broker_at_the_address_and_too_large_a_request_are_refused_as_a_whole() -> None:
    answer = ask(broker_id=2)
    assert (answer.error_code, answer.topics) == (ErrorCode.BROKER_NOT_AVAILABLE, ())
    answer = ask(topics=(LogInfoTopic(TOPIC, (0,) * (LOG_INFO_ROWS_ASKED_MAX + 1)),))
    assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, ())
    assert ask(topics=(LogInfoTopic(TOPIC, (0,) * LOG_INFO_ROWS_ASKED_MAX),)).error_code == ErrorCode.NONE
