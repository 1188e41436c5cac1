"""CreateTopics, CreatePartitions and DeleteTopics (R106, R107)."""

from typing import Any

import pytest

from holdfast.controller.core.operators.operations import Reassign
from holdfast.controller.core.operators.topics import PARTITIONS_MAX
from holdfast.metadata.offsets_topic import OFFSETS_TOPIC_CONFIGS
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ReplicaAssignment,
    TopicConfig,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.controller.harness import Quorum, make_config


def topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *assignments: tuple[int, ...],
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    rows = tuple(ReplicaAssignment(index, ids) for index, ids in enumerate(assignments))
    overrides = tuple(TopicConfig(key, value) for key, value in (configs or {}).items())
    return CreatableTopic(name, partitions, factor, rows, overrides)


def create(quorum: Quorum, *arguments: Any, **more: Any) -> CreatableTopicResult:
    made = topic(*arguments, **more)
    answer: CreatableTopicResult = quorum.request(CreateTopicsRequest(0, False, (made,))).topics[0]
    return answer


def three_brokers(**properties: str) -> Quorum:
    quorum = Quorum(make_config(**properties))
    quorum.start_brokers(1, 2, 3)
    return quorum


def test_counts_default_to_the_configuration() -> None:
    quorum = three_brokers(num_partitions="2", default_replication_factor="3", min_insync_replicas="2")
    row = create(quorum, "t")
    assert (row.num_partitions, row.replication_factor, row.min_isr) == (2, 3, 2)
    assert quorum.topic("t").topic_id == row.topic_id != bytes(16)
    for index in (0, 1):
        partition = quorum.partition("t", index)
        assert (partition.isr, partition.leader, partition.min_isr) == ((1, 2, 3), partition.replicas[0], 2)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_only_active_replicas_are_in_the_first_isr() -> None:
    """R106: it may start below min ISR, with no replica eligible; fenced brokers are used last."""
    quorum = three_brokers(min_insync_replicas="3")
    quorum.vanish(1)
    create(quorum, "t", 1, 3)
    partition = quorum.partition("t")
    assert (partition.isr, partition.elr, partition.replicas[-1]) == ((2, 3), (), 1)
    create(quorum, "by-hand", -1, -1, (1, 3, 2))
    partition = quorum.partition("by-hand")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 3, 2), (2, 3), 3)


