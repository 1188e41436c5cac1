"""Replay of every record, what is new in a delta, and images as persistent values."""

from typing import Any

import pytest
from msgpack import packb

from holdfast.metadata.broker import SUPPORTED_FEATURES
from holdfast.metadata.delta import MetadataDelta, local_view
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    RECORD_CLASSES,
    RECORD_VERSION,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    LaterRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from holdfast.protocol.messages.broker_registration import ListenerEndpoint
from holdfast.protocol.schema.fields import SchemaError

T = bytes(15) + b"\x10"
U = bytes(15) + b"\x11"
LISTENERS = (ListenerEndpoint("A", "h", 1), ListenerEndpoint("B", "h", 2))


def register(broker_id: int, offset: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id, bytes(16), offset, LISTENERS, "r", SUPPORTED_FEATURES, (bytes(16),), True
    )


def partition(topic_id: bytes, index: int, *replicas: int, leader: int | None = None) -> MetadataRecord:
    first = replicas[0] if leader is None else leader
    value = PartitionRegistration(replicas, tuple(sorted(replicas)), first, 0, 0, 1)
    return value.to_record(topic_id, index)


def isr_change(
    topic_id: bytes, index: int, isr: tuple[int, ...], leader: int | None = None
) -> MetadataRecord:
    nothing: list[Any] = [None] * 9
    return PartitionChangeRecord(topic_id, index, isr, leader, *nothing)


def replay(image: MetadataImage, *records: MetadataRecord) -> MetadataDelta:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(decode_record(encode_record(record)), delta.apply().offset, 3)
    return delta


def image_of(*records: MetadataRecord) -> MetadataImage:
    delta = replay(MetadataImage(), *records)
    assert delta.violations == []
    return delta.apply()


TWO_TOPICS = image_of(
    TopicRecord("t", T),
    partition(T, 0, 1, 2),
    partition(T, 1, 2, 3),
    TopicRecord("u", U),
    partition(U, 0, 2, 1),
)


def test_a_broker_lives_through_its_records() -> None:
    fresh = image_of(register(7, 0))
    assert (fresh.brokers[7].is_fenced, fresh.brokers[7].clean_shutdown, fresh.is_active(7)) == (
        True,
        True,
        False,
    )
    unfenced = replay(fresh, UnfenceBrokerRecord(7, 0)).apply()
    assert unfenced.is_active(7)
    leaving = BrokerRegistrationChangeRecord(7, 0, True, LISTENERS[:1], None, (), (bytes(16),))
    changed = replay(unfenced, leaving).apply()
    assert not changed.is_active(7)
    assert changed.brokers[7].listeners == LISTENERS[:1]
    assert replay(changed, FenceBrokerRecord(7, 0)).apply().brokers[7].is_fenced
    gone = replay(changed, UnregisterBrokerRecord(7, 0))
    assert 7 not in gone.apply().brokers
    assert gone.changed_brokers == (7,)


def test_endpoints_are_found_by_listener_name() -> None:
    broker = image_of(register(7, 0)).brokers[7]
    assert broker.endpoint("B") == LISTENERS[1]
    assert broker.endpoint("C") is None


