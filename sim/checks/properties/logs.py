"""Properties of logs: what was committed stays, equal places hold equal batches."""

from collections.abc import Iterable, Sequence

from holdfast.broker.core.replicas.partition import Role
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Ghost, Property, ReplicaView
from holdfast.sim.load.clients import Polled


def lacks_committed(ghost: Ghost, view: ReplicaView) -> str | None:
    """How a replica lacks something below the true high watermark; None when it has all."""
    if view.end_offset < ghost.high_watermark:
        return f"{view.broker.name} ends at {view.end_offset}, committed is up to {ghost.high_watermark}"
    committed, batches = ghost.committed, view.history.batches
    last = len(committed) - 1
    if last >= 0 and view.history.start_offset == 0 and last < len(batches):
        if batches[last] != committed[last]:
            return f"{view.broker.name} holds {batches[last]}, committed is {committed[last]}"
    return None


class LeaderCandidateCompleteness(Property):
    """Every replica that may be elected has everything below the true high watermark."""

    name = "I-8 LeaderCandidateCompleteness"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        row = seen.ghosts[view.index].row
        if row is None:
            return
        candidates = (*row.isr, *row.elr)
        if view.role is Role.LEADER:
            self._check(seen, view.index, candidates)  # more may be committed
        elif view.broker.node_id in candidates:
            self._check(seen, view.index, (view.broker.node_id,))

    def metadata_committed(self, seen: Observer) -> None:
        for index, ghost in seen.ghosts.items():
            if ghost.row is not None:
                self._check(seen, index, (*ghost.row.isr, *ghost.row.elr))

    def _check(self, seen: Observer, index: int, candidates: Iterable[int]) -> None:
        ghost = seen.ghosts[index]
        for broker_id in candidates:
            view = seen.live_replica(index, broker_id)
            if view is not None:
                missing = lacks_committed(ghost, view)
                if missing is not None:
                    seen.broken(self, index, f"{missing}: {ghost.row}")
                elif seen.counts_durable(view) and self._is_not_durable(ghost, view):
                    story = f"{view.broker.name} has flushed {view.log.flushed_offset}"
                    seen.broken(self, index, f"{story} of {ghost.high_watermark}, every write is flushed")

    @staticmethod
    def _is_not_durable(ghost: Ghost, view: ReplicaView) -> bool:
        """G-3: what counted was durable."""
        return view.log.flushed_offset < ghost.high_watermark and view.role is not Role.NONE


class LeaderCompleteness(Property):
    """The elected leader has everything below the true high watermark, acknowledged records before all."""

    name = "I-9 LeaderCompleteness"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        ghost = seen.ghosts[view.index]
        if ghost.row is not None and ghost.row.leader == view.broker.node_id:
            self._check(seen, view, ghost)

    def metadata_committed(self, seen: Observer) -> None:
        for index, ghost in seen.ghosts.items():
            leader = None if ghost.row is None else ghost.row.leader
            view = None if leader is None else seen.live_replica(index, leader)
            if view is not None:
                self._check(seen, view, ghost)

    def _check(self, seen: Observer, view: ReplicaView, ghost: Ghost) -> None:
        missing = lacks_committed(ghost, view) if seen.is_live(view) else None
        if missing is not None:
            seen.broken(self, view.index, f"leader {missing}, acknowledged up to {ghost.acknowledged}")


class LogMatching(Property):
    """Below its high watermark a replica holds what was committed, batch by batch."""

    name = "I-10 LogMatching"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        committed, batches = seen.ghosts[view.index].committed, view.history.batches
        if view.history.start_offset:
            return
        while view.compared < min(len(committed), len(batches)):
            mine = batches[view.compared]
            if mine.last_offset >= view.high_watermark:
                return
            if mine != committed[view.compared]:
                story = f"{view.broker.name} holds {mine}, committed is {committed[view.compared]}"
                seen.broken(self, view.index, story)
            view.compared += 1


