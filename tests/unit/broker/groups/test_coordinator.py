"""What a coordinator answers beside its groups: the topic's creation, and how large its answers may be."""

import pytest

from holdfast.broker.core.groups.coordinator import creation_problem
from holdfast.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from holdfast.protocol.topic_names import OFFSETS_TOPIC


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
