"""What controllers owe to those that have asked for something: answers that are missing, early or wrong, and
those that are right (K20, K23)."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.controller.core.events import AppendRecords, LeaderChanged, RequestReceived, Respond, Tick
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from holdfast.sim.checks.observe.views import About
from holdfast.sim.checks.opinions.pending_answers import Owed
from holdfast.sim.checks.properties.operators import EachRequestIsAnswered
from tests.sim.checks.histories import Scene

ASKS = UnregisterBrokerRequest(2)
BEATS = BrokerHeartbeatRequest(2, 5, 10, False, False)
APPENDS = AppendRecords((b"",), 5, 10)
DEPOSED = LeaderChanged(102, 6, 10)


def arrives(request_id: int, message: Any = ASKS) -> RequestReceived:
    """On connection 1."""
    return RequestReceived(request_id, 1, "CONTROLLER", message)


def answers(request_id: int, error: ErrorCode = ErrorCode.NONE) -> Respond:
    """To a request to unregister a broker."""
    return Respond(request_id, UnregisterBrokerResponse(error, None))


class Controller:
    """An active one, in which requests wait."""

    def __init__(self) -> None:
        self.is_active = True
        self._pending = [SimpleNamespace(answers=[])]
        self._waiting_answers = 0
        self._owed = Owed(self)  # type: ignore[arg-type]

    def waits(self, *events: RequestReceived) -> None:
        """These do from now on."""
        self._pending[0].answers = [(one, None) for one in events]
        self._waiting_answers = len(events)

    def wrong(self, event: Any, *effects: Any, was_settled: bool = False) -> str:
        """What is said of the effects of an event."""
        return "; ".join(self._owed.differs(event, effects, was_settled=was_settled))


def one_waits(message: Any = ASKS) -> Controller:
    """A controller in which request 1 waits for its commit."""
    controller = Controller()
    controller.waits(arrives(1, message))
    assert not controller.wrong(arrives(1, message), APPENDS)
    return controller


def test_who_waits_is_answered_with_the_commit_k20() -> None:
    controller = one_waits()
    controller.waits()
    assert not controller.wrong(Tick(), answers(1))
    assert "which is not open" in controller.wrong(Tick(), answers(1))


@pytest.mark.parametrize(("counted", "is_wrong"), [(0, True), (1, False), (2, True)])
def test_who_waits_is_counted_k20(counted: int, is_wrong: bool) -> None:
    controller = one_waits()
    controller._waiting_answers = counted
    assert ("it counts" in controller.wrong(Tick())) is is_wrong


@pytest.mark.parametrize(
    ("event", "was_settled", "effects", "is_wrong"),
    [
        pytest.param(arrives(1), True, (answers(1),), False, id="all is committed"),
        pytest.param(arrives(1), False, (answers(1),), True, id="it is not"),
        pytest.param(arrives(1), True, (APPENDS, answers(1)), True, id="it changes something itself"),
        pytest.param(arrives(1), True, (answers(1), APPENDS), False, id="something else is changed later"),
        pytest.param(
            arrives(1), False, (answers(1, ErrorCode.REQUEST_LIMIT_REACHED),), False, id="it is turned away"
        ),
        pytest.param(arrives(1, MetadataRequest(None)), False, (answers(1),), False, id="it is a question"),
    ],
)
def test_no_request_is_answered_before_the_commit_k20(
    event: RequestReceived, was_settled: bool, effects: tuple[Any, ...], is_wrong: bool
) -> None:
    said = Controller().wrong(event, *effects, was_settled=was_settled)
    assert bool(said) is is_wrong
    assert not said or "is answered before" in said


def test_who_is_not_active_turns_all_requests_away() -> None:
    controller = Controller()
    controller.is_active = False
    assert not controller.wrong(arrives(1), answers(1, ErrorCode.NOT_CONTROLLER))


@pytest.mark.parametrize(
    ("message", "effects", "said"),
    [
        pytest.param(ASKS, (), "has not answered 1", id="nothing is said"),
        pytest.param(ASKS, (answers(1, ErrorCode.REQUEST_TIMED_OUT),), "", id="it may be done"),
        pytest.param(ASKS, (answers(1, ErrorCode.NOT_CONTROLLER),), "may yet be", id="as if it were not"),
        pytest.param(
            BEATS,
            (Respond(1, BrokerHeartbeatResponse(ErrorCode.NOT_CONTROLLER, None, False, False, False)),),
            "",
            id="a broker says it again",
        ),
    ],
)
def test_who_is_deposed_answers_all_that_wait_k23(message: Any, effects: tuple[Any, ...], said: str) -> None:
    controller = one_waits(message)
    controller.waits()
    controller.is_active = False
    wrong = controller.wrong(DEPOSED, *effects)
    assert bool(wrong) is bool(said)
    assert said in wrong


def test_the_property_tells_of_it() -> None:
    one = EachRequestIsAnswered()
    scene = Scene(one)
    node: Any = scene.world.controllers[0]
    said = scene.violation(lambda: one.controller_differs(scene.seen, node, About.OWING, "it is silent"))
    assert said == f"{one.name}: {node.name}: it is silent"
