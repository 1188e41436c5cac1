"""The story of one partition: what in the metadata log made it what it is, step by step.

Owns which records belong to the story and the state before and after each. Reads values only; the sentences
are in `explain_text`. A topic that was deleted and made anew is another topic: both lives are told, by id.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.controller.core.decisions import Decision
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import PastChange
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicasOfflineRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.metadata.snapshot import MetadataState

#: Keys whose value has a say in who is in sync and who may lead.
TOLD_KEYS = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "unclean.recovery.strategy",
    "unclean.recovery.manager.enabled",
)
_BROKER_RECORDS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    BrokerRegistrationChangeRecord,
)


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """One record of the metadata log."""

    offset: int
    #: wall time of the controller that wrote it
    timestamp_ms: int
    record: MetadataRecord


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A metadata log from its beginning, or from a snapshot on."""

    records: list[LoggedRecord]
    #: what the log below the first record has led to; None for a whole log
    base: MetadataState | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One record that belongs to the story."""

    logged: LoggedRecord
    #: of the life that it belongs to
    topic_id: bytes
    #: the partition; `before` None: it did not exist, `after` None: it does not any more
    before: PartitionRegistration | None
    after: PartitionRegistration | None
    #: why; None when the record is no change of the partition, or says no more
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """What happened to one partition, in all its lives."""

    topic_name: str
    partition_index: int
    steps: tuple[Step, ...]
    #: what could not be replayed: the log was not written by these rules, or is not whole
    complaints: tuple[str, ...]

    def of_epoch(self, leader_epoch: int) -> "Story":
        """Only the steps that began this leader epoch or happened in it."""
        steps = tuple(
            step for step in self.steps if step.after is not None and step.after.leader_epoch == leader_epoch
        )
        return replace(self, steps=steps)


def story_of(
    log: Iterable[LoggedRecord], topic_name: str, partition_index: int, base: MetadataState | None = None
) -> Story:
    """Replay the log from its start, or from a snapshot on, and keep what belongs to the partition. Of what
    lies below a snapshot, the last changes are told (K15)."""
    image = MetadataImage() if base is None else base.image
    delta = MetadataDelta(image)
    steps = [] if base is None else _past_steps(base, topic_name, partition_index)
    complaints: list[str] = []
    for logged in log:
        topic = image.topic(topic_name)
        topic_id = None if topic is None else topic.topic_id
        is_of_interest = _may_matter(logged.record, topic_name, partition_index, topic_id)
        if is_of_interest:
            image = delta.apply()
            complaints += delta.violations
            delta = MetadataDelta(image)
        delta.replay(logged.record, logged.offset, 0)
        if is_of_interest:
            after = delta.apply()
            complaints += delta.violations
            step = _step(logged, topic_name, partition_index, image, after)
            if step is not None:
                steps.append(step)
            image, delta = after, MetadataDelta(after)
    complaints += delta.violations
    return Story(topic_name, partition_index, tuple(steps), tuple(complaints))


def _past_steps(base: MetadataState, topic_name: str, partition_index: int) -> list[Step]:
    topic = base.image.topic(topic_name)
    if topic is None:
        return []
    changes = base.history.changes_of(PartitionId(topic.topic_id, partition_index))
    return [_past_step(change, topic.topic_id) for change in changes]


def _past_step(change: PastChange, topic_id: bytes) -> Step:
    record = change.record
    stored = record.decision if isinstance(record, PartitionChangeRecord) else None
    return Step(
        LoggedRecord(change.offset, change.timestamp_ms, record),
        topic_id,
        change.before,
        change.after,
        None if stored is None else Decision.from_stored(stored),
    )


def _may_matter(
    record: MetadataRecord, topic_name: str, partition_index: int, topic_id: bytes | None
) -> bool:
    match record:
        case TopicRecord():
            return record.name == topic_name
        case PartitionRecord() | PartitionChangeRecord():
            return record.topic_id == topic_id and record.partition_index == partition_index
        case ReplicasOfflineRecord():
            return record.topic_id == topic_id and partition_index in record.partitions
        case RemoveTopicRecord():
            return record.topic_id == topic_id
        case ConfigRecord():
            owner = (record.resource_type, record.resource_name)
            return record.name in TOLD_KEYS and owner in (CLUSTER_RESOURCE, (RESOURCE_TOPIC, topic_name))
        case FeatureLevelRecord():
            return record.name == ELR_FEATURE
    return isinstance(record, _BROKER_RECORDS)


def _step(
    logged: LoggedRecord, topic_name: str, partition_index: int, before: MetadataImage, after: MetadataImage
) -> Step | None:
    """The step, or None when the record does not touch the partition."""
    topic = after.topic(topic_name) or before.topic(topic_name)
    if topic is None:
        return None
    had = before.partition(topic.topic_id, partition_index)
    has = after.partition(topic.topic_id, partition_index)
    step = Step(logged, topic.topic_id, had, has)
    record = logged.record
    match record:
        case TopicRecord():
            return None  # its partitions follow
        case PartitionRecord() | RemoveTopicRecord():
            return None if had == has else step
        case PartitionChangeRecord():
            if had == has:
                return None
            return replace(
                step, decision=None if record.decision is None else Decision.from_stored(record.decision)
            )
        case (
            RegisterBrokerRecord()
            | UnregisterBrokerRecord()
            | FenceBrokerRecord()
            | UnfenceBrokerRecord()
            | BrokerRegistrationChangeRecord()
            | ReplicasOfflineRecord()
        ):
            return step if has is not None and record.broker_id in has.replicas else None
    return None if has is None else step
