"""A request that only the active controller can answer: when a broker asks it, again, and no more.

Only what was surely not carried out is asked again, until the request's deadline.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.protocol.errors import ErrorCode

#: Between two attempts to reach the active controller.
RETRY_MS = 50
#: Who says so is not the active controller, or the quorum's leader; nothing was carried out.
_ASK_ANOTHER = frozenset((ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER))


@dataclass(frozen=True, slots=True)
class Ask:
    """Send it to this controller now, and wait so long for the answer."""

    controller_id: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Look again after so long."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Refuse the request."""

    code: ErrorCode
    text: str


class ForwardedRequest:
    """One of them: `next_step` says what to do, `answered` or `failed` is told what came of an Ask."""

    def __init__(self, message: Any, timeout_ms_max: int, now_ms: int) -> None:
        timeout_ms = min(getattr(message, "timeout_ms", timeout_ms_max), timeout_ms_max)
        self._deadline_ms = now_ms + max(1, timeout_ms)
        #: what came of the last attempt
        self._problem = "the active controller is not known"

    def next_step(self, controller_id: int | None, now_ms: int) -> Ask | Pause | GiveUp:
        """`controller_id`: the active controller as known now."""
        if now_ms >= self._deadline_ms:
            return GiveUp(ErrorCode.REQUEST_TIMED_OUT, self._problem)
        if controller_id is None:
            return Pause(RETRY_MS)
        return Ask(controller_id, self._deadline_ms - now_ms)

    def answered(self, error_code: int, text: str | None) -> Pause | None:
        """None when this is the answer to the request."""
        if error_code not in _ASK_ANOTHER:
            return None
        self._problem = text or "not the active controller"
        return Pause(RETRY_MS)

    def failed(self, text: str, *, was_surely_not_done: bool) -> Pause | GiveUp:
        """No answer has come, and none will."""
        self._problem = f"{text}; look whether it was carried out before you try again"
        if was_surely_not_done:
            return Pause(RETRY_MS)
        return GiveUp(ErrorCode.NETWORK_EXCEPTION, self._problem)
