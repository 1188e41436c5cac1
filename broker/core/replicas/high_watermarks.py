"""High watermarks move, and what waits for that goes on (R52).

Owns the high watermarks that earlier processes have stored until a partition takes them. How far one moves,
`broker.core.replicas.partition` decides. Appends effects to the list that it shares with its owner.
"""

from collections.abc import Mapping

from holdfast.broker.core.events import CeilingsStored, Effect
from holdfast.broker.core.replicas.ceilings import Ceilings
from holdfast.broker.core.replicas.fetcher import Fetchers
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests.request_paths import RequestPaths
from holdfast.metadata.ids import PartitionId


class HighWatermarks:
    """Of one broker."""

    def __init__(
        self,
        partitions: Mapping[PartitionId, Partition],
        paths: RequestPaths,
        ceilings: Ceilings,
        fetchers: Fetchers,
        outbox: list[Effect],
    ) -> None:
        self._partitions = partitions
        self._paths = paths
        self._ceilings = ceilings
        self._fetchers = fetchers
        self._effects = outbox
        self._stored: dict[PartitionId, int] = {}

    def loaded(self, stored: Mapping[PartitionId, int]) -> None:
        """What the start found."""
        self._stored = dict(stored)

    def take_stored(self, key: PartitionId) -> int:
        """For a replica that begins here; 0 when none was stored."""
        return self._stored.pop(key, 0)

    def forget_stored(self, key: PartitionId) -> None:
        """Its log is deleted."""
        self._stored.pop(key, None)

    def advance(self, partition: Partition, now_ms: int) -> None:
        """Advance the high watermark as far as it goes and answer the requests that wait for it."""
        if partition.advance_high_watermark(now_ms):
            self._effects += self._paths.produce_path.high_watermark_moved(partition)
            self._effects += self._paths.fetch_path.high_watermark_moved(partition, now_ms)
        self._effects += self._paths.delete_path.low_watermark_moved(partition)
        if partition.key in self._paths.groups.shards:
            self._paths.groups.high_watermark_moved(partition.key, now_ms)
        if partition.leadership is not None and partition.leadership.start_offset is not None:
            self._ceilings.need(partition.key, partition.ceiling_urgency(), now_ms)

    def ceilings_stored(self, event: CeilingsStored, now_ms: int) -> None:
        """Ceilings are durable: partitions that waited for them go on."""
        for key, offset in event.rows:
            partition = self._partitions.get(key)
            if partition is not None:
                partition.ceiling_stored(offset)
                self._fetchers.ceiling_stored(key)
                self.advance(partition, now_ms)
