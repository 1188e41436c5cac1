"""Rules of brokers and controllers, broken one at a time, with the property that must speak up.

Each is a patch of production code, played in simulated clusters until a property is violated. Where another
property would be first the one that is meant is played alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from broker import produce_path
from broker.partition import Partition, Proposal
from broker.replica_progress import ReplicaProgress
from broker.roles import Roles
from controller import elr, partition_change, unclean_recovery
from controller.cluster_control import ClusterControl
from controller.election import Candidates, ElectionReason, Rejection
from controller.elr import EligibleSets
from controller.replication_control import Departure, ReplicationControl
from metadata.partition import PartitionRegistration
from raft import election
from raft.leadership import Leader as QuorumLeader
from raft.quorum import LogPosition
from runtime.api import DiskError
from sim.disk import SimFile
from sim.faults import Plan
from storage import clean_shutdown
from storage.leader_epoch_cache import LeaderEpochCache
from storage.log import Log

KILLS = ("kill_broker", "kill_leader", "isolate_broker", "isolate_leader", "pause_leader")
POWER = (*KILLS, "power_broker", "power_leader", "cut_controllers")
STOPS = ("stop_broker", "kill_broker", "kill_leader")


@dataclass(frozen=True)
class Mutant:
    """One broken rule."""

    patch: Callable[[pytest.MonkeyPatch], None]
    #: whose violation counts, by the beginning of its name
    killers: tuple[str, ...]
    faults: tuple[str, ...] = KILLS
    #: properties that are asked; empty: all
    only: tuple[str, ...] = ()
    shape: tuple[tuple[str, Any], ...] = ()

    def plan(self) -> Plan:
        """Faults in quick succession."""
        return Plan(gap_ms=600, only=self.faults)


# --- brokers -------------------------------------------------------------------------------------------


def gate_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: the high watermark moves below min ISR too, as before KIP-966."""
    advance = Partition.advance_high_watermark

    def broken(partition: Partition, now_ms: int) -> bool:
        row = partition.registration
        if row is None:
            return advance(partition, now_ms)
        partition.registration = replace(row, min_isr=0)
        try:
            return advance(partition, now_ms)
        finally:
            partition.registration = row

    monkeypatch.setattr(Partition, "advance_high_watermark", broken)


def gate_counts_maximal_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-2: replicas that were only proposed count for min ISR."""
    advance = Partition.advance_high_watermark

    def broken(partition: Partition, now_ms: int) -> bool:
        row, leadership = partition.registration, partition.leadership
        if row is None or leadership is None:
            return advance(partition, now_ms)
        partition.registration = replace(row, isr=leadership.maximal_isr)
        try:
            return advance(partition, now_ms)
        finally:
            partition.registration = row

    monkeypatch.setattr(Partition, "advance_high_watermark", broken)


def followers_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: the leader counts nobody but itself."""
    advance = Partition.advance_high_watermark

    def broken(partition: Partition, now_ms: int) -> bool:
        leadership = partition.leadership
        if leadership is None:
            return advance(partition, now_ms)
        progress, leadership.progress = leadership.progress, {}
        try:
            return advance(partition, now_ms)
        finally:
            leadership.progress = progress

    monkeypatch.setattr(Partition, "advance_high_watermark", broken)


def shrink_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: a proposed shrink counts before the controller has confirmed it."""
    propose = Partition._propose

    def broken(partition: Partition, leadership: Any, isr: tuple[int, ...]) -> Proposal:
        leadership.maximal_isr = isr
        return propose(partition, leadership, isr)

    monkeypatch.setattr(Partition, "_propose", broken)


def answered_at_the_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-16: acks=all is answered once the leader has appended."""
    monkeypatch.setattr(produce_path, "_reached", lambda partition, acks: partition.position)


def joins_without_its_epochs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-5: a follower joins below where the leader's epoch began, and below the high watermark."""
    monkeypatch.setattr(
        Partition,
        "_may_join",
        lambda partition, leadership, progress, now_ms: partition._is_eligible(progress),
    )


def role_before_own_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-2: whatever the copy of the metadata says on loading is taken for granted."""
    loaded = Roles.logs_loaded
    take = Roles.maybe_take_roles

    def eager(roles: Roles, now_ms: int) -> None:
        lifecycle = roles._lifecycle
        own = roles.image.brokers.get(roles.broker_id)
        if own is None or roles.has_roles or lifecycle.is_registered:
            take(roles, now_ms)
            return
        lifecycle.broker_epoch = own.broker_epoch
        try:
            take(roles, now_ms)
        finally:
            lifecycle.broker_epoch = -1

    def broken(roles: Roles, event: Any, now_ms: int) -> None:
        loaded(roles, event, now_ms)
        eager(roles, now_ms)

    monkeypatch.setattr(Roles, "maybe_take_roles", eager)
    monkeypatch.setattr(Roles, "logs_loaded", broken)


def first_replica_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-3: the preferred replica takes the role of the leader, whoever was elected."""
    take = Partition._take_role

    def broken(partition: Partition, row: PartitionRegistration, now_ms: int) -> Any:
        if row.replicas[0] == partition.broker_id and row.leader is not None:
            row = replace(row, leader=partition.broker_id)
            partition.registration = row
        return take(partition, row, now_ms)

    monkeypatch.setattr(Partition, "_take_role", broken)


