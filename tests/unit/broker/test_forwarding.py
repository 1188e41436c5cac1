"""When a broker asks the active controller for a client, again, and no more."""

from dataclasses import dataclass

import pytest

from holdfast.broker.core.requests.forwarding import RETRY_MS, Ask, ForwardedRequest, GiveUp, Pause
from holdfast.protocol.errors import ErrorCode

UNKNOWN = GiveUp(ErrorCode.REQUEST_TIMED_OUT, "the active controller is not known")
AGAIN = Pause(RETRY_MS)


@dataclass(frozen=True)
class Message:
    timeout_ms: int


@pytest.mark.parametrize(
    ("message", "timeout_ms"),
    [(Message(300), 300), (Message(9_000), 1_000), (Message(0), 1), (object(), 1_000)],
)
def test_a_request_is_given_up_after_its_own_time_or_the_brokers(message: object, timeout_ms: int) -> None:
    request = ForwardedRequest(message, 1_000, 7)
    assert request.next_step(None, 7) == AGAIN
    assert request.next_step(101, 7) == Ask(101, timeout_ms)
    assert request.next_step(101, 7 + timeout_ms - 1) == Ask(101, 1)
    assert request.next_step(101, 7 + timeout_ms) == UNKNOWN


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_node_that_is_not_active_is_no_answer(code: ErrorCode) -> None:
    request = ForwardedRequest(Message(100), 1_000, 0)
    assert request.answered(code, "controller 102 is active") == AGAIN
    assert request.next_step(102, 50) == Ask(102, 50)
    assert request.next_step(102, 100) == GiveUp(ErrorCode.REQUEST_TIMED_OUT, "controller 102 is active")


@pytest.mark.parametrize(
    "code", [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.REQUEST_LIMIT_REACHED]
)
def test_anything_else_is_the_answer(code: ErrorCode) -> None:
    assert ForwardedRequest(Message(100), 1_000, 0).answered(code, None) is None


def test_only_what_was_surely_not_done_is_asked_again() -> None:
    request = ForwardedRequest(Message(100), 1_000, 0)
    text = "refused; look whether it was carried out before you try again"
    assert request.failed("refused", was_surely_not_done=True) == AGAIN
    assert request.next_step(101, 100) == GiveUp(ErrorCode.REQUEST_TIMED_OUT, text)
    assert request.failed("refused", was_surely_not_done=False) == GiveUp(ErrorCode.NETWORK_EXCEPTION, text)
