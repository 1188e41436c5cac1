"""The properties that hold after every step, a class each, named as in the specifications (verification §1).

Each looks at what has changed and at the ghost state of `sim.observer`, and raises Violation. None draws,
awaits or changes anything. What must be true of the history as a whole is in `sim.checks`.
"""

from collections.abc import Sequence

from broker.partition import Role
from metadata.partition import PartitionRegistration
from sim.batches import BatchMark, marks
from sim.nodes import SimController, State
from sim.observer import Before, Observer, Property, ReplicaView
from sim.world import Violation
from storage.clean_shutdown import FILE_NAME


class Silent:
    """Listens to nothing; properties override what they need."""

    name = ""

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        """After a step that changed a replica."""

    def row_changed(self, seen: Observer, index: int, row: PartitionRegistration) -> None:
        """After the controllers have committed a change of a partition."""

    def controller_changed(self, seen: Observer, node: SimController) -> None:
        """After a step of a voter that changed its epoch, role, or what it knows to be committed."""

    def violated(self, index: int, story: str) -> Violation:
        """What to raise."""
        return Violation(f"{self.name} partition {index}: {story}")


class ValidReplicaState(Silent):
    """A leader believes in itself; the high watermark is inside the log."""

    name = "I-3 ValidReplicaState"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        row = view.registration
        if view.role is Role.LEADER and (row is None or row.leader != view.broker.node_id):
            raise self.violated(view.index, f"{view.broker.name} leads, but believes in {row}")
        if not 0 <= view.high_watermark <= view.end_offset:
            raise self.violated(
                view.index,
                f"{view.broker.name} has high watermark {view.high_watermark} of {view.end_offset}",
            )


class ValidControllerState(Silent):
    """No fenced broker is in an ISR."""

    name = "I-5 ValidControllerState"

    def row_changed(self, seen: Observer, index: int, row: PartitionRegistration) -> None:
        for broker_id in row.isr:
            registration = seen.image.brokers.get(broker_id)
            if registration is None or registration.is_fenced:
                raise self.violated(index, f"broker {broker_id} is fenced, the ISR is {row.isr}")


class ValidIsrElr(Silent):
    """ISR and ELR are parts of the replicas, apart from each other, and the ELR is empty from min ISR on."""

    name = "I-6 ValidIsrElr"

    def row_changed(self, seen: Observer, index: int, row: PartitionRegistration) -> None:
        replicas, isr, elr = set(row.replicas), set(row.isr), set(row.elr)
        if not isr | elr <= replicas or isr & elr or (len(isr) >= row.min_isr and elr):
            raise self.violated(index, str(row))


class ReplicationQuorumSuperset(Silent):
    """A current leader waits for everybody whom the controller may elect."""

    name = "I-7 ReplicationQuorumSuperset"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        self._check(seen, view)

    def row_changed(self, seen: Observer, index: int, row: PartitionRegistration) -> None:
        for view in seen.replicas.get(index, {}).values():
            self._check(seen, view)

    def _check(self, seen: Observer, view: ReplicaView) -> None:
        truth, row = seen.ghosts[view.index].row, view.registration
        if view.role is not Role.LEADER or truth is None or row is None or view.broker.process.is_dead:
            return
        if row.leader_epoch != truth.leader_epoch:
            return
        if not view.has_proposal and view.maximal_isr != row.isr:
            raise self.violated(
                view.index, f"{view.broker.name} proposes nothing: maximal {view.maximal_isr}, ISR {row.isr}"
            )
        if len(row.isr) >= row.min_isr and not {*truth.isr, *truth.elr} <= set(view.maximal_isr):
            raise self.violated(
                view.index, f"{view.broker.name} waits for {view.maximal_isr}, committed is {truth}"
            )


class LeaderCandidateCompleteness(Silent):
    """Whoever may be elected has everything below the true high watermark. I-9 for the leader itself."""

    name = "I-8 LeaderCandidateCompleteness"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        self._check(seen, view.index)

    def row_changed(self, seen: Observer, index: int, row: PartitionRegistration) -> None:
        self._check(seen, index)

    def _check(self, seen: Observer, index: int) -> None:
        ghost = seen.ghosts[index]
        if ghost.row is None:
            return
        for broker_id in (*ghost.row.isr, *ghost.row.elr):
            view = seen.live_replica(index, broker_id)
            if view is not None and view.end_offset < ghost.high_watermark:
                raise self.violated(
                    index,
                    f"{view.broker.name} ends at {view.end_offset}, committed is up to "
                    f"{ghost.high_watermark}: {ghost.row}",
                )


class LogMatching(Silent):
    """Below its high watermark a replica holds what was committed, batch by batch."""

    name = "I-10 LogMatching"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        committed, batches = seen.ghosts[view.index].committed, view.history.batches
        while view.compared < min(len(committed), len(batches)):
            mine = batches[view.compared]
            if mine.last_offset >= view.high_watermark:
                return
            if mine != committed[view.compared]:
                raise self.violated(
                    view.index, f"{view.broker.name} holds {mine}, committed is {committed[view.compared]}"
                )
            view.compared += 1


class EpochOffsetUniqueness(Silent):
    """D-1: a leader epoch and an offset name one batch, ever, committed or not."""

    name = "D-1 EpochOffsetUniqueness"

    def __init__(self) -> None:
        self._named: dict[tuple[int, int, int], BatchMark] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        for batch in appended:
            key = view.index, batch.leader_epoch, batch.base_offset
            first = self._named.setdefault(key, batch)
            if first != batch:
                raise self.violated(view.index, f"{view.broker.name} appends {batch}, before it was {first}")


