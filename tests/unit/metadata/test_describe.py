"""Images as answers: Metadata, DescribeCluster, DescribeTopicPartitions (R110-R114), reassignments."""

from dataclasses import replace

import pytest

from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.describe import (
    describe_cluster_response,
    describe_topic_partitions_response,
    described_features,
    list_partition_reassignments_response,
    metadata_response,
)
from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    METADATA_VERSION,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import FeatureRange
from holdfast.protocol.messages.features import DescribedFeature
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.messages.reassignments import ListedTopic, ListPartitionReassignmentsRequest
from holdfast.protocol.messages.topics import DescribeTopicPartitionsRequest, TopicPartitionCursor
from tests.unit.metadata.test_delta import LISTENERS, T, U, register


def make_image(elr: int = 1) -> MetadataImage:
    led = PartitionRegistration((1, 2), (1,), 1, 0, 0, 2, elr=(2,))
    leaderless = PartitionRegistration(
        (2, 1), (), None, 3, 4, 2, elr=(), last_known_elr=(1, 2), last_known_leader=2
    )
    records: list[MetadataRecord] = [
        register(1, 0),
        register(2, 1),
        UnfenceBrokerRecord(1, 0),
        FeatureLevelRecord(ELR_FEATURE, elr),
        TopicRecord("u", U),
        led.to_record(U, 0),
        TopicRecord("t", T),
        ConfigRecord(RESOURCE_TOPIC, "t", "retention.ms", "5"),
        *(led.to_record(T, index) for index in (0, 1)),
        leaderless.to_record(T, 2),
    ]
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.replay(record, offset, 1)
    assert delta.violations == []
    return delta.apply()


IMAGE = make_image()


def pages(image: MetadataImage, names: tuple[str, ...], limit: int, own_limit: int = 100) -> list[list[str]]:
    """Names of the partitions page by page, an unknown topic as `name!`."""
    found: list[list[str]] = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(names, limit, cursor)
        answer = describe_topic_partitions_response(image, request, partition_limit=own_limit)
        assert answer.error_code == ErrorCode.NONE
        found.append(
            [
                name
                for topic in answer.topics
                for name in (
                    [f"{topic.name}-{row.partition_index}" for row in topic.partitions] or [f"{topic.name}!"]
                )
            ]
        )
        if answer.next_cursor is None:
            return found
        cursor = answer.next_cursor


def test_pages_follow_the_cursor_over_topics_by_name() -> None:
    """R110, R112: the limit counts partitions over all topics, the smaller of both limits counts."""
    assert pages(IMAGE, (), 100) == [["t-0", "t-1", "t-2", "u-0"]]
    assert pages(IMAGE, (), 3) == [["t-0", "t-1", "t-2"], ["u-0"]]
    assert pages(IMAGE, (), 2) == [["t-0", "t-1"], ["t-2", "u-0"]]
    assert pages(IMAGE, ("u", "t", "t"), 3, own_limit=1) == [["t-0"], ["t-1"], ["t-2"], ["u-0"]]
    assert pages(IMAGE, (), -5) == [["t-0"], ["t-1"], ["t-2"], ["u-0"]]


def test_unknown_topics_do_not_count_against_the_limit() -> None:
    """R114."""
    assert pages(IMAGE, ("a", "b", "u"), 1) == [["a!", "b!", "u-0"]]


@pytest.mark.parametrize("cursor", [TopicPartitionCursor("u", -1), TopicPartitionCursor("x", 0)])
def test_a_cursor_outside_the_question_is_refused(cursor: TopicPartitionCursor) -> None:
    """R110."""
    request = DescribeTopicPartitionsRequest(("t", "u"), 10, cursor)
    answer = describe_topic_partitions_response(IMAGE, request, partition_limit=100)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message is not None


def test_a_cursor_behind_its_topic_gives_an_empty_row_and_a_deleted_one_is_passed_over() -> None:
    """R114; a topic that was asked for by name and is gone meanwhile has its error."""
    gone = DescribeTopicPartitionsRequest(("u", "tt"), 10, TopicPartitionCursor("tt", 4))
    found = describe_topic_partitions_response(IMAGE, gone, partition_limit=100).topics
    assert [(topic.name, topic.error_code) for topic in found] == [
        ("tt", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", ErrorCode.NONE),
    ]
    for cursor, names in ((TopicPartitionCursor("t", 9), ["t", "u"]), (TopicPartitionCursor("tt", 0), ["u"])):
        request = DescribeTopicPartitionsRequest((), 10, cursor)
        answer = describe_topic_partitions_response(IMAGE, request, partition_limit=100)
        assert [topic.name for topic in answer.topics] == names


def test_the_cursor_is_the_first_partition_that_was_not_returned() -> None:
    """R112: also when the limit is met at the end of a topic."""
    for limit, cursor in ((1, TopicPartitionCursor("t", 1)), (3, TopicPartitionCursor("u", 0)), (4, None)):
        request = DescribeTopicPartitionsRequest((), limit, None)
        answer = describe_topic_partitions_response(IMAGE, request, partition_limit=100)
        assert answer.next_cursor == cursor


def test_a_negative_index_is_refused_also_when_all_topics_are_asked_for() -> None:
    """R110."""
    request = DescribeTopicPartitionsRequest((), 10, TopicPartitionCursor("t", -1))
    answer = describe_topic_partitions_response(IMAGE, request, partition_limit=100)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_leaderless_partition_is_described_without_error_and_with_its_sets() -> None:
    """R114, unlike Metadata."""
    request = DescribeTopicPartitionsRequest(("t", "no/topic"), 10, None)
    answer = describe_topic_partitions_response(IMAGE, request, partition_limit=100)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = answer.topics[1]
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]
    row = topic.partitions[2]
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr) == (ErrorCode.NONE, -1, 3, ())
    assert (row.eligible_leader_replicas, row.last_known_elr, row.last_known_leader) == ((), (1, 2), 2)
    assert row.offline_replicas == (2,)
    assert topic.partitions[0].eligible_leader_replicas == (2,)