def divergence_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """R80: a follower's log is taken for a prefix of the leader's."""
    check = Partition.check_follower

    def broken(partition: Partition, replica: int, epoch: int, leader: int, offset: int, last: int) -> Any:
        return check(partition, replica, epoch, leader, offset, -1)

    monkeypatch.setattr(Partition, "check_follower", broken)


def truncates_to_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """R81: a follower that has diverged cuts everything off."""
    monkeypatch.setattr(
        Partition, "truncation_offset", lambda partition, epoch, end: partition.log.log_start_offset
    )


def high_watermark_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: consumers hear of the high watermark before it has reached the start of the epoch."""
    monkeypatch.setattr(Partition, "visible_high_watermark", property(lambda p: p.high_watermark))


def lag_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever fetches is said to be at the leader's end."""
    fetched = ReplicaProgress.fetched

    def broken(progress: ReplicaProgress, position: int, epoch: int, leader: int, now_ms: int) -> None:
        fetched(progress, leader, epoch, leader, now_ms)

    monkeypatch.setattr(ReplicaProgress, "fetched", broken)


# --- storage -------------------------------------------------------------------------------------------


def flushed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-21: a flush counts for what came while it ran."""
    flush = Log.flush

    async def broken(log: Log) -> int:
        await flush(log)
        log._flushed_offset = log._log_end_offset
        return log._flushed_offset

    monkeypatch.setattr(Log, "flush", broken)


def failed_flush_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-20: after a failed flush of a log the next one is believed."""
    flush = SimFile.flush

    async def again(file: SimFile) -> None:
        try:
            await flush(file)
        except DiskError:
            file._error = None
            await flush(file)

    monkeypatch.setattr(SimFile, "flush", again)


def mark_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-19: the proof of a clean stop is written while logs are not durable."""

    async def broken(log: Log, flush: bool) -> None:
        await close(log, False)

    close = Log.close
    monkeypatch.setattr(Log, "close", broken)


def mark_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """R35: the proof of a clean stop is read and stays."""

    async def broken(disk: Any, log_dir: str, directory_id: bytes) -> Any:
        from storage import checkpoint

        return clean_shutdown.decode(
            await checkpoint.read_text(disk, f"{log_dir}/{clean_shutdown.FILE_NAME}")
        )

    monkeypatch.setattr(clean_shutdown, "take", broken)


def epochs_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-18: the epoch cache outlives the log that it speaks of."""
    cut = Log.truncate_to

    async def broken(log: Log, offset: int) -> int:
        entries = LeaderEpochCache(log._epochs.entries)
        end = await cut(log, offset)
        log._epochs._epochs, log._epochs._starts = entries._epochs, entries._starts
        return end

    monkeypatch.setattr(Log, "truncate_to", broken)


# --- controllers ---------------------------------------------------------------------------------------


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the controller not notice what it does (D7)."""
    monkeypatch.setattr(PartitionRegistration, "broken_invariants", lambda row: [])
    monkeypatch.setattr(partition_change, "_check", lambda *given: None)


def elr_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: who leaves the ISR is eligible though min ISR holds."""
    unchecked(monkeypatch)
    next_eligible = elr.next_eligible

    def broken(before: EligibleSets, **given: Any) -> EligibleSets:
        return next_eligible(before, **{**given, "min_isr": 99})

    monkeypatch.setattr(partition_change, "next_eligible", broken)


def unclean_stays_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: an unclean registration leaves the ELR as it is."""
    unchecked(monkeypatch)
    take_out = ReplicationControl.take_out

    def broken(control: Any, draft: Any, broker_id: int, departure: Departure, cause: Any) -> None:
        take_out(control, draft, broker_id, Departure.CLEAN, cause)

    monkeypatch.setattr(ReplicationControl, "take_out", broken)


def anybody_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """R11: whoever is unfenced leads."""
    unchecked(monkeypatch)

    def broken(candidates: Candidates, replica: int) -> ElectionReason | Rejection:
        is_active = replica in candidates.replicas and candidates.is_active(replica)
        return ElectionReason.ISR if is_active else Rejection.FENCED

    monkeypatch.setattr(Candidates, "verdict_on", broken)


def fenced_are_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A-13: members of the ELR lead though they are fenced."""
    unchecked(monkeypatch)
    verdict_on = Candidates.verdict_on

    def broken(candidates: Candidates, replica: int) -> ElectionReason | Rejection:
        if replica in candidates.elr and not candidates.isr:
            return ElectionReason.ELR
        return verdict_on(candidates, replica)

    monkeypatch.setattr(Candidates, "verdict_on", broken)


