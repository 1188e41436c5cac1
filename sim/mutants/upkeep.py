"""Mutants of upkeep: what is remembered, producer ids, members of the ISR.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace

from holdfast.broker.core.registration.controller_link import ControllerLink
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.broker.core.requests import producer_ids as broker_ids
from holdfast.broker.core.requests.producer_ids import ProducerIds
from holdfast.broker.log_manager import LogManager
from holdfast.controller.core import producer_ids
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.replication import CUT_OFF_FOLLOWERS
from holdfast.sim.mutants.shutdown import STOPPED
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.sim.mutants.storage import RETRIES
from holdfast.storage.log_dir import LogDir

#: brokers get logs that they did not have
NEW_TOPICS = Setting(
    faults={"move_partition": 6, "add_partition": 3, "power_broker": 3},
    shape={"every_write": True, "brokers": 4},
    gap_ms=400,
)
#: followers fetch all the time, and never have all
LATE_FOLLOWERS = Setting(faults={"late_fetches": 6, "kill_leader": 1}, gap_ms=3_000, seconds=25)
#: and fall behind further and further
TRICKLING_FOLLOWERS = replace(LATE_FOLLOWERS, shape={"small_fetches": True})


# --- what is remembered ------------------------------------------------------------------------------------


@mutant(breaks="F6", by="F6", setting=STOPPED, killed_by="F6@1")
def high_watermarks_not_stored() -> Changes:
    """High watermarks are not stored, at the stop neither."""
    return begin(LogManager, "checkpoint_high_watermarks", "return")


@mutant(breaks="A-21, D4", by="A-21", setting=NEW_TOPICS, killed_by="A-21@1")
def new_folders_not_durable() -> Changes:
    """The name of a new log's folder is not synced."""
    return begin(LogDir, "sync_names", "return")


# --- producer ids ------------------------------------------------------------------------------------------


@mutant(breaks="D12", by="D12", killed_by="D12@1")
def producer_blocks_given_twice() -> Changes:
    """Each block of producer ids is the first one."""
    return patch(producer_ids, "allocate", "None, start, BLOCK_LENGTH", "None, 0, BLOCK_LENGTH")


@mutant(breaks="D12", by="D12", killed_by="D12@1")
def producer_ids_given_twice() -> Changes:
    """A broker gives the first id of its block to all producers."""
    return begin(ProducerIds, "_take", "return self._next")


@mutant(breaks="D12, R93", by="D12", setting=RETRIES, killed_by="D12@2")
def producer_epochs_not_bumped() -> Changes:
    """Who asks for the next epoch of its producer id is given the one that it has."""
    return begin(broker_ids, "_granted", "producer_epoch = max(0, producer_epoch - 1)")


@mutant(breaks="D12", by="L-5", killed_by="L-5@1")
def gives_no_producer_ids() -> Changes:
    """No block of producer ids is ever taken in: idempotent producers wait for ever."""
    return begin(ControllerLink, "producer_ids_answered", 'return self._refuse_producers("no", now_ms)')


# --- members of the ISR ------------------------------------------------------------------------------------


@mutant(breaks="R51", by="R51", setting=CUT_OFF_FOLLOWERS, killed_by="R51@1")
def drops_who_is_behind_for_a_moment() -> Changes:
    """A follower that has not all that the leader has leaves the ISR, at once."""
    return begin(ReplicaProgress, "may_stay", "return self.position >= leader_position")


@mutant(breaks="R51", by="R51", setting=CUT_OFF_FOLLOWERS, killed_by="R51@1")
def gives_no_time_at_the_beginning() -> Changes:
    """A member of the ISR that has not fetched in a new leader epoch yet has no time to."""
    return begin(ReplicaProgress, "may_stay", "return self.is_caught_up(leader_position, now_ms, lag_ms_max)")


@mutant(breaks="R51", by="R51", setting=TRICKLING_FOLLOWERS, killed_by="R51@1")
def whoever_fetches_is_caught_up() -> Changes:
    """A follower counts as caught up with each fetch, however little it has."""
    return patch(ReplicaProgress, "fetched", "position >= leader_position", "True")


@mutant(breaks="R51", by="R51", setting=LATE_FOLLOWERS, killed_by="R51@1")
def who_never_has_all_lags() -> Changes:
    """A follower that has what there was at its last fetch, and never all, counts as one that lags."""
    return begin(ReplicaProgress, "fetched", "self._leader_position_at_fetch = -1")
