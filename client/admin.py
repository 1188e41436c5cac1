"""Topics, quorum and offsets for people and tools. Asks any node; repeats what may safely be repeated.

A request whose answer was lost may have been carried out: creating is then content with a topic that exists
already, deleting with one that does not, unregistering with a broker that is not there. The calls about
partitions are in `admin_partitions`, those about configuration and features in `admin_configs`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import NamedTuple

from holdfast.client import admin_configs, admin_groups, admin_logs, admin_partitions
from holdfast.client.admin_configs import ConfigEntry, Features, FeatureUpdate, Resource
from holdfast.client.admin_groups import GroupDescription, GroupListing, GroupOffset
from holdfast.client.admin_partitions import CREATIONS_PER_REQUEST, NewPartitions, Reassignment
from holdfast.client.admin_rows import ask_whole, check_complete, raise_refusal
from holdfast.client.cluster_client import ASK_BACKOFF, ClusterClient
from holdfast.client.core.errors import ClientError, RowError, code_of
from holdfast.client.core.portions import portions
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.client.core.wanted_topics import portions_of
from holdfast.client.delete_records import delete_records
from holdfast.client.epoch_ends import EpochEnd, epoch_ends
from holdfast.client.list_offsets import FoundOffset, list_offsets
from holdfast.client.own_runtime import ClientRuntime
from holdfast.client.repetitions import Repetitions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.messages.fetch import FetchPartitionResponse
from holdfast.protocol.messages.log_dirs import DescribedLogDir
from holdfast.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ResignQuorumLeaderRequest,
    ResignQuorumLeaderResponse,
    UpgradeQuorumRequest,
    UpgradeQuorumResponse,
)
from holdfast.protocol.messages.topics import (
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
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime

_PARTITIONS_PER_ANSWER = 2_000
_TIMEOUT_MS = 30_000


class CreatedTopic(NamedTuple):
    """What became of a topic that is there now."""

    topic_id: bytes
    #: None when the answer that told it was lost, and when nothing was made
    replication_factor: int | None = None
    #: effective min.insync.replicas; None likewise
    min_isr: int | None = None


class Admin:
    """Administrative calls. All raise ClientError, which is TimedOut after `timeout_ms` (30 s by default).

    Use it with `async with`. Where a block does not fit, `await close()` in the end. A call that is cancelled
    may have been carried out.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "holdfast-admin",
        runtime: Runtime | None = None,
    ) -> None:
        """bootstrap_servers: `"host:port,host:port"` or a sequence of `"host:port"`: brokers, or controllers.

        client_id: a name for their logs. runtime: what is used of the world; None: this machine, and
        asyncio's running event loop.
        """
        self._owner = ClientRuntime(runtime)
        self._clock = self._owner.runtime.clock
        self._cluster = ClusterClient(self._owner.runtime, bootstrap_servers, client_id)

    async def close(self) -> None:
        """End all connections."""
        self._cluster.close()
        await self._owner.end()

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
    ) -> CreatedTopic:
        """Create a topic. -1 takes the cluster's default."""
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
    ) -> dict[str, CreatedTopic]:
        """Create topics, by name. Raises for the first refusal, in order; others may exist then."""
        deadline_ms = self._clock.now_ms() + int(timeout_ms)
        created: dict[str, CreatedTopic] = {}
        for portion in portions(topics, CREATIONS_PER_REQUEST, _creation_cost):
            left_ms = max(1, deadline_ms - self._clock.now_ms())
            created |= await self._create_topics(portion, validate_only, left_ms)
        check_complete([topic.name for topic in topics], created, "CreateTopics")
        return created

    async def _create_topics(
        self, topics: tuple[CreatableTopic, ...], validate_only: bool, timeout_ms: float
    ) -> dict[str, CreatedTopic]:
        request = CreateTopicsRequest(int(timeout_ms), validate_only, topics)

        def worst(answer: CreateTopicsResponse) -> ErrorCode:
            return _worst(answer.error_code, [row.error_code for row in answer.topics])

        answer, maybe_done = await self._cluster.ask(
            request, timeout_ms, code_of_answer=worst, what="CreateTopics"
        )
        raise_refusal(answer.error_code, answer.error_message, "CreateTopics")
        created: dict[str, CreatedTopic] = {}
        for row in answer.topics:
            code = code_of(row.error_code)
            if code is ErrorCode.TOPIC_ALREADY_EXISTS and maybe_done and not validate_only:
                created[row.name] = CreatedTopic((await self._cluster.topic(row.name, timeout_ms)).topic_id)
                continue
            raise_refusal(row.error_code, row.error_message, f"topic {row.name}")
            min_isr = None if validate_only else row.min_isr
            factor = None if validate_only else row.replication_factor
            created[row.name] = CreatedTopic(row.topic_id, factor, min_isr)
        return created

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
        raise_refusal(answer.error_code, answer.error_message, "DeleteTopics")
        for row in answer.topics:
            code = code_of(row.error_code)
            if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not maybe_done:
                raise_refusal(row.error_code, row.error_message, f"topic {row.name}")
        check_complete(names, {row.name for row in answer.topics}, "DeleteTopics")

    async def list_topics(self, *, timeout_ms: float = _TIMEOUT_MS) -> list[str]:
        """Names of all topics, sorted."""
        answer: MetadataResponse
        answer, _ = await self._cluster.ask(
            MetadataRequest(None), timeout_ms, code_of_answer=lambda _: ErrorCode.NONE, what="Metadata"
        )
        return sorted(topic.name for topic in answer.topics)

    async def describe_topics(
        self,
        names: Sequence[str] | None = None,
        *,
        partitions_per_answer: int = _PARTITIONS_PER_ANSWER,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> list[DescribedTopic]:
        """Topics by name with all partitions, ELR included; unknown names come with their error code."""
        deadline_ms = self._clock.now_ms() + int(timeout_ms)
        found: list[DescribedTopic] = []
        for portion in portions_of(tuple(sorted(set(names or ())))):
            found += await self._describe_portion(portion, partitions_per_answer, deadline_ms)
        return found

    async def _describe_portion(
        self, names: tuple[str, ...], partitions_per_answer: int, deadline_ms: int
    ) -> list[DescribedTopic]:
        """Page by page; no names: all topics."""
        parts: dict[str, DescribedTopic] = {}
        cursor: TopicPartitionCursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(names, partitions_per_answer, cursor)
            answer: DescribeTopicPartitionsResponse
            left_ms = max(1, deadline_ms - self._clock.now_ms())
            answer, _ = await ask_whole(self._cluster, request, left_ms, "DescribeTopicPartitions")
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
        answer, _ = await ask_whole(self._cluster, DescribeClusterRequest(), timeout_ms, "DescribeCluster")
        return answer

    async def describe_quorum(self, *, timeout_ms: float = _TIMEOUT_MS) -> DescribeQuorumResponse:
        """Voters and observers as the quorum's leader sees them."""
        answer: DescribeQuorumResponse
        answer, _ = await ask_whole(self._cluster, DescribeQuorumRequest(), timeout_ms, "DescribeQuorum")
        return answer

    async def unregister_broker(self, broker_id: int, *, timeout_ms: float = _TIMEOUT_MS) -> None:
        """Take a broker out for good (R28)."""
        answer: UnregisterBrokerResponse
        answer, maybe_done = await self._cluster.ask(
            UnregisterBrokerRequest(broker_id),
            timeout_ms,
            code_of_answer=lambda found: code_of(found.error_code),
            what="UnregisterBroker",
        )
        if not (maybe_done and answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED):
            raise_refusal(answer.error_code, answer.error_message, "UnregisterBroker")

    async def add_raft_voter(
        self, voter_id: int, directory_id: bytes | None = None, *, timeout_ms: float = _TIMEOUT_MS
    ) -> bytes:
        """Take in the new directory of a voter that has lost its disk: `directory_id`, or the one that asks.
        Returns it."""
        return await self._add_voter(AddRaftVoterRequest(voter_id, directory_id), timeout_ms)

    async def upgrade_quorum(self, *, timeout_ms: float = _TIMEOUT_MS) -> None:
        """Let the metadata log name the voters from now on, so that they can be changed. Asks again while a
        voter has not noted that. Raises: ClientError, TimedOut."""
        answer: UpgradeQuorumResponse
        answer, _ = await self._cluster.ask(
            UpgradeQuorumRequest(1),
            timeout_ms,
            code_of_answer=lambda found: code_of(found.error_code),
            what="UpgradeQuorum",
        )
        raise_refusal(answer.error_code, answer.error_message, "UpgradeQuorum")

    async def add_controller(
        self,
        node_id: int,
        endpoint: str,
        directory_id: bytes | None = None,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> bytes:
        """Make a controller that reads the metadata log a voter, reached at `endpoint` (host:port); returns
        its directory. Asks again while it has not caught up, or another change is under way."""
        return await self._add_voter(AddRaftVoterRequest(node_id, directory_id, endpoint), timeout_ms)

    async def _add_voter(self, request: AddRaftVoterRequest, timeout_ms: float) -> bytes:
        answer: AddRaftVoterResponse
        answer, maybe_done = await self._cluster.ask(
            request,
            timeout_ms,
            code_of_answer=lambda found: code_of(found.error_code),
            what="AddRaftVoter",
        )
        if not (maybe_done and answer.error_code == ErrorCode.DUPLICATE_VOTER):
            raise_refusal(answer.error_code, answer.error_message, "AddRaftVoter")
        return answer.directory_id or request.directory_id or b""

    async def remove_controller(
        self, node_id: int, directory_id: bytes | None = None, *, timeout_ms: float = _TIMEOUT_MS
    ) -> None:
        """Take a controller out of the voters. Asks again while another change is under way."""
        answer: RemoveRaftVoterResponse
        answer, maybe_done = await self._cluster.ask(
            RemoveRaftVoterRequest(node_id, directory_id),
            timeout_ms,
            code_of_answer=lambda found: code_of(found.error_code),
            what="RemoveRaftVoter",
        )
        if not (maybe_done and answer.error_code == ErrorCode.VOTER_NOT_FOUND):
            raise_refusal(answer.error_code, answer.error_message, "RemoveRaftVoter")

    async def resign_quorum_leader(
        self, *, timeout_ms: float = _TIMEOUT_MS
    ) -> tuple[DescribeQuorumResponse, DescribeQuorumResponse]:
        """Let the leader of the metadata quorum hand over to another voter; returns (the quorum before, as
        the next leader sees it). Raises: ClientError, also for a quorum of one, TimedOut."""
        repetitions = Repetitions(self._clock, timeout_ms, ASK_BACKOFF)
        left_ms = partial(repetitions.left_ms, int(timeout_ms))
        former = await self.describe_quorum(timeout_ms=left_ms())
        answer: ResignQuorumLeaderResponse
        answer, _ = await self._cluster.ask(
            ResignQuorumLeaderRequest(former.raft_epoch),
            left_ms(),
            code_of_answer=lambda found: code_of(found.error_code),
            what="ResignQuorumLeader",
        )
        raise_refusal(answer.error_code, answer.error_message, "ResignQuorumLeader")
        while True:
            quorum = await self.describe_quorum(timeout_ms=left_ms())
            if quorum.raft_epoch > former.raft_epoch:
                return former, quorum
            text = f"epoch {former.raft_epoch} of the metadata quorum has not ended"
            await repetitions.pause(text, ErrorCode.REQUEST_TIMED_OUT)

    async def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, FoundOffset]:
        """Per partition (offset, timestamp, leader_epoch) for ms, -1 latest, -2 earliest, -3 newest."""
        wanted = {TopicPartition(*partition): stamp for partition, stamp in timestamps.items()}
        return await list_offsets(self._cluster, self._clock, wanted, timeout_ms)

    async def delete_records(
        self, offsets: Mapping[tuple[str, int], int], *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, int | RowError]:
        """Delete the records below an offset of each partition; -1: all that is committed.

        Per partition the lowest offset that a member of the ISR keeps, or why the records are not deleted;
        some replicas may have deleted them then.
        """
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        return await delete_records(self._cluster, self._clock, wanted, timeout_ms)

    async def epoch_ends(
        self, leader_epochs: Mapping[tuple[str, int], int], *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, EpochEnd]:
        """Per partition the largest leader epoch in its leader's log not above this one, and its end."""
        wanted = {TopicPartition(*partition): epoch for partition, epoch in leader_epochs.items()}
        return await epoch_ends(self._cluster, self._clock, wanted, timeout_ms)

    # --- groups ---------------------------------------------------------------------------------------

    async def list_groups(self, *, timeout_ms: float = _TIMEOUT_MS) -> list[GroupListing]:
        """Consumer groups of all live brokers, by id."""
        return await admin_groups.list_groups(self._cluster, self._clock, timeout_ms)

    async def describe_group(self, group_id: str, *, timeout_ms: float = _TIMEOUT_MS) -> GroupDescription:
        """State and members of a consumer group; GROUP_ID_NOT_FOUND when there is none."""
        return await admin_groups.describe_group(self._cluster, self._clock, group_id, timeout_ms)

    async def group_offsets(
        self, group_id: str, *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, GroupOffset]:
        """What a consumer group has committed; empty for one that is not there."""
        return await admin_groups.group_offsets(self._cluster, self._clock, group_id, timeout_ms)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> None:
        """Commit for a group that has no members; NON_EMPTY_GROUP when it has some. Of more than 2 000
        offsets some may be set then: the error says how many."""
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        await admin_groups.alter_group_offsets(self._cluster, self._clock, group_id, wanted, timeout_ms)

    async def delete_group(self, group_id: str, *, timeout_ms: float = _TIMEOUT_MS) -> None:
        """Delete a group without members and its offsets; NON_EMPTY_GROUP when it has some."""
        await admin_groups.delete_group(self._cluster, self._clock, group_id, timeout_ms)

    # --- partitions -----------------------------------------------------------------------------------

    async def create_partitions(
        self,
        topics: Mapping[str, NewPartitions],
        validate_only: bool = False,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[str, RowError | None]:
        """Give topics more partitions; None for each topic that has them. When it raises, some may have
        grown."""
        return await admin_partitions.create_partitions(
            self._cluster, self._clock, topics, validate_only, timeout_ms
        )

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        allow_replication_factor_change: bool = True,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[TopicPartition, RowError | None]:
        """Begin to move partitions to these brokers, the preferred first; None ends a move that runs."""
        return await admin_partitions.alter_partition_reassignments(
            self._cluster, self._clock, targets, allow_replication_factor_change, timeout_ms
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, Reassignment]:
        """The partitions that move, of these or of all, by topic and index."""
        return await admin_partitions.list_partition_reassignments(self._cluster, partitions, timeout_ms)

    async def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Iterable[TopicPartition] | None = None,
        desired_leaders: Mapping[TopicPartition, int] | None = None,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[TopicPartition, RowError | None]:
        """Elect leaders, of all partitions for None; then those that need no election are left out (R17).

        ELECTION_NOT_NEEDED means that a replica leads already, not that it is the desired leader (R19).
        """
        return await admin_partitions.elect_leaders(
            self._cluster, self._clock, kind, partitions, desired_leaders or {}, timeout_ms
        )

    async def get_replica_log_info(
        self, broker_id: int, partitions: Iterable[TopicPartition], *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[TopicPartition, ReplicaLog | RowError]:
        """Where that broker's logs end, by topic and index; asked once, a fenced broker too (R71, R76).

        Raises: ClientError, also when the broker is not registered or a topic is not known.
        """
        deadline_ms = self._clock.now_ms() + int(timeout_ms)
        wanted = [TopicPartition(*partition) for partition in partitions]
        described = await self.describe_cluster(timeout_ms=timeout_ms)
        address = next((row for row in described.brokers if row.broker_id == broker_id), None)
        if address is None:
            text = f"broker {broker_id} is not registered"
            raise ClientError(text, ErrorCode.BROKER_ID_NOT_REGISTERED)
        names = sorted({partition.topic for partition in wanted})
        ids: dict[str, bytes] = {}
        for topic in await self.describe_topics(names, timeout_ms=timeout_ms) if names else ():
            raise_refusal(topic.error_code, "no such topic is known", f"topic {topic.name}")
            ids[topic.name] = topic.topic_id
        left_ms = max(1, deadline_ms - self._clock.now_ms())
        return await self.ask_broker_for_logs(
            broker_id, (address.host, address.port), ids, wanted, timeout_ms=left_ms
        )

    async def ask_broker_for_logs(
        self,
        broker_id: int,
        address: tuple[str, int],
        topic_ids: Mapping[str, bytes],
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[TopicPartition, ReplicaLog | RowError]:
        """As `get_replica_log_info`, for callers that know the broker and the topics already."""
        return await admin_logs.get_replica_log_info(
            self._cluster, self._clock, broker_id, address, topic_ids, partitions, timeout_ms
        )

    async def fetch_from_replica(
        self,
        broker_id: int,
        address: tuple[str, int],
        topic_id: bytes,
        partition_index: int,
        offset: int,
        max_bytes: int,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> FetchPartitionResponse:
        """Whole batches of that broker's own replica, leader or not, from `offset` on, below the high
        watermark that it knows; they are verified before they are sent. The row's error code is a value."""
        return await admin_logs.fetch_from_replica(
            self._cluster, broker_id, address, topic_id, partition_index, offset, max_bytes, timeout_ms
        )

    async def describe_log_dirs(
        self,
        broker_id: int,
        address: tuple[str, int],
        topics: Sequence[str] | None = None,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> list[DescribedLogDir]:
        """The log dirs of that broker with the replicas in them, of these topics or of all."""
        return await admin_logs.describe_log_dirs(self._cluster, broker_id, address, topics, timeout_ms)

    # --- configuration and features -------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: Sequence[Resource],
        keys: Sequence[str] | None = None,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[Resource, list[ConfigEntry] | RowError]:
        """Every key, or these, with the value in force and its source, by name."""
        return await admin_configs.describe_configs(self._cluster, resources, keys, timeout_ms)

    async def alter_configs(
        self,
        changes: Mapping[Resource, Mapping[str, str | None]],
        validate_only: bool = False,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> dict[Resource, RowError | None]:
        """Set keys, take away those with None. Of one resource all is done or nothing."""
        return await admin_configs.alter_configs(self._cluster, changes, validate_only, timeout_ms)

    async def describe_client_quotas(
        self, client_ids: Sequence[str | None] | None = None, *, timeout_ms: float = _TIMEOUT_MS
    ) -> dict[str | None, dict[str, int]]:
        """{client id, None for the default of all: {producer_byte_rate or consumer_byte_rate: bytes a second
        at each broker}} of those that have some, or of these alone. `alter_configs` sets them."""
        return await admin_configs.describe_client_quotas(self._cluster, client_ids, timeout_ms)

    async def describe_features(self, *, timeout_ms: float = _TIMEOUT_MS) -> Features:
        """(features by name, metadata offset)."""
        return await admin_configs.describe_features(self._cluster, timeout_ms)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        validate_only: bool = False,
        *,
        timeout_ms: float = _TIMEOUT_MS,
    ) -> None:
        """Finalize levels, all or none. Raises the refusal."""
        await admin_configs.update_features(self._cluster, updates, validate_only, timeout_ms)


def _joined(known: DescribedTopic, more: DescribedTopic) -> DescribedTopic:
    return DescribedTopic(
        known.error_code,
        known.name,
        known.topic_id,
        known.is_internal,
        known.configs,
        known.partitions + more.partitions,
    )


def _creation_cost(topic: CreatableTopic) -> int:
    """At least the new partitions, and a fifth of the values of the topic's row."""
    values = 6 + sum(3 + len(row.broker_ids) for row in topic.assignments) + 3 * len(topic.configs)
    return max(len(topic.assignments), topic.num_partitions, -(-values // 5))


def _place(cursor: TopicPartitionCursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _worst(whole: int, rows: Sequence[int]) -> ErrorCode:
    """The whole request's error, else the first retriable one: then all is asked again."""
    if whole != ErrorCode.NONE:
        return code_of(whole)
    return next((code_of(row) for row in rows if code_of(row).is_retriable), ErrorCode.NONE)
