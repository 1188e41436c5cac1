"""Properties of what a leader does as soon as it may: its high watermark moves, and followers are let in.

Owns what must be done by the end of the very step that has made it possible. A leader that forgets it finds
it at its next look at its followers, half a lag time later (15 s as Kafka is configured), or with the next
write: nothing else shows it, but the producer has waited.
"""

from collections.abc import Sequence

from holdfast.broker.core.replicas.leadership import Leadership
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Property, ReplicaView, may_lead
from holdfast.sim.cluster.nodes import SimBroker, State

#: a fetch so shortly before may have come behind what is judged, within one step of a strained world
_SAME_STEP_MS = 40


class HighWatermarkMoves(Property):
    """R52, F3: a leader's high watermark is as high as it may be: some replica that it waits for is short of
    the next offset. Producers wait for that."""

    name = "R52 HighWatermarkMoves"

    def follower_fetched(self, seen: Observer, view: ReplicaView, progress: ReplicaProgress) -> None:
        self._look(seen, view)

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        self._look(seen, view)

    def ceiling_stored(self, seen: Observer, view: ReplicaView, ceiling: int) -> None:
        self._look(seen, view)

    def _look(self, seen: Observer, view: ReplicaView) -> None:
        replica, row = view.replica, view.replica.registration
        leadership = _serving(view)
        if leadership is None or row is None or len(row.isr) < row.min_isr:
            return
        end = committed = replica.position
        if leadership.position != end:
            return  # what has become of its own log is on its way to it
        now_ms = view.broker.clock_ms
        for progress in leadership.progress.values():
            if progress.position >= end:
                continue
            # who may have kept up until its last look at all of them is waited for
            caught_up_ms = progress.last_caught_up_ms
            may_keep_up = caught_up_ms is not None and now_ms - caught_up_ms <= 2 * replica.lag_ms_max
            if progress.replica_id in leadership.maximal_isr:
                end = committed = progress.position
            elif may_keep_up:
                end = progress.position
        # it goes nowhere while what the ISR has is above its ceiling, whomever else it waits for
        if replica.high_watermark < end and committed <= replica.ceiling.limit:
            story = f"{view.broker.name} of epoch {leadership.leader_epoch} is at {replica.high_watermark}"
            seen.broken(self, view.index, f"{story}, and could be at {end}: {row}")


class HighWatermarkWaitsForJoiners(Property):
    """F3, R50: who has kept up and may join is waited for before it is proposed: else it stays out for as
    long as there is load."""

    name = "F3 HighWatermarkWaitsForJoiners"

    def __init__(self) -> None:
        #: {process: the metadata that it had when it was looked at last}
        self._images: dict[str, MetadataImage] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership, node = _serving(view), view.broker.node
        is_same = leadership is not None and leadership is before.leadership
        if leadership is None or node is None or not is_same or view.high_watermark <= before.high_watermark:
            return
        image, key = node.core.image, view.replica.key
        if self._images.get(view.process.name) is not image:
            return
        now_ms = view.broker.clock_ms
        for member, progress in leadership.progress.items():
            caught_up_ms = progress.last_caught_up_ms
            if member in leadership.maximal_isr or progress.position >= view.high_watermark:
                continue
            if caught_up_ms is None or now_ms - progress.last_fetch_ms < _SAME_STEP_MS:
                continue
            keeps_up = now_ms - caught_up_ms < view.replica.lag_ms_max * 9 // 10
            if keeps_up and _may_join(image, progress, key):
                story = f"{view.broker.name} goes on to {view.high_watermark} without b{member}"
                seen.broken(self, view.index, f"{story}, which keeps up, at {progress.position}")

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        self._images[broker.process.name] = broker.node.core.image


