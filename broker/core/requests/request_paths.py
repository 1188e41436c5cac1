"""The ways of a broker's requests side by side, for what concerns all of them: a role has changed.

Appends effects to the list that it shares with its owner.
"""

from collections.abc import Callable, Mapping

from holdfast.broker.core.byte_rate import RateWindows
from holdfast.broker.core.config import BrokerConfig
from holdfast.broker.core.events import Effect
from holdfast.broker.core.groups.config import GroupConfig
from holdfast.broker.core.groups.coordinator import GroupCoordinator
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.broker.core.requests.client_quotas import ClientQuotas
from holdfast.broker.core.requests.delete_path import DeletePath
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage


class RequestPaths:
    """Of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Mapping[PartitionId, Partition],
        quota: ReplicationQuota,
        *,
        purgatory_max: int,
        image: Callable[[], MetadataImage],
        is_session_over: Callable[[int], bool],
        outbox: list[Effect],
    ) -> None:
        """`quota`: of what is sent to followers; `is_session_over(now_ms)`: other brokers may
        lead by now."""
        #: of the partitions that are here, as their topics are configured
        self.max_message_bytes: dict[PartitionId, int] = {}
        self.produce_path = ProducePath(partitions, self.max_message_bytes, purgatory_max, is_session_over)
        self.fetch_path = FetchPath(partitions, purgatory_max, config.fetch_max_bytes, quota)
        self.client_quotas = ClientQuotas(RateWindows.of(config.static, "quota"))
        self.delete_path = DeletePath(partitions, purgatory_max)
        self.groups = GroupCoordinator(
            GroupConfig.from_static(config.static),
            partitions,
            self.max_message_bytes,
            image,
            is_session_over,
            outbox,
        )
        self._effects = outbox

    def role_changed(self, partition: Partition) -> None:
        """Answer the requests that waited for the former role."""
        self._effects += self.produce_path.state_changed(partition.key)
        self._effects += self.fetch_path.role_changed(partition.key)
        self._effects += self.delete_path.role_changed(partition.key)
        self.groups.partition_changed(partition.key, partition.topic_name)
