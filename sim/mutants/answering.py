"""Mutants of answers that no loss shows: what acks=1 promises, offsets that are asked for, writes that wait.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.requests import produce_path
from holdfast.broker.core.requests.fetch_fill import FetchFill
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.broker.server import BrokerServer
from holdfast.metadata import describe
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

#: leaders change while consumers read
ELECTIONS = Setting(
    faults={"kill_leader": 4, "kill_broker": 3, "kill_busy_leader": 3, "isolate_leader": 3, "pause_leader": 2}
)
#: readers that seek, with fetches of all sizes
WANDERING = Setting(faults={"kill_leader": 1}, shape={"wanderers": 3}, gap_ms=3_000)


#: brokers come back while each of them is asked alone
BROKERS_ASKED = Setting(
    faults={"kill_broker": 3, "restart_broker": 3, "kill_site": 1, "kill_leader": 1},
    shape={"asks_alone": True},
)
#: each controller is asked, while ISRs and ELRs change
ASKED = Setting(faults={"kill_broker": 4, "isolate_broker": 3, "crumble": 2}, shape={"asks_alone": True})


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


@mutant(breaks="R55", by="R55", setting=WANDERING, killed_by="R55@1")
def large_batches_are_never_read() -> Changes:
    """A consumer whose fetches are smaller than the next batch gets nothing, for ever."""
    return begin(FetchFill, "_read", "is_first = is_first and row.log_end_offset >= 0")


@mutant(breaks="F50, R114", by="R113", setting=ASKED, killed_by="R113@1")
def describes_seats_as_eligible() -> Changes:
    """Operators are told of an empty ELR."""
    return patch(describe, "_described_topic", "partition.elr if elr_enabled", "() if elr_enabled")
