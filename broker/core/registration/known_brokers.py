"""What a leader needs to know about other brokers before it proposes an ISR.

`broker.core.replicas.replica_manager` updates it from the metadata image; `broker.core.replicas.partition`
reads it.
"""

from collections.abc import Collection

from holdfast.metadata.ids import PartitionId


class KnownBrokers:
    """Registrations as in the latest image; one object for all partitions of a broker."""

    __slots__ = ("acceptable", "epochs", "offline")

    def __init__(self) -> None:
        #: {broker_id: broker_epoch} of all registered brokers
        self.epochs: dict[int, int] = {}
        #: the same of unfenced brokers that are not shutting down
        self.acceptable: dict[int, int] = {}
        #: {broker_id: its replicas in failed log dirs and damaged ones}, of brokers that have some (R27)
        self.offline: dict[int, Collection[PartitionId]] = {}

    def is_offline(self, replica_id: int, key: PartitionId) -> bool:
        """The replica is damaged or lies in a log dir that failed."""
        offline = self.offline.get(replica_id)
        return offline is not None and key in offline