class NoCommittedRecordLostGlobally(Property):
    """What was acknowledged is in some replica's log, also when no replica may lead; also of machines that
    are down."""

    name = "I-12 NoCommittedRecordLostGlobally"
    is_about_loss = is_about_copies = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if view.end_offset < before.end_offset:
            self._check(seen, view.index)

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        self._check(seen, view.index)

    def metadata_committed(self, seen: Observer) -> None:
        for index in seen.ghosts:
            self._check(seen, index)

    def _check(self, seen: Observer, index: int) -> None:
        ghost = seen.ghosts[index]
        if ghost.row is None or not ghost.acknowledged:
            return
        ends = {}
        for broker_id in ghost.row.replicas:
            view = seen.replicas[index].get(broker_id)
            if view is not None:
                end = view.end_offset if view.survives is None else view.survives
                if end >= ghost.acknowledged:
                    return
                ends[broker_id] = end
        seen.broken(self, index, f"acknowledged is up to {ghost.acknowledged}, logs end at {ends}")


class ConsistentRead(Property):
    """What a consumer got was committed and stays: it is in the log of every current leader."""

    name = "I-13 ConsistentRead"
    is_about_loss = True

    def consumed(self, seen: Observer, polled: Polled) -> None:
        ghost = seen.ghosts[polled.partition]
        if polled.offset >= ghost.high_watermark:
            story = f"{polled.offset} was consumed, committed is up to {ghost.high_watermark}"
            seen.broken(self, polled.partition, story)
        ghost.consumed = max(ghost.consumed, polled.offset + 1)

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        ghost, row = seen.ghosts[view.index], view.registration
        if view.role is not Role.LEADER or row is None or ghost.row is None:
            return
        if row.leader_epoch == ghost.row.leader_epoch and view.end_offset < ghost.consumed:
            story = f"{view.broker.name} leads and ends at {view.end_offset}"
            seen.broken(self, view.index, f"{story}, consumed was up to {ghost.consumed}")


class AckedIsCommitted(Property):
    """Who was told that its batch is in the log finds it below the true high watermark, as it was written."""

    name = "I-16 AckedIsCommitted"
    is_about_loss = True

    def acknowledged(self, seen: Observer, view: ReplicaView, base_offset: int, leader_epoch: int) -> None:
        ghost = seen.ghosts[view.index]
        if ghost.unclean is not None:
            return  # what is committed is not known any more
        batch = _batch_at(ghost.committed, base_offset)
        if batch is None:
            story = f"{view.broker.name} acknowledged {base_offset}, committed is up to"
            seen.broken(self, view.index, f"{story} {ghost.high_watermark}")
        elif leader_epoch < 0 and batch.last_offset < view.log.log_start_offset:
            pass  # the retry of what is deleted by now, of whose epoch the log tells no more
        elif batch.leader_epoch != leader_epoch:
            story = f"{view.broker.name} acknowledged {base_offset} of epoch {leader_epoch}, it is {batch}"
            seen.broken(self, view.index, story)
        else:
            ghost.acknowledged = max(ghost.acknowledged, batch.last_offset + 1)


def _batch_at(batches: Sequence[BatchMark], base_offset: int) -> BatchMark | None:
    """The batch that begins there; most are asked for soon after they came."""
    for batch in reversed(batches):
        if batch.base_offset <= base_offset:
            return batch if batch.base_offset == base_offset else None
    return None


class EpochsInLog(Property):
    """Epochs never fall from one batch of a log to the next, offsets leave no hole, and the epoch cache is
    what the log says."""

    name = "I-18 EpochsInLog"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        history = view.history
        batches = history.batches
        for position in range(max(1, len(batches) - len(appended)), len(batches)):
            one, following = batches[position - 1], batches[position]
            is_dense = following.base_offset == one.last_offset + 1
            if not is_dense or following.leader_epoch < one.leader_epoch:
                seen.broken(self, view.index, f"{view.broker.name} has {following} behind {one}")
        if appended or history.cut:
            self._check_cache(seen, view)

    def _check_cache(self, seen: Observer, view: ReplicaView) -> None:
        """Of the entries that have data; where the log grows or was cut they are the last ones."""
        cache, batches = view.log.leader_epoch_cache, view.history.batches
        last = view.history.last_epoch
        if view.log.last_epoch != last:
            story = f"{view.broker.name} believes in last epoch {view.log.last_epoch}, it is {last}"
            seen.broken(self, view.index, story)
        latest = cache.latest
        if latest is not None and latest.start_offset > view.end_offset:
            story = f"{view.broker.name} ends at {view.end_offset}, its epochs at {latest}"
            seen.broken(self, view.index, story)
        if last >= 0 and batches and cache.last_written(batches[-1].last_offset + 1) != last:
            story = f"{view.broker.name} ends with {batches[-1]}, its epochs are {cache.entries}"
            seen.broken(self, view.index, story)