def test_overrides_are_kept_and_bound_the_effective_min_isr() -> None:
    quorum = three_brokers()
    row = create(
        quorum, "t", 1, 2, configs={"min.insync.replicas": "5", "retention.ms": None, "flush.messages": "1"}
    )
    assert row.error_code == ErrorCode.NONE
    assert dict(quorum.image.overrides("t")) == {"min.insync.replicas": "5", "flush.messages": "1"}
    assert quorum.partition("t").min_isr == 2


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("old", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", PARTITIONS_MAX + 1, 1), ErrorCode.POLICY_VIOLATION),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 1, configs={"min.insync.replicas": "0"}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, 1, configs={"nonsense": "0"}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, -1, (1,)), ErrorCode.INVALID_REQUEST),
        (topic(OFFSETS_TOPIC, 1, 1, configs={"retention.ms": "5"}), ErrorCode.INVALID_CONFIG),
        (topic("t", -1, -1, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, (1, 2), (3,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, (1, 2), (3, 3)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            CreatableTopic("t", -1, -1, (ReplicaAssignment(1, (1,)), ReplicaAssignment(2, (1,))), ()),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=str,
)
def test_a_topic_that_cannot_be_made_says_why_and_the_others_are_made(
    wanted: CreatableTopic, error: ErrorCode
) -> None:
    quorum = three_brokers()
    create(quorum, "old", 1, 1)
    rows = quorum.request(CreateTopicsRequest(0, False, (wanted, topic("good", 1, 1)))).topics
    assert (rows[0].error_code, rows[0].topic_id) == (error, bytes(16))
    assert rows[0].error_message
    assert rows[1].error_code == ErrorCode.NONE
    assert quorum.image.topic("t") is None


def test_without_an_active_broker_no_topic_can_be_made() -> None:
    quorum = three_brokers()
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    assert create(quorum, "t", 1, 1).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(quorum, "t", -1, -1, (1,)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_name_that_comes_twice_is_refused_both_times() -> None:
    quorum = three_brokers()
    rows = quorum.request(CreateTopicsRequest(0, False, (topic("t", 1, 1), topic("t", 2, 1)))).topics
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST] * 2


def test_validate_only_writes_nothing() -> None:
    quorum = three_brokers()
    end_offset = quorum.end_offset
    row = quorum.request(CreateTopicsRequest(0, True, (topic("t", 2, 3),))).topics[0]
    assert (row.error_code, row.num_partitions, row.replication_factor) == (ErrorCode.NONE, 2, 3)
    assert quorum.end_offset == end_offset


def test_a_topic_is_made_in_one_batch() -> None:
    quorum = three_brokers()
    quorum.is_held = True
    quorum.start_request(CreateTopicsRequest(0, False, (topic("t", 500, 3),)))
    assert quorum.core.latest.topic("t") is not None
    assert quorum.image.topic("t") is None
    quorum.commit()
    assert len(quorum.topic("t").partitions) == 500


def test_unsafe_settings_are_told_at_creation() -> None:
    quorum = three_brokers()
    create(quorum, "t", 1, 3)
    assert any("one lost disk" in note.text for note in quorum.notes)


def test_a_deleted_topic_is_gone_with_its_overrides_and_its_name_is_free() -> None:
    """R107: the new topic of that name has another id."""
    quorum = three_brokers()
    first = create(quorum, "t", 1, 1, configs={"retention.ms": "5"})
    rows = quorum.request(DeleteTopicsRequest(0, ("t", "t", "x"))).topics
    assert [row.error_code for row in rows] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert create(quorum, "t", 1, 1).topic_id != first.topic_id
    assert not quorum.image.overrides("t")


# --- CreatePartitions --------------------------------------------------------------------------------------


def grow(
    quorum: Quorum, count: int, *assignments: tuple[int, ...], name: str = "t"
) -> CreatePartitionsTopicResult:
    by_hand = tuple(CreatePartitionsAssignment(ids) for ids in assignments) or None
    request = CreatePartitionsRequest(0, False, (CreatePartitionsTopic(name, count, by_hand),))
    (row,) = quorum.request(request).results
    answer: CreatePartitionsTopicResult = row
    assert (answer.error_message is None) == (answer.error_code == ErrorCode.NONE)
    return answer


def test_new_partitions_go_on_where_the_topic_ends() -> None:
    """Two at first and two later lie as four would have."""
    quorum = three_brokers()
    create(quorum, "t", 2, 2)
    assert grow(quorum, 6).error_code == ErrorCode.NONE
    at_once = three_brokers()
    create(at_once, "t", 6, 2)
    assert [quorum.partition("t", index) for index in range(6)] == [
        at_once.partition("t", index) for index in range(6)
    ]


def test_new_partitions_have_the_topics_own_min_isr_and_active_replicas_in_sync() -> None:
    """R106: with the topic's value, cut to the number of replicas."""
    quorum = three_brokers(min_insync_replicas="1")
    create(quorum, "t", -1, -1, (1, 2, 3), configs={"min.insync.replicas": "3"})
    create(quorum, "u", -1, -1, (1, 2), configs={"min.insync.replicas": "3"})
    quorum.vanish(3)
    assert grow(quorum, 2, (3, 2, 1)).error_code == ErrorCode.NONE
    assert grow(quorum, 2, name="u").error_code == ErrorCode.NONE
    made = quorum.partition("t", 1)
    assert (made.replicas, made.isr, made.leader, made.min_isr) == ((3, 2, 1), (1, 2), 2, 3)
    assert quorum.partition("u", 1).min_isr == 2


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error", "says"),
    [
        ("x", 5, (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic x"),
        ("t", 2, (), ErrorCode.INVALID_PARTITIONS, "has 2 partitions"),
        ("t", 1, (), ErrorCode.INVALID_PARTITIONS, "cannot shrink"),
        ("t", -5, (), ErrorCode.INVALID_PARTITIONS, "cannot shrink"),
        ("t", 3 + PARTITIONS_MAX, (), ErrorCode.POLICY_VIOLATION, "split it"),
        ("t", 4, ((1, 2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 assignments for 2 new partitions"),
        ("t", 3, ((1, 2), (2, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 assignments for 1"),
        ("t", 3, ((1, 9),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        ("t", 3, ((1, 1),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        ("t", 3, ((),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has no replicas"),
        ("t", 4, ((1, 2), (1, 2, 3)), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 3 has 3 replicas"),
        ("t", 3, ((3, 4),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no active broker"),
    ],
)
def test_partitions_that_cannot_be_are_refused_and_nothing_is_made(
    name: str, count: int, assignments: tuple[tuple[int, ...], ...], error: ErrorCode, says: str
) -> None:
    quorum = three_brokers()
    quorum.start_brokers(4)
    create(quorum, "t", -1, -1, (1, 2), (2, 1))
    quorum.vanish(3)
    quorum.vanish(4)
    before = quorum.image
    row = grow(quorum, count, *assignments, name=name)
    assert row.error_code == error
    assert says in (row.error_message or "")
    assert quorum.image == before


def test_the_topic_of_the_offsets_keeps_its_partitions_and_what_is_in_them() -> None:
    """With more partitions each group would have another coordinator, which has none of its offsets."""
    quorum = three_brokers()
    create(quorum, OFFSETS_TOPIC, 2, 3, configs={"segment.bytes": "2000"})
    overrides = dict(quorum.image.overrides(OFFSETS_TOPIC))
    assert overrides == {**OFFSETS_TOPIC_CONFIGS, "segment.bytes": "2000"}
    assert overrides["retention.ms"] == overrides["retention.bytes"] == "-1"
    row = grow(quorum, 3, name=OFFSETS_TOPIC)
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "keeps its partitions" in (row.error_message or "")
    assert len(quorum.topic(OFFSETS_TOPIC).partitions) == 2


def test_topics_of_one_request_grow_each_for_itself_within_one_limit() -> None:
    quorum = three_brokers()
    for name in ("a", "b", "c"):
        create(quorum, name, 1, 1)
    half = 1 + PARTITIONS_MAX // 2
    wanted = (("b", half), ("x", 5), ("a", half), ("c", 2))
    rows = tuple(CreatePartitionsTopic(name, count, None) for name, count in wanted)
    answer = quorum.request(CreatePartitionsRequest(0, False, rows))
    assert [(row.name, ErrorCode(row.error_code).name) for row in answer.results] == [
        ("b", "NONE"),
        ("x", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("a", "NONE"),
        ("c", "POLICY_VIOLATION"),
    ]
    twice = quorum.request(CreatePartitionsRequest(0, False, (CreatePartitionsTopic("c", 2, None),) * 2))
    assert [row.error_code for row in twice.results] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(quorum.topic("c").partitions) == 1


def test_a_topic_whose_first_partition_moves_grows_by_where_that_goes() -> None:
    quorum = three_brokers()
    create(quorum, "t", -1, -1, (1, 2))
    quorum.vanish(3)
    assert quorum.request(Reassign("t", 0, (1, 3))).error_code == ErrorCode.NONE
    assert quorum.partition("t").replicas == (1, 3, 2)
    grow(quorum, 2)
    assert len(quorum.partition("t", 1).replicas) == 2


def test_without_a_broker_that_is_ready_no_partition_is_placed() -> None:
    quorum = three_brokers()
    create(quorum, "t", 1, 2)
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    assert grow(quorum, 2).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
