"""MetadataDelta: replays records on top of an image and reports what changed.

Owns the meaning of every record. Replay is total: a record that contradicts the state is reported in
`violations` and otherwise ignored or taken as it is, so that a committed log never stops a node (D7, B3). The
active controller writes no record that would be reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from immutables import Map

from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import RESOURCE_TOPIC, ConfigResource, MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    RECORD_VERSION,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicasOfflineRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

_Key = TypeVar("_Key", bound=Any)


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A partition that a broker has a replica of."""

    topic_name: str
    partition_index: int
    topic_id: bytes
    #: the new state; the last state of a deleted partition
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """What one broker has to do; lists by topic name and index. A partition is in at most one list."""

    #: led by the broker now
    leaders: tuple[LocalPartition, ...] = ()
    #: the broker has a replica and does not lead
    followers: tuple[LocalPartition, ...] = ()
    #: the broker must delete its replica: topic deleted, or reassigned to other brokers
    deleted: tuple[LocalPartition, ...] = ()


class MetadataDelta:
    """A series of records replayed from `image` on."""

    __slots__ = (
        "_assigned",
        "_brokers",
        "_changed",
        "_changed_brokers",
        "_changed_configs",
        "_configs",
        "_features",
        "_leaderless",
        "_next_producer_id",
        "_offset",
        "_raft_epoch",
        "_record_version",
        "_topic_ids",
        "_topics",
        "image",
        "violations",
    )

    def __init__(self, image: MetadataImage) -> None:
        #: where this delta starts
        self.image = image
        #: descriptions of contradictions
        self.violations: list[str] = []
        self._offset = image.offset
        self._raft_epoch = image.raft_epoch
        self._record_version = image.record_version
        self._brokers = image.brokers
        self._topics = image.topics
        self._topic_ids = image.topic_ids
        self._configs = image.configs
        self._features = image.features
        self._next_producer_id = image.next_producer_id
        self._assigned = image.assigned
        self._leaderless = image.leaderless
        # dictionaries as ordered sets
        self._changed: dict[PartitionId, None] = {}
        self._changed_brokers: dict[int, None] = {}
        self._changed_configs: dict[ConfigResource, None] = {}

    def replay(
        self, record: MetadataRecord, offset: int, raft_epoch: int, version: int = RECORD_VERSION
    ) -> None:
        """Apply the record at `offset`, which is written in `version`."""
        assert offset >= self._offset, f"record at {offset} replayed after {self._offset}"
        self._offset = offset + 1
        self._raft_epoch = raft_epoch
        if self._record_version is None or version > self._record_version:
            self._record_version = version
        if type(record) is RegisterBrokerRecord and record.broker_epoch != offset:
            self._refuse(offset, f"broker {record.broker_id} has epoch {record.broker_epoch}")
        self.restore(record)

    def restore(self, record: MetadataRecord) -> None:
        """Apply a record of a snapshot, which has no offset of its own (K15)."""
        match record:
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case PartitionRecord():
                self._replay_partition(record)
            case TopicRecord():
                self._replay_topic(record)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case RegisterBrokerRecord():
                self._put_broker(BrokerRegistration.from_record(record))
            case UnregisterBrokerRecord():
                if self._registered(record.broker_id, record.broker_epoch, "unregistered") is not None:
                    self._brokers = self._brokers.delete(record.broker_id)
                    self._changed_brokers[record.broker_id] = None
            case FenceBrokerRecord():
                broker = self._registered(record.broker_id, record.broker_epoch, "fenced")
                if broker is not None:
                    self._put_broker(replace(broker, is_fenced=True))
            case UnfenceBrokerRecord():
                broker = self._registered(record.broker_id, record.broker_epoch, "unfenced")
                if broker is not None:
                    self._put_broker(replace(broker, is_fenced=False))
            case ReplicasOfflineRecord():
                self._replay_replicas_offline(record)
            case BrokerRegistrationChangeRecord():
                self._replay_broker_change(record)
            case ConfigRecord():
                self._replay_config(record)
            case FeatureLevelRecord():
                self._features = self._features.set(record.name, record.level)
            case ProducerIdsRecord():
                if record.next_producer_id < self._next_producer_id:
                    self._refuse(self._offset - 1, f"producer ids go back to {record.next_producer_id}")
                self._next_producer_id = max(self._next_producer_id, record.next_producer_id)
            case NoOpRecord():
                pass

    def apply(self, end_offset: int | None = None) -> MetadataImage:
        """The image after the records. `end_offset` includes control batches after the last record."""
        offset = self._offset if end_offset is None else end_offset
        assert offset >= self._offset
        return MetadataImage(
            offset,
            self._raft_epoch,
            self._brokers,
            self._topics,
            self._topic_ids,
            self._configs,
            self._features,
            self._next_producer_id,
            self._assigned,
            self._leaderless,
            self._record_version,
        )

    def restored(
        self, offset: int, raft_epoch: int, record_version: int | None = RECORD_VERSION
    ) -> MetadataImage:
        """The image of a snapshot's records (K15), which are written in that version."""
        self._offset, self._raft_epoch, self._record_version = offset, raft_epoch, record_version
        return self.apply()

    @classmethod
    def between(cls, image: MetadataImage, later: MetadataImage) -> "MetadataDelta":
        """What has changed from one image to another, whose records are not known: it is of a snapshot."""
        delta = cls(image)
        delta._offset, delta._raft_epoch = later.offset, later.raft_epoch
        delta._record_version = later.record_version
        delta._brokers, delta._configs, delta._features = later.brokers, later.configs, later.features
        delta._topics, delta._topic_ids = later.topics, later.topic_ids
        delta._next_producer_id = later.next_producer_id
        delta._assigned, delta._leaderless = later.assigned, later.leaderless
        delta._changed_brokers = _changed(image.brokers, later.brokers)
        delta._changed_configs = _changed(image.configs, later.configs)
        for topic_id in _changed(image.topics, later.topics):
            before, after = image.topics.get(topic_id), later.topics.get(topic_id)
            had = {} if before is None else before.partitions
            has = {} if after is None else after.partitions
            delta._changed |= dict.fromkeys(PartitionId(topic_id, index) for index in _changed(had, has))
        return delta

    # --- what is new -------------------------------------------------------------------------------------

    @property
    def changed_brokers(self) -> tuple[int, ...]:
        """Ids of brokers that registered, changed or went away, ascending."""
        return tuple(sorted(self._changed_brokers))

    @property
    def changed_configs(self) -> tuple[ConfigResource, ...]:
        """Resources with a changed key, sorted."""
        return tuple(sorted(self._changed_configs))

    @property
    def changed_keys(self) -> tuple[PartitionId, ...]:
        """(topic_id, partition_index) of every partition touched, in the order of the records."""
        return tuple(self._changed)

    @property
    def deleted_topics(self) -> tuple[TopicImage, ...]:
        """Topics of the first image that were deleted, by name."""
        gone = [topic for topic_id, topic in self.image.topics.items() if topic_id not in self._topics]
        return tuple(sorted(gone, key=lambda topic: topic.name)) if gone else ()

    def changed_partitions(
        self,
    ) -> list[tuple[str, int, PartitionRegistration | None, PartitionRegistration | None]]:
        """(topic_name, partition_index, before, after) of every changed partition, by name and index."""
        found: list[tuple[str, int, PartitionRegistration | None, PartitionRegistration | None]] = []
        for topic_id, index in self._changed:
            topic = self._topics.get(topic_id) or self.image.topics.get(topic_id)
            if topic is None:  # created and deleted within this delta
                continue
            now = self._topics.get(topic_id)
            before = self.image.partition(topic_id, index)
            found.append((topic.name, index, before, None if now is None else now.partitions.get(index)))
        return sorted(found, key=lambda row: (row[0], row[1]))

    def local_changes(self, broker_id: int) -> LocalChanges:
        """What these records change for the broker, compared with the first image."""
        leaders: list[LocalPartition] = []
        followers: list[LocalPartition] = []
        deleted: list[LocalPartition] = []
        for topic_id, index in self._changed:
            before = self.image.partition(topic_id, index)
            topic = self._topics.get(topic_id)
            now = None if topic is None else topic.partitions.get(index)
            if topic is not None and now is not None and broker_id in now.replicas:
                place = leaders if now.leader == broker_id else followers
                place.append(LocalPartition(topic.name, index, topic_id, now))
            elif before is not None and broker_id in before.replicas:
                name = self.image.topics[topic_id].name
                deleted.append(LocalPartition(name, index, topic_id, before))
        return LocalChanges(_in_order(leaders), _in_order(followers), _in_order(deleted))

    # --- records -----------------------------------------------------------------------------------------

    def _refuse(self, offset: int, sentence: str) -> None:
        self.violations.append(f"metadata offset {offset}: {sentence}")

    def _put_broker(self, broker: BrokerRegistration) -> None:
        self._brokers = self._brokers.set(broker.broker_id, broker)
        self._changed_brokers[broker.broker_id] = None

    def _registered(self, broker_id: int, broker_epoch: int, what: str) -> BrokerRegistration | None:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            known = "unknown" if broker is None else f"registered with epoch {broker.broker_epoch}"
            self._refuse(self._offset - 1, f"broker {broker_id} epoch {broker_epoch} is {what} but {known}")
            return None
        return broker

    def _replay_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, "changed")
        if broker is not None:
            self._put_broker(
                replace(
                    broker,
                    in_controlled_shutdown=record.in_controlled_shutdown,
                    listeners=record.listeners,
                    rack=record.rack,
                    features=record.features,
                    log_dirs=record.log_dirs,
                )
            )

    def _replay_replicas_offline(self, record: ReplicasOfflineRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, "marked with offline replicas")
        if broker is not None:
            keys, renewed = broker.offline_replicas, broker.renewed_replicas
            for index in record.partitions:
                key = PartitionId(record.topic_id, index)
                if record.are_online:
                    keys, renewed = _without(keys, key), renewed.set(key, None)
                else:
                    keys, renewed = keys.set(key, None), _without(renewed, key)
            self._put_broker(replace(broker, offline_replicas=keys, renewed_replicas=renewed))

    def _replay_topic(self, record: TopicRecord) -> None:
        if record.name in self._topic_ids or record.topic_id in self._topics:
            self._refuse(self._offset - 1, f"topic {record.name} exists already")
            return
        self._topics = self._topics.set(record.topic_id, TopicImage(record.name, record.topic_id, Map()))
        self._topic_ids = self._topic_ids.set(record.name, record.topic_id)

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topics.get(record.topic_id)
        if topic is None:
            self._refuse(self._offset - 1, f"unknown topic {record.topic_id.hex()} is removed")
            return
        for index, partition in topic.sorted_partitions():
            self._changed[PartitionId(record.topic_id, index)] = None
            self._index(PartitionId(record.topic_id, index), partition, None)
        self._topics = self._topics.delete(record.topic_id)
        self._topic_ids = self._topic_ids.delete(topic.name)
        resource = (RESOURCE_TOPIC, topic.name)
        if resource in self._configs:
            self._configs = self._configs.delete(resource)
            self._changed_configs[resource] = None

    def _replay_partition(self, record: PartitionRecord) -> None:
        topic = self._topics.get(record.topic_id)
        if topic is None:
            self._refuse(self._offset - 1, f"partition of unknown topic {record.topic_id.hex()}")
            return
        self._put_partition(topic, record.partition_index, PartitionRegistration.from_record(record))

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topics.get(record.topic_id)
        before = None if topic is None else topic.partitions.get(record.partition_index)
        if topic is None or before is None:
            name = record.topic_id.hex() if topic is None else topic.name
            self._refuse(self._offset - 1, f"change of unknown partition {name}-{record.partition_index}")
            return
        self._put_partition(topic, record.partition_index, before.merge(record))

    def _put_partition(self, topic: TopicImage, index: int, registration: PartitionRegistration) -> None:
        for sentence in registration.broken_invariants():
            self._refuse(self._offset - 1, f"{topic.name}-{index}: {sentence}")
        self._index(PartitionId(topic.topic_id, index), topic.partitions.get(index), registration)
        partitions = topic.partitions.set(index, registration)
        self._topics = self._topics.set(topic.topic_id, TopicImage(topic.name, topic.topic_id, partitions))
        self._changed[PartitionId(topic.topic_id, index)] = None

    def _index(
        self, key: PartitionId, before: PartitionRegistration | None, after: PartitionRegistration | None
    ) -> None:
        """Update the indexes of the image; the only place that derives them."""
        had = () if before is None else before.replicas
        has = () if after is None else after.replicas
        if had != has:
            for broker_id in had:
                if broker_id not in has:
                    keys = self._assigned[broker_id].delete(key)
                    self._assigned = (
                        self._assigned.set(broker_id, keys) if keys else self._assigned.delete(broker_id)
                    )
            for broker_id in has:
                if broker_id not in had:
                    keys = self._assigned.get(broker_id, _NO_KEYS).set(key, None)
                    self._assigned = self._assigned.set(broker_id, keys)
        if after is not None and after.leader is None:
            self._leaderless = self._leaderless.set(key, None)
        elif before is not None and before.leader is None:
            self._leaderless = self._leaderless.delete(key)

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        keys = self._configs.get(resource, Map())
        if record.value is not None:
            keys = keys.set(record.name, record.value)
        elif record.name in keys:
            keys = keys.delete(record.name)
        if keys:
            self._configs = self._configs.set(resource, keys)
        elif resource in self._configs:
            self._configs = self._configs.delete(resource)
        self._changed_configs[resource] = None


def local_view(image: MetadataImage, broker_id: int) -> LocalChanges:
    """Every partition of the broker, as if all were new: what it applies when it takes its roles (N-2)."""
    leaders: list[LocalPartition] = []
    followers: list[LocalPartition] = []
    for topic, index, registration in image.partitions_of(broker_id):
        place = leaders if registration.leader == broker_id else followers
        place.append(LocalPartition(topic.name, index, topic.topic_id, registration))
    return LocalChanges(tuple(leaders), tuple(followers))


_NO_KEYS: Map[PartitionId, None] = Map()


def _without(keys: Map[PartitionId, None], key: PartitionId) -> Map[PartitionId, None]:
    return keys.delete(key) if key in keys else keys


def _changed(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> dict[_Key, None]:
    """Keys whose values differ, as an ordered set."""
    keys = {key for key, value in after.items() if key not in before or before[key] != value}
    keys |= {key for key in before if key not in after}
    return dict.fromkeys(sorted(keys))


def _in_order(found: Iterable[LocalPartition]) -> tuple[LocalPartition, ...]:
    return tuple(sorted(found, key=lambda local: (local.topic_name, local.partition_index)))
