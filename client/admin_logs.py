"""Where the logs of one broker end, and what is in them, asked of that broker itself (GetReplicaLogInfo, R61,
R71; Fetch; DescribeLogDirs).

Owns the split into requests and what an answer says of one replica. Errors of rows are values: a caller that
compares logs decides how long to go on asking.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from holdfast.client.admin_rows import raise_refusal
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.errors import ClientError, RowError, row_error
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    DEBUGGING_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.log_dirs import (
    DescribedLogDir,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from holdfast.protocol.messages.replica_log_info import (
    LOG_INFO_ROWS_MAX,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopic,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import Clock, NetworkError


async def get_replica_log_info(
    cluster: ClusterClient,
    clock: Clock,
    broker_id: int,
    address: tuple[str, int],
    topic_ids: Mapping[str, bytes],
    partitions: Iterable[TopicPartition],
    timeout_ms: float,
) -> dict[TopicPartition, ReplicaLog | RowError]:
    """See `Admin.get_replica_log_info`."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    found: dict[TopicPartition, ReplicaLog | RowError] = {}
    waiting = sorted(partitions)
    while waiting:
        asked, waiting = waiting[:LOG_INFO_ROWS_MAX], waiting[LOG_INFO_ROWS_MAX:]
        topics = tuple(
            LogInfoTopic(topic_ids[topic], tuple(row.partition for row in rows))
            for topic, rows in groupby(asked, key=lambda row: row.topic)
        )
        request = GetReplicaLogInfoRequest(broker_id, topics)
        left_ms = max(1, deadline_ms - clock.now_ms())
        answer: GetReplicaLogInfoResponse = await _asked(cluster, broker_id, address, request, left_ms)
        raise_refusal(answer.error_code, answer.error_message, "GetReplicaLogInfo")
        rows_given = [row for topic in answer.topics for row in topic.partitions]
        for partition, row in zip(asked, rows_given, strict=True):
            found[partition] = row_error(row.error_code, row.error_message) or ReplicaLog(
                answer.broker_epoch,
                row.last_written_leader_epoch,
                row.current_leader_epoch,
                row.log_end_offset,
                row.flushed_offset,
                row.high_watermark,
            )
    return found


async def fetch_from_replica(
    cluster: ClusterClient,
    broker_id: int,
    address: tuple[str, int],
    topic_id: bytes,
    partition_index: int,
    offset: int,
    max_bytes: int,
    timeout_ms: float,
) -> FetchPartitionResponse:
    """See `Admin.fetch_from_replica`."""
    row = FetchPartition(topic_id, partition_index, -1, offset, -1, -1, max_bytes)
    request = FetchRequest(None, DEBUGGING_REPLICA_ID, -1, 0, 0, max_bytes, (row,))
    answer: FetchResponse = await _asked(cluster, broker_id, address, request, timeout_ms)
    raise_refusal(answer.error_code, answer.error_message, "Fetch")
    return answer.partitions[0]


async def describe_log_dirs(
    cluster: ClusterClient,
    broker_id: int,
    address: tuple[str, int],
    topics: Sequence[str] | None,
    timeout_ms: float,
) -> list[DescribedLogDir]:
    """See `Admin.describe_log_dirs`."""
    request = DescribeLogDirsRequest(None if topics is None else tuple(topics))
    answer: DescribeLogDirsResponse = await _asked(cluster, broker_id, address, request, timeout_ms)
    raise_refusal(answer.error_code, answer.error_message, "DescribeLogDirs")
    return list(answer.log_dirs)


async def _asked(
    cluster: ClusterClient, broker_id: int, address: tuple[str, int], request: Any, timeout_ms: float
) -> Any:
    """The answer of one broker. Raises: ClientError."""
    try:
        return await cluster.call(address, request, timeout_ms)
    except NetworkError as error:
        text = f"broker {broker_id} did not answer: {error}"
        raise ClientError(text, ErrorCode.NETWORK_EXCEPTION) from error
    except CallRefused as error:
        raise ClientError(f"broker {broker_id} refused: {error}", error.error_code) from error
