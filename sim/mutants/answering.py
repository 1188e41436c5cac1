"""Mutants of answers that no loss shows: what acks=1 promises, offsets that are asked for, writes that wait.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.requests import produce_path
from holdfast.broker.core.requests.fetch_fill import FetchFill
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.broker.server import BrokerServer
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.server import ControllerServer
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

#: leaders change while consumers read
ELECTIONS = Setting(
    faults={"kill_leader": 4, "kill_broker": 3, "kill_busy_leader": 3, "isolate_leader": 3, "pause_leader": 2}
)
#: the active controller goes soon after a broker has gone
FAILOVERS = Setting(
    faults={"kill_broker": 4, "kill_leader": 3, "power_broker": 2, "kill_active": 6, "isolate_active": 2},
    seconds=25,
)
#: readers that seek, with fetches of all sizes
WANDERING = Setting(faults={"kill_leader": 1}, shape={"wanderers": 3}, gap_ms=3_000)
#: controllers come back while each of them is asked alone
ASKED_ALONE = Setting(
    faults={
        "kill_controller": 4,
        "kill_active": 3,
        "power_controller": 2,
        "stop_controller": 2,
        "kill_site": 1,
    },
    shape={"asks_alone": True},
)


#: brokers come back while each of them is asked alone
BROKERS_ASKED = Setting(
    faults={"kill_broker": 3, "restart_broker": 3, "kill_site": 1, "kill_leader": 1},
    shape={"asks_alone": True},
)


@mutant(breaks="R113", by="R113", setting=ASKED_ALONE, killed_by="R113@1")
def answers_before_it_knows() -> Changes:
    """A controller that has just begun answers questions from an image that is empty, or half read."""
    return begin(ControllerServer, "_question", "return self._receive(exchange)")


@mutant(breaks="R113", by="R113", setting=BROKERS_ASKED, killed_by="R113@1")
def brokers_answer_before_they_know() -> Changes:
    """A broker that has just begun answers questions from an image that is empty, or half read."""
    return patch(
        BrokerServer,
        "_is_refused",
        "self.core.has_roles and",
        "(self.core.has_roles or exchange.api_key in QUESTION_APIS) and",
    )


@replacing(BrokerServer, "_question", breaks="R113", by="R113", setting=BROKERS_ASKED, killed_by="R113@3")
def brokers_tell_of_what_was(original: Any, self: Any, exchange: Any) -> Any:
    """A broker answers now and then from the metadata that it had when it was first asked."""
    replica_manager, kept = self.core._replica_manager, vars(self.core)
    now = replica_manager.image
    first = kept.setdefault("_first_image", now)
    kept["_asked"] = kept.get("_asked", 0) + 1
    if self.core.has_roles and kept["_asked"] % 5 == 0:
        replica_manager.image = first
    original(self, exchange)
    replica_manager.image = now


@mutant(breaks="D6", by="D6", setting=Setting(shape={"every_write": True}), killed_by="D6@1")
def acknowledges_acks_one_at_append() -> Changes:
    """With every write flushed, acks=1 is answered from the page cache."""
    return patch(produce_path, "_reached", "return partition.position", "return partition.log.log_end_offset")


@mutant(breaks="A-6, F6", by="A-6", setting=ELECTIONS, killed_by="A-6@1")
def tells_latest_too_early() -> Changes:
    """The latest offset is told although the high watermark may lag behind what the last leader showed."""
    return patch(FetchPath, "list_offsets", "partition.visible_high_watermark", "partition.high_watermark")


@mutant(breaks="R80", by="A-6", setting=ELECTIONS, killed_by="A-6@1")
def tells_log_end_as_end_of_epochs() -> Changes:
    """Each epoch that is asked for ends at the log's end."""
    return patch(
        FetchPath,
        "_epoch_row",
        "code, epoch, end_offset)",
        "code, epoch, end_offset if found is None else partition.log.log_end_offset)",
    )


@mutant(breaks="R26, R20", by="OwnBug L-1", setting=FAILOVERS, killed_by="OwnBug@2")
def new_controllers_check_no_sessions() -> Changes:
    """A controller that becomes active gives sessions to those only of whom it hears."""
    return begin(ClusterControl, "start", "self._sessions.clear()\nself._next_check_ms = None\nreturn")


@mutant(breaks="R55", by="R55", setting=WANDERING, killed_by="R55@1")
def large_batches_are_never_read() -> Changes:
    """A consumer whose fetches are smaller than the next batch gets nothing, for ever."""
    return begin(FetchFill, "_read", "is_first = is_first and row.log_end_offset >= 0")
