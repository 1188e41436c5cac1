"""JSON files of operators: what is wrong is said before anybody is asked."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from holdfast.cli.partition_files import (
    read_elections,
    read_offsets_to_delete,
    read_reassignment,
    read_recovery,
    read_topics,
    reassignment_text,
)
from holdfast.protocol.topic_names import TopicPartition


@pytest.fixture
def file(tmp_path: Path) -> Callable[[object], str]:
    """Write a file, text as it is and anything else as JSON."""

    def write(content: object) -> str:
        path = tmp_path / "input.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def row(**more: object) -> dict[str, object]:
    return {"topic": "t", "partition": 0, **more}


ROWS_READERS: list[Callable[[str], object]] = [read_elections, read_reassignment, read_recovery]


@pytest.mark.parametrize("key", ["desiredLeader", "designatedLeader"])
def test_both_spellings_of_the_wanted_leader_are_read(file: Callable[[object], str], key: str) -> None:
    path = file({"partitions": [row(**{key: 2}), {"topic": "u", "partition": 1}]})
    assert read_elections(path) == {TopicPartition("t", 0): 2, TopicPartition("u", 1): None}


def test_offsets_of_records_to_delete_are_read(file: Callable[[object], str]) -> None:
    path = file({"version": 1, "partitions": [row(offset=7), {"topic": "u", "partition": 3, "offset": -1}]})
    assert read_offsets_to_delete(path) == {TopicPartition("t", 0): 7, TopicPartition("u", 3): -1}


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([row()], "offset null is no offset"),
        ([row(offset=-2)], "offset -2 is no offset"),
        ([row(offset=1 << 63)], "is no offset"),
        ([row(offset=True)], "offset true is no offset"),
        ([row(offset=1), row(offset=2)], "t-0 is there twice"),
    ],
)
def test_what_is_no_offset_is_refused(
    file: Callable[[object], str], rows: list[dict[str, object]], complaint: str
) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        read_offsets_to_delete(file({"partitions": rows}))


def test_partitions_to_recover_are_read_in_both_shapes(file: Callable[[object], str]) -> None:
    """KIP-1275's own, and that of elections, so that what was written can be asked for again."""
    path = file({"partitions": [{"topic": "u", "partitions": [3, 0]}, row(desiredLeader=2)]})
    assert read_recovery(path) == [TopicPartition("u", 3), TopicPartition("u", 0), TopicPartition("t", 0)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"topic": "t"}, "no list of partitions in"),
        ({"topic": "t", "partitions": []}, "no list of partitions in"),
        ({"topic": "t", "partitions": 3}, "no list of partitions in"),
        ({"topic": "t", "partitions": [1, "2"]}, "is no number"),
        ({"topic": "t", "partitions": [1, 1]}, "t-1 is there twice"),
        ({"topic": "t", "partitions": [1], "partition": 1}, "give one of them"),
    ],
)
def test_a_row_to_recover_names_its_partitions_once(
    file: Callable[[object], str], content: object, complaint: str
) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        read_recovery(file({"partitions": [content]}))


@pytest.mark.parametrize("name", ["a b", "\ud800", "x" * 250, "../etc"])
def test_what_cannot_be_the_name_of_a_topic_is_refused(file: Callable[[object], str], name: str) -> None:
    with pytest.raises(click.UsageError, match="is no name of a topic"):
        read_recovery(file({"partitions": [row(topic=name)]}))


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(click.UsageError, match="it is larger than 64 MiB"):
        read_recovery("/dev/zero")


def test_a_reassignment_that_was_printed_can_be_read(file: Callable[[object], str]) -> None:
    assignment = {TopicPartition("t", 1): (3, 1), TopicPartition("t", 0): (1, 2)}
    text = reassignment_text(sorted(assignment.items()))
    assert text == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"t","partition":1,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    )
    assert read_reassignment(file(text)) == assignment


def test_topics_to_move_are_read_in_order(file: Callable[[object], str]) -> None:
    assert read_topics(file({"topics": [{"topic": "b"}, {"topic": "a"}], "version": 1})) == ["b", "a"]


@pytest.mark.parametrize("read", [*ROWS_READERS, read_topics])
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "there is no list"),
        ({}, "there is no list"),
        ({"partitions": {}, "topics": 1}, "there is no list"),
        ({"partitions": [], "topics": []}, "is empty"),
        ({"partitions": [1], "topics": ["t"]}, "holds what is no object"),
        ({"version": 2, "partitions": [row()], "topics": [row()]}, "version 2"),
        ({"partitions": [{"partition": 0}], "topics": [{}]}, "no topic in"),
        ({"partitions": [{"topic": 5, "partition": 0}], "topics": [{"topic": ""}]}, "no topic in"),
        ({"partitions": [row(replicas=[1])] * 2, "topics": [row()] * 2}, "is there twice"),
    ],
)
def test_what_is_no_such_file_is_refused_with_its_shape(
    file: Callable[[object], str], read: Callable[[str], object], content: object, complaint: str
) -> None:
    with pytest.raises(click.UsageError) as refusal:
        read(file(content))
    assert complaint in refusal.value.message
    assert "expected {" in refusal.value.message


@pytest.mark.parametrize("read", ROWS_READERS)
@pytest.mark.parametrize("partition", [-1, "0", 1.0, True, None, 1 << 31])
def test_a_partition_is_a_number(
    file: Callable[[object], str], read: Callable[[str], object], partition: object
) -> None:
    with pytest.raises(click.UsageError, match="partition .* is no number"):
        read(file({"partitions": [{"topic": "t", "partition": partition, "replicas": [1]}]}))


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({}, "has no list of replicas"),
        ({"replicas": []}, "has no list of replicas"),
        ({"replicas": [1, 1]}, "names a broker twice"),
        ({"replicas": [1, "2"]}, "is no number"),
        ({"replicas": [1], "log_dirs": ["/data"]}, 'log_dirs can only be "any"'),
    ],
)
def test_replicas_are_different_brokers(
    file: Callable[[object], str], more: dict[str, object], complaint: str
) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        read_reassignment(file({"partitions": [row(**more)]}))


def test_a_leader_that_is_wanted_in_two_spellings_is_refused(file: Callable[[object], str]) -> None:
    with pytest.raises(click.UsageError, match="say the same"):
        read_elections(file({"partitions": [row(desiredLeader=1, designatedLeader=1)]}))


@pytest.mark.parametrize("path", ["nowhere.json", "/"])
def test_a_file_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(click.UsageError, match=f"cannot read {path}"):
        read_topics(path)
