"""Topics, quorum and offsets for people and tools. Asks any node; repeats what may safely be repeated.

A request whose answer was lost may have been carried out: creating is then content with a topic that exists
already, deleting with one that does not.
"""

from collections.abc import Mapping, Sequence

from client.cluster_client import ClusterClient
from client.errors import ClientError, code_of
from client.list_offsets import FoundOffset, list_offsets
from client.metadata_cache import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ReplicaAssignment,
    TopicConfig,
    TopicPartitionCursor,
)
from runtime.api import Runtime

_PARTITIONS_PER_ANSWER = 2_000
_TIMEOUT_MS = 30_000


class Admin:
    """Administrative calls. All raise ClientError (TimedOut when the time was over)."""

    def __init__(
        self, runtime: Runtime, bootstrap_servers: str | Sequence[str], client_id: str = "holdfast-admin"
    ) -> None:
        self._clock = runtime.clock
        self._cluster = ClusterClient(runtime, bootstrap_servers, client_id)

    def close(self) -> None:
        """End all connections."""
        self._cluster.close()

    # --- topics ---------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> bytes:
        """Create a topic; returns its id. -1 takes the cluster's default."""
        topic = CreatableTopic(
            name,
            -1 if assignments else num_partitions,
            -1 if assignments else replication_factor,
            tuple(ReplicaAssignment(i, tuple(ids)) for i, ids in sorted((assignments or {}).items())),
            tuple(TopicConfig(key, value) for key, value in sorted((configs or {}).items())),
        )
        return (await self.create_topics([topic], validate_only=validate_only, timeout_ms=timeout_ms))[name]

    async def create_topics(
        self,
        topics: Sequence[CreatableTopic],
        *,
        validate_only: bool = False,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[str, bytes]:
        """Create topics; returns their ids. Raises for the first refusal, in order; others may exist then."""
        request = CreateTopicsRequest(int(timeout_ms), validate_only, tuple(topics))

        def worst(answer: CreateTopicsResponse) -> ErrorCode:
            return _worst(answer.error_code, [row.error_code for row in answer.topics])

        answer, maybe_done = await self._cluster.ask(
            request, timeout_ms, code_of_answer=worst, what="CreateTopics"
        )
        _raise_whole(answer.error_code, answer.error_message, "CreateTopics")
        ids: dict[str, bytes] = {}
        for row in answer.topics:
            code = code_of(row.error_code)
            if code is ErrorCode.TOPIC_ALREADY_EXISTS and maybe_done and not validate_only:
                ids[row.name] = (await self._cluster.topic(row.name, timeout_ms)).topic_id
                continue
            _raise_row(f"topic {row.name}", code, row.error_message)
            ids[row.name] = row.topic_id
        return ids

    async def delete_topic(self, name: str, *, timeout_ms: float = _TIMEOUT_MS) -> None:
        """Delete a topic and its records."""
        await self.delete_topics([name], timeout_ms=timeout_ms)

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: float = _TIMEOUT_MS) -> None:
        """Delete topics. Raises for the first refusal, in order; others may be gone then."""
        request = DeleteTopicsRequest(int(timeout_ms), tuple(names))

        def worst(answer: DeleteTopicsResponse) -> ErrorCode:
            codes = [row.error_code for row in answer.topics]
            # Retriable for those who read or write; here it is the answer.
            kept = [code for code in codes if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            return _worst(answer.error_code, kept)

        answer, maybe_done = await self._cluster.ask(
            request, timeout_ms, code_of_answer=worst, what="DeleteTopics"
        )
        _raise_whole(answer.error_code, answer.error_message, "DeleteTopics")
        for row in answer.topics:
            code = code_of(row.error_code)
            if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not maybe_done:
                _raise_row(f"topic {row.name}", code, row.error_message)

    async def list_topics(self, *, timeout_ms: float = _TIMEOUT_MS) -> list[str]:
        """Names of all topics, sorted."""
        answer: MetadataResponse
        answer, _ = await self._cluster.ask(
            MetadataRequest(None), timeout_ms, code_of_answer=lambda _: ErrorCode.NONE, what="Metadata"
        )
        return sorted(topic.name for topic in answer.topics)

    async def describe_topics(
        self, names: Sequence[str] | None = None, *, timeout_ms: float = _TIMEOUT_MS
    ) -> list[DescribedTopic]:
        """Topics by name with all partitions, ELR included; unknown names come with their error code."""
        parts: dict[str, DescribedTopic] = {}
        cursor: TopicPartitionCursor | None = None
        deadline_ms = self._clock.now_ms() + int(timeout_ms)
        while True:
            request = DescribeTopicPartitionsRequest(tuple(names or ()), _PARTITIONS_PER_ANSWER, cursor)
            answer: DescribeTopicPartitionsResponse
            answer, _ = await self._cluster.ask(
                request,
                max(1, deadline_ms - self._clock.now_ms()),
                code_of_answer=lambda found: code_of(found.error_code),
                what="DescribeTopicPartitions",
            )
            _raise_whole(answer.error_code, answer.error_message, "DescribeTopicPartitions")
            for topic in answer.topics:
                known = parts.get(topic.name)
                parts[topic.name] = topic if known is None else _joined(known, topic)
            following = answer.next_cursor
            if following is None:
                return [parts[name] for name in sorted(parts)]
            if cursor is not None and _place(following) <= _place(cursor):
                raise ClientError(f"DescribeTopicPartitions: the cursor went back to {following}")
            cursor = following

    # --- the cluster ----------------------------------------------------------------------------------

    async def describe_cluster(self, *, timeout_ms: float = _TIMEOUT_MS) -> DescribeClusterResponse:
        """Brokers, fenced ones too, and the active controller."""
        answer: DescribeClusterResponse
        answer, _ = await self._cluster.ask(
            DescribeClusterRequest(),
            timeout_ms,
            code_of_answer=lambda found: code_of(found.error_code),
            what="DescribeCluster",
        )
        _raise_whole(answer.error_code, answer.error_message, "DescribeCluster")
        return answer

    async def describe_quorum(self, *, timeout_ms: float = _TIMEOUT_MS) -> DescribeQuorumResponse:
        """Voters and observers as the quorum's leader sees them."""
        answer: DescribeQuorumResponse
        answer, _ = await self._cluster.ask(
            DescribeQuorumRequest(),
            timeout_ms,
            code_of_answer=lambda found: code_of(found.error_code),
            what="DescribeQuorum",
        )
        _raise_whole(answer.error_code, answer.error_message, "DescribeQuorum")
        return answer

    async def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, FoundOffset]:
        """`{(topic, partition): (offset, timestamp, leader_epoch)}` for -1 latest, -2 earliest, or ms."""
        wanted = {TopicPartition(*partition): stamp for partition, stamp in timestamps.items()}
        return await list_offsets(self._cluster, self._clock, wanted, timeout_ms)


def _joined(known: DescribedTopic, more: DescribedTopic) -> DescribedTopic:
    return DescribedTopic(
        known.error_code,
        known.name,
        known.topic_id,
        known.is_internal,
        known.configs,
        known.partitions + more.partitions,
    )


def _place(cursor: TopicPartitionCursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _worst(whole: int, rows: Sequence[int]) -> ErrorCode:
    """The whole request's error, else the first retriable one: then all is asked again."""
    if whole != ErrorCode.NONE:
        return code_of(whole)
    return next((code_of(row) for row in rows if code_of(row).is_retriable), ErrorCode.NONE)


def _raise_whole(number: int, text: str | None, what: str) -> None:
    _raise_row(what, code_of(number), text)


def _raise_row(what: str, code: ErrorCode, text: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ClientError(f"{what}: {code.name}: {text or 'no reason given'}", code)