class FollowersAreLetIn(Property):
    """R50: a follower that has all is proposed for the ISR when it asks for more. Judged at the second such
    fetch: between the two the answer to a former proposal may have stood in the way."""

    name = "R50 FollowersAreLetIn"

    def __init__(self) -> None:
        #: {(partition, process, follower): when it was left outside with all that there is}, virtual ns
        self._outside: dict[tuple[int, str, int], int] = {}

    def follower_fetched(self, seen: Observer, view: ReplicaView, progress: ReplicaProgress) -> None:
        leadership, replica, node = _serving(view), view.replica, view.broker.node
        key = view.index, view.process.name, progress.replica_id
        if leadership is None or node is None:
            return
        if not _is_left_out(replica, leadership, progress, node.core.image):
            self._outside.pop(key, None)
        elif self._outside.setdefault(key, seen.world.loop.now_ns) < seen.world.loop.now_ns:
            story = f"{view.broker.name} does not propose b{progress.replica_id}, which has all"
            seen.broken(self, view.index, f"{story}: {replica.registration}")


class CompleteAreProposed(Property):
    """R50: a follower that has all is proposed in the very step in which nothing stands in its way any more:
    its broker is unfenced, or a newer registration has closed another proposal."""

    name = "R50 CompleteAreProposed"

    def __init__(self) -> None:
        #: {process: the metadata that it had when it was looked at last}
        self._images: dict[str, MetadataImage] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        row, former = view.registration, before.registration
        is_same = view.leadership is not None and view.leadership is before.leadership
        if (
            is_same
            and row is not None
            and former is not None
            and row.partition_epoch > former.partition_epoch
        ):
            self._look(seen, view, None, f"{former} -> {row}")

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        core, name = broker.node.core, broker.process.name
        image, former = core.image, self._images.get(name)
        if former is image:
            return
        self._images[name] = image
        if former is None or former.brokers is image.brokers:
            return
        changed = [one for one, row in image.brokers.items() if former.brokers.get(one) is not row]
        for key in core.partitions if changed else ():
            index = seen.place(*key)
            view = None if index is None else seen.replicas.get(index, {}).get(broker.node_id)
            if view is None or view.replica.leadership is None:
                continue
            new = [one for one in changed if _is_new(former, image, one, key)]
            self._look(seen, view, new, f"unfenced now: {view.replica.registration}")

    def _look(self, seen: Observer, view: ReplicaView, members: Sequence[int] | None, why: str) -> None:
        """At these followers, or at all."""
        leadership, node = _serving(view), view.broker.node
        if leadership is None or node is None:
            return
        for member, progress in leadership.progress.items():
            is_asked = members is None or member in members
            if is_asked and _is_left_out(view.replica, leadership, progress, node.core.image):
                story = f"{view.broker.name} does not propose b{member}, which has all"
                seen.broken(self, view.index, f"{story}, {why}")


def _is_new(former: MetadataImage, image: MetadataImage, broker_id: int, key: PartitionId) -> bool:
    """It may lead, and might not before, or was another process."""
    was = former.brokers.get(broker_id)
    is_other = was is None or was.broker_epoch != image.brokers[broker_id].broker_epoch
    return may_lead(image, broker_id, key) and (is_other or not may_lead(former, broker_id, key))


def _is_left_out(
    replica: Partition, leadership: Leadership, progress: ReplicaProgress, image: MetadataImage
) -> bool:
    """A follower has all that its leader has and may join, and no proposal is open."""
    assert leadership.start_offset is not None
    needed = max(replica.high_watermark, leadership.start_offset, replica.position)
    return (
        progress.position >= needed
        and leadership.proposal is None
        and progress.replica_id not in leadership.maximal_isr
        and _may_join(image, progress, replica.key)
        # R118; a topic of offsets is exempt
        and (
            replica.topic_name == OFFSETS_TOPIC
            or not 0 <= progress.log_start_offset < replica.log.durable_start_offset
        )
    )


def _serving(view: ReplicaView) -> Leadership | None:
    """Its leadership while it serves, in a process that runs."""
    leadership = view.replica.leadership
    is_there = view.survives is None and not view.process.is_dead and view.process is view.broker.process
    is_there = is_there and view.broker.state in (State.RUNNING, State.STOPPING)
    return leadership if is_there and leadership is not None and leadership.start_offset is not None else None


def _may_join(image: MetadataImage, progress: ReplicaProgress, key: PartitionId) -> bool:
    """Unfenced, the incarnation that has fetched, and not dropped for its silence since (R115)."""
    broker = image.brokers.get(progress.replica_id)
    is_same = broker is not None and broker.broker_epoch == progress.broker_epoch
    return is_same and not progress.is_silent and may_lead(image, progress.replica_id, key)
