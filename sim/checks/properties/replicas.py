"""Properties of one replica: its role, its high watermark, what it proposes, when it takes a role at all."""

from collections.abc import Sequence

from holdfast.broker.core.events import ReadRow
from holdfast.broker.core.replicas.leadership import Leadership, Proposal
from holdfast.broker.core.replicas.partition import Role
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Change, Property, ReplicaView


class TypeOK(Property):
    """Offsets of a replica are in order, and numbers of a partition in their domains."""

    name = "I-1 TypeOK"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        start, end = view.log.log_start_offset, view.end_offset
        if _is_being_cut(view):  # the partition hears of it a moment later
            start = min(start, view.high_watermark, view.flushed_offset)
            end = max(end, view.high_watermark)
        if not start <= view.high_watermark <= end or not start <= view.flushed_offset <= end:
            offsets = f"high watermark {view.high_watermark}, flushed {view.flushed_offset}"
            seen.broken(self, view.index, f"{view.broker.name} from {start} to {end} has {offsets}")

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        row = change.after
        is_leader_known = row.leader is None or row.leader in row.replicas
        if not 1 <= row.min_isr <= len(row.replicas) or not is_leader_known or row.leader_epoch < 0:
            seen.broken(self, index, str(row))


def _is_being_cut(view: ReplicaView) -> bool:
    """A truncation of the log is under way, or its end is not heard of yet."""
    node = view.broker.node
    assert node is not None
    return bool(node.core.fetchers._pending.get(view.replica.key))


class ValidBrokerState(Property):
    """I-2 and N-2: who has a role is registered, and has replayed its own registration before."""

    name = "I-2 ValidBrokerState"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if view.role is Role.NONE or view.registration is before.registration:
            return
        node = view.broker.node
        assert node is not None
        epoch, image = node.core.lifecycle.broker_epoch, node.core.image
        own = image.brokers.get(view.broker.node_id)
        if epoch < 0 or own is None or own.broker_epoch < epoch:
            story = f"{view.broker.name} of epoch {epoch} is {view.role.value}, has replayed {image.offset}"
            seen.broken(self, view.index, f"{story} with own registration {own}")


class ValidFetcherState(Property):
    """A leader fetches from no broker, a follower from its leader alone."""

    name = "I-4 ValidFetcherState"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if view.registration is before.registration:
            return
        node, row = view.broker.node, view.registration
        assert node is not None
        key = view.replica.key
        sources = [source.source_id for source in node.core.fetchers._sources.values() if key in source.rows]
        wanted = [] if view.role is not Role.FOLLOWER or row is None or row.leader is None else [row.leader]
        if sources and sources != wanted:
            story = f"{view.broker.name} is {view.role.value} under {row} and fetches from {sources}"
            seen.broken(self, view.index, story)


class ReplicationQuorumSuperset(Property):
    """A current leader waits for every replica that the controller may elect."""

    name = "I-7 ReplicationQuorumSuperset"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if view.role is Role.LEADER:
            self._check(seen, view)

    def metadata_committed(self, seen: Observer) -> None:
        for index in seen.ghosts:
            for view in seen.running(index):
                if view.role is Role.LEADER:
                    self._check(seen, view)

    def _check(self, seen: Observer, view: ReplicaView) -> None:
        truth, row = seen.ghosts[view.index].row, view.registration
        if truth is None or row is None or row.leader_epoch != truth.leader_epoch:
            return
        if view.proposal is None and view.maximal_isr != row.isr:
            story = f"{view.broker.name} proposes nothing: maximal {view.maximal_isr}, ISR {row.isr}"
            seen.broken(self, view.index, story)
        elr = truth.elr if seen.image.elr_enabled else ()
        if len(row.isr) >= row.min_isr and not {*truth.isr, *elr} <= set(view.maximal_isr):
            story = f"{view.broker.name} waits for {view.maximal_isr}, committed is {truth}"
            seen.broken(self, view.index, story)


class OneLeaderPerEpoch(Property):
    """At most one broker ever leads a partition in one leader epoch."""

    name = "I-15 OneLeaderPerEpoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[int, int], int] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership = view.leadership
        if leadership is not None and leadership is not before.leadership:
            first = self._leaders.setdefault((view.index, leadership.leader_epoch), view.broker.node_id)
            if first != view.broker.node_id:
                story = f"{view.broker.name} and broker {first} lead epoch {leadership.leader_epoch}"
                seen.broken(self, view.index, story)


