"""MetadataImage: the state of the whole cluster at one offset of the metadata log.

Images are immutable persistent maps that share structure: a new one costs O(log n) per record, and an old one
may be kept as long as it is read (D2). Owns look-ups; only `metadata.delta` makes new images. Maps have no
useful order: iterate through the sorted accessors.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from immutables import Map

from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.config_keys import (
    BROKER_DYNAMIC_KEY_BY_NAME,
    CLIENT_KEY_BY_NAME,
    CLUSTER_KEYS,
    TOPIC_KEY_BY_NAME,
)
from holdfast.metadata.configs import parse_value
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import ELR_FEATURE, METADATA_VERSION, implied_metadata_version

#: `resource_type` of ConfigRecord.
RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
#: Holdfast's own; Kafka has other records for quotas. An earlier build keeps what it does not look at.
RESOURCE_CLIENT = 100
#: The quotas of clients that have none of their own, those without an id too.
DEFAULT_CLIENT: "ConfigResource" = (RESOURCE_CLIENT, "")
#: The cluster's dynamic values: a broker resource with an empty name, as in Kafka.
CLUSTER_RESOURCE: "ConfigResource" = (RESOURCE_BROKER, "")

_CLUSTER_KEY_BY_NAME = {key.name: key for key in CLUSTER_KEYS}

#: (resource_type, resource_name)
ConfigResource = tuple[int, str]
#: (topic, partition_index, registration)
PartitionRow = tuple["TopicImage", int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic and its partitions by index."""

    name: str
    topic_id: bytes
    partitions: Map[int, PartitionRegistration]

    def sorted_partitions(self) -> list[tuple[int, PartitionRegistration]]:
        """(partition_index, registration), by index."""
        return sorted(self.partitions.items())


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The state after replaying the log up to `offset`."""

    #: first offset not yet applied (exclusive end)
    offset: int = 0
    #: raft epoch of the last applied record
    raft_epoch: int = 0
    brokers: Map[int, BrokerRegistration] = field(default_factory=Map)
    topics: Map[bytes, TopicImage] = field(default_factory=Map)
    #: name -> topic id; exactly the names of `topics`
    topic_ids: Map[str, bytes] = field(default_factory=Map)
    configs: Map[ConfigResource, Map[str, str]] = field(default_factory=Map)
    #: finalized levels by feature; `level_of` tells the one in force
    features: Map[str, int] = field(default_factory=Map)
    #: first producer id not yet given to a broker
    next_producer_id: int = 0
    #: index, written by `metadata.delta` only: partitions by assigned broker; the inner maps are persistent
    #: sets
    assigned: Map[int, Map[PartitionId, None]] = field(default_factory=Map)
    #: index, written by `metadata.delta` only: partitions without a leader
    leaderless: Map[PartitionId, None] = field(default_factory=Map)
    #: latest version of the records that were replayed, None without any; counts while no metadata.version is
    #: finalized
    record_version: int | None = field(default=None, compare=False)

    # --- brokers -----------------------------------------------------------------------------------------

    def sorted_brokers(self) -> list[BrokerRegistration]:
        """All registrations, by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers)]

    def is_active(self, broker_id: int) -> bool:
        """The broker is registered, unfenced and not in controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_acceptable_leader

    def is_active_replica(self, broker_id: int, key: PartitionId) -> bool:
        """The broker is active, and the log dir with its replica has not failed (R27)."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_acceptable_leader and key not in broker.offline_replicas

    def offline_among(self, replicas: Iterable[int], key: PartitionId) -> tuple[int, ...]:
        """Those of `replicas` that lie in failed log dirs."""
        brokers = self.brokers
        return tuple(r for r in replicas if r in brokers and key in brokers[r].offline_replicas)

    # --- topics ------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicImage | None:
        """The topic with that name, None when unknown."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def sorted_topics(self) -> list[TopicImage]:
        """All topics, by name."""
        return [self.topics[self.topic_ids[name]] for name in sorted(self.topic_ids)]

    def partition(self, topic_id: bytes, partition_index: int) -> PartitionRegistration | None:
        """The registration, or None when topic or index are unknown."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(partition_index)

    def partitions_of(self, broker_id: int) -> Iterator[PartitionRow]:
        """Partitions that the broker is assigned to, by topic name and index."""
        return self._rows(self.assigned_to(broker_id))

    def assigned_to(self, broker_id: int) -> Map[PartitionId, None]:
        """The partitions that the broker is assigned to, in no order."""
        return self.assigned.get(broker_id, _NO_KEYS)

    def leads_anything(self, broker_id: int) -> bool:
        """True while the broker leads some partition."""
        return any(
            self.topics[topic_id].partitions[index].leader == broker_id
            for topic_id, index in self.assigned_to(broker_id)
        )

    def leaderless_partitions(self) -> Iterator[PartitionRow]:
        """Partitions without a leader, by topic name and index."""
        return self._rows(self.leaderless)

    def _rows(self, keys: Map[PartitionId, None]) -> Iterator[PartitionRow]:
        # By topic: to sort twenty thousand rows at once takes four times as long.
        indexes: dict[bytes, list[int]] = {}
        for topic_id, index in keys:
            indexes.setdefault(topic_id, []).append(index)
        for topic in sorted((self.topics[topic_id] for topic_id in indexes), key=lambda topic: topic.name):
            partitions = topic.partitions
            for index in sorted(indexes[topic.topic_id]):
                yield topic, index, partitions[index]

    # --- configs and features ----------------------------------------------------------------------------

    @property
    def elr_enabled(self) -> bool:
        """The level of the ELR feature is 1 or more."""
        return self.features.get(ELR_FEATURE, 0) >= 1

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version: the finalized one, else what the records imply (K31)."""
        level = self.features.get(METADATA_VERSION)
        return implied_metadata_version(self.record_version) if level is None else level

    def level_of(self, feature: str) -> int:
        """The level of a feature that is in force, 0 for off."""
        return self.metadata_version if feature == METADATA_VERSION else self.features.get(feature, 0)

    @property
    def levels(self) -> dict[str, int]:
        """{feature: level in force}, by name, of those that a broker must support."""
        return {name: self.level_of(name) for name in sorted({METADATA_VERSION, *self.features})}

    def overrides(self, topic_name: str) -> Map[str, str]:
        """The topic's own settings."""
        return self.configs.get((RESOURCE_TOPIC, topic_name), _NOTHING)

    def client_quotas(self) -> dict[str, dict[str, int]]:
        """{client id, '' for the default of all clients: {key: bytes a second}}, by client id and key. What a
        later build has set besides is left out."""
        found: dict[str, dict[str, int]] = {}
        # Topics have far more settings than clients have quotas.
        for name in sorted(name for kind, name in self.configs if kind == RESOURCE_CLIENT):
            values = self.configs[RESOURCE_CLIENT, name]
            known = {key: int(values[key]) for key in sorted(CLIENT_KEY_BY_NAME) if key in values}
            if known:
                found[name] = known
        return found

    def cluster_config(self, name: str) -> Any:
        """The typed dynamic value of a key of the cluster, None when it is not set."""
        text = self.configs.get(CLUSTER_RESOURCE, _NOTHING).get(name)
        return None if text is None else parse_value(_CLUSTER_KEY_BY_NAME[name], text)

    def broker_config(self, broker_id: int, name: str) -> Any:
        """The typed dynamic value of a key for a broker: its own, else the cluster's, else the default."""
        key = BROKER_DYNAMIC_KEY_BY_NAME[name]
        for resource in ((RESOURCE_BROKER, str(broker_id)), CLUSTER_RESOURCE):
            text = self.configs.get(resource, _NOTHING).get(name)
            if text is not None:
                return parse_value(key, text)
        return key.default

    def topic_config(self, topic_name: str, name: str, static: Mapping[str, Any] | None = None) -> Any:
        """The typed value of a key: the topic's, else the cluster's, else the node's file, else the default.

        `static` holds the values of the node's file by key name, as `read_keys` returns them.
        """
        key = TOPIC_KEY_BY_NAME[name]
        text = self.overrides(topic_name).get(name)
        if text is None and key.synonym:
            text = self.configs.get(CLUSTER_RESOURCE, _NOTHING).get(key.synonym)
        if text is not None:
            return parse_value(key, text)
        if static is not None and static.get(key.synonym) is not None:
            return static[key.synonym]
        return key.default


_NOTHING: Map[str, str] = Map()
_NO_KEYS: Map[PartitionId, None] = Map()
