"""What an intruder is answered: refusals, and what is none."""

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchPartitionResponse, FetchResponse
from holdfast.sim.checks.properties.invalid_requests import IntrudersAreRefused
from holdfast.sim.load.invalid_requests import InvalidRequest, codes_of
from tests.sim.checks.histories import Scene

EXPECTED = frozenset({ErrorCode.CORRUPT_MESSAGE})


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        pytest.param([ErrorCode.CORRUPT_MESSAGE], False, id="with the code that says why"),
        pytest.param([ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE], False, id="in a row"),
        pytest.param([ErrorCode.NOT_LEADER_OR_FOLLOWER], False, id="by who cannot know"),
        pytest.param([ErrorCode.NONE], True, id="it is done"),
        pytest.param([], True, id="there is no row for it"),
        pytest.param([ErrorCode.UNKNOWN_SERVER_ERROR], True, id="with an error that was not foreseen"),
        pytest.param([ErrorCode.INVALID_RECORD], True, id="with another code"),
    ],
)
def test_what_no_correct_peer_sends_is_refused_with_a_code_that_says_why_d3(
    answered: list[ErrorCode], expected: bool
) -> None:
    one = IntrudersAreRefused()
    scene = Scene(one)
    intrusion = InvalidRequest("a batch", "b1", EXPECTED, frozenset(answered))
    said = scene.violation(lambda: one.intruded(scene.seen, intrusion))
    assert (said is not None) is expected
    assert said is None or said.startswith("D3 IntrudersAreRefused: b1 answers a batch with ")


def test_the_codes_of_an_answer_are_those_of_its_rows_too() -> None:
    row = FetchPartitionResponse(bytes(16), 0, 75, -1, -1, -1, None, -1, -1, memoryview(b""))
    found = list(codes_of(FetchResponse(0, None, (row, row))))
    assert found == [ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]
