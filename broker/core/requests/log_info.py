"""GetReplicaLogInfo: what this broker reports about its logs when a leader has to be chosen by log contents.

Owns which rows may be compared (R62, B23). Log and metadata are reported as they are at this moment. A log
that may still change, or that metadata has not assigned here yet, is not ready, and the asker repeats the
question. The broker needs no role: a partition without a leader has followers only. The asker judges the
answer.
"""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.broker.core.replicas.divergence import LogView
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import (
    LOG_INFO_ROWS_ASKED_MAX,
    LOG_INFO_ROWS_MAX,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopicResult,
    ReplicaLogInfo,
)

NOT_READY = "this broker is still loading its logs, or making this one; ask again"


class UsableLog(NamedTuple):
    """A log on this broker that is open and usable, as the disk's side knows it."""

    log: LogView
    #: no effect that changes the log is under way
    is_settled: bool
    #: stored upper bound of the log end that others were shown, -1 when none is stored
    ceiling: int


class Replica(NamedTuple):
    """An open log on this broker and what is known of its partition."""

    log: LogView
    #: no effect that changes the log is under way
    is_settled: bool
    #: leader epoch of its registration, -1 without a role
    leader_epoch: int
    #: highest high watermark known, also above the log end; -1 when none is
    high_watermark: int
    #: stored upper bound of the log end that others were shown, -1 when none is stored
    ceiling: int


def answer_log_info(
    request: GetReplicaLogInfoRequest,
    image: MetadataImage,
    broker_id: int,
    broker_epoch: int,
    replica_of: Callable[[PartitionId], Replica | None],
    damage_of: Callable[[PartitionId], str | None] = lambda key: None,
) -> GetReplicaLogInfoResponse:
    """The answer. `replica_of` gives the open log of a partition, `damage_of` why it has none that can be
    used; `broker_epoch` is -1 without a registration.

    The caller checks the rights: ClusterAction, or Describe on each topic (R77).
    """
    if request.broker_id != broker_id:
        text = f"this is broker {broker_id}, not {request.broker_id}; refresh the metadata"
        return GetReplicaLogInfoResponse(ErrorCode.BROKER_NOT_AVAILABLE, text, broker_epoch, False, ())
    asked = sum(len(topic.partitions) for topic in request.topic_partitions)
    if asked > LOG_INFO_ROWS_ASKED_MAX:
        text = f"{asked} partitions asked for; ask for at most {LOG_INFO_ROWS_ASKED_MAX} at a time"
        return GetReplicaLogInfoResponse(ErrorCode.INVALID_REQUEST, text, broker_epoch, False, ())
    left = LOG_INFO_ROWS_MAX
    topics: list[LogInfoTopicResult] = []
    for topic in request.topic_partitions:
        rows = tuple(
            _row(image, broker_id, PartitionId(topic.topic_id, index), replica_of, damage_of)
            for index in topic.partitions[:left]
        )
        beyond = tuple(_beyond_limit(index) for index in topic.partitions[left:])
        left -= len(rows)
        topics.append(LogInfoTopicResult(topic.topic_id, rows + beyond))
    return GetReplicaLogInfoResponse(
        ErrorCode.NONE, None, broker_epoch, asked > LOG_INFO_ROWS_MAX, tuple(topics)
    )


def _row(
    image: MetadataImage,
    broker_id: int,
    key: PartitionId,
    replica_of: Callable[[PartitionId], Replica | None],
    damage_of: Callable[[PartitionId], str | None],
) -> ReplicaLogInfo:
    topic = image.topics.get(key.topic_id)
    registration = image.partition(*key)
    index = key.partition_index
    if topic is None:
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_ID, "the topic is unknown here so far; ask again")
    if registration is None:
        text = f"topic {topic.name} has no such partition in this broker's metadata; ask again"
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if broker_id not in registration.replicas:
        text = f"this broker has no replica of it as far as it knows; replicas: {registration.replicas}"
        return _failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, text, registration.leader_epoch)
    damage = damage_of(key)
    if damage is not None:
        text = f"its log is damaged: {damage}"
        return _failed(index, ErrorCode.KAFKA_STORAGE_ERROR, text, registration.leader_epoch)
    replica = replica_of(key)
    if replica is None or not replica.is_settled:
        return _failed(index, ErrorCode.REPLICA_NOT_AVAILABLE, NOT_READY, registration.leader_epoch)
    return ReplicaLogInfo(
        partition=index,
        last_written_leader_epoch=replica.log.last_epoch,
        # an AlterPartition answer may have set a later epoch than the image has
        current_leader_epoch=max(registration.leader_epoch, replica.leader_epoch),
        log_end_offset=replica.log.log_end_offset,
        flushed_offset=replica.log.flushed_offset,
        high_watermark=replica.high_watermark,
        error_code=ErrorCode.NONE,
        error_message=None,
        ceiling=replica.ceiling,
    )


def _beyond_limit(index: int) -> ReplicaLogInfo:
    text = f"{LOG_INFO_ROWS_MAX} partitions are answered per request; ask for this one again"
    return _failed(index, ErrorCode.REQUEST_LIMIT_REACHED, text)


def _failed(index: int, code: ErrorCode, text: str, leader_epoch: int = -1) -> ReplicaLogInfo:
    return ReplicaLogInfo(index, -1, leader_epoch, -1, -1, -1, code, text)
