"""`holdfast log-dirs`: what is in the log dirs of each broker, and which are offline."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.log_dirs import DescribedLogDir, LogDirPartition, LogDirTopic
from tests.unit.cli import rows
from tests.unit.cli.fake_admin import FakeAdmin

WHOLE = DescribedLogDir(
    0,
    None,
    "/a",
    bytes(16),
    1000,
    400,
    (LogDirTopic("t", (LogDirPartition(0, 70, 0), LogDirPartition(2, 30, 5))),),
)
OFFLINE = DescribedLogDir(ErrorCode.KAFKA_STORAGE_ERROR, "open /b: no such device", "/b", None, -1, -1, ())


@pytest.fixture(autouse=True)
def dirs(admin: FakeAdmin) -> None:
    """Broker 1 has a whole and an offline log dir, broker 2 one, broker 3 does not answer."""
    admin.cluster = rows.cluster(3)
    admin.log_dirs = {1: [OFFLINE, WHOLE], 2: [WHOLE]}


def test_each_dir_is_a_line_with_its_bytes_and_why_it_is_offline(holdfast: Callable[..., Result]) -> None:
    result = holdfast("log-dirs", "--describe", "--broker-list", "1,2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["1", "0", "0", "-", "-", "/b", "offline:", "open", "/b:", "no", "such", "device"],
        ["1", "2", "100", "400", "1000", "/a", "online"],
        ["2", "2", "100", "400", "1000", "/a", "online"],
    ]


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_shown(
    holdfast: Callable[..., Result],
) -> None:
    result = holdfast("log-dirs", "--describe", "--output", "json")
    body = json.loads(result.stdout)
    assert [one["broker"] for one in body["data"]] == [1, 2]
    assert [(one["code"], one["broker"]) for one in body["errors"]] == [("NETWORK_EXCEPTION", 3)]
    assert result.exit_code == 1
    assert body["data"][1]["log_dirs"][0]["replicas"] == [
        {"topic": "t", "partition": 0, "size_bytes": 70, "offset_lag": 0},
        {"topic": "t", "partition": 2, "size_bytes": 30, "offset_lag": 5},
    ]


def test_only_replicas_of_some_topics_are_asked_for(
    holdfast: Callable[..., Result], admin: FakeAdmin
) -> None:
    holdfast("log-dirs", "--describe", "--broker-list", "2", "--topic-list", "t,u")
    assert admin.asked == [("describe_log_dirs", 2, ["t", "u"])]


@pytest.mark.parametrize("words", [(), ("--describe", "--broker-list", "1,x")])
def test_wrong_usage_is_said(holdfast: Callable[..., Result], words: tuple[str, ...]) -> None:
    assert holdfast("log-dirs", *words).exit_code == 2


def test_a_broker_that_is_not_registered_is_said(holdfast: Callable[..., Result]) -> None:
    result = holdfast("log-dirs", "--describe", "--broker-list", "9")
    assert "error: broker 9: BROKER_ID_NOT_REGISTERED: it is not registered" in result.stderr
