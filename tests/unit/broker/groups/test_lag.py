"""What a coordinator tells of its groups over HTTP: their lag, those that are furthest behind first."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.core.groups import lag
from holdfast.broker.core.groups.group import Group
from holdfast.broker.core.groups.lag import group_bodies
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.broker.groups.play import KEY, Play, T

#: {index: high watermark of this broker's replica of `t`}
ENDS = {0: 100, 1: 30}


def told(play: Play, limit: int = 50) -> tuple[dict[str, Any], int]:
    """The answer, and how often others had their turn before it."""
    steps = group_bodies(
        play.coordinator.known(), play.image, lambda key: ENDS.get(key.partition_index), limit
    )
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, turns
        turns += 1


def test_the_lag_of_a_group_is_what_it_has_not_committed() -> None:
    play = Play()
    members = play.stable(2)
    for index, offset in ((0, 40), (1, 20), (2, 7)):
        play.commit_offset(offset, members[0], 2, index=index)
    body, _ = told(play)
    assert body == {
        "groups": [
            {
                "group": "g",
                "state": "Stable",
                "members": 2,
                "partitions": 3,
                "lag": 70,
                "unknown": 1,
                "worst": [
                    {"topic": "t", "partition": 0, "lag": 60},
                    {"topic": "t", "partition": 1, "lag": 10},
                ],
            }
        ],
        "count": 1,
    }


def test_a_group_that_is_ahead_of_this_replica_has_no_lag() -> None:
    play = Play()
    play.commit_offset(101)
    (row,) = told(play)[0]["groups"]
    assert (row["lag"], row["worst"]) == (0, [])


def test_groups_with_most_lag_come_first_and_the_rest_is_counted() -> None:
    play = Play()
    for group, offset in (("b", 10), ("c", 90), ("a", 10)):
        play.commit_offset(offset, group=group)
    body, _ = told(play, limit=2)
    assert [row["group"] for row in body["groups"]] == ["a", "b"]
    assert body["count"] == 3


def test_offsets_of_a_deleted_topic_are_no_lag() -> None:
    play = Play()
    play.commit_offset(10)
    play.image = replace(play.image, topics=play.image.topics.delete(T))
    (row,) = told(play)[0]["groups"]
    assert (row["partitions"], row["lag"]) == (0, 0)


def test_others_have_their_turn_between_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "ROWS_A_STEP", 2)
    play = Play()
    for group in "abc":
        play.commit_offset(10, group=group)
    assert told(play)[1] == 3


class Name(str):
    """A group's name that counts comparisons."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Name.compared += 1
        return super().__lt__(other)

    def __gt__(self, other: str) -> bool:
        Name.compared += 1
        return super().__gt__(other)


@pytest.mark.parametrize("order", [1, -1])
def test_no_step_sorts_all_groups(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "ROWS_A_STEP", 10)
    groups = [Group(Name(f"g{number:04}")) for number in range(1_000)][::order]
    steps = group_bodies(groups, Play().image, lambda key: None, limit=4)
    most, body = 0, None
    while body is None:
        before = Name.compared
        try:
            next(steps)
        except StopIteration as done:
            body = done.value
        most = max(most, Name.compared - before)
    assert [row["group"] for row in body["groups"]] == ["g0000", "g0001", "g0002", "g0003"]
    assert body["count"] == 1_000
    assert most < 200


def test_only_the_partitions_with_most_lag_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "WORST_MAX", 2)
    monkeypatch.setitem(ENDS, 2, 60)
    play = Play()
    for index in (1, 2, 0):
        play.commit_offset(20, index=index)
    (row,) = told(play)[0]["groups"]
    assert (row["lag"], [one["partition"] for one in row["worst"]]) == (130, [0, 2])


def test_groups_that_have_moved_away_meanwhile_are_not_told() -> None:
    play = Play()
    play.commit_offset(10)
    known = play.coordinator.known()
    play.partitions.clear()
    play.coordinator.partition_changed(KEY, OFFSETS_TOPIC)
    assert list(known) == []


def test_groups_of_a_log_that_is_being_read_are_not_told() -> None:
    play = Play()
    play.commit_offset(10)
    assert told(play.successor(loads=False))[0] == {"groups": [], "count": 0}
