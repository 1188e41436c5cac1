"""`holdfast replica-verification`: replicas that are the same, differ, are short, or cannot be read."""

import json
from collections.abc import Callable, Sequence

import pytest
from click.testing import Result

from holdfast.client.admin_configs import ConfigEntry, Resource
from holdfast.protocol.cleaned_batch import without_records
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import Record, encode_batch, parse_header
from tests.unit.cli import rows
from tests.unit.cli.fake_admin import FakeAdmin


def batch(offset: int, value: str = "same") -> bytes:
    return encode_batch([Record(offset, 1, None, value.encode())], base_offset=offset, leader_epoch=1)


def keyed(offset: int, value: str) -> bytes:
    return encode_batch([Record(offset, 1, b"k", value.encode())], base_offset=offset, leader_epoch=1)


SAME = [batch(offset) for offset in range(4)]
OTHER = [*SAME[:2], batch(2, "other"), SAME[3]]


@pytest.fixture(autouse=True)
def topic(admin: FakeAdmin) -> None:
    """One partition with replicas on three brokers, led by the first."""
    admin.add(rows.topic(rows.led(1, (1, 2, 3))))
    admin.replicas = {1: SAME, 2: SAME, 3: SAME}


@pytest.mark.parametrize(("policy", "exit_code"), [("compact", 0), ("compact,delete", 0), ("delete", 1)])
def test_replicas_of_a_compacted_topic_are_compared_by_key(
    holdfast: Callable[..., Result], admin: FakeAdmin, policy: str, exit_code: int
) -> None:
    whole = [keyed(0, "old"), keyed(1, "new")]
    admin.replicas = {1: whole, 2: [without_records(parse_header(whole[0])), whole[1]], 3: whole}
    admin.configs[Resource.topic("t")] = [
        ConfigEntry("cleanup.policy", policy, "TOPIC", "delete", "enum", "")
    ]
    assert holdfast("replica-verification", "--topic", "t").exit_code == exit_code
    admin.replicas[3] = [whole[0], keyed(1, "other")]
    result = holdfast("replica-verification", "--topic", "t", "--output", "json")
    assert result.exit_code == 1
    assert "REPLICA_DIFFERS" in result.stdout


def test_replicas_that_are_the_same_are_exit_code_0(holdfast: Callable[..., Result]) -> None:
    result = holdfast("replica-verification", "--topic", "t", "--partition", "0")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["PARTITION", "REPLICAS", "OFFSETS", "SAME"],
        ["t-0", "1,2,3", "0", "to", "4", "yes"],
    ]


@pytest.mark.parametrize(
    ("held", "code", "offset", "said"),
    [
        (OTHER, "REPLICA_DIFFERS", 2, "brokers 1, 2 offsets 2 to 2 of epoch 1 with crc"),
        (SAME[:3], "REPLICA_BEHIND", 3, "has no more"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "REPLICA_UNREADABLE", 0, "its log is damaged"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "REPLICA_UNREADABLE", 0, "it has no log there now"),
        (None, "REPLICA_UNREADABLE", 0, "broker 3 did not answer"),
    ],
)
def test_the_odd_replica_is_named_with_its_offset_and_exit_code_1(
    holdfast: Callable[..., Result],
    admin: FakeAdmin,
    held: Sequence[bytes] | ErrorCode | None,
    code: str,
    offset: int,
    said: str,
) -> None:
    if held is None:
        del admin.replicas[3]
    else:
        admin.replicas[3] = held
    result = holdfast("replica-verification", "--output", "json", "--timeout-ms", "1")
    body = json.loads(result.stdout)
    (error,) = body["errors"]
    message = error.pop("message")
    assert error == {"code": code, "topic": "t", "partition": 0, "broker": 3, "offset": offset}
    assert said in message
    assert body["data"] == [
        {
            "topic": "t",
            "partition": 0,
            "replicas": [1, 2, 3],
            "leader": 1,
            "start_offset": 0,
            "end_offset": 4,
            "same": False,
            "odd_replicas": [3],
        }
    ]
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "words", [("--partition", "0"), ("--topic", "t", "--topic", "u", "--partition", "0")]
)
def test_a_partition_needs_its_topic(holdfast: Callable[..., Result], words: tuple[str, ...]) -> None:
    assert holdfast("replica-verification", *words).exit_code == 2


def test_a_partition_that_is_not_there_is_said(holdfast: Callable[..., Result]) -> None:
    result = holdfast("replica-verification", "--topic", "t", "--partition", "7")
    assert result.exit_code == 1
    assert "error: t-7: UNKNOWN_TOPIC_OR_PARTITION: the topic has partitions 0 to 0" in result.stderr
