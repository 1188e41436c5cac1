"""Calls to the active controller: one of each kind, none to a former one (K27, R45)."""

from typing import Any

import pytest

from holdfast.broker.core.events import CallAnswered, CallController, CallFailed, Effect, Respond
from holdfast.broker.core.registration.controller_link import ControllerLink
from holdfast.broker.core.registration.lifecycle import Lifecycle
from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.broker.core.requests.producer_ids import RETRY_MS
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import BrokerRegistrationResponse
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsResponse, InitProducerIdRequest
from holdfast.rpc.core.failures import CallFailure
from tests.unit.broker.test_lifecycle import IDENTITY

KEY = PartitionId(b"t" * 16, 0)
PROPOSAL = Proposal((1, 2), (-1, 20), 0, 0)


def link(heartbeat_ms: int = 2000) -> ControllerLink:
    """Registered with epoch 12 at controller 101."""
    lifecycle = Lifecycle(
        IDENTITY,
        heartbeat_ms=heartbeat_ms,
        registration_timeout_ms=60_000,
        controlled_shutdown=True,
        shutdown_timeout_ms=30_000,
        now_ms=0,
    )
    made = ControllerLink(1, lifecycle, 30_000)
    made.is_started = True
    made.changed(101, 1, 0)
    (call,) = calls(made.requests(0, 0))
    assert made.is_awaited(CallAnswered(call.call_id, None))
    lifecycle.registered(BrokerRegistrationResponse(ErrorCode.NONE, None, 12, True), 0)
    (heartbeat,) = calls(made.requests(0, 0))
    assert made.is_awaited(CallAnswered(heartbeat.call_id, None))
    return made


def calls(effects: list[Effect]) -> list[CallController]:
    return [effect for effect in effects if isinstance(effect, CallController)]


def kinds(effects: list[Effect]) -> list[str]:
    return [type(call.request).__name__ for call in calls(effects)]


def test_nothing_is_said_before_the_start_and_without_a_controller() -> None:
    made = link()
    made.alter.submit(KEY, PROPOSAL)
    made.changed(None, 2, 10)
    assert made.requests(0, 10) == []
    made.changed(102, 3, 20)
    made.is_started = False
    assert made.requests(0, 20) == []


@pytest.mark.parametrize(("heartbeat_ms", "expected_ms"), [(2000, 2000), (300, 1000), (60_000, 30_000)])
def test_a_heartbeat_is_not_waited_for_as_long_as_other_requests(heartbeat_ms: int, expected_ms: int) -> None:
    """A partition silences a connection; behind it, a broker waited for that connection for half a minute."""
    made = link(heartbeat_ms)
    made.alter.submit(KEY, PROPOSAL)
    made.lifecycle.failed(0)
    now_ms = heartbeat_ms + 1
    timeouts = {type(call.request).__name__: call.timeout_ms for call in calls(made.requests(0, now_ms))}
    assert timeouts == {"BrokerHeartbeatRequest": expected_ms, "AlterPartitionRequest": 30_000}


def test_an_answer_counts_once() -> None:
    made = link()
    made.alter.submit(KEY, PROPOSAL)
    (call,) = calls(made.requests(0, 10))
    assert made.is_awaited(CallAnswered(call.call_id, None))
    assert not made.is_awaited(CallAnswered(call.call_id, None))


def test_what_a_former_controller_was_asked_goes_to_the_new_one() -> None:
    made = link()
    made.alter.submit(KEY, PROPOSAL)
    (call,) = calls(made.requests(0, 10))
    made.changed(102, 2, 1000)
    assert not made.is_awaited(CallAnswered(call.call_id, None))
    assert "AlterPartitionRequest" in kinds(made.requests(0, 1050))


def test_the_same_leader_in_a_new_epoch_is_still_asked() -> None:
    made = link()
    made.alter.submit(KEY, PROPOSAL)
    (call,) = calls(made.requests(0, 10))
    made.changed(101, 2, 20)
    assert made.controller_epoch == 2
    assert made.is_awaited(CallAnswered(call.call_id, None))


def test_proposals_of_a_lost_registration_are_void() -> None:
    made = link()
    made.alter.submit(KEY, PROPOSAL)
    (call,) = calls(made.requests(0, 10))
    made.drop_proposals()
    assert not made.is_awaited(CallAnswered(call.call_id, None))
    assert made.requests(0, 1000) == []


def test_waiting_producers_are_told_when_the_call_fails() -> None:
    made = link()
    assert made.init_producer_id("client", InitProducerIdRequest(-1, -1)) == []
    (call,) = calls(made.requests(0, 10))
    (answer,) = made.failed(CallFailed(call.call_id, CallFailure.TIMED_OUT, "silence"), 20)
    assert isinstance(answer, Respond)
    response: Any = answer.message
    assert ErrorCode(response.error_code).is_retriable


def test_a_refused_block_of_producer_ids_is_asked_for_again_with_a_pause() -> None:
    made = link()
    made.init_producer_id("client", InitProducerIdRequest(-1, -1))
    made.requests(0, 10)
    refusal = AllocateProducerIdsResponse(ErrorCode.NOT_CONTROLLER, "not yet", -1, 0)
    assert len(made.producer_ids_answered(refusal, 20)) == 1
    assert made.next_deadline_ms() > 20 + RETRY_MS
    made.init_producer_id("client", InitProducerIdRequest(-1, -1))
    assert made.requests(0, 20) == []
    assert made.next_deadline_ms() == 20 + RETRY_MS
    assert kinds(made.requests(0, 20 + RETRY_MS)) == ["AllocateProducerIdsRequest"]
    assert made.next_deadline_ms() > 20 + RETRY_MS
