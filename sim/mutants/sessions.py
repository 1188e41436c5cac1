"""Mutants of sessions: heartbeats, who is fenced and when, how a broker is let go.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.registration.lifecycle import Lifecycle
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.shutdown import DIRS_FAIL, STOPPED
from holdfast.sim.mutants.source_patch import begin, patch

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


@mutant(breaks="R25, R20", by="R25 OwnBug", setting=SILENT, killed_by="R25@1")
def fences_nobody_for_silence() -> Changes:
    """A broker that is silent stays unfenced."""
    return begin(ClusterControl, "check_sessions", "self._next_check_ms = None\nreturn")


@mutant(breaks="R25", by="R25", setting=SILENT, killed_by="R25@1")
def sessions_last_half_as_long() -> Changes:
    """A broker is fenced after half a session."""
    return patch(
        ClusterControl,
        "check_sessions",
        "timeout_ms = self._config.session_timeout_ms",
        "timeout_ms = self._config.session_timeout_ms // 2",
    )


@mutant(breaks="R26", by="R25", setting=STOOD_STILL, killed_by="R25@1")
def new_controllers_wait_for_four_sessions() -> Changes:
    """A controller that becomes active gives all brokers four sessions in one."""
    return patch(
        ClusterControl,
        "start",
        "Session(\n                now_ms,",
        "Session(\n                now_ms + 3 * self._config.session_timeout_ms,",
    )


@mutant(breaks="D7", by="R25", setting=STOOD_STILL, killed_by="R25@1")
def fences_after_standing_still() -> Changes:
    """A controller that stood still fences those whose heartbeats wait in its sockets."""
    return patch(ClusterControl, "check_sessions", "lateness_ms = now_ms - scheduled_ms", "lateness_ms = 0")


@mutant(breaks="D9", by="R25", setting=GONE, killed_by="R25@1")
def looks_after_nobody() -> Changes:
    """The controller does not probe a broker whose connection is lost: it leads until its session ends."""
    return begin(ClusterControl, "on_connection_closed", "return []")


@mutant(breaks="D9", by="R25", setting=GONE, killed_by="R25@3")
def believes_late_refusals() -> Changes:
    """A refusal counts though the broker was heard of since, or is another process by now."""
    return (
        patch(ClusterControl, "on_probed", "or session.connection_id is not None", "or False"),
        patch(ClusterControl, "on_probed", "or broker.broker_epoch != event.broker_epoch", "or False"),
    )


@mutant(breaks="R30, D14", by="R25", setting=STOPPED_ALONE, killed_by="R25@1")
def proofs_wait_for_the_session() -> Changes:
    """Who proves a clean stop may not register while the session of the stopped process lives."""
    return patch(ClusterControl, "_registration_error", " and not self._replaces(old, request)", "")


@mutant(breaks="R22", by="R25", setting=STOPPED, killed_by="R25@1")
def lets_leaders_go() -> Changes:
    """A broker that asks to leave may go at once, though it leads partitions."""
    return begin(ClusterControl, "_next_state", "if request.want_shutdown: return _NextState.SHUTDOWN_NOW")


@mutant(breaks="R22, R23", by="R25", setting=STOPPED_UNSEEN, killed_by="R25@1")
def lets_go_before_others_know() -> Changes:
    """A broker may go as soon as others lead on paper, though they have not heard of it."""
    return begin(ClusterControl, "_next_state", "session.shutdown_offset = None")


@mutant(breaks="R22, R23", by="R25", setting=STOPPED, killed_by="R25@1")
def lets_nobody_go() -> Changes:
    """A broker that has left everything to others is never told that it may go."""
    return (
        patch(
            ClusterControl,
            "_next_state",
            "return _NextState.SHUTDOWN_NOW\n        if",
            "return _NextState.CONTROLLED_SHUTDOWN\n        if",
        ),
        patch(
            ClusterControl,
            "_next_state",
            "if request.want_shutdown:\n            return _NextState.SHUTDOWN_NOW\n        return",
            "if request.want_shutdown:\n            return _NextState.CONTROLLED_SHUTDOWN\n        return",
        ),
    )


@mutant(breaks="R27", by="R25", setting=DIRS_FAIL, killed_by="R25@1")
def hears_of_no_failed_dirs() -> Changes:
    """What a heartbeat tells of failed log dirs is passed over."""
    return patch(ClusterControl, "heartbeat", "if request.offline:", "if False:")


@replacing(Lifecycle, "heartbeat_answered", breaks="R25", by="R25", setting=SILENT, killed_by="R25@1")
def heartbeats_are_late(original: Any, self: Any, response: Any, now_ms: int) -> Any:
    """Five times as long passes between two heartbeats as is configured."""
    outcome = original(self, response, now_ms)
    if self._next_ms > now_ms:
        self._next_ms += 4 * self._heartbeat_ms
    return outcome
