"""The other brokers, as a leader must know them before it asks for an ISR.

Owns nothing of a partition. `broker.core.replicas.replica_manager` keeps it up to date from the metadata
image; `broker.core.replicas.partition` reads it.
"""

from collections.abc import Container

from holdfast.metadata.ids import PartitionId


class KnownBrokers:
    """Registrations as the latest image has them. One object a broker, kept up to date by its core."""

    __slots__ = ("acceptable", "epochs", "offline")

    def __init__(self) -> None:
        #: {broker_id: broker_epoch} of all registered brokers
        self.epochs: dict[int, int] = {}
        #: the same of unfenced brokers that are not shutting down
        self.acceptable: dict[int, int] = {}
        #: {broker_id: its replicas in failed log dirs}, of brokers that have some (R27)
        self.offline: dict[int, Container[PartitionId]] = {}

    def is_offline(self, replica_id: int, key: PartitionId) -> bool:
        """The replica lies in a log dir that failed."""
        offline = self.offline.get(replica_id)
        return offline is not None and key in offline
