"""The state of the cluster at one offset as records, and the way back (K15).

Owns their order: what a record relies on comes before it. A record of the metadata log means the same here as
there, so that replaying a snapshot gives the image that it was made of.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import MetadataHistory
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    RECORD_VERSION,
    RECORD_VERSIONS,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    ReplicasOfflineRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from holdfast.metadata.snapshot_records import (
    SNAPSHOT_RECORD_VERSION_MIN,
    PastAssignmentRecord,
    PastChangeRecord,
    PastRegistrationRecord,
    SnapshotRecord,
    SnapshotStateRecord,
    decode_versioned_snapshot_record,
    encode_snapshot_record,
)
from holdfast.protocol.schema.fields import SchemaError

_NO_BROKER = -1


@dataclass(frozen=True, slots=True)
class MetadataState:
    """What a node knows of the cluster at one offset."""

    image: MetadataImage
    #: up to the image's offset
    history: MetadataHistory


def snapshot_records(state: MetadataState) -> Iterator[SnapshotRecord]:
    """Every record of a snapshot, as of this call: they may be taken one by one over a long time."""
    first = SnapshotStateRecord(state.image.raft_epoch, state.history.has_dropped_assignments)
    return _records(first, state.image, state.history.records())


def snapshot_values(state: MetadataState) -> Iterator[bytes]:
    """The same, encoded as they are taken."""
    version = max(SNAPSHOT_RECORD_VERSION_MIN, RECORD_VERSIONS[state.image.metadata_version])
    return (encode_snapshot_record(record, version) for record in snapshot_records(state))


def _records(
    first: SnapshotStateRecord, image: MetadataImage, history: Iterator[SnapshotRecord]
) -> Iterator[SnapshotRecord]:
    yield first
    for name in sorted(image.features):
        yield FeatureLevelRecord(name, image.features[name])
    for broker in image.sorted_brokers():
        yield from _broker_records(broker)
    for topic in image.sorted_topics():
        yield TopicRecord(topic.name, topic.topic_id)
        for index, registration in topic.sorted_partitions():
            yield registration.to_record(topic.topic_id, index)
    for resource in sorted(image.configs):
        for name, value in sorted(image.configs[resource].items()):
            yield ConfigRecord(*resource, name, value)
    if image.next_producer_id:
        yield ProducerIdsRecord(_NO_BROKER, _NO_BROKER, image.next_producer_id)
    yield from history


def _broker_records(broker: BrokerRegistration) -> Iterator[SnapshotRecord]:
    broker_id, epoch = broker.broker_id, broker.broker_epoch
    yield RegisterBrokerRecord(
        broker_id,
        broker.incarnation_id,
        epoch,
        broker.listeners,
        broker.rack,
        broker.features,
        broker.log_dirs,
        broker.clean_shutdown,
    )
    if not broker.is_fenced:
        yield UnfenceBrokerRecord(broker_id, epoch)
    if broker.in_controlled_shutdown:
        yield BrokerRegistrationChangeRecord(
            broker_id,
            epoch,
            broker.in_controlled_shutdown,
            broker.listeners,
            broker.rack,
            broker.features,
            broker.log_dirs,
        )
    for keys, are_online in ((broker.offline_replicas, False), (broker.renewed_replicas, True)):
        by_topic: dict[bytes, list[int]] = {}
        for key in sorted(keys):
            by_topic.setdefault(key.topic_id, []).append(key.partition_index)
        for topic_id, indexes in by_topic.items():
            yield ReplicasOfflineRecord(broker_id, epoch, topic_id, tuple(indexes), are_online=are_online)


class SnapshotReader:
    """Makes the state of a snapshot's records, given in order."""

    def __init__(self) -> None:
        self._delta = MetadataDelta(MetadataImage())
        self._history = MetadataHistory()
        self._raft_epoch: int | None = None
        self._version = RECORD_VERSION
        #: waits for the record of its change
        self._past: PastChangeRecord | None = None

    def take(self, values: Iterable[bytes]) -> None:
        """Take records. Raises: SchemaError when a later version wrote them."""
        for value in values:
            self._take(*decode_versioned_snapshot_record(value))

    def state(self, offset: int) -> MetadataState:
        """The state, after the last record. `offset` is the snapshot's. Raises: SchemaError for a snapshot
        that lacks records."""
        if self._raft_epoch is None or self._past is not None:
            raise SchemaError("a snapshot of the metadata must have a SnapshotStateRecord and whole changes")
        return MetadataState(
            self._delta.restored(offset, self._raft_epoch, self._version if self._raft_epoch else None),
            self._history,
        )

    def _take(self, record: SnapshotRecord, version: int) -> None:
        if self._past is not None:
            if not isinstance(record, PartitionRecord | PartitionChangeRecord):
                raise SchemaError(f"a PastChangeRecord is followed by {type(record).__name__}")
            self._history.restore_change(self._past, record)
            self._past = None
            return
        match record:
            case SnapshotStateRecord():
                self._raft_epoch, self._version = record.raft_epoch, version
                self._history.has_dropped_assignments = record.has_dropped_assignments
            case PastRegistrationRecord() | PastAssignmentRecord():
                self._history.restore(record)
            case PastChangeRecord():
                self._past = record
            case _:
                self._delta.restore(record)


def known_partitions(state: MetadataState, broker_id: int) -> set[PartitionId]:
    """Partitions that the broker has, or had as far as the history tells."""
    return {*state.image.assigned.get(broker_id, ()), *state.history.taken_from(broker_id)}
