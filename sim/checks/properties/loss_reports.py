"""Properties of what the controllers tell operators of losses (G-4, R68)."""

import re
from collections import Counter
from collections.abc import Sequence

from holdfast.broker.core.replicas.partition import Role
from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.partitions.election import ElectionReason, Rejection
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import DEPARTURES, Before, Change, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimController
from holdfast.sim.load.clients import partition_at

_UNCLEAN = tuple(reason for reason in ElectionReason if reason.is_unclean)
#: the leader was asked for, or found by comparing logs
_CHOSEN = (
    CauseKind.PREFERRED_ASKED,
    CauseKind.LEADER_BALANCE,
    CauseKind.DESIGNATED,
    CauseKind.LOGS_COMPARED,
    CauseKind.LEADER_UNREACHABLE,
    CauseKind.LOW_ON_SPACE,
)
_TOLD = re.compile(r"(\S+)-(\d+): .*elected as (\w+); records may be lost")


class LossIsBounded(Property):
    """Where the controller says how many records an election loses at most, it loses no more (R68)."""

    name = "G-4 LossIsBounded"

    def __init__(self) -> None:
        #: {place: leader epoch, and the batches that were committed by the end of it}
        self._committed: dict[int, tuple[int, list[BatchMark]]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership = view.leadership
        if leadership is None or view.history.start_offset:
            return
        leader_epoch, committed = self._committed.get(view.index, (-1, []))
        if leadership.leader_epoch < leader_epoch:
            return
        if leadership.leader_epoch > leader_epoch:
            committed = []
            self._committed[view.index] = leadership.leader_epoch, committed
        batches = view.history.batches
        while len(committed) < len(batches) and batches[len(committed)].last_offset < view.high_watermark:
            committed.append(batches[len(committed)])

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        cause, leader = change.decision.cause, change.after.leader
        most = cause.most_lost(leader)
        view = None if leader is None else seen.live_replica(index, leader)
        _, committed = self._committed.get(index, (-1, []))
        batches = [] if view is None or view.history.start_offset else view.history.batches
        if change.is_unclean_election:
            # What it has lost the next election cannot lose again, also if this one never came to lead.
            kept = [batch for batch, other in zip(committed, batches, strict=False) if batch == other]
            self._committed[index] = change.after.leader_epoch, kept
        if most is None or view is None or view.history.start_offset:
            return
        lost = sum(
            batch.last_offset - batch.base_offset + 1
            for place, batch in enumerate(committed)
            if place >= len(batches) or batches[place] != batch
        )
        if lost > most:
            story = f"{lost} records are gone with {leader}, at most {most} were said"
            seen.broken(self, index, f"{story}: {cause}")


class CeilingsHoldWhatIsCommitted(Property):
    """What a replica has promised on disk is above all that was committed, for as long as it has a seat: from
    any one of these promises the controllers conclude what may be lost at most (R68). Looked at when one
    becomes durable, and when a process finds it: long before all replicas have lost their tails."""

    name = "G-4 CeilingsHoldWhatIsCommitted"

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        assert view.broker.node is not None
        managed = view.broker.node.log_manager.managed(view.replica.key)
        if managed is not None and managed.ceiling >= 0:
            self.ceiling_stored(seen, view, managed.ceiling)

    def ceiling_stored(self, seen: Observer, view: ReplicaView, ceiling: int) -> None:
        ghost, shape = seen.ghosts[view.index], seen.world.shape
        # A lying disk keeps no promise. Without ELR who has lost its tail may stay in sync, and logs are not
        # compared. After an unclean election old seats say nothing of what was committed since (R10).
        if ghost.row is None or ghost.unclean is not None or shape.disks_lie or not shape.elr:
            return
        row, broker_id = ghost.row, view.broker.node_id
        is_member = broker_id in (*row.isr, *row.elr, *row.last_known_elr)
        if is_member and ceiling < ghost.high_watermark:
            story = f"{view.broker.name} has promised {ceiling}, {ghost.high_watermark} were committed"
            seen.broken(self, view.index, f"{story}: {row}")


class UncleanElectionsAreTold(Property):
    """Whenever a replica is elected that may lack committed records, the controller has told of it, by
    partition and rule, and has counted it. In every band."""

    name = "G-4 UncleanElectionsAreTold"

    def __init__(self) -> None:
        #: {(topic, index, rule): how often}; an election that was told of may never be committed
        self._told: Counter[tuple[str, int, str]] = Counter()
        #: {process of a controller: elections that it told of}
        self._by_process: Counter[str] = Counter()

    def controller_warned(self, seen: Observer, node: SimController, lines: Sequence[str]) -> None:
        for line in lines:
            found = _TOLD.match(line)
            if found is None:
                seen.broken(self, None, f"{node.name} does not tell which partition: {line}")
                return
            self._told[found[1], int(found[2]), found[3]] += 1
        process = node.process.name
        self._by_process[process] += len(lines)
        assert node.server is not None
        elections = node.server.core.counts.elections
        counted = sum(elections[reason] for reason in _UNCLEAN)
        if counted != self._by_process[process]:
            story = f"{node.name} counts {counted} elections that may lose records"
            seen.broken(self, None, f"{story}, it told of {self._by_process[process]}: {lines[-1]}")

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        reason = change.decision.reason
        if reason is None or not reason.is_unclean:
            return
        partition = partition_at(index)
        key = partition.topic, partition.partition, reason.value
        if not self._told[key]:
            seen.broken(self, index, f"not told of {change.decision}: {change.before} -> {change.after}")
        self._told[key] -= 1


class LogsAreToldAsTheyAre(Property):
    """R62, R66: what a replica has told of its log, when logs are compared, is where its batches end and the
    epoch of the last of them: no less, and no epoch without a batch. No replica appends without a leader."""

    name = "R66 LogsAreToldAsTheyAre"

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        if change.decision.reason is not ElectionReason.LONGEST_LOG:
            return
        for log in change.decision.cause.logs:
            view = seen.live_replica(index, log.replica) if log.is_compared else None
            if view is None or view.registration is None or view.role is Role.LEADER or view.history.cut:
                continue
            # One that knows the next leader by now may have begun to follow it.
            is_waiting = view.registration.leader_epoch <= change.before.leader_epoch
            last_epoch = view.history.last_epoch
            is_moving = view.history.start_offset or view.log.log_end_offset != view.end_offset
            if (
                is_waiting
                and not is_moving
                and (log.last_epoch, log.end_offset) != (last_epoch, view.end_offset)
            ):
                story = f"{view.broker.name} told of {log}, its log ends at {view.end_offset} in epoch"
                seen.broken(self, index, f"{story} {last_epoch}")


class ReasonsAreTrue(Property):
    """R2, R5, R10: what a record says of why the partition has changed is so: only an elected replica has a
    reason, the sets of the ELR follow the rule that is named, and those who were passed over are told, all of
    them, with what kept them from leading. Operators are shown it long afterwards (`holdfast explain`), and
    elections are counted by it."""

    name = "R2 ReasonsAreTrue"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        decision, before, after = change.decision, change.before, change.after
        if decision.cause.kind is CauseKind.UNSTATED:
            return
        is_elected = after.leader not in (None, before.leader)
        is_reached = len(after.isr) >= after.min_isr
        is_so = {
            SetsRule.ELR_OFF: not change.image.elr_enabled,
            SetsRule.CLEARED_AT_MIN_ISR: is_reached and not after.elr + after.last_known_elr,
            SetsRule.KEPT_BELOW_MIN_ISR: not is_reached and change.image.elr_enabled,
            SetsRule.FORGOTTEN_BY_UNCLEAN_ELECTION: change.is_unclean_election
            and not after.elr + after.last_known_elr,
            SetsRule.SEATS_AFTER_UNCLEAN_ELECTION: change.is_unclean_election and not after.elr,
        }
        wrong = [
            f"{replica} {why.name}" for replica, why in decision.rejected if not _is_so(change, replica, why)
        ]
        passed_over = _passed_over(change)
        if passed_over is not None and passed_over != {replica for replica, _ in decision.rejected}:
            wrong.append(f"passed over were {sorted(passed_over)}")
        if is_elected != (decision.reason is not None) or not is_so[decision.sets_rule] or wrong:
            told = f"{decision.reason}, {decision.sets_rule}, {decision.rejected}"
            seen.broken(self, index, f"{before} -> {after} is explained by {told}, wrong is {wrong}")


def _passed_over(change: Change) -> set[int] | None:
    """The replicas before the leader by R12: the former one, then the order of assignment; all when there is
    no leader. None where an operator or a comparison of logs has said who shall lead."""
    if change.decision.cause.kind in _CHOSEN:
        return None
    former, leader = change.before.leader, change.after.leader
    order = [*(() if former is None else (former,)), *change.after.replicas]
    if leader is None or change.is_unclean_election:
        return set(order) - {leader}
    return set(order[: order.index(leader)])


def _is_so(change: Change, replica: int, why: Rejection) -> bool:
    """Whether a replica that was passed over had that fault, or is given it by this very event."""
    broker = change.image.brokers.get(replica)
    cause = change.decision.cause
    is_leaving = replica == cause.broker_id and cause.kind in DEPARTURES
    if replica not in change.after.replicas:
        return why is Rejection.NOT_ASSIGNED
    match why:
        case Rejection.UNREGISTERED:
            return broker is None or is_leaving
        case Rejection.FENCED:
            return is_leaving or (broker is not None and broker.is_fenced)
        case Rejection.IN_CONTROLLED_SHUTDOWN:
            return is_leaving or (broker is not None and broker.in_controlled_shutdown)
        case Rejection.LOG_DIR_FAILED:
            return is_leaving or (broker is not None and change.key in broker.offline_replicas)
        case Rejection.NOT_ASSIGNED:
            return False
    if not change.is_active(replica):
        return False
    match why:
        case Rejection.NOT_IN_ISR:
            return replica not in change.after.isr
        case Rejection.NOT_ELIGIBLE:
            return not _is_in_sync(change) and _was_in_last_known_elr(change, replica) is not True
        case Rejection.UNCLEAN_SHUTDOWN:
            return not _is_in_sync(change) and _was_in_last_known_elr(change, replica) is not False


def _is_in_sync(change: Change) -> bool:
    """Whether the ISR surely had members when the leader was elected; the elected one joins it otherwise, and
    without ELR the last one stays (F7)."""
    if change.after.leader is None:
        return change.image.elr_enabled and bool(change.after.isr)
    return change.decision.reason in (None, ElectionReason.ISR, ElectionReason.PREFERRED)


def _was_in_last_known_elr(change: Change, replica: int) -> bool | None:
    """Whether it was in the last known ELR when the leader was elected; None where that is not recorded."""
    if replica in change.after.last_known_elr:
        return True
    is_whole = change.decision.sets_rule in (SetsRule.KEPT_BELOW_MIN_ISR, SetsRule.ELR_OFF)
    return False if is_whole else None
