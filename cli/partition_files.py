"""The JSON files that operators hand to the tools: elections, recoveries, reassignments, topics to move,
records to delete.

Owns reading and checking them before anybody is asked: every problem is a usage error that names the file and
says what is expected. Shapes are Kafka's.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from holdfast.protocol.topic_names import TopicPartition

ELECTION_SHAPE = '{"partitions":[{"topic":"foo","partition":1,"desiredLeader":0}]}'
REASSIGNMENT_SHAPE = '{"version":1,"partitions":[{"topic":"foo","partition":1,"replicas":[1,2,3]}]}'
RECORDS_SHAPE = '{"version":1,"partitions":[{"topic":"foo","partition":1,"offset":3}]}'
RECOVERY_SHAPE = '{"partitions":[{"topic":"foo","partitions":[0,3,5]}]}'
TOPICS_SHAPE = '{"version":1,"topics":[{"topic":"foo"}]}'

#: Enough for a million partitions; a device that never ends must not fill the memory.
_FILE_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class _File:
    """Where a value stands, for what is said about it."""

    path: str
    shape: str

    def refusal(self, problem: str) -> click.UsageError:
        return click.UsageError(f"{self.path}: {problem}; expected {self.shape}")


def read_elections(path: str) -> dict[TopicPartition, int | None]:
    """{partition: the leader that is wanted} in the file's order. Raises: click.UsageError."""
    file = _File(path, ELECTION_SHAPE)
    found: dict[TopicPartition, int | None] = {}
    for row in _rows(file, "partitions"):
        partition = _partition(file, row)
        if partition in found:
            raise file.refusal(f"{partition.topic}-{partition.partition} is there twice")
        if "desiredLeader" in row and "designatedLeader" in row:
            raise file.refusal("desiredLeader and designatedLeader say the same; give one of them")
        wanted = row.get("desiredLeader", row.get("designatedLeader"))
        found[partition] = None if wanted is None else _id(file, wanted, "desiredLeader")
    return found


def read_recovery(path: str) -> list[TopicPartition]:
    """Partitions in the file's order; rows of elections are read as well. Raises: click.UsageError."""
    file = _File(path, RECOVERY_SHAPE)
    found: dict[TopicPartition, None] = {}
    for row in _rows(file, "partitions"):
        if "partition" in row and "partitions" in row:
            raise file.refusal(f"partition and partitions in {_shown(row)}; give one of them")
        if "partition" in row:
            named = [_partition(file, row)]
        else:
            indexes = row.get("partitions")
            if not isinstance(indexes, list) or not indexes:
                raise file.refusal(f"no list of partitions in {_shown(row)}")
            topic = _topic(file, row)
            named = [TopicPartition(topic, _id(file, index, "partition")) for index in indexes]
        for partition in named:
            if partition in found:
                raise file.refusal(f"{partition.topic}-{partition.partition} is there twice")
            found[partition] = None
    return list(found)


def read_reassignment(path: str) -> dict[TopicPartition, tuple[int, ...]]:
    """{partition: replicas} in the file's order. Raises: click.UsageError."""
    file = _File(path, REASSIGNMENT_SHAPE)
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for row in _rows(file, "partitions"):
        partition = _partition(file, row)
        name = f"{partition.topic}-{partition.partition}"
        if partition in found:
            raise file.refusal(f"{name} is there twice")
        listed = row.get("replicas")
        if not isinstance(listed, list) or not listed:
            raise file.refusal(f"{name} has no list of replicas")
        replicas = tuple(_id(file, replica, "replicas") for replica in listed)
        if len(set(replicas)) != len(replicas):
            raise file.refusal(f"{name} names a broker twice")
        log_dirs = row.get("log_dirs", [])
        if not isinstance(log_dirs, list) or any(folder != "any" for folder in log_dirs):
            raise file.refusal(f'{name}: log_dirs can only be "any", brokers choose the folder')
        found[partition] = replicas
    return found


def read_offsets_to_delete(path: str) -> dict[TopicPartition, int]:
    """{partition: first offset to keep, -1 for none} in the file's order. Raises: click.UsageError."""
    file = _File(path, RECORDS_SHAPE)
    found: dict[TopicPartition, int] = {}
    for row in _rows(file, "partitions"):
        partition = _partition(file, row)
        if partition in found:
            raise file.refusal(f"{partition.topic}-{partition.partition} is there twice")
        offset = row.get("offset")
        if type(offset) is not int or not -1 <= offset < 1 << 63:
            raise file.refusal(f"offset {_shown(offset)} is no offset, and not -1 for the high watermark")
        found[partition] = offset
    return found


def read_topics(path: str) -> list[str]:
    """Topic names, in the file's order. Raises: click.UsageError."""
    file = _File(path, TOPICS_SHAPE)
    names: list[str] = []
    for row in _rows(file, "topics"):
        name = _topic(file, row)
        if name in names:
            raise file.refusal(f"topic {name} is there twice")
        names.append(name)
    return names


def reassignment_text(assignment: Sequence[tuple[TopicPartition, tuple[int, ...]]]) -> str:
    """The file that `read_reassignment` reads, in one line, as Kafka prints it."""
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for partition, replicas in assignment
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def _rows(file: _File, key: str) -> list[dict[str, Any]]:
    try:
        with Path(file.path).open("rb") as opened:
            content = opened.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise file.refusal(f"it is larger than {_FILE_BYTES_MAX >> 20} MiB")
        read = json.loads(content.decode("utf-8"))
    except OSError as error:
        raise click.UsageError(f"cannot read {file.path}: {error.strerror}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise file.refusal(f"no JSON: {error}") from error
    if not isinstance(read, dict) or not isinstance(read.get(key), list):
        raise file.refusal(f'there is no list "{key}"')
    if read.get("version", 1) != 1:
        raise file.refusal(f"version {read['version']} is not known")
    rows: list[dict[str, Any]] = read[key]
    if not rows:
        raise file.refusal(f'the list "{key}" is empty')
    if not all(isinstance(row, dict) for row in rows):
        raise file.refusal(f'"{key}" holds what is no object')
    return rows


def _topic(file: _File, row: dict[str, Any]) -> str:
    name = row.get("topic")
    if not isinstance(name, str) or not name:
        raise file.refusal(f"no topic in {_shown(row)}")
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name):
        raise file.refusal(f"{_shown(name)} is no name of a topic")
    return name


def _shown(value: Any) -> str:
    """JSON for a complaint, cut off where it would fill the screen."""
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _partition(file: _File, row: dict[str, Any]) -> TopicPartition:
    if "partition" not in row:
        raise file.refusal(f"no partition in {_shown(row)}")
    return TopicPartition(_topic(file, row), _id(file, row["partition"], "partition"))


def _id(file: _File, value: Any, name: str) -> int:
    """A number of a broker or partition; JSON's true and 1.0 are none."""
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise file.refusal(f"{name} {_shown(value)} is no number from 0 to 2147483647")
    return value
