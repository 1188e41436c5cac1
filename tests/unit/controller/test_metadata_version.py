"""metadata.version: the active controller writes records of its level, and no others (K31)."""

import pytest
from msgpack import packb, unpackb

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import MetadataHistory
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    ELR_FEATURE,
    METADATA_VERSION,
    RECORD_CLASSES,
    RECORD_VERSION,
    FeatureLevelRecord,
    ReplicasOfflineRecord,
    decode_record,
    decode_versioned,
    encode_record,
)
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, snapshot_records
from holdfast.metadata.snapshot_records import encode_snapshot_record
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import FeatureRange, OfflineTopic
from holdfast.protocol.messages.features import (
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from tests.unit.controller.harness import LogEntry, Quorum, make_config
from tests.unit.controller.test_topics import create

#: What builds without levels register.
NO_LEVELS = (FeatureRange(ELR_FEATURE, 0, 1),)


def started(*broker_ids: int) -> Quorum:
    quorum = Quorum(make_config(min_insync_replicas="1"))
    quorum.start_brokers(*broker_ids)
    assert create(quorum, "t", 2, len(broker_ids)).error_code == ErrorCode.NONE
    return quorum


def of_an_earlier_build(version: int = 3) -> Quorum:
    """A cluster whose records are all of a version from before levels; this build's controller takes it
    over."""
    quorum = started(1, 2, 3)
    quorum.entries = [
        LogEntry(entry.offset, entry.raft_epoch, encode_record(decode_record(entry.value), version))
        for entry in quorum.entries
    ]
    quorum.fail_over()
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    return quorum


def versions(quorum: Quorum, offset: int = 0) -> set[int]:
    """Versions of the records from an offset on."""
    return {decode_versioned(entry.value)[1] for entry in quorum.entries if entry.offset >= offset}


def update(
    quorum: Quorum, level: int, kind: UpgradeType = UpgradeType.UPGRADE, *, validate_only: bool = False
) -> UpdateFeaturesResponse:
    row = FeatureUpdate(METADATA_VERSION, level, kind)
    answer: UpdateFeaturesResponse = quorum.request(UpdateFeaturesRequest(0, validate_only, (row,)))
    return answer


def downgrade(quorum: Quorum) -> UpdateFeaturesResponse:
    return update(quorum, 0, UpgradeType.SAFE_DOWNGRADE)


def lose_and_begin_anew(quorum: Quorum, broker_id: int) -> None:
    """The broker's replica of t-0 is damaged, and put aside."""
    row = OfflineTopic(quorum.topic("t").topic_id, (0,))
    quorum.heartbeat(broker_id, offline=(row,))
    quorum.heartbeat(broker_id, online=(row,))


# --- which records are written ---------------------------------------------------------------------------


def test_a_new_cluster_has_the_highest_level_without_a_record_of_it() -> None:
    quorum = started(1, 2, 3)
    assert quorum.image.metadata_version == 1
    assert METADATA_VERSION not in quorum.image.features
    assert versions(quorum) == {RECORD_VERSION}


def test_an_implied_level_is_written_when_it_is_asked_for_and_outlives_snapshots_of_other_builds() -> None:
    """A build between, whose snapshots are of version 4, implies level 0 to who starts from one."""

    def of_a_build_between(image: MetadataImage) -> MetadataImage:
        reader = SnapshotReader()
        state = MetadataState(image, MetadataHistory())
        reader.take(encode_snapshot_record(record, 4) for record in snapshot_records(state))
        return reader.state(image.offset).image

    quorum = started(1, 2, 3)
    assert of_a_build_between(quorum.image).metadata_version == 0
    assert update(quorum, 1).error_code == ErrorCode.NONE
    assert dict(quorum.image.features)[METADATA_VERSION] == 1
    assert of_a_build_between(quorum.image).metadata_version == 1
    assert update(quorum, 1).error_code == ErrorCode.NONE
    levels = [decode_record(entry.value) for entry in quorum.entries]
    assert levels.count(FeatureLevelRecord(METADATA_VERSION, 1)) == 1


@pytest.mark.parametrize("version", [3, 4])
def test_a_cluster_of_an_earlier_build_gets_records_that_it_reads_until_an_operator_raises_the_level(
    version: int,
) -> None:
    quorum = of_an_earlier_build(version)
    offset = quorum.end_offset
    quorum.vanish(3)
    assert quorum.register(3, features=NO_LEVELS).error_code == ErrorCode.NONE
    quorum.vanish(3)
    assert quorum.register(3).error_code == ErrorCode.NONE
    assert quorum.image.metadata_version == 0
    assert versions(quorum, offset) == {3}
    assert update(quorum, 1, validate_only=True).error_code == ErrorCode.NONE
    assert quorum.image.metadata_version == 0
    assert update(quorum, 1).error_code == ErrorCode.NONE
    offset = quorum.end_offset
    quorum.start_brokers(3)
    assert versions(quorum, offset) == {RECORD_VERSION}
    assert decode_record(quorum.entries[-1].value) != FeatureLevelRecord(METADATA_VERSION, 1)
    quorum.fail_over()
    assert quorum.image.metadata_version == 1


def test_a_replica_that_is_fetched_anew_stays_offline_at_level_0_until_the_level_is_raised() -> None:
    """Builds of level 0 would take the record for the contrary."""
    quorum = of_an_earlier_build()
    lose_and_begin_anew(quorum, 1)
    assert list(quorum.image.brokers[1].offline_replicas) == [(quorum.topic("t").topic_id, 0)]
    assert versions(quorum) == {3}
    assert update(quorum, 1).error_code == ErrorCode.NONE
    quorum.heartbeat(1, online=(OfflineTopic(quorum.topic("t").topic_id, (0,)),))
    assert not quorum.image.brokers[1].offline_replicas


# --- raising ---------------------------------------------------------------------------------------------


def test_the_level_is_not_raised_while_a_broker_lacks_it_and_the_refusal_names_those() -> None:
    quorum = of_an_earlier_build()
    for broker_id in (2, 3):
        quorum.vanish(broker_id)
        assert quorum.register(broker_id, features=NO_LEVELS).error_code == ErrorCode.NONE
    answer = update(quorum, 1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == (
        "metadata.version has the levels 0 to 0 on all brokers, not 1: upgrade brokers 2, 3 first"
    )
    assert quorum.image.metadata_version == 0


def test_the_level_is_not_raised_while_a_controller_may_lack_it() -> None:
    """A voter that fetches as an earlier build does may lead next, and could not read the records."""
    quorum = of_an_earlier_build()
    quorum.earlier_voters = (102, 103)
    for validate_only in (True, False):
        answer = update(quorum, 1, validate_only=validate_only)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message == (
            "the controllers [102, 103] are of an earlier build, or have not fetched yet: start them with "
            "this build, and ask again"
        )
    assert quorum.image.metadata_version == 0
    quorum.earlier_voters = ()
    assert update(quorum, 1).error_code == ErrorCode.NONE
    quorum.earlier_voters = (102,)
    assert downgrade(quorum).error_code == ErrorCode.NONE


def test_a_refusal_names_ten_of_many_brokers() -> None:
    quorum = of_an_earlier_build()
    for broker_id in range(4, 16):
        quorum.register(broker_id, features=NO_LEVELS)
    text = str(update(quorum, 1).error_message)
    assert text.endswith("upgrade brokers 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 and 2 more first")


def test_a_level_that_this_build_lacks_is_refused_without_blame() -> None:
    text = update(started(1), 2).error_message
    assert text == "metadata.version has the levels 0 to 1 on all brokers, not 2"


def test_a_broker_that_lacks_the_level_in_force_is_refused_also_where_it_is_only_implied() -> None:
    quorum = started(1, 2, 3)
    answer = quorum.register(4, features=NO_LEVELS)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == (
        "feature metadata.version is at level 1, this broker supports [0, 0]; upgrade it"
    )


# --- lowering --------------------------------------------------------------------------------------------


def test_the_level_is_lowered_when_asked_as_a_downgrade_and_opens_the_way_back() -> None:
    quorum = started(1, 2, 3)
    assert "as a downgrade" in str(update(quorum, 0).error_message)
    assert downgrade(quorum).error_code == ErrorCode.NONE
    offset = quorum.end_offset
    assert quorum.register(4, features=NO_LEVELS).error_code == ErrorCode.NONE
    assert versions(quorum, offset) == {3}
    assert quorum.image == quorum.replayed()


def test_the_level_is_not_lowered_while_a_build_of_that_level_would_read_the_log_otherwise() -> None:
    quorum = started(1, 2, 3)
    lose_and_begin_anew(quorum, 2)
    for kind in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        answer = update(quorum, 0, kind)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.error_message == (
            "broker 2 fetches t-0 anew, which builds of metadata.version 0 take for offline; restart or "
            "unregister that broker first"
        )
    assert seen_at_level_0(quorum).brokers[2].offline_replicas
    quorum.vanish(2)
    quorum.register(2)
    assert downgrade(quorum).error_code == ErrorCode.NONE
    for broker_id, broker in seen_at_level_0(quorum).brokers.items():
        assert broker.offline_replicas == quorum.image.brokers[broker_id].offline_replicas


def seen_at_level_0(quorum: Quorum) -> MetadataImage:
    """The image of a node that passes over the fields of later versions."""
    delta = MetadataDelta(MetadataImage())
    (key,) = (key for key, kind in RECORD_CLASSES.items() if kind is ReplicasOfflineRecord)
    for entry in quorum.entries:
        kind, _, fields = unpackb(entry.value)
        value = packb([key, 3, fields[:4]], use_bin_type=True) if kind == key else entry.value
        delta.replay(decode_record(value), entry.offset, entry.raft_epoch)
    return delta.apply()


def test_a_deleted_topic_keeps_no_level_in_use() -> None:
    quorum = started(1, 2, 3)
    lose_and_begin_anew(quorum, 2)
    quorum.request(DeleteTopicsRequest(0, ("t",)))
    assert downgrade(quorum).error_code == ErrorCode.NONE
