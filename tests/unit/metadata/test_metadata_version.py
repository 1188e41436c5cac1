"""The level of metadata.version: what names it, and what outlives a snapshot (K31)."""

import pytest
from msgpack import unpackb

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import MetadataHistory
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    FeatureLevelRecord,
    LaterRecord,
    MetadataRecord,
    NoOpRecord,
    ReplicasOfflineRecord,
    TopicRecord,
    decode_record,
    decode_versioned,
    encode_record,
)
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, snapshot_values
from holdfast.protocol.schema.fields import SchemaError
from tests.unit.metadata.test_delta import T, register


def played(*rows: tuple[MetadataRecord, int]) -> MetadataImage:
    """The image after records of these versions."""
    delta = MetadataDelta(MetadataImage())
    for offset, (record, version) in enumerate(rows):
        delta.replay(*decode_versioned(encode_record(record, version))[:1], offset, 1, version)
    return delta.apply()


def through_a_snapshot(image: MetadataImage) -> MetadataImage:
    reader = SnapshotReader()
    reader.take(snapshot_values(MetadataState(image, MetadataHistory())))
    return reader.state(image.offset).image


NO_OP = NoOpRecord()


@pytest.mark.parametrize(
    ("rows", "level"),
    [
        ((), METADATA_VERSION_MAX),
        (((NO_OP, 0),), 0),
        (((NO_OP, 3), (NO_OP, 1)), 0),
        (((NO_OP, 3), (NO_OP, 4)), 0),
        (((NO_OP, 3), (NO_OP, 5)), 1),
        (((NO_OP, 5), (NO_OP, 3)), 1),
        (((FeatureLevelRecord(METADATA_VERSION, 0), 5), (NO_OP, 5)), 0),
        (((FeatureLevelRecord(METADATA_VERSION, 1), 3),), 1),
    ],
)
def test_a_finalized_level_counts_else_the_latest_version_of_a_record_implies_one(
    rows: tuple[tuple[MetadataRecord, int], ...], level: int
) -> None:
    image = played(*rows)
    assert image.metadata_version == image.level_of(METADATA_VERSION) == level
    again = through_a_snapshot(image)
    assert again.metadata_version == level
    assert again == image


def test_a_record_is_written_without_the_fields_that_are_later_than_its_version() -> None:
    record = ReplicasOfflineRecord(1, 2, T, (0,))
    assert [len(unpackb(encode_record(record, version))[2]) for version in (3, 4)] == [4, 5]
    assert decode_versioned(encode_record(record, 3)) == (record, 3)


def test_a_record_that_would_say_the_contrary_without_its_later_field_is_not_written() -> None:
    with pytest.raises(AssertionError, match="the contrary"):
        encode_record(ReplicasOfflineRecord(1, 2, T, (0,), are_online=True), 3)


def test_a_level_of_a_later_build_is_as_a_record_of_one() -> None:
    """K29: the node stops at the level, before it meets what the level allows."""
    value = encode_record(FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_MAX + 1))
    with pytest.raises(LaterRecord, match=r"^metadata\.version is at level 2, and this build knows 0 to 1$"):
        decode_record(value)
    other = FeatureLevelRecord("other", METADATA_VERSION_MAX + 1)
    assert decode_record(encode_record(other)) == other


def test_a_level_below_0_is_no_record() -> None:
    value = encode_record(FeatureLevelRecord(METADATA_VERSION, -1))
    with pytest.raises(SchemaError, match=r"^metadata\.version is at level -1$"):
        decode_record(value)


OFFLINE = ReplicasOfflineRecord(1, 0, T, (0, 1))
ANEW = ReplicasOfflineRecord(1, 0, T, (1,), are_online=True)


def test_replicas_that_are_fetched_anew_outlive_a_snapshot() -> None:
    image = played(*((record, 5) for record in (register(1, 0), TopicRecord("t", T), OFFLINE, ANEW)))
    broker = through_a_snapshot(image).brokers[1]
    assert [list(broker.offline_replicas), list(broker.renewed_replicas)] == [[(T, 0)], [(T, 1)]]


@pytest.mark.parametrize("record", [register(1, 3), OFFLINE])
def test_replicas_that_are_fetched_anew_are_forgotten_once_builds_of_all_levels_agree(
    record: MetadataRecord,
) -> None:
    """They agree when the broker registers again, or the replica is offline again."""
    image = played(*((one, 5) for one in (register(1, 0), OFFLINE, ANEW, record)))
    assert not image.brokers[1].renewed_replicas


@pytest.mark.parametrize("rows", [(), ((FeatureLevelRecord(METADATA_VERSION, 0), 3),)])
def test_what_another_build_wrote_outlives_a_snapshot_of_level_0(
    rows: tuple[tuple[MetadataRecord, int], ...],
) -> None:
    """Builds between know no levels and write version 4, as every build does that reads snapshots."""
    image = played((register(1, 0), 3), (OFFLINE, 3), (ANEW, 4), *rows)
    values = [*snapshot_values(MetadataState(image, MetadataHistory()))]
    assert {unpackb(value)[1] for value in values} == {4}
    again = through_a_snapshot(image)
    assert again == image
    assert again.metadata_version == 0
    assert list(again.brokers[1].renewed_replicas) == [(T, 1)]
