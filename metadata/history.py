"""What has happened, as far as a trimmed log must still tell it (K15). Bounded; part of each snapshot.

Owns the last changes of each partition, for `explain`; and who was registered and what was assigned to whom
before, by which a broker knows the controllers' metadata again. Changes nothing of the image.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    RECORD_VERSION,
    LaterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    decode_versioned,
)
from holdfast.metadata.snapshot_records import (
    PastAssignmentRecord,
    PastChangeRecord,
    PastRegistrationRecord,
    SnapshotRecord,
)

#: Changes that are kept of one partition, and of all; the oldest are dropped.
CHANGES_OF_PARTITION_MAX = 4
CHANGES_MAX = 10_000
#: Registrations that are kept of one broker.
REGISTRATIONS_MAX = 32
#: Partitions that were moved away or deleted, and are remembered.
ASSIGNMENTS_MAX = 20_000


class CommittedRecord(NamedTuple):
    """A record of the metadata log that is committed."""

    offset: int
    timestamp_ms: int
    record: MetadataRecord
    #: that it is written in
    version: int = RECORD_VERSION


def committed_record(offset: int, timestamp_ms: int, value: bytes) -> CommittedRecord:
    """The record at an offset. Raises: LaterRecord, whose text tells the offset; SchemaError."""
    try:
        return CommittedRecord(offset, timestamp_ms, *decode_versioned(value))
    except LaterRecord as later:
        raise LaterRecord(f"metadata offset {offset}: {later}") from None


class PastChange(NamedTuple):
    """A change of a partition: a PartitionRecord or a PartitionChangeRecord."""

    offset: int
    #: wall time of the controller that wrote it
    timestamp_ms: int
    #: None: it was created
    before: PartitionRegistration | None
    record: PartitionRecord | PartitionChangeRecord

    @property
    def after(self) -> PartitionRegistration:
        """The state that the change made."""
        if isinstance(self.record, PartitionRecord) or self.before is None:
            assert isinstance(self.record, PartitionRecord), "the first record of a partition is complete"
            return PartitionRegistration.from_record(self.record)
        return self.before.merge(self.record)


class PastRegistration(NamedTuple):
    """A registration of a broker."""

    broker_epoch: int
    incarnation_id: bytes
    #: older ones of that broker are not kept
    is_first: bool


class MetadataHistory:
    """The history up to what was noted last."""

    __slots__ = ("_assignments", "_by_partition", "_changes", "_registrations", "has_dropped_assignments")

    def __init__(self) -> None:
        #: by offset, in order
        self._changes: OrderedDict[int, PastChange] = OrderedDict()
        #: offsets in `_changes`
        self._by_partition: dict[PartitionId, deque[int]] = {}
        self._registrations: dict[int, deque[PastRegistration]] = {}
        #: brokers that lost the partition; in order of the last loss
        self._assignments: OrderedDict[PartitionId, frozenset[int]] = OrderedDict()
        #: more partitions were moved away or deleted than are remembered
        self.has_dropped_assignments = False

    # --- what is known -----------------------------------------------------------------------------------

    def changes_of(self, key: PartitionId) -> list[PastChange]:
        """The last changes of a partition, oldest first."""
        return [self._changes[offset] for offset in self._by_partition.get(key, ())]

    def registrations_of(self, broker_id: int) -> tuple[PastRegistration, ...]:
        """The last registrations of a broker, oldest first."""
        return tuple(self._registrations.get(broker_id, ()))

    def taken_from(self, broker_id: int) -> Iterator[PartitionId]:
        """Partitions that were moved away from the broker, or deleted."""
        return (key for key, brokers in self._assignments.items() if broker_id in brokers)

    # --- what happens ------------------------------------------------------------------------------------

    def note(self, image: MetadataImage, records: Iterable[CommittedRecord]) -> None:
        """Records are committed, in order of offsets; `image` is the state before the first of them."""
        #: partitions that these records have touched already; None: deleted
        touched: dict[PartitionId, PastChange | None] = {}
        for committed in records:
            record = committed.record
            if type(record) is PartitionChangeRecord or type(record) is PartitionRecord:
                key = PartitionId(record.topic_id, record.partition_index)
                before = _after(touched[key]) if key in touched else image.partition(*key)
                if before is None and type(record) is PartitionChangeRecord:
                    continue  # replay reports it
                change = PastChange(committed.offset, committed.timestamp_ms, before, record)
                touched[key] = change
                self._add(key, change)
                if before is not None and record.replicas is not None:
                    self._lost(key, set(before.replicas).difference(record.replicas))
            elif type(record) is RegisterBrokerRecord:
                self._registered(record.broker_id, record.broker_epoch, record.incarnation_id)
            elif type(record) is RemoveTopicRecord:
                self._removed(record.topic_id, image, touched)

    def _removed(
        self, topic_id: bytes, image: MetadataImage, touched: dict[PartitionId, PastChange | None]
    ) -> None:
        topic = image.topics.get(topic_id)
        had: dict[PartitionId, PartitionRegistration | None] = {}
        if topic is not None:
            had = {PartitionId(topic_id, index): value for index, value in topic.sorted_partitions()}
        had |= {key: _after(change) for key, change in touched.items() if key.topic_id == topic_id}
        for key, value in had.items():
            touched[key] = None
            for offset in self._by_partition.pop(key, ()):
                del self._changes[offset]
            if value is not None:
                self._lost(key, set(value.replicas))

    def _add(self, key: PartitionId, change: PastChange) -> None:
        offsets = self._by_partition.get(key)
        if offsets is None:
            offsets = self._by_partition[key] = deque()
        elif len(offsets) >= CHANGES_OF_PARTITION_MAX:
            del self._changes[offsets.popleft()]
        offsets.append(change.offset)
        self._changes[change.offset] = change
        if len(self._changes) > CHANGES_MAX:
            _, oldest = self._changes.popitem(last=False)
            of_partition = PartitionId(oldest.record.topic_id, oldest.record.partition_index)
            self._by_partition[of_partition].popleft()
            if not self._by_partition[of_partition]:
                del self._by_partition[of_partition]

    def _registered(self, broker_id: int, broker_epoch: int, incarnation_id: bytes) -> None:
        known = self._registrations.get(broker_id)
        if known is None:
            known = self._registrations[broker_id] = deque(maxlen=REGISTRATIONS_MAX)
        known.append(PastRegistration(broker_epoch, incarnation_id, is_first=not known))

    def _lost(self, key: PartitionId, brokers: set[int]) -> None:
        if not brokers:
            return
        self._assignments[key] = self._assignments.get(key, frozenset()) | brokers
        self._assignments.move_to_end(key)
        if len(self._assignments) > ASSIGNMENTS_MAX:
            self._assignments.popitem(last=False)
            self.has_dropped_assignments = True

    # --- as records --------------------------------------------------------------------------------------

    def records(self) -> Iterator[SnapshotRecord]:
        """For a snapshot, as of this call: they may be taken later. A PastChangeRecord is followed by the
        record of the change."""
        registrations = [
            PastRegistrationRecord(broker_id, *registration)
            for broker_id in sorted(self._registrations)
            for registration in self._registrations[broker_id]
        ]
        return _records(registrations, list(self._assignments.items()), list(self._changes.values()))

    def restore(self, record: PastRegistrationRecord | PastAssignmentRecord) -> None:
        """Take a record of a snapshot back."""
        if isinstance(record, PastRegistrationRecord):
            self._registered(record.broker_id, record.broker_epoch, record.incarnation_id)
            known = self._registrations[record.broker_id]
            known[-1] = known[-1]._replace(is_first=record.is_first)
        else:
            self._lost(PartitionId(record.topic_id, record.partition_index), set(record.replicas))

    def restore_change(self, past: PastChangeRecord, record: PartitionRecord | PartitionChangeRecord) -> None:
        """Take a change back: a PastChangeRecord, and the record behind it."""
        before = None if past.before is None else PartitionRegistration.from_record(past.before)
        key = PartitionId(record.topic_id, record.partition_index)
        self._add(key, PastChange(past.offset, past.timestamp_ms, before, record))


def _records(
    registrations: Iterable[PastRegistrationRecord],
    assignments: Iterable[tuple[PartitionId, frozenset[int]]],
    changes: Iterable[PastChange],
) -> Iterator[SnapshotRecord]:
    yield from registrations
    for key, brokers in assignments:
        yield PastAssignmentRecord(*key, tuple(sorted(brokers)))
    for change in changes:
        record, before = change.record, change.before
        yield PastChangeRecord(
            change.offset,
            change.timestamp_ms,
            None if before is None else before.to_record(record.topic_id, record.partition_index),
        )
        yield record


def _after(change: PastChange | None) -> PartitionRegistration | None:
    return None if change is None else change.after