def test_without_elr_both_sets_are_null() -> None:
    request = DescribeTopicPartitionsRequest(("t",), 1, None)
    answer = describe_topic_partitions_response(make_image(elr=0), request, partition_limit=100)
    row = answer.topics[0].partitions[0]
    assert (row.eligible_leader_replicas, row.last_known_elr) == (None, None)


def test_metadata_names_unfenced_brokers_by_the_listener_asked_through() -> None:
    answer = metadata_response(
        IMAGE, MetadataRequest(("t", "x")), listener_name="B", cluster_id="c", controller_id=9
    )
    assert [(broker.broker_id, broker.port) for broker in answer.brokers] == [(1, 2)]
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    rows = answer.topics[0].partitions
    assert (rows[0].error_code, rows[0].leader_id) == (ErrorCode.NONE, 1)
    assert (rows[2].error_code, rows[2].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert answer.metadata_offset == IMAGE.offset
    everything = metadata_response(
        IMAGE, MetadataRequest(None), listener_name="B", cluster_id="c", controller_id=9
    )
    assert [topic.name for topic in everything.topics] == ["t", "u"]


def test_describe_cluster_names_fenced_brokers_too_and_falls_back_to_their_first_listener() -> None:
    answer = describe_cluster_response(
        IMAGE, listener_name="CONTROLLER", cluster_id="c", controller_id=9, controller_epoch=4
    )
    rows = [(row.broker_id, row.is_fenced, row.clean_shutdown, row.port) for row in answer.brokers]
    assert rows == [(1, False, True, LISTENERS[0].port), (2, True, True, LISTENERS[0].port)]
    assert (answer.controller_id, answer.controller_epoch) == (9, 4)


@pytest.mark.parametrize(
    ("ranges", "supported"),
    [(((0, 1), (0, 1)), (0, 1)), (((0, 1), (0, 0)), (0, 0)), (((1, 1), (0, 1)), (1, 1)), ((), (0, 1))],
)
def test_features_have_the_levels_that_all_brokers_support(
    ranges: tuple[tuple[int, int], ...], supported: tuple[int, int]
) -> None:
    """R108."""
    delta = MetadataDelta(MetadataImage())
    delta.replay(FeatureLevelRecord(ELR_FEATURE, 1), 0, 1)
    for offset, (low, high) in enumerate(ranges, 1):
        features = (FeatureRange(ELR_FEATURE, low, high),)
        delta.replay(replace(register(offset, offset), features=features), offset, 1)
    elr, version = described_features(delta.apply())
    assert elr == DescribedFeature(ELR_FEATURE, *supported, 1)
    # no broker named it, so none knows its levels
    assert version == DescribedFeature(METADATA_VERSION, 0, 0 if ranges else 1, 1)


def test_describe_cluster_tells_features_with_the_offset_that_they_belong_to() -> None:
    answer = describe_cluster_response(
        IMAGE, listener_name="B", cluster_id="c", controller_id=9, controller_epoch=4
    )
    assert [(row.name, row.finalized_level) for row in answer.features] == [
        (ELR_FEATURE, 1),
        (METADATA_VERSION, 1),
    ]
    assert answer.metadata_offset == IMAGE.offset


def moving_image() -> MetadataImage:
    still = PartitionRegistration((1, 2), (1, 2), 1, 0, 0, 2)
    moving = PartitionRegistration(
        (2, 3, 1), (1, 2), 1, 0, 0, 2, adding_replicas=(3,), removing_replicas=(1,), original_replicas=(1, 2)
    )
    delta = MetadataDelta(MetadataImage())
    records: list[MetadataRecord] = [
        TopicRecord("u", U),
        TopicRecord("t", T),
        moving.to_record(U, 1),
        still.to_record(U, 0),
        moving.to_record(T, 2),
        moving.to_record(T, 0),
    ]
    for offset, record in enumerate(records):
        delta.replay(record, offset, 1)
    return delta.apply()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, [("t", [0, 2]), ("u", [1])]),
        (
            (ListedTopic("u", (0, 1, 9)), ListedTopic("x", (0,)), ListedTopic("t", (2,))),
            [("t", [2]), ("u", [1])],
        ),
        ((ListedTopic("t", (2,)), ListedTopic("t", (0,))), [("t", [0, 2])]),
        ((ListedTopic("u", (0,)),), []),
        ((), []),
    ],
)
def test_partitions_that_move_are_listed_and_others_left_out(
    asked: tuple[ListedTopic, ...] | None, found: list[tuple[str, list[int]]]
) -> None:
    request = ListPartitionReassignmentsRequest(0, asked)
    topics = list_partition_reassignments_response(moving_image(), request).topics
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in topics] == found
    for topic in topics:
        for row in topic.partitions:
            assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((2, 3, 1), (3,), (1,))
