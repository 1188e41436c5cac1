"""`topics --describe` prints lines that existing scripts can read (interfaces of Kafka's tool)."""

from dataclasses import replace

import pytest
from click import UsageError
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.cli.options import CommandAnswer, pairs
from holdfast.cli.topic_view import chosen_of, describe_lines
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli.rows import led, partition, topic


def test_a_leaderless_partition_shows_none_and_its_eligible_replicas() -> None:
    assert describe_lines(topic(partition())) == [
        "Topic: t\tTopicId: AAECAwQFBgcICQoLDA0ODw\tPartitionCount: 1\tReplicationFactor: 3"
        "\tConfigs: min.insync.replicas=2",
        "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: \tElr: 3\tLastKnownElr: 2",
    ]


def test_elr_is_not_available_when_the_feature_is_off() -> None:
    row = describe_lines(topic(partition(leader_id=2, eligible_leader_replicas=None, last_known_elr=None)))[1]
    assert row.endswith("Leader: 2\tReplicas: 1,2,3\tIsr: \tElr: N/A\tLastKnownElr: N/A")


def test_a_partition_that_moves_says_so_and_what_is_added_is_not_missing_yet() -> None:
    """Kafka's line and Kafka's count: the replicas that are to come do not make it under-replicated."""
    moved = topic(led(1, (1, 2), replicas=(4, 1, 2)))
    moves = {TopicPartition("t", 0): Reassignment((4, 1, 2), (4,), (1,))}
    head, line = describe_lines(moved, moves)
    assert "\tReplicationFactor: 2\t" in head
    assert "\tIsr: 1,2\tAdding Replicas: 4\tRemoving Replicas: 1\tElr: \t" in line
    option = {"under_replicated_partitions": True}
    assert chosen_of([moved], option, moves) == ([], [])
    assert chosen_of([moved], option)[0] == [moved]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--create"],
        ["--delete"],
        ["--create", "--topic", "t", "--replica-assignment", "1:2", "--partitions", "3"],
        ["--list", "--under-replicated-partitions"],
        ["--describe", "--under-replicated-partitions", "--topics-with-overrides"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["topics", "--bootstrap-server", "127.0.0.1:1", *arguments])
    assert result.exit_code == 2


def test_a_config_without_an_equals_sign_is_refused() -> None:
    assert pairs(("a=1", "b=x=y"), "--config") == {"a": "1", "b": "x=y"}
    with pytest.raises(UsageError, match="--config c: expected key=value"):
        pairs(("c",), "--config")


def test_a_refusal_names_topic_and_code_once() -> None:
    answer = CommandAnswer("topics-create")
    text = "topic t: TOPIC_ALREADY_EXISTS: topic t exists; choose another name"
    answer.refused(ClientError(text, ErrorCode.TOPIC_ALREADY_EXISTS), "t")
    assert answer.errors == [
        {"code": "TOPIC_ALREADY_EXISTS", "topic": "t", "message": "topic t exists; choose another name"}
    ]


@pytest.mark.parametrize(
    ("option", "indexes"),
    [
        ("under_replicated_partitions", [1, 2, 3]),
        ("at_min_isr_partitions", [1]),
        ("under_min_isr_partitions", [2, 3]),
        ("unavailable_partitions", [3]),
    ],
)
def test_a_filter_leaves_the_partitions_it_names_and_no_heads(option: str, indexes: list[int]) -> None:
    described = topic(
        partition(partition_index=0, leader_id=1, isr=(1, 2, 3)),
        partition(partition_index=1, leader_id=1, isr=(1, 2)),
        partition(partition_index=2, leader_id=1, isr=(1,)),
        partition(partition_index=3),
    )
    (left,), lines = chosen_of([described], {option: True})
    assert [one.partition_index for one in left.partitions] == indexes
    assert lines == describe_lines(left)[1:]


def test_topics_with_overrides_shows_their_heads_only() -> None:
    changed, plain = topic(partition()), replace(topic(partition()), configs=())
    shown, lines = chosen_of([changed, plain], {"topics_with_overrides": True})
    assert shown == [changed]
    assert lines == describe_lines(changed)[:1]
