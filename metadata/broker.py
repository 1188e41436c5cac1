"""BrokerRegistration: the committed state of one broker, as an immutable value.

Owns the predicate "acceptable leader" (active), the same for every path (KAFKA-19522), and the addresses.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from immutables import Map

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import (
    ELR_FEATURE,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    RegisterBrokerRecord,
)
from holdfast.protocol.messages.broker_registration import FeatureRange, ListenerEndpoint

#: Features and levels that this version supports.
SUPPORTED_FEATURES: tuple[FeatureRange, ...] = (
    FeatureRange(ELR_FEATURE, 0, 1),
    FeatureRange(METADATA_VERSION, 0, METADATA_VERSION_MAX),
)


def levels_of(features: Iterable[FeatureRange], name: str) -> tuple[int, int]:
    """Levels of a feature that a broker supports, both inclusive; only 0 for an unknown feature (R108)."""
    for feature in features:
        if feature.name == name:
            return feature.min_level, feature.max_level
    return 0, 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registered incarnation of a broker."""

    broker_id: int
    #: offset of the registration record: unique and rising across the cluster (K28)
    broker_epoch: int
    #: random id of the process
    incarnation_id: bytes
    listeners: tuple[ListenerEndpoint, ...]
    rack: str | None
    features: tuple[FeatureRange, ...]
    log_dirs: tuple[bytes, ...]
    #: may neither lead nor be in an ISR; true right after registration
    is_fenced: bool
    #: a controlled shutdown has begun; may neither lead nor join an ISR
    in_controlled_shutdown: bool
    #: the registration proved a clean shutdown (R32), or was the first
    clean_shutdown: bool
    #: {(topic_id, partition_index): None}: replicas in log dirs that failed; the next incarnation has none
    offline_replicas: Map[PartitionId, None] = field(default_factory=Map)
    #: {(topic_id, partition_index): None}: replicas that were offline and are fetched anew; a build of
    #: metadata.version 0 takes them for offline until the broker registers again
    renewed_replicas: Map[PartitionId, None] = field(default_factory=Map)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "BrokerRegistration":
        """A new registration, which is fenced."""
        return cls(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            record.listeners,
            record.rack,
            record.features,
            record.log_dirs,
            is_fenced=True,
            in_controlled_shutdown=False,
            clean_shutdown=record.clean_shutdown,
        )

    @property
    def is_acceptable_leader(self) -> bool:
        """Unfenced and not in controlled shutdown: may lead and be in an ISR."""
        return not self.is_fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> ListenerEndpoint | None:
        """Address of that listener, None when the broker has no such listener."""
        for listener in self.listeners:
            if listener.name == listener_name:
                return listener
        return None

    def reachable_at(self, listener_name: str | None) -> ListenerEndpoint:
        """The address at which a node reaches this broker: that listener, or the first one."""
        return (self.endpoint(listener_name) if listener_name else None) or self.listeners[0]
