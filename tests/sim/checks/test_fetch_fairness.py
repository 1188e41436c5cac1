"""Whose turn it is in the answers to a follower: a history in which one starves, and those beside it."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.core.events import AnswerFetch, ReadRow
from holdfast.broker.core.requests.fetch_session import FollowerSession
from holdfast.metadata.ids import PartitionId
from holdfast.sim.checks.opinions.fetch_fairness import Turns
from holdfast.sim.checks.properties import fetch_sessions
from tests.sim.checks.histories import TOPIC_ID, Scene

KEYS = [PartitionId(TOPIC_ID, index) for index in range(3)]


def answer(session: FollowerSession[PartitionId], *indexes: int, size: int = 100) -> AnswerFetch:
    """To these partitions of it."""
    rows = (ReadRow(*KEYS[index], 0, 0, 0, 9, None, 1, 5, 0, 9, size) for index in indexes)
    return AnswerFetch("a follower", tuple(rows), 1_000, session)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([((0,), (2,)), ((0,), (2,)), ((0,), (2,))], True),
        ([((0,), (2,)), ((0,), (2,))], False),
        ([((0,), (2,)), ((1,), (2,)), ((0,), (2,)), ((1,), (2,))], False),
        ([((0,), (2,)), ((0,), (2,)), ((2,), ()), ((0,), (2,))], False),
        ([((0,), (2,)), ((0,), (2,)), ((2,), (1,)), ((0,), (1, 2))], False),
        ([((0,), ()), ((0,), ()), ((0,), ())], False),
    ],
    ids=[
        "it starves",
        "it waits",
        "others have theirs",
        "it was answered",
        "another is due",
        "it is not due",
    ],
)
def test_what_had_no_room_has_its_turn_r80(
    answers: list[tuple[tuple[int, ...], tuple[int, ...]]], expected: bool
) -> None:
    """(answered, due behind that), in turn."""
    session: FollowerSession[PartitionId] = FollowerSession(2, 7, 3, 0)
    turns, missed = Turns(), []
    for answered, due in answers:
        session.due_rows = {KEYS[index]: SimpleNamespace() for index in due}  # type: ignore[misc]
        missed += turns.missed(answer(session, *answered))
    assert bool(missed) is expected


@pytest.mark.parametrize(
    ("is_same", "size", "expected"), [(True, 100, True), (False, 100, False), (True, 0, False)]
)
def test_turns_are_of_a_session_and_what_brings_nothing_is_none_r80(
    is_same: bool, size: int, expected: bool
) -> None:
    turns, missed = Turns(), []
    session: FollowerSession[PartitionId] = FollowerSession(2, 7, 3, 0)
    for _ in range(3):
        session = session if is_same else FollowerSession(2, 7, 4, 0)
        due: Any = {KEYS[2]: SimpleNamespace()}
        session.due_rows = due
        missed += turns.missed(answer(session, 0, size=size))
    assert bool(missed) is expected


def test_who_has_missed_its_turn_is_told_of_r80() -> None:
    one = fetch_sessions.RowsHaveTheirTurn()
    scene = Scene(one)
    said = scene.violation(lambda: one.turn_missed(scene.seen, scene.world.brokers[0], "has answered"))
    assert said == f"{one.name}: b1 has answered"
