"""Asks leaders to delete the records below offsets, again and elsewhere until all have answered."""

from collections.abc import Mapping

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, RowError, code_of, row_error
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import Clock, NetworkError

_BACKOFF = Backoff(first_ms=20, max_ms=250)
_CALL_TIMEOUT_MS = 3_000
#: How long a leader may wait for its followers; asking again does no harm.
_WAIT_MS = 2_000

Results = dict[TopicPartition, int | RowError]


async def delete_records(
    cluster: ClusterClient, clock: Clock, wanted: Mapping[TopicPartition, int], timeout_ms: float
) -> Results:
    """The low watermark of each partition whose records below the offset are deleted (-1: all up to the high
    watermark), else why they are not. Raises: ClientError for an unknown topic."""
    deadline_ms = clock.now_ms() + int(timeout_ms)
    done: Results = {}
    problems: dict[TopicPartition, RowError] = {}
    repetitions = 0
    while True:
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            await cluster.topic(topic, max(0, deadline_ms - clock.now_ms()))
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition in (partition for partition in wanted if partition not in done):
            leader = cluster.cache.leader(*partition)
            by_leader.setdefault(leader.broker_id, {})[partition] = wanted[partition]
        for broker_id, asked in sorted(by_leader.items()):
            if broker_id < 0:
                no_leader = RowError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no leader")
                problems |= dict.fromkeys(asked, no_leader)
                continue
            for partition, result in (
                await _ask_leader(cluster, clock, broker_id, asked, deadline_ms)
            ).items():
                if isinstance(result, RowError) and result.code.is_retriable:
                    problems[partition] = result
                else:
                    done[partition] = result
        pause_ms = _BACKOFF.pause_ms(repetitions)
        repetitions += 1
        if len(done) == len(wanted) or clock.now_ms() + pause_ms >= deadline_ms:
            return {partition: done.get(partition, problems.get(partition, _LATE)) for partition in wanted}
        await clock.sleep(pause_ms)
        await cluster.refreshed(deadline_ms)


_LATE = RowError(ErrorCode.REQUEST_TIMED_OUT, "no leader has answered in time")


async def _ask_leader(
    cluster: ClusterClient,
    clock: Clock,
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    deadline_ms: int,
) -> Results:
    """Ask this broker once. Raises nothing: one partition's trouble is not that of the others."""
    try:
        channel = await cluster.connect(broker_id)
        rows: dict[TopicPartition, DeleteRecordsPartition] = {}
        # Only now: connecting takes time, in which topics are deleted.
        for partition, offset in wanted.items():
            view = cluster.cache.topic(partition.topic)
            if view is not None:
                rows[partition] = DeleteRecordsPartition(view.topic_id, partition.partition, offset)
        left_ms = max(1, deadline_ms - clock.now_ms())
        request = DeleteRecordsRequest(min(_WAIT_MS, left_ms), tuple(rows.values()))
        response: DeleteRecordsResponse = await channel.call(request, min(_CALL_TIMEOUT_MS, left_ms))
    except (NetworkError, ClientError) as error:
        cluster.suspect(broker_id)
        return dict.fromkeys(wanted, RowError(ErrorCode.NETWORK_EXCEPTION, str(error)))
    except CallRefused as error:
        if error.error_code.is_retriable:
            cluster.suspect(broker_id)  # it starts, stops or is overloaded: others know who leads
        return dict.fromkeys(wanted, RowError(error.error_code, str(error)))
    deleted = RowError(ErrorCode.UNKNOWN_TOPIC_ID, "the topic was deleted meanwhile")
    whole = code_of(response.error_code)
    if whole is not ErrorCode.NONE:
        return dict.fromkeys(wanted, RowError(whole, response.error_message or "no reason given"))
    results: Results = dict.fromkeys((partition for partition in wanted if partition not in rows), deleted)
    for partition, row in zip(rows, response.partitions, strict=True):
        results[partition] = row_error(row.error_code, row.error_message) or row.low_watermark
    return results
