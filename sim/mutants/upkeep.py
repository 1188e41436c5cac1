"""Mutants of upkeep: what is remembered, producer ids, members of the ISR.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.broker.core.registration.controller_link import ControllerLink
from holdfast.broker.core.requests import producer_ids as broker_ids
from holdfast.broker.log_checkpoints import LogCheckpoints
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.shutdown import STOPPED
from holdfast.sim.mutants.source_patch import begin
from holdfast.sim.mutants.storage import RETRIES
from holdfast.storage.log_dir import LogDir

#: brokers get logs that they did not have
NEW_TOPICS = Setting(
    faults={"move_partition": 6, "add_partition": 3, "power_broker": 3},
    shape={"every_write": True, "brokers": 4},
    gap_ms=400,
)


# --- what is remembered ------------------------------------------------------------------------------------


@mutant(breaks="F6", by="F6", setting=STOPPED, killed_by="F6@1")
def high_watermarks_not_stored() -> Changes:
    """High watermarks are not stored, at the stop neither."""
    return begin(LogCheckpoints, "store_high_watermarks", "return")


@mutant(breaks="A-21, D4", by="A-21", setting=NEW_TOPICS, killed_by="A-21@1")
def new_folders_not_durable() -> Changes:
    """The name of a new log's folder is not synced."""
    return begin(LogDir, "sync_names", "return")


# --- producer ids ------------------------------------------------------------------------------------------


@mutant(breaks="D12, R93", by="D12", setting=RETRIES, killed_by="D12@2")
def producer_epochs_not_bumped() -> Changes:
    """Who asks for the next epoch of its producer id is given the one that it has."""
    return begin(broker_ids, "_granted", "producer_epoch = max(0, producer_epoch - 1)")


@mutant(breaks="D12", by="L-5", killed_by="L-5@1")
def gives_no_producer_ids() -> Changes:
    """No block of producer ids is ever taken in: idempotent producers wait for ever."""
    return begin(ControllerLink, "producer_ids_answered", 'return self._refuse_producers("no", now_ms)')
