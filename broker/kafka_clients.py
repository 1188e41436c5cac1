"""What a broker gives its listener for Kafka clients: its handlers, and a view of what it knows."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.described_log_dirs import device_bytes
from holdfast.broker.log_manager import LogManager
from holdfast.broker.managed_log import ManagedLog
from holdfast.kafka_listener.core.translation import ClusterView, LogDirView
from holdfast.kafka_listener.server import KafkaServer
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.api_keys import ApiKey
from holdfast.rpc.server import ServerLimits
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Runtime


def kafka_server(
    runtime: Runtime,
    core: Broker,
    log_manager: LogManager,
    handlers: Mapping[ApiKey, Callable[[Any], None]],
    listener_name: str,
    limits: ServerLimits,
    shares: NodeShares,
) -> KafkaServer:
    """A server for Kafka clients in front of this broker."""
    view = BrokerView(core, log_manager, listener_name)
    return KafkaServer(runtime, core.broker_id, listener_name, handlers, view.now, limits, shares)


class BrokerView:
    """The broker's present knowledge, made anew when there is another image."""

    def __init__(self, core: Broker, log_manager: LogManager, listener_name: str) -> None:
        self._core = core
        self._log_manager = log_manager
        self._listener_name = listener_name
        self._view: ClusterView | None = None

    def now(self) -> ClusterView:
        """The view of this moment."""
        core = self._core
        if self._view is None or self._view.image is not core.image:
            self._view = ClusterView(
                core.image,
                core.broker_id,
                core.config.cluster_id,
                self._listener_name,
                core.config.static,
                self._offsets_of,
                self._log_dirs,
            )
        return self._view

    def _offsets_of(self, key: PartitionId) -> tuple[int, int] | None:
        partition = self._core.partitions.get(key)
        if partition is None or partition.leadership is None:
            return None
        return partition.visible_high_watermark, partition.log.log_start_offset

    def _log_dirs(self) -> tuple[LogDirView, ...]:
        return tuple(
            LogDirView(one.path, one.failure is None, tuple(map(self._replica, one.logs)), *device_bytes(one))
            for one in self._log_manager.dirs()
        )

    def _replica(self, managed: ManagedLog) -> tuple[str, int, int, int]:
        log, (topic, index) = managed.log, managed.partition
        assert log.topic_id is not None
        partition = self._core.partitions.get(PartitionId(log.topic_id, index))
        lag = 0 if partition is None else max(0, partition.high_watermark - log.log_end_offset)
        return topic, index, log.size_bytes, lag
