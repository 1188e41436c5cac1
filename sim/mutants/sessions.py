"""Mutants of sessions: heartbeats, who is fenced and when, how a broker is let go.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.core.registration.lifecycle import Lifecycle
from holdfast.controller.core.brokers.cluster_control import ClusterControl, _NextState
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.mutants.mutant import Setting, mutant
from holdfast.sim.mutants.shutdown import DIRS_FAIL, STOPPED

#: brokers are silent for longer than a session, with and without a trace
SILENT = Setting(faults={"power_broker": 4, "isolate_broker": 3, "pause_broker": 4, "cut_controllers": 3})
#: their processes end, and are back soon
GONE = Setting(faults={"kill_broker": 5, "restart_broker": 5, "reset": 3, "cut_controllers": 2}, gap_ms=300)
#: the active controller stands still, and brokers are silent meanwhile
STOOD_STILL = Setting(faults={"pause_active": 5, "kill_broker": 1, "pause_broker": 1})
#: brokers stop in order while no controller runs
STOPPED_ALONE = Setting(faults={"stop_unseen": 6, "kill_active": 1}, gap_ms=1_500)
#: brokers stop in order while others hear of nothing
STOPPED_UNSEEN = Setting(faults={"stop_broker": 5, "late_metadata": 4, "one_way": 2, "slow_disk": 1})


@mutant(
    ClusterControl, "check_sessions", breaks="R25, R20", by="R25 OwnBug", setting=SILENT, killed_by="R25@1"
)
def fences_nobody_for_silence(original: Any, self: Any, draft: Any, now_ms: int) -> Any:
    """A broker that is silent stays unfenced."""
    self._next_check_ms = None


@mutant(ClusterControl, "check_sessions", breaks="R25", by="R25", setting=SILENT, killed_by="R25@1")
def sessions_last_half_as_long(original: Any, self: Any, draft: Any, now_ms: int) -> Any:
    """A broker is fenced after half a session."""
    half_ms = self._config.session_timeout_ms // 2
    for session in self._sessions.values():
        session.last_contact_ms -= half_ms
    try:
        original(self, draft, now_ms)
    finally:
        for session in self._sessions.values():
            session.last_contact_ms += half_ms


@mutant(ClusterControl, "start", breaks="R26", by="R25", setting=STOOD_STILL, killed_by="R25@1")
def new_controllers_wait_for_four_sessions(original: Any, self: Any, image: Any, now_ms: int) -> Any:
    """A controller that becomes active gives all brokers four sessions in one."""
    original(self, image, now_ms)
    for session in self._sessions.values():
        session.last_contact_ms += 3 * self._config.session_timeout_ms


@mutant(ClusterControl, "check_sessions", breaks="D7", by="R25", setting=STOOD_STILL, killed_by="R25@1")
def fences_after_standing_still(original: Any, self: Any, draft: Any, now_ms: int) -> Any:
    """A controller that stood still fences those whose heartbeats wait in its sockets."""
    if self._next_check_ms is not None and now_ms > self._next_check_ms:
        self._next_check_ms = now_ms
    original(self, draft, now_ms)


@mutant(ClusterControl, "on_connection_closed", breaks="D9", by="R25", setting=GONE, killed_by="R25@1")
def looks_after_nobody(original: Any, self: Any, image: Any, event: Any) -> Any:
    """The controller does not probe a broker whose connection is lost: it leads until its session ends."""
    return []


@mutant(ClusterControl, "on_probed", breaks="D9", by="R25", setting=GONE, killed_by="R25@3")
def believes_late_refusals(original: Any, self: Any, draft: Any, event: Any) -> Any:
    """A refusal counts though the broker was heard of since, or is another process by now."""
    broker, session = draft.image.brokers.get(event.broker_id), self._sessions.get(event.broker_id)
    if broker is None or session is None or not event.is_refused:
        return original(self, draft, event)
    connection_id, session.connection_id = session.connection_id, None
    try:
        return original(self, draft, replace(event, broker_epoch=broker.broker_epoch))
    finally:
        session.connection_id = connection_id


@mutant(
    ClusterControl,
    "_registration_error",
    breaks="R30, D14",
    by="R25",
    setting=STOPPED_ALONE,
    killed_by="R25@1",
)
def proofs_wait_for_the_session(original: Any, self: Any, image: Any, request: Any) -> Any:
    """Who proves a clean stop may not register while the session of the stopped process lives."""
    old = image.brokers.get(request.broker_id)
    if old is not None and not old.is_fenced and old.incarnation_id != request.incarnation_id:
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION, "its session lives"
    return original(self, image, request)


@mutant(ClusterControl, "_next_state", breaks="R22", by="R25", setting=STOPPED, killed_by="R25@1")
def lets_leaders_go(original: Any, self: Any, image: Any, broker: Any, session: Any, request: Any) -> Any:
    """A broker that asks to leave may go at once, though it leads partitions."""
    state = original(self, image, broker, session, request)
    return _NextState.SHUTDOWN_NOW if request.want_shutdown else state


@mutant(ClusterControl, "_next_state", breaks="R22, R23", by="R25", setting=STOPPED_UNSEEN, killed_by="R25@1")
def lets_go_before_others_know(
    original: Any, self: Any, image: Any, broker: Any, session: Any, request: Any
) -> Any:
    """A broker may go as soon as others lead on paper, though they have not heard of it."""
    session.shutdown_offset = None
    return original(self, image, broker, session, request)


@mutant(ClusterControl, "_next_state", breaks="R22, R23", by="R25", setting=STOPPED, killed_by="R25@1")
def lets_nobody_go(original: Any, self: Any, image: Any, broker: Any, session: Any, request: Any) -> Any:
    """A broker that has left everything to others is never told that it may go."""
    state = original(self, image, broker, session, request)
    is_let_go = state is _NextState.SHUTDOWN_NOW and not broker.is_fenced
    return _NextState.CONTROLLED_SHUTDOWN if is_let_go else state


@mutant(ClusterControl, "heartbeat", breaks="R27", by="R25", setting=DIRS_FAIL, killed_by="R25@1")
def hears_of_no_failed_dirs(
    original: Any, self: Any, draft: Any, request: Any, connection_id: int, now_ms: int
) -> Any:
    """What a heartbeat tells of failed log dirs is passed over."""
    return original(self, draft, replace(request, offline=()), connection_id, now_ms)


@mutant(Lifecycle, "heartbeat_answered", breaks="R25", by="R25", setting=SILENT, killed_by="R25@1")
def heartbeats_are_late(original: Any, self: Any, response: Any, now_ms: int) -> Any:
    """Five times as long passes between two heartbeats as is configured."""
    outcome = original(self, response, now_ms)
    if self._next_ms > now_ms:
        self._next_ms += 4 * self._heartbeat_ms
    return outcome
