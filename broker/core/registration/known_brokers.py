"""What a leader needs to know about other brokers before it proposes an ISR.

`broker.core.replicas.replica_manager` updates it from the metadata image; `broker.core.replicas.partition`
reads it.
"""

from collections.abc import Collection

from holdfast.metadata.broker import BrokerRegistration
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

    def changed(self, broker_id: int, broker: BrokerRegistration | None) -> bool:
        """Take what a new image says of a broker, None when it has none. True when it, or a replica of it,
        may join ISRs that it could not join before."""
        before = self.acceptable.pop(broker_id, None)
        self.epochs.pop(broker_id, None)
        was_offline = self.offline.pop(broker_id, ())
        if broker is None:
            return False
        self.epochs[broker_id] = broker.broker_epoch
        if broker.offline_replicas:
            self.offline[broker_id] = broker.offline_replicas
        if not broker.is_acceptable_leader:
            return False
        self.acceptable[broker_id] = broker.broker_epoch
        return before != broker.broker_epoch or any(key not in broker.offline_replicas for key in was_offline)

    def is_offline(self, replica_id: int, key: PartitionId) -> bool:
        """The replica is damaged or lies in a log dir that failed."""
        offline = self.offline.get(replica_id)
        return offline is not None and key in offline
