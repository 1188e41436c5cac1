"""What an active controller owes to those that have asked it for a change, worked out once more (K20, K23).

Owns a second opinion: sentences about requests that get no answer, or one too early, or a wrong one.
Keeps which requests are open, and asks the controller which of them it still knows.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.controller.core.answers import WRITES
from holdfast.controller.core.events import AppendRecords, RequestReceived, Respond
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationRequest
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest

#: who sends these looks for the next controller, and says it again
_OF_BROKERS = (
    BrokerRegistrationRequest,
    BrokerHeartbeatRequest,
    AlterPartitionRequest,
    AllocateProducerIdsRequest,
)
#: nothing was decided
_TURNED_AWAY = (ErrorCode.REQUEST_LIMIT_REACHED, ErrorCode.POLICY_VIOLATION)


class Owed:
    """By one controller process."""

    def __init__(self, core: QuorumController) -> None:
        self._core = core
        self._was_active = core.is_active
        #: {request that is not answered yet: what it asks for}
        self._open: dict[int, Any] = {
            request.request_id: request.message for one in core._pending for request, _ in one.answers
        }

    def differs(self, event: Any, effects: Sequence[Any], *, was_settled: bool) -> list[str]:
        """What is wrong with how an event was answered. `was_settled`: all that was decided before it was
        committed."""
        core, unanswered = self._core, self._open
        message, request_id = None, -1
        if type(event) is RequestReceived:
            message, request_id = event.message, event.request_id
            unanswered[request_id] = message
        found: list[str] = []
        is_deposed, self._was_active = self._was_active and not core.is_active, core.is_active
        is_settled = was_settled or not core.is_active or not isinstance(message, WRITES)
        for one in effects:
            if type(one) is AppendRecords:
                is_settled = False
            elif type(one) is Respond:
                asked = unanswered.pop(one.request_id, None)
                code = getattr(one.message, "error_code", None)
                if one.request_id == request_id:
                    if not is_settled and code not in _TURNED_AWAY:
                        found.append(f"{message} is answered before what it was judged by is committed (K20)")
                elif asked is None:
                    found.append(f"answers {one}, which is not open")
                elif (
                    is_deposed and not isinstance(asked, _OF_BROKERS) and code != ErrorCode.REQUEST_TIMED_OUT
                ):
                    found.append(f"{asked} may yet be committed, and is answered with {one.message} (K20)")
        waiting = sum(len(one.answers) for one in core._pending)
        if len(unanswered) != waiting:
            found.append(f"has not answered {len(unanswered)} requests, {waiting} wait for a commit (K23)")
        if core._waiting_answers != waiting:
            found.append(f"{waiting} requests wait for a commit, it counts {core._waiting_answers} (K20)")
        return found
