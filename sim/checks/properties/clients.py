"""Properties of what clients are told, asked when it is told: rules 12, 13 and 24, and A-18.

Owns what can be judged only at that moment; what the whole history shows is in `sim.checks.history_rules`.
"""

from collections.abc import Sequence

from holdfast.broker.core.events import ReadRow
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Change, Property, ReplicaView
from holdfast.sim.checks.properties.replicas import is_another_incarnation
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.load.clients import Polled


class HighWatermarkNeverFalls(Property):
    """Rule 12: what leaders tell consumers never goes back, from one leader epoch to the next. A leader that
    was deposed and does not know it may tell an older one: who leads later is compared with it."""

    name = "rule 12 HighWatermarkNeverFalls"
    is_about_loss = True

    def __init__(self) -> None:
        #: {partition: (newest leader epoch that told one, the highest that was told)}
        self._told: dict[int, tuple[int, int]] = {}
        #: {partition: leader epoch of its last unclean election}: older leaders are of another log
        self._floors: dict[int, int] = {}

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        if change.is_unclean_election:
            self._floors[index] = change.after.leader_epoch
            self._told.pop(index, None)

    def shown(self, seen: Observer, view: ReplicaView, row: ReadRow) -> None:
        if row.high_watermark < 0 or row.leader_epoch < self._floors.get(view.index, 0):
            return
        epoch, highest = self._told.get(view.index, (0, 0))
        if row.leader_epoch >= epoch and row.high_watermark < highest:
            story = f"{view.broker.name} of epoch {row.leader_epoch} tells {row.high_watermark}"
            seen.broken(self, view.index, f"{story}, {highest} was told before")
        self._told[view.index] = max(epoch, row.leader_epoch), max(highest, row.high_watermark)


class AcknowledgedIsShown(Property):
    """Rule 13: the present leader shows consumers all that was acknowledged, or tells that it does not know
    yet (A-6)."""

    name = "rule 13 AcknowledgedIsShown"
    is_about_loss = True

    def shown(self, seen: Observer, view: ReplicaView, row: ReadRow) -> None:
        ghost = seen.ghosts[view.index]
        is_present = ghost.row is not None and ghost.row.leader_epoch == row.leader_epoch
        if is_present and 0 <= row.high_watermark < ghost.acknowledged:
            story = f"{view.broker.name} tells {row.high_watermark}"
            seen.broken(self, view.index, f"{story}, acknowledged is up to {ghost.acknowledged}")


class AcknowledgedIsDurable(Property):
    """Rule 24: with a flush of every write an acknowledged batch is on the disk of the whole ISR."""

    name = "rule 24 AcknowledgedIsDurable"
    is_about_loss = True

    def acknowledged(self, seen: Observer, view: ReplicaView, base_offset: int, leader_epoch: int) -> None:
        row, leadership = view.registration, view.leadership
        if not seen.counts_durable(view) or row is None or leadership is None:
            return
        for broker_id in row.isr:
            member = seen.live_replica(view.index, broker_id)
            if member is None or is_another_incarnation(seen, leadership, broker_id):
                continue
            if member.replica.log.flushed_offset <= base_offset:
                story = f"{view.broker.name} acknowledged {base_offset}, {member.broker.name} has flushed"
                seen.broken(self, view.index, f"{story} up to {member.replica.log.flushed_offset}")


class LeaderAcksNeedNoQuorum(Property):
    """F4, F5: min ISR is asked of writes with acks=all alone: who is content with the leader is not refused
    for it."""

    name = "F5 LeaderAcksNeedNoQuorum"

    def write_refused(self, seen: Observer, view: ReplicaView, acks: int, error: ErrorCode) -> None:
        if acks != -1 and error in (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ):
            seen.broken(
                self, view.index, f"{view.broker.name} refuses a write with acks={acks}: {error.name}"
            )


class UnansweredWritesAreHeardOf(Property):
    """F4, D12: a write with acks=0 gets no answer, and ends the connection when it is refused: its producer
    would never hear of it."""

    name = "F4 UnansweredWritesAreHeardOf"

    def write_dropped(self, seen: Observer, broker: SimBroker, why: str) -> None:
        seen.broken(self, None, f"{broker.name} {why}")


class WaitingWritesAreGivenUp(Property):
    """A-18: no write waits for what cannot come: another leader's high watermark, or one that stands still
    below min ISR. Nor for one that has come."""

    name = "A-18 WaitingWritesAreGivenUp"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        node = view.broker.node
        if node is None or not hasattr(node, "core"):
            return
        waiting = node.core.produce_path._replicating._queues.get(view.replica.key)
        if not waiting:
            return
        row, leadership = view.registration, view.leadership
        is_open = leadership is not None and row is not None and len(row.isr) >= row.min_isr
        for one in waiting:
            if one.is_decided:
                continue
            if not is_open or leadership is None or one.leader_epoch != leadership.leader_epoch:
                story = f"{view.broker.name} lets a write of epoch {one.leader_epoch} wait for"
                seen.broken(self, view.index, f"{story} {one.required_offset} as {view.role.value}, {row}")
            if one.required_offset <= view.high_watermark:
                story = f"{view.broker.name} is at {view.high_watermark} and lets a write wait for"
                seen.broken(self, view.index, f"{story} {one.required_offset}")


class ReadersGoOnAtAStart(Property):
    """Rules 9, 10: a reader whose next record was deleted goes on where some log begins by now: what is
    behind every log start was never deleted. (`checks.skipped` knows where logs begin in the end.)"""

    name = "rule 10 ReadersGoOnAtAStart"
    is_about_loss = True

    def __init__(self) -> None:
        #: {partition: highest log start that was seen of any replica}
        self._starts: dict[int, int] = {}
        #: of each session of a consumer: records that were looked at, and what it wants next
        self._read: list[tuple[int, dict[int, int]]] = []

    def shown(self, seen: Observer, view: ReplicaView, row: ReadRow) -> None:
        self._look(view)

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        self._look(view)

    def _look(self, view: ReplicaView) -> None:
        start = view.log.log_start_offset
        if start > self._starts.get(view.index, 0):
            self._starts[view.index] = start

    def consumed(self, seen: Observer, polled: Polled) -> None:
        for number, session in enumerate(seen.world.load.polls):
            if number == len(self._read):
                self._read.append((0, {}))
            count, wanted = self._read[number]
            if count == len(session):
                continue
            self._read[number] = len(session), wanted
            for one in session[count:]:
                expected = wanted.get(one.partition, 0)
                wanted[one.partition] = one.offset + 1
                if one.offset <= max(expected, self._starts.get(one.partition, 0)):
                    continue
                # where a log begins may be told before its replica changes, and by another leader
                for view in seen.replicas.get(one.partition, {}).values():
                    self._look(view)
                if one.offset > self._starts.get(one.partition, 0):
                    story = f"{one.offset} was read, {expected} was wanted, no log begins behind"
                    seen.broken(self, one.partition, f"{story} {self._starts.get(one.partition, 0)}")