class EpochsInLog(Silent):
    """Epochs never fall from one batch of a log to the next, and offsets leave no hole."""

    name = "I-18 EpochsInLog"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        batches = view.history.batches
        for position in range(max(1, len(batches) - len(appended)), len(batches)):
            one, following = batches[position - 1], batches[position]
            is_dense = following.base_offset == one.last_offset + 1
            if not is_dense or following.leader_epoch < one.leader_epoch:
                raise self.violated(view.index, f"{view.broker.name} has {following} behind {one}")


class OneLeaderPerEpoch(Silent):
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
                raise self.violated(
                    view.index, f"{view.broker.name} and broker {first} lead epoch {leadership.leader_epoch}"
                )


class CleanFileDiscipline(Silent):
    """I-17: while a broker has roles, no mark of a clean shutdown would survive a power cut."""

    name = "I-17 CleanFileDiscipline"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        broker = view.broker
        if broker.state in (State.RUNNING, State.PAUSED) and view.leadership is not before.leadership:
            if broker.machine.platter.durable_bytes(f"/data/{FILE_NAME}") is not None:
                raise self.violated(view.index, f"{broker.name} leads while its mark is still on the disk")


class NoTruncationBelowHighWatermark(Silent):
    """A-1: within one process no replica cuts its log below its own high watermark."""

    name = "A-1 NoTruncationBelowHighWatermark"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if view.end_offset < min(before.end_offset, before.high_watermark):
            raise self.violated(
                view.index,
                f"{view.broker.name} cut its log from {before.end_offset} to {view.end_offset}, below its "
                f"high watermark {before.high_watermark}",
            )


class HighWatermarkNeedsMinIsr(Silent):
    """A-2: it rises only while the committed ISR has min ISR members, and as far as all it counts have."""

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
            raise self.violated(
                view.index, f"{view.broker.name} went to {view.high_watermark} with {view.registration}"
            )
        for broker_id in view.maximal_isr:
            member = seen.live_replica(view.index, broker_id)
            if member is not None and member.replica.position < view.high_watermark:
                raise self.violated(
                    view.index,
                    f"{view.broker.name} went to {view.high_watermark}, {member.broker.name} is at "
                    f"{member.replica.position}",
                )


class EpochsOfARow(Silent):
    """A-11: every change of a partition has a higher partition epoch; a leader epoch never falls."""

    name = "A-11 EpochsOfARow"

    def __init__(self) -> None:
        self._newest: dict[int, PartitionRegistration] = {}

    def row_changed(self, seen: Observer, index: int, row: PartitionRegistration) -> None:
        before = self._newest.get(index)
        self._newest[index] = row
        if before is None:
            return
        is_changed_leader = row.leader is not None and row.leader != before.leader
        if (
            row.partition_epoch <= before.partition_epoch
            or row.leader_epoch < before.leader_epoch
            or (is_changed_leader and row.leader_epoch == before.leader_epoch)
        ):
            raise self.violated(index, f"{row} follows {before}")


class ElectionSafety(Silent):
    """Q-1 and Q-6: one leader for each epoch of the quorum; a voter's epoch and commit never fall. A new
    process may know less: an epoch that nobody was told of need not be durable."""

    name = "Q-1 ElectionSafety"

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        #: {voter: (boots, epoch, committed offset)}
        self._newest: dict[int, tuple[int, int, int]] = {}

    def controller_changed(self, seen: Observer, node: SimController) -> None:
        assert node.server is not None
        driver = node.server.driver
        if driver.snapshot() is None:
            return
        if driver.is_leader:
            first = self._leaders.setdefault(driver.raft_epoch, node.node_id)
            if first != node.node_id:
                raise Violation(f"{self.name}: {node.name} and {first} lead epoch {driver.raft_epoch}")
        boots, epoch, committed = self._newest.get(node.node_id, (0, 0, 0))
        has_fallen = driver.raft_epoch < epoch or driver.committed_offset < committed
        if boots == node.boots and has_fallen:
            raise Violation(
                f"Q-6 {node.name}: epoch {driver.raft_epoch} after {epoch}, committed "
                f"{driver.committed_offset} after {committed}"
            )
        self._newest[node.node_id] = node.boots, driver.raft_epoch, driver.committed_offset


class CommittedMetadataEqual(Silent):
    """Q-2: what two voters know to be committed is the same, batch by batch."""

    name = "Q-2 LogMatching of the quorum"

    def __init__(self) -> None:
        self._committed: dict[int, BatchMark] = {}
        #: {(voter, boots): offset up to which it was compared}
        self._compared: dict[tuple[int, int], int] = {}

    def controller_changed(self, seen: Observer, node: SimController) -> None:
        if node.log is None or node.server is None:
            return
        key = node.node_id, node.boots
        start, end = self._compared.get(key, 0), node.server.driver.committed_offset
        for batch in marks(node.log, start, min(end, node.log.log_end_offset)):
            first = self._committed.setdefault(batch.base_offset, batch)
            if first != batch:
                raise Violation(f"{self.name}: {node.name} has {batch}, another had {first}")
            start = batch.last_offset + 1
        self._compared[key] = start


def all_properties() -> list[Property]:
    """Fresh ones for one run."""
    return [
        ValidReplicaState(),
        ValidControllerState(),
        ValidIsrElr(),
        ReplicationQuorumSuperset(),
        LeaderCandidateCompleteness(),
        LogMatching(),
        EpochOffsetUniqueness(),
        EpochsInLog(),
        OneLeaderPerEpoch(),
        CleanFileDiscipline(),
        NoTruncationBelowHighWatermark(),
        HighWatermarkNeedsMinIsr(),
        EpochsOfARow(),
        ElectionSafety(),
        CommittedMetadataEqual(),
    ]
