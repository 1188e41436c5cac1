"""Properties of what the controllers tell operators of losses (G-4, R68)."""

import re
from collections import Counter
from collections.abc import Sequence

from holdfast.broker.core.replicas.partition import Role
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Change, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimController
from holdfast.sim.load.clients import partition_at

_UNCLEAN = tuple(reason for reason in ElectionReason if reason.is_unclean)
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
