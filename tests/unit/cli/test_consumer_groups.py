"""`holdfast consumer-groups`: what is shown, and what a reset would do and does."""

from collections.abc import Callable

import pytest
from click.testing import Result

from holdfast.client.admin_groups import GroupDescription, GroupMember, GroupOffset
from holdfast.client.core.groups.consumer_protocol import assigned_partitions
from holdfast.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli import rows
from tests.unit.cli.fake_admin import FakeAdmin

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Holdfast = Callable[..., Result]


@pytest.fixture
def groups(admin: FakeAdmin) -> FakeAdmin:
    """Group g: a member reads t-0 at 7 of 10; t-1 was committed at 10. Offsets 3 to 10 are kept."""
    member = GroupMember("m-1", "i", "app", "10.0.0.1", (T0,))
    admin.groups["g"] = GroupDescription("g", "Stable", "consumer", "range", 2, (member,))
    admin.groups["empty"] = GroupDescription("empty", "Empty", "", "", 1, ())
    admin.committed["g"] = {T0: GroupOffset(7, -1, ""), T1: GroupOffset(10, -1, "")}
    admin.offsets = {T0: 10, T1: 10}
    return admin


def test_groups_are_listed(holdfast: Holdfast, groups: FakeAdmin) -> None:
    assert holdfast("consumer-groups", "--list").stdout.split() == ["empty", "g"]


def test_the_lag_of_each_partition_is_shown_beside_who_reads_it(
    holdfast: Holdfast, groups: FakeAdmin
) -> None:
    result = holdfast("consumer-groups", "--describe", "--group", "g")
    title, heads, first, second = result.stdout.splitlines()
    assert title == "group g: Stable, coordinator 2"
    assert heads.split()[3:6] == ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert first.split() == ["g", "t", "0", "7", "10", "3", "m-1", "10.0.0.1", "app"]
    assert second.split() == ["g", "t", "1", "10", "10", "0", "-", "-", "-"]


def test_members_are_shown_with_their_partitions(holdfast: Holdfast, groups: FakeAdmin) -> None:
    result = holdfast("consumer-groups", "--describe", "--all-groups", "--members")
    assert result.stdout.splitlines()[-1].split() == ["m-1", "i", "10.0.0.1", "app", "t-0"]
    assert "group empty: Empty, coordinator 1" in result.stdout


def test_a_group_that_is_not_there_is_an_error_beside_the_others(
    holdfast: Holdfast, groups: FakeAdmin
) -> None:
    result = holdfast("consumer-groups", "--describe", "--group", "none", "--group", "g")
    assert result.exit_code == 1
    assert "error: none: GROUP_ID_NOT_FOUND: there is no such group" in result.stderr
    assert "group g: Stable" in result.stdout


def test_groups_are_deleted(holdfast: Holdfast, groups: FakeAdmin) -> None:
    assert holdfast("consumer-groups", "--delete", "--group", "empty").stdout == "deleted group empty\n"
    assert ("delete_group", "empty") in groups.asked


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["--to-earliest"], [3, 3]),
        (["--to-latest"], [10, 10]),
        (["--to-offset", "8"], [8, 8]),
        (["--to-offset", "1"], [3, 3]),
        (["--to-offset", "11"], [10, 10]),
        (["--shift-by", "-2"], [5, 8]),
        (["--shift-by", "2"], [9, 10]),
        (["--to-datetime", "1970-01-01T00:00:05"], [6, 6]),
        (["--to-datetime", "1970-01-01T02:00:06+02:00"], [10, 10]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_a_reset_stays_within_what_the_partitions_have(
    holdfast: Holdfast, groups: FakeAdmin, words: list[str], new: list[int]
) -> None:
    groups.offsets_at = {EARLIEST_TIMESTAMP: 3, LATEST_TIMESTAMP: 10, 5_000: 6, 6_000: -1}
    reset = ["consumer-groups", "--reset-offsets", "--group", "g", "--all-topics", *words]
    shown = holdfast(*reset)
    assert [int(line.split()[-1]) for line in shown.stdout.splitlines()[1:3]] == new
    assert shown.stdout.splitlines()[-1] == "nothing was changed: --execute carries it out"
    assert groups.asked == []
    holdfast(*reset, "--execute")
    assert groups.asked == [("alter_group_offsets", "g", dict(zip((T0, T1), new, strict=True)))]


def test_single_partitions_are_reset(holdfast: Holdfast, groups: FakeAdmin) -> None:
    groups.add(rows.topic(rows.partition(), rows.partition(partition_index=1)))
    groups.offsets_at = {EARLIEST_TIMESTAMP: 3, LATEST_TIMESTAMP: 10}
    reset = ["consumer-groups", "--reset-offsets", "--group", "g", "--to-offset", "8", "--execute"]
    holdfast(*reset, "--topic", "t:1")
    assert groups.asked == [("alter_group_offsets", "g", {T1: 8})]
    assert "partitions 0 to 1" in holdfast(*reset, "--topic", "t:2").stderr


@pytest.mark.parametrize("topics", [("t:0", "t:1"), ("t:1", "t"), ("t", "t:1"), ("t:0,1", "t:1")])
def test_every_partition_that_is_named_is_reset(
    holdfast: Holdfast, groups: FakeAdmin, topics: tuple[str, ...]
) -> None:
    groups.add(rows.topic(rows.partition(), rows.partition(partition_index=1)))
    groups.offsets_at = {EARLIEST_TIMESTAMP: 3, LATEST_TIMESTAMP: 10}
    named = [word for topic in topics for word in ("--topic", topic)]
    holdfast("consumer-groups", "--reset-offsets", "--group", "g", "--to-offset", "8", "--execute", *named)
    assert groups.asked == [("alter_group_offsets", "g", {T0: 8, T1: 8})]


def test_a_group_that_has_committed_nothing_has_nothing_to_reset(
    holdfast: Holdfast, groups: FakeAdmin
) -> None:
    result = holdfast("consumer-groups", "--reset-offsets", "--group", "x", "--all-topics", "--to-latest")
    assert result.stdout == "group x has committed nothing\n"


@pytest.mark.parametrize(
    ("assignment", "partitions"),
    [
        (b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\1\0\0\0\0" + b"\0\0\0\0", [T0, T1]),
        (b"\0\1\0\0\0\0", []),
        (b"", []),
        (b"\0\0\0\0\0\1\0\1t", []),
        (b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff", []),
        (b"\0\0\0\0\0\1\0\1\xff\0\0\0\0", []),
        (b"\xff\xff\0\0\0\0", []),
    ],
)
def test_what_a_member_was_given_is_read_from_its_assignment(
    assignment: bytes, partitions: list[TopicPartition]
) -> None:
    assert list(assigned_partitions(assignment)) == partitions
