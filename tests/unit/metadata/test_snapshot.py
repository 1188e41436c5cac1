"""A snapshot's records make the image again that they were made of, and the bounded history with it (K15)."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgpack import packb

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    LaterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicasOfflineRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
)
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, known_partitions, snapshot_records
from holdfast.metadata.snapshot_records import (
    SNAPSHOT_RECORD_VERSION,
    PastChangeRecord,
    SnapshotStateRecord,
    decode_snapshot_record,
    encode_snapshot_record,
)
from holdfast.protocol.messages.broker_registration import FeatureRange, ListenerEndpoint
from holdfast.protocol.schema.fields import SchemaError, WrittenLater
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import parse_file

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "controller").glob("*.txt"))
LISTENERS = (ListenerEndpoint("A", "h", 1),)
FEATURES = (FeatureRange("f", 0, 2),)


def played(*records: MetadataRecord, end_offset: int | None = None) -> MetadataState:
    """The state after the records, at offsets from 0 on."""
    image, history = MetadataImage(), MetadataHistory()
    for offset, record in enumerate(records):
        history.note(image, [CommittedRecord(offset, 1_000 + offset, record)])
        delta = MetadataDelta(image)
        delta.replay(record, offset, 3)
        image = delta.apply()
    return MetadataState(MetadataDelta(image).apply(end_offset), history)


def through_a_snapshot(state: MetadataState) -> MetadataState:
    reader = SnapshotReader()
    values = map(encode_snapshot_record, snapshot_records(state))
    reader.take(values)
    return reader.state(state.image.offset)


def told(history: MetadataHistory) -> list[object]:
    return list(history.records())


def check(state: MetadataState) -> None:
    again = through_a_snapshot(state)
    assert again.image == state.image
    assert hash(again.image) == hash(state.image)
    assert told(again.history) == told(state.history)
    assert again.history.has_dropped_assignments == state.history.has_dropped_assignments


def register(broker_id: int, offset: int, incarnation: bytes = b"i" * 16) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id, incarnation, offset, LISTENERS, "rack", FEATURES, (b"d" * 16,), broker_id % 2 == 0
    )


def partition(topic_id: bytes, index: int, *replicas: int) -> MetadataRecord:
    first = PartitionRegistration(replicas, tuple(sorted(replicas)), replicas[0], 0, 0, 1)
    return first.to_record(topic_id, index)


def change(topic_id: bytes, index: int, **given_: object) -> PartitionChangeRecord:
    names = [field.name for field in fields(PartitionChangeRecord)][2:]
    return PartitionChangeRecord(topic_id, index, **(dict.fromkeys(names) | given_))


T, U = b"t" * 16, b"u" * 16


def test_an_image_with_every_field_set_comes_back_equal() -> None:
    check(
        played(
            FeatureLevelRecord("eligible.leader.replicas.version", 1),
            FeatureLevelRecord("other", 0),
            register(1, 2),
            register(2, 3),
            register(3, 4),
            UnfenceBrokerRecord(1, 2),
            UnfenceBrokerRecord(3, 4),
            BrokerRegistrationChangeRecord(3, 4, True, LISTENERS * 2, None, FEATURES, (b"e" * 16,)),
            ConfigRecord(4, "", "min.insync.replicas", "2"),
            ConfigRecord(2, "t", "retention.ms", "5"),
            TopicRecord("t", T),
            TopicRecord("empty", U),
            partition(T, 0, 1, 2),
            partition(T, 1, 2, 3),
            change(T, 0, leader=-1, isr=(), elr=(2,), last_known_leader=1, last_known_elr=(1,), min_isr=2),
            change(T, 1, replicas=(1, 2, 3), adding_replicas=(1,), original_replicas=(2, 3)),
            ReplicasOfflineRecord(1, 2, T, (0, 1)),
            ProducerIdsRecord(1, 2, 3000),
            end_offset=40,
        )
    )


def test_the_empty_image_comes_back_equal() -> None:
    check(played(end_offset=7))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_images_of_all_scenarios_come_back_equal(path: Path) -> None:
    scenario = Scenario()
    for block in parse_file(path):
        for command in block.commands:
            scenario.execute(command)
    image, history = MetadataImage(), MetadataHistory()
    for entry in scenario.quorum.entries:
        record = decode_record(entry.value)
        history.note(image, [CommittedRecord(entry.offset, 0, record)])
        delta = MetadataDelta(image)
        delta.replay(record, entry.offset, entry.raft_epoch)
        image = delta.apply()
    check(MetadataState(image, history))


replicas = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple)
topic_ids = st.sampled_from([T, U])
broker_ids = st.integers(1, 4)
steps = st.one_of(
    st.builds(TopicRecord, st.sampled_from("tu"), topic_ids),
    st.builds(RemoveTopicRecord, topic_ids),
    st.builds(
        lambda topic_id, index, ids: partition(topic_id, index, *ids), topic_ids, st.integers(0, 2), replicas
    ),
    st.builds(
        lambda topic_id, index, ids, leader: change(topic_id, index, isr=ids, leader=leader),
        topic_ids,
        st.integers(0, 2),
        st.none() | replicas,
        st.none() | st.integers(-1, 4),
    ),
    st.builds(
        lambda topic_id, index, ids: change(topic_id, index, replicas=ids),
        topic_ids,
        st.integers(0, 2),
        replicas,
    ),
    st.builds(lambda broker_id: register(broker_id, -1), broker_ids),
    st.builds(UnregisterBrokerRecord, broker_ids, st.integers(0, 40)),
    st.builds(UnfenceBrokerRecord, broker_ids, st.integers(0, 40)),
    st.builds(FenceBrokerRecord, broker_ids, st.integers(0, 40)),
    st.builds(
        ReplicasOfflineRecord,
        broker_ids,
        st.integers(0, 40),
        topic_ids,
        st.lists(st.integers(0, 2), unique=True).map(tuple),
        st.booleans(),
    ),
    st.builds(
        ConfigRecord,
        st.sampled_from([2, 4]),
        st.sampled_from(["", "t"]),
        st.just("k"),
        st.none() | st.just("v"),
    ),
    st.builds(FeatureLevelRecord, st.sampled_from(["f", "g"]), st.integers(0, 2)),
    st.builds(ProducerIdsRecord, st.just(1), st.just(1), st.integers(0, 9)),
)


@given(st.lists(steps, max_size=40))
def test_any_image_comes_back_equal(records: list[MetadataRecord]) -> None:
    epochs: dict[int, int] = {}
    log: list[MetadataRecord] = []
    for offset, record in enumerate(records):
        if isinstance(record, RegisterBrokerRecord):
            epochs[record.broker_id] = offset
            record = replace(record, broker_epoch=offset)
        elif isinstance(record, UnfenceBrokerRecord | FenceBrokerRecord | ReplicasOfflineRecord):
            record = replace(record, broker_epoch=epochs.get(record.broker_id, 0))
        log.append(record)
    check(played(*log))


def test_what_a_broker_had_is_known_after_topics_are_gone_and_partitions_moved() -> None:
    state = through_a_snapshot(
        played(
            TopicRecord("t", T),
            partition(T, 0, 1, 2),
            TopicRecord("u", U),
            partition(U, 0, 1, 2),
            partition(U, 1, 2, 3),
            change(U, 0, replicas=(2, 3)),
            RemoveTopicRecord(T),
        )
    )
    assert known_partitions(state, 1) == {PartitionId(T, 0), PartitionId(U, 0)}
    assert known_partitions(state, 2) == {PartitionId(T, 0), PartitionId(U, 0), PartitionId(U, 1)}
    assert known_partitions(state, 4) == set()


def test_a_difference_of_two_images_says_what_records_would_have_said() -> None:
    before = played(
        register(1, 0),
        TopicRecord("t", T),
        partition(T, 0, 1, 2),
        partition(T, 1, 1, 2),
        TopicRecord("u", U),
        partition(U, 0, 1, 2),
        ConfigRecord(2, "t", "k", "v"),
    ).image
    delta = MetadataDelta(before)
    records: tuple[MetadataRecord, ...] = (
        UnfenceBrokerRecord(1, 0),
        change(T, 1, leader=2),
        RemoveTopicRecord(U),
        ConfigRecord(2, "t", "k", None),
    )
    for offset, record in enumerate(records, 7):
        delta.replay(record, offset, 4)
    later = delta.apply()
    between = MetadataDelta.between(before, later)
    assert between.apply() == later
    assert between.changed_brokers == delta.changed_brokers == (1,)
    assert between.changed_configs == delta.changed_configs
    assert between.changed_partitions() == delta.changed_partitions()
    assert between.local_changes(2) == delta.local_changes(2)
    assert between.deleted_topics == delta.deleted_topics


def test_records_of_a_later_version_and_half_a_history_are_refused() -> None:
    with pytest.raises(LaterRecord):
        decode_snapshot_record(b"\x93\xcc\xfa\x00\x90")
    later = SNAPSHOT_RECORD_VERSION + 1
    assert decode_snapshot_record(packb([200, later, [1, False]])) == SnapshotStateRecord(1, False)
    with pytest.raises(LaterRecord):
        decode_snapshot_record(packb([200, later, [1, False, "new"]]))
    with pytest.raises(WrittenLater):
        SnapshotReader().take([packb([99, 0, []])])
    with pytest.raises(SchemaError):
        SnapshotReader().state(5)
    reader = SnapshotReader()
    records = snapshot_records(played())
    reader.take(map(encode_snapshot_record, records))
    reader.take([encode_snapshot_record(PastChangeRecord(1, 1, None))])
    with pytest.raises(SchemaError):
        reader.state(5)