class EpochOffsetUniqueness(Property):
    """A leader epoch and an offset name one batch, ever, committed or not; and it was the leader of that
    epoch who gave the name (A-15). Bits that turn on a disk may name another epoch, which no crc covers."""

    name = "N-1 EpochOffsetUniqueness"

    def __init__(self) -> None:
        self._named: dict[tuple[int, int, int], BatchMark] = {}
        #: (partition, offset, crc), where bits may turn
        self._contents: set[tuple[int, int, int]] = set()
        #: the replica that was loaded last, as the last process left it
        self._prior: ReplicaView | None = None
        self._loaded: ReplicaView | None = None

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        self._loaded, self._prior = view, prior

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        for batch in appended:
            key = view.index, batch.leader_epoch, batch.base_offset
            first = self._named.get(key)
            if seen.world.shape.disks_lie:
                content = view.index, batch.base_offset, batch.crc
                if first is None and content in self._contents:
                    continue
                self._contents.add(content)
            if first is None:
                self._named[key] = batch
                if not self._is_named_by_leader(seen, view, before, batch.leader_epoch):
                    story = f"{view.broker.name} has {batch} and does not lead that epoch (A-15)"
                    seen.broken(self, view.index, story)
            elif first != batch:
                story = f"{view.broker.name} appends {batch}, before it was {first}"
                seen.broken(self, view.index, story)
        self._loaded = self._prior = None

    def _is_named_by_leader(self, seen: Observer, view: ReplicaView, before: Before, epoch: int) -> bool:
        """It leads. Or it, or who sent it, has ended as the leader: what was under way then it may have
        appended, unseen."""
        leadership = view.leadership or before.leadership
        ended = [one for one in seen.replicas[view.index].values() if one.survives is not None]
        if self._loaded is view and self._prior is not None:
            ended.append(self._prior)
        candidates = [leadership, *(one.leadership for one in ended)]
        return any(one is not None and one.leader_epoch == epoch for one in candidates)


class NoTruncationBelowHighWatermark(Property):
    """Within one process no replica cuts its log below its own high watermark."""

    name = "A-1 NoTruncationBelowHighWatermark"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if view.end_offset < min(before.end_offset, before.high_watermark):
            story = f"{view.broker.name} cut its log from {before.end_offset} to {view.end_offset}"
            seen.broken(self, view.index, f"{story}, below its high watermark {before.high_watermark}")


class TruncationKeepsWhatMatches(Property):
    """A follower cuts off nothing that its leader holds at the same place, but to begin where that does."""

    name = "A-16 TruncationKeepsWhatMatches"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        cut, row = view.history.cut, view.registration
        if not cut or row is None or row.leader is None or view.role is not Role.FOLLOWER:
            return
        # the disk takes its time: by now the leader may be another one
        if row.leader_epoch != view.cut_in or view.history.has_begun_anew:
            return
        leader = seen.live_replica(view.index, row.leader)
        if leader is None or leader.leadership is None or leader.history.start_offset:
            return
        if leader.leadership.leader_epoch == row.leader_epoch:
            position = len(view.history.batches)
            batches = leader.history.batches
            if position < len(batches) and batches[position] == cut[-1]:
                story = f"{view.broker.name} cut {cut[-1]}, which leader {leader.broker.name} has too"
                seen.broken(self, view.index, story)
