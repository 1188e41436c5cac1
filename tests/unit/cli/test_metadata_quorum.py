"""`holdfast metadata-quorum`."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import Result

from holdfast.protocol.messages.quorum import DescribeQuorumResponse, QuorumReplica
from tests.unit.cli.fake_admin import FakeAdmin

ID = bytes(range(16))


@pytest.mark.parametrize(("words", "named"), [([], None), (["--directory-id", ID.hex()], ID)])
def test_a_voter_is_taken_in_with_the_directory_that_asks_or_that_is_named(
    holdfast: Callable[..., Result], admin: FakeAdmin, words: list[str], named: bytes | None
) -> None:
    result = holdfast("metadata-quorum", "readmit", "--voter", "2", *words)
    assert result.stdout == f"Voter 2 counts with directory {ID.hex()} from now on.\n"
    assert admin.asked == [("add_raft_voter", 2, named)]


@pytest.mark.parametrize("text", ["0", "xyz", ID.hex() + "00"])
def test_what_is_no_directory_id_is_a_usage_error(holdfast: Callable[..., Result], text: str) -> None:
    result = holdfast("metadata-quorum", "readmit", "--voter", "2", "--directory-id", text)
    assert result.exit_code == 2
    assert "32 hexadecimal digits" in result.stderr


def replica(node_id: int, end: int, fetched_ms: int = -1, caught_up_ms: int = -1) -> QuorumReplica:
    return QuorumReplica(node_id, end, fetched_ms, caught_up_ms)


@pytest.fixture
def quorum(admin: FakeAdmin) -> None:
    """Voter 101 leads, 102 is behind, 103 was never heard of; broker 1 observes."""
    voters = (replica(101, 50, 1, 1), replica(102, 40, 1, 1), replica(103, -1))
    admin.quorum = DescribeQuorumResponse(0, None, 101, 7, 45, voters, (replica(1, 50, 1, 1),))


@pytest.mark.usefixtures("quorum")
def test_the_quorum_is_shown_with_what_each_node_lacks(holdfast: Callable[..., Result]) -> None:
    data = json.loads(holdfast("metadata-quorum", "describe", "--output", "json").stdout)["data"]
    assert (data["leader_id"], data["leader_epoch"], data["high_watermark"]) == (101, 7, 45)
    assert data["max_follower_lag"] == 50
    shown = [(row["node_id"], row["lag"], row["status"]) for row in data["replicas"]]
    assert shown == [(101, 0, "Leader"), (102, 10, "Follower"), (103, 50, "Follower"), (1, 0, "Observer")]
    assert data["replicas"][2]["last_fetch_ms"] is None


@pytest.mark.usefixtures("quorum")
@pytest.mark.parametrize(
    ("words", "has_status", "has_table"),
    [((), True, True), (("--status",), True, False), (("--replication",), False, True)],
)
def test_status_and_replication_choose_what_is_shown(
    holdfast: Callable[..., Result], words: tuple[str, ...], has_status: bool, has_table: bool
) -> None:
    text = holdfast("metadata-quorum", "describe", *words).stdout
    assert ("CurrentVoters:    [101,102,103]" in text) is has_status
    assert (["102", "40", "10"] in [line.split()[:3] for line in text.splitlines()]) is has_table


def test_where_voters_are_is_shown_once_the_log_names_them(
    holdfast: Callable[..., Result], admin: FakeAdmin
) -> None:
    named = replace(replica(101, 50, 1, 1), directory_id=ID, endpoint="c1:9093")
    joiner = replace(replica(104, 50, 1, 1), directory_id=bytes(16))
    admin.quorum = DescribeQuorumResponse(0, None, 101, 7, 45, (named,), (joiner, replica(1, 50, 1, 1)))
    lines = holdfast("metadata-quorum", "describe", "--replication").stdout.splitlines()
    assert [line.split()[-2:] for line in lines if line.strip()[:1].isdigit()] == [
        [ID.hex(), "c1:9093"],
        [bytes(16).hex(), "-"],
        ["-", "-"],
    ]


@pytest.mark.usefixtures("quorum")
def test_who_leads_after_a_resignation_is_said(holdfast: Callable[..., Result]) -> None:
    result = holdfast("metadata-quorum", "resign")
    assert result.stdout == "Controller 101 has resigned from epoch 7; controller 102 leads epoch 8.\n"


@pytest.mark.parametrize(
    ("words", "said", "asked"),
    [
        (["upgrade"], "The metadata log names the voters from now on.\n", ("upgrade_quorum", 1)),
        (
            ["add-controller", "--controller", "4@[::1]:9093"],
            "Controller 4 is a voter from now on.\n",
            ("add_controller", 4, "[::1]:9093"),
        ),
        (
            ["remove-controller", "--controller", "4"],
            "Controller 4 is no voter any more.\n",
            ("remove_controller", 4),
        ),
    ],
)
def test_voters_are_changed_as_asked(
    holdfast: Callable[..., Result], admin: FakeAdmin, words: list[str], said: str, asked: tuple[object, ...]
) -> None:
    assert holdfast("metadata-quorum", *words).stdout == said
    assert admin.asked == [asked]


@pytest.mark.parametrize("text", ["4", "h:1", "@h:1", "x@h:1", "-1@h:1", "4@h", "99999999999@h:1"])
def test_what_is_no_controller_is_a_usage_error(holdfast: Callable[..., Result], text: str) -> None:
    result = holdfast("metadata-quorum", "add-controller", "--controller", text)
    assert result.exit_code == 2
    assert "expected ID@HOST:PORT" in result.stderr