class HighWatermarkStaysUnderCeilings(Property):
    """A leader's high watermark moves only below what it, and every replica that it counts, has promised on
    disk; a member that was let in before its first promise bounds nothing (R68)."""

    name = "G-4 HighWatermarkStaysUnderCeilings"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership, registration = view.leadership, view.registration
        if leadership is None or registration is None or view.broker.node is None:
            return
        if before.leadership is not leadership:
            managed = view.broker.node.log_manager.managed(view.replica.key)
            if managed is not None and 0 <= managed.ceiling < view.high_watermark:
                story = f"{view.broker.name} begins to lead at {view.high_watermark}, it has promised"
                seen.broken(self, view.index, f"{story} {managed.ceiling}")
            return
        if view.high_watermark <= before.high_watermark:
            return
        for broker_id in registration.isr:
            member = seen.live_replica(view.index, broker_id)
            node = None if member is None else member.broker.node
            managed = None if node is None else node.log_manager.managed(view.replica.key)
            if managed is None or (managed.ceiling < 0 and member is not view):
                continue
            if managed.ceiling < view.high_watermark:
                story = f"{view.broker.name} is at {view.high_watermark}, {broker_id} has promised"
                seen.broken(self, view.index, f"{story} {managed.ceiling}")


class HighWatermarkNeedsMinIsr(Property):
    """It rises only while the committed ISR has min ISR members, and as far as all it counts have."""

    name = "A-2 HighWatermarkNeedsMinIsr"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership = view.leadership
        has_risen = view.high_watermark > before.high_watermark
        if leadership is None or leadership is not before.leadership or not has_risen:
            return
        # One step may hold two events: the ISR of either side of it may be the one that counted.
        rows = [row for row in (before.registration, view.registration) if row is not None]
        if all(len(row.isr) < row.min_isr for row in rows):
            story = f"{view.broker.name} went to {view.high_watermark} with {view.registration}"
            seen.broken(self, view.index, story)
        for broker_id in view.maximal_isr:
            member = seen.live_replica(view.index, broker_id)
            if member is None or is_another_incarnation(seen, leadership, broker_id):
                continue
            position = _position(seen, member)
            if position < view.high_watermark:
                story = f"{view.broker.name} went to {view.high_watermark}, {member.broker.name} is at"
                seen.broken(self, view.index, f"{story} {position}")


def is_another_incarnation(seen: Observer, leadership: Leadership, broker_id: int) -> bool:
    """A member has been registered anew since it last fetched: it had reached then what it may lack now."""
    progress = leadership.progress.get(broker_id)
    registration = seen.image.brokers.get(broker_id)
    if progress is None or registration is None:
        return False
    return 0 <= progress.broker_epoch < registration.broker_epoch


def _position(seen: Observer, view: ReplicaView) -> int:
    """What a leader may have counted of it, as it is at this moment: the flush of a follower may not have
    been looked at yet. Once a topic is switched to every write, who knows of that counts less of itself than
    a leader that does not, or that had counted it before."""
    log = view.replica.log
    return log.flushed_offset if seen.counts_durable(view) else log.log_end_offset


class JoinerIsComplete(Property):
    """A replica is proposed only when it has followed this leader, up to its high watermark and to where its
    epoch began."""

    name = "A-5 JoinerIsComplete"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        proposal = view.proposal
        if proposal is None or proposal is before.proposal or view.leadership is None:
            return
        assert view.registration is not None
        for broker_id in proposal.isr:
            if broker_id not in view.registration.isr:
                self._check(seen, view, proposal, broker_id)

    def _check(self, seen: Observer, view: ReplicaView, proposal: Proposal, broker_id: int) -> None:
        leadership = view.leadership
        assert leadership is not None
        # What it was when it fetched: the high watermark may have moved in the same step.
        needed = max(leadership.start_offset or 0, min(view.high_watermark, view.end_offset))
        joiner = seen.live_replica(view.index, broker_id)
        progress = leadership.progress.get(broker_id)
        if leadership.start_offset is None or progress is None or progress.position < needed:
            known = None if progress is None else progress.position
            seen.broken(self, view.index, f"{broker_id} is proposed at {known}, needs {needed}")
        if joiner is not None and joiner.registration is not None:
            epoch = joiner.registration.leader_epoch
            position = _position(seen, joiner)
            if epoch < proposal.leader_epoch or position < needed:
                story = f"{joiner.broker.name} is proposed, is at {position} in epoch {epoch}"
                seen.broken(self, view.index, f"{story}; needs {needed} in {proposal.leader_epoch}")


class HighWatermarkUnknownAtFirst(Property):
    """A consumer is told no high watermark below the start of the leader's epoch, and no record above it."""

    name = "A-6 HighWatermarkUnknownAtFirst"

    def shown(self, seen: Observer, view: ReplicaView, row: ReadRow) -> None:
        leadership = view.leadership
        if leadership is None or leadership.leader_epoch != row.leader_epoch:
            return
        start = leadership.start_offset
        # of the replica itself: a view whose log dir failed in this very step may have missed the last move
        high_watermark = view.replica.high_watermark
        is_known = row.high_watermark >= 0
        if is_known and (start is None or not start <= row.high_watermark <= high_watermark):
            story = f"{view.broker.name} tells {row.high_watermark}, its epoch began at {start}"
            seen.broken(self, view.index, f"{story}, its high watermark is {high_watermark}")
        if row.max_bytes and row.end_offset > high_watermark:
            story = f"{view.broker.name} shows up to {row.end_offset}, high watermark {high_watermark}"
            seen.broken(self, view.index, story)