def last_known_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: the seats of those that stopped uncleanly are not remembered."""
    unchecked(monkeypatch)
    next_eligible = elr.next_eligible

    def broken(before: EligibleSets, **given: Any) -> EligibleSets:
        return replace(next_eligible(before, **given), last_known_elr=())

    monkeypatch.setattr(partition_change, "next_eligible", broken)


def everybody_counts_as_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: any previous epoch is taken for the proof of a clean stop."""
    register = ClusterControl.register

    def broken(control: Any, draft: Any, request: Any, now_ms: int) -> Any:
        old = draft.image.brokers.get(request.broker_id)
        if old is not None:
            request = replace(request, previous_broker_epoch=old.broker_epoch)
        return register(control, draft, request, now_ms)

    monkeypatch.setattr(ClusterControl, "register", broken)


def worst_log_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """R66: of the logs that were compared the shortest wins."""
    monkeypatch.setattr(
        unclean_recovery,
        "best_log",
        lambda partition, replies: min(replies, key=lambda r: (replies[r].last_epoch, replies[r].end_offset)),
    )


def first_reply_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """R64: whoever answers first is elected."""
    monkeypatch.setattr(
        unclean_recovery, "_is_decided", lambda partition, recovery, asked, valid: bool(valid)
    )


# --- the quorum ----------------------------------------------------------------------------------------


def commits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-7: the leader of the quorum commits what it alone has flushed."""
    monkeypatch.setattr(QuorumLeader, "committed_end", lambda leader, own_flushed_offset: own_flushed_offset)


def votes_for_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3: a voter gives its vote to somebody whose log is behind."""
    pre_vote, vote = election.may_grant_pre_vote, election.may_grant_vote
    nothing = LogPosition(-1, 0)
    monkeypatch.setattr(
        election, "may_grant_pre_vote", lambda role, own, candidate: pre_vote(role, nothing, candidate)
    )
    monkeypatch.setattr(
        election, "may_grant_vote", lambda state, who, own, candidate: vote(state, who, nothing, candidate)
    )


MANAGER = (("recovery_manager", True),)
OUTAGES = ("kill_all_brokers", "power_leader", "power_broker", "isolate_broker")
QUORUM = ("kill_active", "isolate_active", "power_controller", "kill_controller", "pause_active")

MUTANTS = (
    Mutant(gate_dropped, ("I-8", "A-2")),
    Mutant(gate_dropped, ("I-8",), only=("I-8",)),
    Mutant(gate_dropped, ("I-9",), only=("I-9",)),
    Mutant(gate_counts_maximal_isr, ("A-2", "I-8")),
    Mutant(followers_not_counted, ("A-2", "I-8")),
    Mutant(shrink_at_once, ("I-7",)),
    Mutant(answered_at_the_append, ("I-16",)),
    Mutant(answered_at_the_append, ("lost",), only=("I-4",)),
    Mutant(joins_without_its_epochs_start, ("A-5",)),
    Mutant(role_before_own_registration, ("I-2",), faults=POWER),
    Mutant(role_before_own_registration, ("D-1",), faults=POWER, only=("D-1",)),
    Mutant(first_replica_leads, ("I-15",), only=("I-15",)),
    Mutant(divergence_not_checked, ("I-8", "I-10")),
    Mutant(truncates_to_its_start, ("A-16",), only=("A-16",)),
    Mutant(truncates_to_its_start, ("A-1",), only=("A-1",)),
    Mutant(high_watermark_told_at_once, ("A-6",)),
    Mutant(lag_is_no_matter, ("A-2", "I-8")),
    Mutant(flushed_at_the_end, ("A-21",)),
    Mutant(failed_flush_is_forgotten, ("A-21",), faults=("io_error",)),
    Mutant(mark_before_the_flush, ("I-17",), faults=STOPS),
    Mutant(mark_is_kept, ("I-17",), faults=STOPS),
    Mutant(epochs_not_cut, ("I-18",)),
    Mutant(elr_not_cleared, ("I-6",)),
    Mutant(unclean_stays_eligible, ("A-8",)),
    Mutant(unclean_stays_eligible, ("I-8",), faults=POWER, only=("I-8",)),
    Mutant(anybody_is_elected, ("A-3",)),
    Mutant(anybody_is_elected, ("A-13",), only=("A-13",)),
    Mutant(fenced_are_elected, ("A-13",), only=("A-13",)),
    Mutant(fenced_are_elected, ("I-5",), only=("I-5",)),
    Mutant(last_known_forgotten, ("A-12",)),
    Mutant(last_known_forgotten, ("I-14",), only=("I-14",)),
    Mutant(everybody_counts_as_clean, ("A-8",)),
    Mutant(worst_log_is_elected, ("A-14",), faults=OUTAGES, shape=MANAGER),
    Mutant(worst_log_is_elected, ("I-9",), faults=OUTAGES, shape=MANAGER, only=("I-9",)),
    Mutant(first_reply_decides, ("A-14",), faults=OUTAGES, shape=MANAGER),
    Mutant(commits_alone, ("Q-7",), faults=QUORUM),
    Mutant(commits_alone, ("Q-2", "Q-3"), faults=QUORUM, only=("Q-2", "Q-3")),
    Mutant(votes_for_anybody, ("Q-3",), faults=QUORUM, only=("Q-3",)),
)