@pytest.mark.parametrize(
    "record",
    [
        register(7, 99),
        UnfenceBrokerRecord(7, 3),
        FenceBrokerRecord(8, 0),
        UnregisterBrokerRecord(8, 0),
        partition(bytes(15) + b"\x99", 0, 1),
        isr_change(bytes(15) + b"\x99", 0, (1,)),
        isr_change(T, 5, (1,)),
        isr_change(T, 0, (3,)),
        RemoveTopicRecord(bytes(15) + b"\x99"),
        TopicRecord("t", U),
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_is_reported_and_does_not_stop_the_replay(record: MetadataRecord) -> None:
    """D7, B3: replay is total."""
    image = image_of(register(7, 0), TopicRecord("t", T), partition(T, 0, 1, 2))
    delta = replay(image, record, NoOpRecord())
    assert len(delta.violations) >= 1
    assert f"metadata offset {image.offset}" in delta.violations[0]
    assert delta.apply().offset == image.offset + 2


def test_a_removed_topic_takes_its_partitions_and_configs_along() -> None:
    image = image_of(
        TopicRecord("t", T), ConfigRecord(RESOURCE_TOPIC, "t", "retention.ms", "5"), partition(T, 0, 1)
    )
    delta = replay(image, RemoveTopicRecord(T))
    after = delta.apply()
    assert (after.topic("t"), dict(after.configs), dict(after.topics)) == (None, {}, {})
    assert [topic.name for topic in delta.deleted_topics] == ["t"]
    assert delta.changed_configs == ((RESOURCE_TOPIC, "t"),)
    assert delta.changed_partitions()[0][:2] == ("t", 0)
    assert delta.changed_partitions()[0][3] is None


def test_local_changes_sort_partitions_by_what_the_broker_does_with_them() -> None:
    delta = replay(
        TWO_TOPICS, isr_change(U, 0, (1,), leader=1), isr_change(T, 1, (3,), leader=3), RemoveTopicRecord(T)
    )
    mine = delta.local_changes(2)
    assert [(local.topic_name, local.partition_index) for local in mine.deleted] == [("t", 0), ("t", 1)]
    assert [(local.topic_name, local.registration.leader) for local in mine.followers] == [("u", 1)]
    assert delta.local_changes(1).leaders[0].registration.leader_epoch == 1
    assert delta.local_changes(9) == delta.local_changes(8)


def test_a_broker_that_lost_its_place_in_the_assignment_deletes_its_replica() -> None:
    nothing: list[Any] = [None] * 8
    moved = PartitionChangeRecord(T, 0, (1,), 1, (1,), *nothing)
    mine = replay(TWO_TOPICS, moved).local_changes(2)
    assert [local.partition_index for local in mine.deleted] == [0]
    assert not mine.leaders + mine.followers


def test_a_topic_made_and_removed_in_one_delta_leaves_no_trace() -> None:
    delta = replay(MetadataImage(), TopicRecord("t", T), partition(T, 0, 1), RemoveTopicRecord(T))
    assert delta.changed_partitions() == []
    assert delta.local_changes(1).deleted == ()


def test_the_local_view_holds_every_replica_of_the_broker() -> None:
    """N-2: what a broker begins with once it has replayed its own registration."""
    view = local_view(TWO_TOPICS, 2)
    assert [(local.topic_name, local.partition_index) for local in view.leaders] == [("t", 1), ("u", 0)]
    assert [(local.topic_name, local.partition_index) for local in view.followers] == [("t", 0)]


def test_topic_configs_resolve_from_topic_over_cluster_and_file_to_default() -> None:
    image = MetadataImage()
    static = {"min.insync.replicas": 2, "log.retention.ms": 7}
    assert image.topic_config("t", "min.insync.replicas") == 1
    assert image.topic_config("t", "min.insync.replicas", static) == 2
    assert image.topic_config("t", "retention.ms", static) == 7
    image = replay(image, ConfigRecord(*CLUSTER_RESOURCE, "min.insync.replicas", "3")).apply()
    assert image.topic_config("t", "min.insync.replicas", static) == 3
    image = replay(image, ConfigRecord(RESOURCE_TOPIC, "t", "min.insync.replicas", "4")).apply()
    assert image.topic_config("t", "min.insync.replicas", static) == 4
    assert image.topic_config("u", "min.insync.replicas", static) == 3
    image = replay(image, ConfigRecord(RESOURCE_TOPIC, "t", "min.insync.replicas", None)).apply()
    assert image.topic_config("t", "min.insync.replicas", static) == 3


def test_features_and_producer_ids() -> None:
    image = image_of(FeatureLevelRecord(ELR_FEATURE, 1), ProducerIdsRecord(1, 0, 1000))
    assert image.elr_enabled
    assert image.next_producer_id == 1000
    back = replay(image, ProducerIdsRecord(1, 0, 500), FeatureLevelRecord(ELR_FEATURE, 0))
    assert len(back.violations) == 1
    assert back.apply().next_producer_id == 1000
    assert not back.apply().elr_enabled


def test_an_image_is_untouched_by_what_is_built_on_it() -> None:
    before = [(topic.name, topic.sorted_partitions()) for topic in TWO_TOPICS.sorted_topics()]
    replay(TWO_TOPICS, isr_change(T, 0, (1,)), RemoveTopicRecord(U), register(5, 5)).apply()
    assert [(topic.name, topic.sorted_partitions()) for topic in TWO_TOPICS.sorted_topics()] == before
    assert not TWO_TOPICS.brokers


def test_control_batches_count_for_the_offset() -> None:
    assert MetadataDelta(MetadataImage()).apply(5).offset == 5


def test_offsets_never_go_back() -> None:
    with pytest.raises(AssertionError):
        MetadataDelta(TWO_TOPICS).replay(NoOpRecord(), 0, 1)


#: msgpack of the right length, and no more
NO_RECORDS: list[list[Any]] = [[2, "a", []], [2, None, []], [[], 0, []], [2, -1, []], [True, 0, []]]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        b"\x93\x63\x00\x90",
        b"\x92\x00\x00",
        *map(packb, NO_RECORDS),
    ],
)
def test_bytes_that_are_no_record_are_refused(value: bytes) -> None:
    with pytest.raises(SchemaError):
        decode_record(value)


LATER = RECORD_VERSION + 1
#: A TopicRecord, and a RegisterBrokerRecord with one listener, as msgpack has their fields.
A_TOPIC: list[Any] = ["t", b"t" * 16]
A_BROKER: list[Any] = [1, b"i" * 16, 7, [["PLAINTEXT", "h", 9092]], None, [], [], True]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ([99, 0, []], "a record of kind 99"),
        ([2, LATER, [*A_TOPIC, "new"]], f"a TopicRecord of version {LATER}"),
        (
            [0, LATER, [*A_BROKER[:3], [["PLAINTEXT", "h", 9092, "new"]], *A_BROKER[4:]]],
            "RegisterBrokerRecord",
        ),
    ],
    ids=["kind", "field", "field of a part"],
)
def test_a_record_that_only_a_later_build_knows_is_told_apart_from_broken_bytes(
    record: list[Any], told: str
) -> None:
    """K29."""
    with pytest.raises(LaterRecord, match=told):
        decode_record(packb(record))


@pytest.mark.parametrize(
    "record", [[2, LATER, A_TOPIC], [0, LATER, A_BROKER], [2, RECORD_VERSION, [*A_TOPIC, "old"]]]
)
def test_a_record_without_a_field_that_a_later_build_added_is_read(record: list[Any]) -> None:
    assert isinstance(decode_record(packb(record)), TopicRecord | RegisterBrokerRecord)


def test_record_keys_are_kafkas() -> None:
    numbers = {cls.__name__: key for key, cls in RECORD_CLASSES.items()}
    assert numbers["RegisterBrokerRecord"] == 0
    assert numbers["PartitionChangeRecord"] == 5
    assert numbers["ProducerIdsRecord"] == 15
    assert numbers["NoOpRecord"] == 20
