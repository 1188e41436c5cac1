"""Properties of what must be done in time or in order while faults go on, not only after them."""

from collections.abc import Sequence

from holdfast.broker.core.replicas.leadership import Leadership
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import (
    Before,
    Change,
    Property,
    ReplicaView,
    configured,
)
from holdfast.sim.cluster.nodes import State
from holdfast.sim.load.clients import partition_at

#: a leader looks at its followers every half of the lag time, a second here; so much more is no accident
_PATIENCE_NS = 2_400_000_000
#: a leader that was not seen for so long may have been paused
_LOOKED_AWAY_NS = 1_200_000_000
_MIN_ISR = "min.insync.replicas"


class KnownSeatsHaveAnswered(Property):
    """R62, R64: logs prove something only when each member of the last known ELR has told of its own; no
    answer, and one with an error, is not an empty log."""

    name = "R62 KnownSeatsHaveAnswered"

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        # Beyond the budget operators may ask for less.
        if change.decision.reason is not ElectionReason.LONGEST_LOG or seen.world.shape.over_budget:
            return
        ends = {log.replica: log.end_offset for log in change.decision.cause.logs}
        silent = [member for member in change.before.last_known_elr if ends.get(member, -1) < 0]
        if silent:
            seen.broken(self, index, f"{silent} have told of no log: {ends}, {change.before}")


class MinIsrIsConfigured(Property):
    """R109, N-5: what is committed of a partition holds the min ISR that is configured at that offset."""

    name = "R109 MinIsrIsConfigured"

    def metadata_committed(self, seen: Observer) -> None:
        image = seen.image
        for index, ghost in seen.ghosts.items():
            row = ghost.row
            if row is None:
                continue
            asked = int(configured(image, partition_at(index).topic, _MIN_ISR) or seen.world.shape.min_isr)
            counted = row.original_replicas or row.replicas
            wanted = min(asked, len(counted))
            if row.min_isr != wanted:
                seen.broken(self, index, f"{asked} is configured, so {wanted}: {row}")


class LaggardsLeave(Property):
    """R51: a leader proposes an ISR without the member that has lacked for the lag time what the leader had
    when it began. After healing all replicas catch up, so it is looked at while a leader works. Which member
    lags is worked out here from positions alone: what the leader remembers of it may be wrong."""

    name = "R51 LaggardsLeave"

    def __init__(self) -> None:
        #: {(partition, process): its leadership, {member: (since when, what it lacks: the leader's end
        #: then)}, when it was looked at last}; virtual ns
        self._lagging: dict[tuple[int, str], tuple[Leadership, dict[int, tuple[int, int]], int]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership, row = view.leadership, view.registration
        key = view.index, view.process.name
        is_free = leadership is not None and leadership.start_offset is not None and not leadership.proposal
        if leadership is None or row is None or not is_free or view.broker.state is not State.RUNNING:
            self._lagging.pop(key, None)
            return
        now_ns, position = seen.world.loop.now_ns, view.position
        former, lacked, looked_ns = self._lagging.get(key, (leadership, {}, now_ns))
        if former is not leadership or now_ns - looked_ns > _LOOKED_AWAY_NS:
            lacked = {}
        lacks: dict[int, tuple[int, int]] = {}
        for member in row.isr:
            if member != view.broker.node_id and leadership.progress[member].position < position:
                lacks[member] = now_ns, position
                if member in lacked and leadership.progress[member].position < lacked[member][1]:
                    lacks[member] = lacked[member]
        self._lagging[key] = leadership, lacks, now_ns
        # clocks run up to a tenth slow
        patience_ns = view.replica.lag_ms_max * 1_100_000 + _PATIENCE_NS
        for member, (since_ns, end) in lacks.items():
            if now_ns - since_ns > patience_ns:
                passed_ms = (now_ns - since_ns) // 1_000_000
                story = f"b{member} is in sync and has lacked what is below {end} for {passed_ms} ms"
                seen.broken(self, view.index, f"{story}: {row}")


class _Kept:
    """What a leader has seen of its followers in one epoch."""

    __slots__ = ("asked", "had_all", "leadership")

    def __init__(self, leadership: Leadership, members: Sequence[int], now_ns: int) -> None:
        self.leadership = leadership
        #: {member: (virtual ns at which it had all that the leader had, in which incarnation)}. Who is in
        #: sync at the beginning of the epoch has the whole lag time from there, whichever it is
        self.had_all: dict[int, tuple[int, int | None]] = dict.fromkeys(members, (now_ns, None))
        #: {follower: (virtual ns of its last fetch, in which incarnation, the leader's end then)}
        self.asked: dict[int, tuple[int, int, int]] = {}


def _is_silent(view: ReplicaView, member: int) -> bool:
    """R115: its last fetch was answered so long ago, by the leader's own clock."""
    node, now_ms = view.broker.node, view.broker.clock_ms
    if node is None:
        return False
    core = node.core
    quiet_since_ms = core.fetch_path.followers_quiet_since_ms().get(member)
    return quiet_since_ms is not None and now_ms - quiet_since_ms >= core.config.replica_silent_ms


class KeepersStay(Property):
    """R51: a leader drops no member that had all that it has within the lag time, or has all that there was
    at a fetch of its own within that time, and no member at all within the first lag time of its epoch,
    unless it is silent (R115). A member that keeps up and is dropped nevertheless makes the ISR smaller
    without need."""

    name = "R51 KeepersStay"

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], _Kept] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership, row, key = view.leadership, view.registration, (view.index, view.process.name)
        if leadership is None or row is None:
            self._kept.pop(key, None)
            return
        now_ns, proposal = seen.world.loop.now_ns, view.proposal
        kept = self._kept.get(key)
        if kept is None or kept.leadership is not leadership:
            kept = self._kept[key] = _Kept(leadership, row.isr, now_ns)
        if proposal is not None and proposal is not before.proposal:
            # clocks run up to a tenth fast, and time passes within a handle
            lag_ns = view.replica.lag_ms_max * 850_000
            for member in row.isr:
                if member in proposal.isr or member not in kept.had_all:
                    continue
                since_ns, epoch = kept.had_all[member]
                is_same = epoch is None or epoch == leadership.progress[member].broker_epoch
                if is_same and now_ns - since_ns < lag_ns and not _is_silent(view, member):
                    story = f"{view.broker.name} drops b{member}, which had all it has {now_ns - since_ns} ns"
                    seen.broken(self, view.index, f"{story} before: {row}, {proposal}")
        for member, progress in leadership.progress.items():
            if progress.position >= view.position:
                kept.had_all[member] = now_ns, progress.broker_epoch

    def follower_fetched(self, seen: Observer, view: ReplicaView, progress: ReplicaProgress) -> None:
        kept = self._kept.get((view.index, view.process.name))
        if kept is None or kept.leadership is not view.leadership:
            return
        member, epoch = progress.replica_id, progress.broker_epoch
        asked_ns, asked_epoch, end = kept.asked.get(member, (-1, epoch, 0))
        if asked_ns >= 0 and asked_epoch == epoch and progress.position >= end:
            since_ns, since_epoch = kept.had_all.get(member, (-1, epoch))
            if asked_ns > since_ns or since_epoch not in (None, epoch):
                kept.had_all[member] = asked_ns, epoch
        kept.asked[member] = seen.world.loop.now_ns, epoch, view.position
