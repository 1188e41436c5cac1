"""Rare states: how often each was reached, so that a sweep can tell what it never tried.

Owns the list of names and the counts; a mark that stays at zero over many seeds is a hole in the simulator.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.broker.core.replicas.partition import Role
from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.events import (
    AskForLogs,
    RecoveryCancelled,
    RecoveryElected,
    RecoveryStated,
    Respond,
    WaitForReplicas,
)
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, RegisterBrokerRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionResponse
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.durable_files import MARKER
from holdfast.sim.checks.observe.views import Before, Change, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimBroker, State
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.storage.checkpoint import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from holdfast.sim.checks.observe.observer import Observer

MARKS = (
    "ELR of one",
    "ELR of two or more",
    "ISR empty",
    "ISR and ELR empty",
    "elected from the ELR",
    "elected uncleanly",
    "no replica may lead",
    "ELR cleared by expansion",
    "last known ELR above min ISR",
    "min ISR changed with an ELR",
    "recovery waits for replicas",
    "recovery asks for logs",
    "recovery cancelled",
    "recovery elected",
    "proposal refused: FENCED_LEADER_EPOCH",
    "proposal refused: INELIGIBLE_REPLICA",
    "proposal refused: INVALID_UPDATE_VERSION",
    "proposal refused: NEW_LEADER_ELECTED",
    "proposal refused: NOT_CONTROLLER",
    "proposal refused: OPERATION_NOT_ATTEMPTED",
    "proposal refused: STALE_BROKER_EPOCH",
    "follower diverged, one epoch",
    "follower diverged, several epochs",
    "follower lacked an epoch of the leader",
    "log cut to its start",
    "log cut below the high watermark",
    "all of a log has expired",
    "high watermark behind the epoch's start at election",
    "registered again before it was fenced",
    "registered after a clean stop",
    "registered after an unclean stop",
    "ended while asking to leave",
    "ended after leaving, logs not flushed",
    "ended after the flush of the logs",
    "ended with the mark written",
    "ended with the mark renamed",
    "ended with the mark durable",
    "ended at start, mark not deleted",
    "ended at start, mark deleted but durable",
    "ended at start, before its registration",
    "ended after its registration, before its roles",
    "recovery of a log cut a tail",
    "recovery of a log dropped segments",
)
_RECOVERY = {
    WaitForReplicas: "recovery waits for replicas",
    AskForLogs: "recovery asks for logs",
    RecoveryCancelled: "recovery cancelled",
    RecoveryElected: "recovery elected",
}
#: A-1 forbids it to runs that keep the budget: only the bands that allow losses can meet it.
_ONLY_WITH_LOSSES = frozenset(("log cut below the high watermark",))
#: The controller compares no logs without the recovery manager.
_ONLY_WITH_MANAGER = frozenset(name for name in MARKS if name in _RECOVERY.values())


def marks_of(shape: ClusterSpec) -> list[str]:
    """What a run of this shape can meet at all; a sweep counts the others as not its own."""
    may_lose = shape.over_budget or shape.disks_lie or not shape.elr
    return [
        name
        for name in MARKS
        if (may_lose or name not in _ONLY_WITH_LOSSES)
        and (shape.recovery_manager or name not in _ONLY_WITH_MANAGER)
    ]


class Marks(Property):
    """The counts of one run."""

    def __init__(self, shape: ClusterSpec) -> None:
        self.counts: dict[str, int] = dict.fromkeys(marks_of(shape), 0)
        #: shapes of partitions that were seen, without their numbers
        self.fingerprints: set[tuple[object, ...]] = set()
        #: {(process, partition): its log start, when nothing was left}
        self._expired: dict[tuple[str, int], int] = {}

    def count(self, name: str) -> None:
        """Once more."""
        self.counts[name] = self.counts.get(name, 0) + 1

    # --- controllers -----------------------------------------------------------------------------------

    def controller_said(self, seen: "Observer", effects: Sequence[Any]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Respond and type(effect.message) is AlterPartitionResponse:
                codes = [effect.message.error_code]
                codes += [row.error_code for row in effect.message.partitions]
                for code in codes:
                    name = f"proposal refused: {ErrorCode(code).name}"
                    if name in MARKS:
                        self.count(name)
            elif kind is RecoveryStated:
                self.count(_RECOVERY[type(effect.statement)])

    def partition_changed(self, seen: "Observer", index: int, change: Change) -> None:
        before, after, decision = change.before, change.after, change.decision
        if after.elr != before.elr and after.elr:
            self.count("ELR of one" if len(after.elr) == 1 else "ELR of two or more")
        if before.elr and not after.elr and decision.sets_rule is SetsRule.CLEARED_AT_MIN_ISR:
            self.count("ELR cleared by expansion")
        if before.isr and not after.isr:
            self.count("ISR empty")
        if (before.isr or before.elr) and not after.isr and not after.elr:
            self.count("ISR and ELR empty")
        if decision.reason is ElectionReason.ELR:
            self.count("elected from the ELR")
        elif change.is_unclean_election:
            self.count("elected uncleanly")
        if before.leader is not None and after.leader is None:
            self.count("no replica may lead")
        if len(after.last_known_elr) > after.min_isr:
            self.count("last known ELR above min ISR")
        if decision.cause.kind is CauseKind.MIN_ISR_CONFIGURED and before.elr:
            self.count("min ISR changed with an ELR")
        roles = sorted(view.role.value for view in seen.running(index))
        self.fingerprints.add(
            (
                len(after.isr),
                len(after.elr),
                len(after.last_known_elr),
                after.leader is not None,
                after.last_known_leader is not None,
                after.leader_recovery_state,
                *roles,
            )
        )

    def record_committed(
        self, seen: "Observer", offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is RegisterBrokerRecord:
            old = before.brokers.get(record.broker_id)
            if old is not None:
                if not old.is_fenced:
                    self.count("registered again before it was fenced")
                kind = "a clean" if record.clean_shutdown else "an unclean"
                self.count(f"registered after {kind} stop")

    # --- brokers ---------------------------------------------------------------------------------------

    def replica_loaded(self, seen: "Observer", view: ReplicaView, prior: ReplicaView | None) -> None:
        report = view.log.recovery
        if report.dropped_bytes:
            self.count("recovery of a log cut a tail")
        if report.dropped_segments:
            self.count("recovery of a log dropped segments")

    def replica_changed(
        self, seen: "Observer", view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        cut = view.history.cut
        if cut and before.end_offset > view.end_offset:
            self._log_was_cut(seen, view, before, cut)
        self._note_expired(view)
        leadership = view.leadership
        if leadership is not None and leadership is not before.leadership:
            if view.high_watermark < view.end_offset:
                self.count("high watermark behind the epoch's start at election")

    def _note_expired(self, view: ReplicaView) -> None:
        start, replica = view.log.log_start_offset, (view.process.name, view.index)
        # one that has begun anew knows no epoch
        if 0 < start == view.end_offset and view.log.last_epoch >= 0 and self._expired.get(replica) != start:
            self._expired[replica] = start
            self.count("all of a log has expired")

    def _log_was_cut(
        self, seen: "Observer", view: ReplicaView, before: Before, cut: Sequence[BatchMark]
    ) -> None:
        epochs = {batch.leader_epoch for batch in cut}
        self.count(f"follower diverged, {'one epoch' if len(epochs) == 1 else 'several epochs'}")
        if view.end_offset == view.history.start_offset:
            self.count("log cut to its start")
        if view.end_offset < before.high_watermark:
            self.count("log cut below the high watermark")
        leader = None if view.registration is None else view.registration.leader
        other = None if leader is None else seen.live_replica(view.index, leader)
        if other is not None and view.role is Role.FOLLOWER:
            known = {batch.leader_epoch for batch in view.history.batches} | epochs
            if any(b.leader_epoch not in known for b in other.history.batches[len(view.history.batches) :]):
                self.count("follower lacked an epoch of the leader")

    def broker_ends(self, seen: "Observer", broker: SimBroker) -> None:
        sim_disk, state = broker.machine.sim_disk, broker.state
        if state is State.DOWN:
            return
        is_durable = sim_disk.durable_bytes(MARKER) is not None
        is_there = sim_disk.read(MARKER) is not None
        node = broker.node
        has_core = node is not None and hasattr(node, "core")
        if state is State.STOPPING and node is not None and node.stopped.done():
            if is_durable and is_there:
                self.count("ended with the mark durable")
            elif is_there:
                self.count("ended with the mark renamed")
            elif sim_disk.read(MARKER + TEMPORARY_SUFFIX) is not None:
                self.count("ended with the mark written")
            elif all(log.flushed_offset == log.log_end_offset for log in node.log_manager.logs.values()):
                self.count("ended after the flush of the logs")
            else:
                self.count("ended after leaving, logs not flushed")
        elif state is State.STOPPING:
            self.count("ended while asking to leave")
        elif is_there:
            self.count("ended at start, mark not deleted")
        elif is_durable:
            self.count("ended at start, mark deleted but durable")
        elif node is None or not has_core or not node.core.lifecycle.is_registered:
            self.count("ended at start, before its registration")
        elif not node.core.has_roles:
            self.count("ended after its registration, before its roles")
