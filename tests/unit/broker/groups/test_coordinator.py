"""What a coordinator answers beside its groups: the topic's creation, and how large its answers may be."""

import pytest

from holdfast.broker.core.groups.coordinator import creation_problem
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import DescribeGroupsRequest
from holdfast.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.broker.groups.play import Play


@pytest.mark.parametrize(
    ("code", "row_code", "problem"),
    [(0, 0, None), (0, 36, None), (0, 38, "why"), (7, 0, "REQUEST_TIMED_OUT")],
)
def test_a_topic_that_another_broker_has_asked_for_is_no_problem(
    code: int, row_code: int, problem: str | None
) -> None:
    row = CreatableTopicResult(OFFSETS_TOPIC, bytes(16), row_code, "why" if row_code else None, 1, 1, 1)
    response = CreateTopicsResponse(code, None, () if code else (row,))
    assert creation_problem(response) == problem


def test_a_group_that_is_named_often_is_described_once() -> None:
    play = Play()
    play.stable()
    rows = play.ask(DescribeGroupsRequest(("g", "none", "g", "none", "g"))).groups
    assert [(row.group_id, row.error_code) for row in rows] == [
        ("g", ErrorCode.NONE),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_what_one_answer_describes_is_bounded() -> None:
    """A few bytes of a request would make a broker hold gigabytes."""
    play = Play()
    names = tuple(f"g{number}" for number in range(70))
    for name in names:
        play.joined(play.join(group=name, protocols=(("range", b"x" * (510 << 10)),)))
    rows = play.ask(DescribeGroupsRequest((*names, "none"))).groups
    codes = [ErrorCode(row.error_code).name for row in rows]
    assert codes == ["NONE"] * 64 + ["INVALID_REQUEST"] * 6 + ["GROUP_ID_NOT_FOUND"]
    assert "ask for fewer at once" in rows[64].error_message
