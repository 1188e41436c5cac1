"""What records mean: each is replayed by production code, which is believed, and then told as another."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import (
    RECORD_CLASSES,
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
from holdfast.sim.checks.properties.replaying import RecordsAreReplayed
from tests.sim.checks.histories import Scene

T, U = b"t" * 16, b"u" * 16


def made(index: int, **given: Any) -> PartitionRecord:
    row = PartitionRecord(T, index, (1, 2), (1, 2), (), (), (), (), -1, 1, 0, 0, 0, 1, None)
    return replace(row, **given)


def changed(**given: Any) -> PartitionChangeRecord:
    return replace(PartitionChangeRecord(T, 0, *[None] * 11), **given)


BEFORE: list[MetadataRecord] = [
    RegisterBrokerRecord(1, bytes(16), 0, (), None, (), (), True),
    RegisterBrokerRecord(2, bytes(15) + b"2", 1, (), "r", (), (), False),
    UnfenceBrokerRecord(2, 1),
    TopicRecord("t", T),
    made(0),
    made(1, leader=-1, isr=(), last_known_leader=2),
    ConfigRecord(RESOURCE_TOPIC, "t", "flush.ms", "5"),
    ConfigRecord(RESOURCE_TOPIC, "u", "flush.ms", "5"),
    FeatureLevelRecord("f", 0),
]
#: each with one that means something else
RECORDS: list[tuple[MetadataRecord, MetadataRecord]] = [
    (RegisterBrokerRecord(1, b"n" * 16, 9, (), "r", (), (), True), NoOpRecord()),
    (UnregisterBrokerRecord(1, 0), FenceBrokerRecord(1, 0)),
    (FenceBrokerRecord(2, 1), NoOpRecord()),
    (UnfenceBrokerRecord(1, 0), FenceBrokerRecord(1, 0)),
    (
        BrokerRegistrationChangeRecord(2, 1, True, (), "r", (), ()),
        BrokerRegistrationChangeRecord(2, 1, False, (), "r", (), ()),
    ),
    (
        BrokerRegistrationChangeRecord(2, 1, False, (), "q", (), ()),
        BrokerRegistrationChangeRecord(2, 1, False, (), "r", (), ()),
    ),
    (ReplicasOfflineRecord(2, 1, T, (0, 1)), ReplicasOfflineRecord(2, 1, T, (0,))),
    (TopicRecord("u", U), NoOpRecord()),
    (RemoveTopicRecord(T), NoOpRecord()),
    (made(2), made(2, isr=(1,))),
    (changed(isr=(1,)), changed()),
    (changed(leader=2), changed(leader=1)),
    (changed(leader=-1, isr=(), elr=(1,), last_known_leader=1), changed(leader=-1, isr=(), elr=(1,))),
    (changed(original_replicas=(1, 2)), changed()),
    (changed(isr=(1,), leader_recovery_state=1), changed(isr=(1,))),
    (ConfigRecord(RESOURCE_TOPIC, "t", "flush.ms", "7"), ConfigRecord(RESOURCE_TOPIC, "u", "flush.ms", "7")),
    (ConfigRecord(RESOURCE_TOPIC, "t", "flush.ms", None), NoOpRecord()),
    (FeatureLevelRecord("f", 1), NoOpRecord()),
    (ProducerIdsRecord(1, 0, 1000), ProducerIdsRecord(1, 0, 999)),
]


def replayed(image: MetadataImage, record: MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay(record, image.offset, 1)
    assert not delta.violations
    return delta.apply()


def told_of(record: MetadataRecord, as_if: MetadataRecord) -> str | None:
    """What the property says of a record that was replayed `as_if` it were another."""
    before = MetadataImage()
    for one in BEFORE:
        before = replayed(before, one)
    scene = Scene(RecordsAreReplayed())
    scene.set_image(replayed(before, as_if))
    return scene.violation(lambda: scene.property.record_committed(scene.seen, before.offset, record, before))


@pytest.mark.parametrize(("record", "other"), RECORDS, ids=lambda one: type(one).__name__)
def test_an_image_holds_what_the_record_says_and_nothing_else_d7(
    record: MetadataRecord, other: MetadataRecord
) -> None:
    assert told_of(record, as_if=record) is None
    assert "D7 RecordsAreReplayed" in (told_of(record, as_if=other) or "")
    assert "D7 RecordsAreReplayed" in (told_of(NoOpRecord(), as_if=record) or "")


def test_a_leader_that_is_decided_anew_has_another_epoch_r2() -> None:
    assert told_of(changed(leader=1), as_if=changed(leader=1)) is None
    assert told_of(changed(leader=1), as_if=changed()) is not None


def test_every_record_is_among_them() -> None:
    assert {type(record) for record, _ in RECORDS} | {NoOpRecord} == set(RECORD_CLASSES.values())
