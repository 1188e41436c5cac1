"""A cluster in memory behind the calls of `client.admin.Admin`, for tests of the tools.

It grants what is asked of it unless the test has put in a refusal, and has no opinions of its own. That it
has the calls of the real one is a test (test_admin_session.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.client.admin import CreatedTopic
from holdfast.client.admin_configs import ConfigEntry, FeatureRow, Features, FeatureUpdate, Resource
from holdfast.client.admin_groups import GroupDescription, GroupListing, GroupOffset
from holdfast.client.admin_partitions import NewPartitions, Reassignment
from holdfast.client.core.errors import ClientError, RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.client.list_offsets import FoundOffset
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.messages.fetch import FetchPartitionResponse
from holdfast.protocol.messages.log_dirs import DescribedLogDir
from holdfast.protocol.messages.metadata import DescribeClusterResponse
from holdfast.protocol.messages.quorum import DescribeQuorumResponse
from holdfast.protocol.messages.topics import DescribedTopic
from holdfast.protocol.record_batch import parse_header
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli import rows

_ELR = "eligible.leader.replicas.version"


@dataclass
class FakeAdmin:
    """What the cluster has, what it refuses, and what it was asked to change."""

    topics: dict[str, DescribedTopic] = field(default_factory=dict)
    cluster: DescribeClusterResponse = field(default_factory=rows.cluster)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    #: ends of partitions that are not those of `offsets`, by timestamp
    offsets_at: dict[int, int] = field(default_factory=dict)
    groups: dict[str, GroupDescription] = field(default_factory=dict)
    #: {group: what it has committed}
    committed: dict[str, dict[TopicPartition, GroupOffset]] = field(default_factory=dict)
    configs: dict[Resource, list[ConfigEntry]] = field(default_factory=dict)
    quotas: dict[str | None, dict[str, int]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=lambda: {_ELR: 1})
    moving: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    #: what brokers say of all their logs; those that are not in it do not answer
    logs: dict[int, ReplicaLog | RowError] = field(default_factory=dict)
    #: {broker: the batches of its replica of any partition, or why it gives none}
    replicas: dict[int, Sequence[bytes] | ErrorCode] = field(default_factory=dict)
    #: {broker: its log dirs}; those that are not in it do not answer
    log_dirs: dict[int, list[DescribedLogDir]] = field(default_factory=dict)
    #: None: one without replicas
    quorum: DescribeQuorumResponse | None = None
    #: what becomes of a topic that is made
    created: CreatedTopic = field(default_factory=lambda: CreatedTopic(bytes(16), 3, 2))
    #: {call: why all of it is refused}
    refuses: dict[str, ClientError] = field(default_factory=dict)
    #: {topic, partition or resource: why this row is refused}
    row_errors: dict[Any, RowError] = field(default_factory=dict)
    #: (call, arguments) of everything that changes something
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    is_closed: bool = False

    def add(self, *topics: DescribedTopic) -> None:
        """Have these topics."""
        self.topics.update({topic.name: topic for topic in topics})

    def _ask(self, call: str, *arguments: Any) -> None:
        if arguments:
            self.asked.append((call, *arguments))
        if call in self.refuses:
            raise self.refuses[call]

    async def close(self) -> None:
        self.is_closed = True

    async def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float = 0,
    ) -> CreatedTopic:
        self._ask("create_topic", name, num_partitions, replication_factor, configs, assignments)
        if name in self.topics:
            raise ClientError(f"topic {name}: exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        return self.created

    async def delete_topic(self, name: str, *, timeout_ms: float = 0) -> None:
        self._ask("delete_topic", name)
        if self.topics.pop(name, None) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ClientError(f"topic {name}: {code.name}: there is no topic {name}", code)

    async def list_topics(self, *, timeout_ms: float = 0) -> list[str]:
        self._ask("list_topics")
        return sorted(self.topics)

    async def describe_topics(
        self,
        names: Sequence[str] | None = None,
        *,
        partitions_per_answer: int = 0,
        timeout_ms: float = 0,
    ) -> list[DescribedTopic]:
        self._ask("describe_topics")
        missing = DescribedTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", bytes(16), False, (), ())
        return [self.topics.get(name) or replace(missing, name=name) for name in sorted(names or self.topics)]

    async def describe_cluster(self, *, timeout_ms: float = 0) -> DescribeClusterResponse:
        self._ask("describe_cluster")
        return self.cluster

    async def unregister_broker(self, broker_id: int, *, timeout_ms: float = 0) -> None:
        self._ask("unregister_broker", broker_id)

    async def add_raft_voter(
        self, voter_id: int, directory_id: bytes | None = None, *, timeout_ms: float = 0
    ) -> bytes:
        self._ask("add_raft_voter", voter_id, directory_id)
        return directory_id or bytes(range(16))

    async def upgrade_quorum(self, *, timeout_ms: float = 0) -> None:
        self._ask("upgrade_quorum", 1)

    async def add_controller(
        self, node_id: int, endpoint: str, directory_id: bytes | None = None, *, timeout_ms: float = 0
    ) -> bytes:
        self._ask("add_controller", node_id, endpoint)
        return directory_id or bytes(range(16))

    async def remove_controller(
        self, node_id: int, directory_id: bytes | None = None, *, timeout_ms: float = 0
    ) -> None:
        self._ask("remove_controller", node_id)

    async def resign_quorum_leader(
        self, *, timeout_ms: float = 0
    ) -> tuple[DescribeQuorumResponse, DescribeQuorumResponse]:
        self._ask("resign_quorum_leader")
        quorum = await self.describe_quorum()
        return quorum, replace(quorum, leader_id=102, raft_epoch=quorum.raft_epoch + 1)

    async def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, timeout_ms: float = 0
    ) -> dict[TopicPartition, FoundOffset]:
        self._ask("list_offsets")
        return {
            TopicPartition(*partition): FoundOffset(
                self.offsets_at.get(timestamp, self.offsets.get(TopicPartition(*partition), 0)), -1, 0
            )
            for partition, timestamp in timestamps.items()
        }

    async def list_groups(self, *, timeout_ms: float = 0) -> list[GroupListing]:
        self._ask("list_groups")
        return [
            GroupListing(one.group_id, one.protocol_type, one.state, one.coordinator_id)
            for _, one in sorted(self.groups.items())
        ]

    async def describe_group(self, group_id: str, *, timeout_ms: float = 0) -> GroupDescription:
        self._ask("describe_group")
        self._check_group(group_id)
        return self.groups[group_id]

    async def group_offsets(
        self, group_id: str, *, timeout_ms: float = 0
    ) -> dict[TopicPartition, GroupOffset]:
        self._ask("group_offsets")
        return self.committed.get(group_id, {})

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], *, timeout_ms: float = 0
    ) -> None:
        self._ask("alter_group_offsets", group_id, dict(offsets))

    async def delete_group(self, group_id: str, *, timeout_ms: float = 0) -> None:
        self._ask("delete_group", group_id)
        self._check_group(group_id)
        del self.groups[group_id]

    def _check_group(self, group_id: str) -> None:
        if group_id not in self.groups:
            code = ErrorCode.GROUP_ID_NOT_FOUND
            raise ClientError(f"group {group_id}: {code.name}: there is no such group", code)

    async def create_partitions(
        self, topics: Mapping[str, NewPartitions], validate_only: bool = False, *, timeout_ms: float = 0
    ) -> dict[str, RowError | None]:
        self._ask("create_partitions", dict(topics))
        return {name: self.row_errors.get(name) for name in topics}

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        allow_replication_factor_change: bool = True,
        *,
        timeout_ms: float = 0,
    ) -> dict[TopicPartition, RowError | None]:
        self._ask("alter_partition_reassignments", dict(targets), allow_replication_factor_change)
        return {partition: self.row_errors.get(partition) for partition in targets}

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float = 0
    ) -> dict[TopicPartition, Reassignment]:
        self._ask("list_partition_reassignments")
        wanted = None if partitions is None else list(partitions)
        return {one: move for one, move in self.moving.items() if wanted is None or one in wanted}

    async def describe_quorum(self, *, timeout_ms: float = 0) -> DescribeQuorumResponse:
        self._ask("describe_quorum")
        if self.quorum is not None:
            return self.quorum
        return DescribeQuorumResponse(0, None, 101, 1, self.cluster.metadata_offset, (), ())

    async def ask_broker_for_logs(
        self,
        broker_id: int,
        address: tuple[str, int],
        topic_ids: Mapping[str, bytes],
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: float = 0,
    ) -> dict[TopicPartition, ReplicaLog | RowError]:
        self._ask("ask_broker_for_logs")
        if broker_id not in self.logs:
            text = f"broker {broker_id} did not answer: no process listens there"
            raise ClientError(text, ErrorCode.NETWORK_EXCEPTION)
        return dict.fromkeys(partitions, self.logs[broker_id])

    async def fetch_from_replica(
        self,
        broker_id: int,
        address: tuple[str, int],
        topic_id: bytes,
        partition_index: int,
        offset: int,
        max_bytes: int,
        *,
        timeout_ms: float = 0,
    ) -> FetchPartitionResponse:
        self._ask("fetch_from_replica")
        if broker_id not in self.replicas:
            raise ClientError(f"broker {broker_id} did not answer: refused", ErrorCode.NETWORK_EXCEPTION)
        held = self.replicas[broker_id]
        code = held if isinstance(held, ErrorCode) else ErrorCode.NONE
        batches = [] if isinstance(held, ErrorCode) else [(parse_header(batch), batch) for batch in held]
        end = batches[-1][0].next_offset if batches else -1
        records = b"".join(batch for header, batch in batches if header.next_offset > offset)
        return FetchPartitionResponse(
            topic_id, partition_index, code, end, 0, -1, None, 1, 7, memoryview(records)
        )

    async def describe_log_dirs(
        self,
        broker_id: int,
        address: tuple[str, int],
        topics: Sequence[str] | None = None,
        *,
        timeout_ms: float = 0,
    ) -> list[DescribedLogDir]:
        self._ask("describe_log_dirs", broker_id, topics)
        if broker_id not in self.log_dirs:
            raise ClientError(f"broker {broker_id} did not answer: refused", ErrorCode.NETWORK_EXCEPTION)
        return self.log_dirs[broker_id]

    async def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Iterable[TopicPartition] | None = None,
        desired_leaders: Mapping[TopicPartition, int] | None = None,
        *,
        timeout_ms: float = 0,
    ) -> dict[TopicPartition, RowError | None]:
        wanted = None if partitions is None else list(partitions)
        self._ask("elect_leaders", kind, wanted, desired_leaders)
        return {partition: self.row_errors.get(partition) for partition in wanted or ()}

    async def describe_configs(
        self, resources: Sequence[Resource], keys: Sequence[str] | None = None, *, timeout_ms: float = 0
    ) -> dict[Resource, list[ConfigEntry] | RowError]:
        self._ask("describe_configs")
        return {
            resource: self.row_errors.get(resource)
            or [row for row in self.configs.get(resource, []) if keys is None or row.name in keys]
            for resource in resources
        }

    async def alter_configs(
        self,
        changes: Mapping[Resource, Mapping[str, str | None]],
        validate_only: bool = False,
        *,
        timeout_ms: float = 0,
    ) -> dict[Resource, RowError | None]:
        self._ask("alter_configs", dict(changes))
        return {resource: self.row_errors.get(resource) for resource in changes}

    async def describe_client_quotas(
        self, client_ids: Sequence[str | None] | None = None, *, timeout_ms: float = 0
    ) -> dict[str | None, dict[str, int]]:
        self._ask("describe_client_quotas")
        return {one: row for one, row in self.quotas.items() if client_ids is None or one in client_ids}

    async def describe_features(self, *, timeout_ms: float = 0) -> Features:
        self._ask("describe_features")
        return Features([FeatureRow(name, 0, 1, level) for name, level in self.features.items()], 50)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], validate_only: bool = False, *, timeout_ms: float = 0
    ) -> None:
        self._ask("update_features", dict(updates), validate_only)
