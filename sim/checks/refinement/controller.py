"""Refinement: each step that the controllers commit is one that the model's controller may take.

Owns which action of the model (`sim.model.controller`) each cause of a change stands for, and its guard. From
the committed state before, the model's own action must lead to the committed state after: not only what is
forbidden is noticed, also what should have been done besides or instead.
"""

from collections.abc import Callable
from dataclasses import replace

from holdfast.controller.core.decisions import CauseKind
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration, effective_min_isr
from holdfast.metadata.records import (
    RECOVERING,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.protocol.messages.alter_partition import AlterPartitionPartition, AlterPartitionRequest
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Change, Property
from holdfast.sim.checks.refinement.abstraction import ModelCluster, mask, partition_state, registration
from holdfast.sim.model import controller as actions
from holdfast.sim.model import state as model_state
from holdfast.sim.model.rules import ACCEPTED, VERDICTS
from holdfast.sim.model.state import AGGRESSIVE, BALANCED, ModelRecovery, ModelWorld, PartitionState

#: why the model would not have done it, None when it would
Problem = str | None
#: (model, partition that the action changes, what was committed)
Step = Callable[[ModelWorld, PartitionState, Change], Problem]


# --- an action for each cause ------------------------------------------------------------------------------


def _departure(cause: int) -> Step:
    """A broker leaves; its own record follows (R20, R22, R32)."""

    def step(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
        broker_id = change.decision.cause.broker_id
        if broker_id is None:
            return "no broker is said to leave"
        bit = 1 << broker_id
        if cause == model_state.UNCLEAN_REGISTRATION:
            if not w.setup.elr:
                # no controller asks how the last stop was: as a clean restart (D14)
                return _departure(model_state.CLEAN_RESTART)(w, part, change)
        elif not w.unfenced & bit:
            return f"{broker_id} is fenced already"
        _take_out(w, part, broker_id, cause)
        return None

    return step


def _take_out(w: ModelWorld, part: PartitionState, broker_id: int, cause: int) -> bool:
    """One partition's share of a departure; whether it changes."""
    bit = 1 << broker_id
    is_unclean = cause == model_state.UNCLEAN_REGISTRATION
    if not (part.isr | (part.elr if is_unclean else 0)) & bit:
        return False
    unclean = bit if is_unclean else 0
    return actions.change(w, part, part.isr & ~bit, cause, w.active & ~bit, unclean=unclean)


def _dir_failed(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    """The replica leaves as one whose broker registers uncleanly does, with ELR or without (R27)."""
    broker_id = change.decision.cause.broker_id
    assert broker_id is not None
    _take_out(w, part, broker_id, model_state.UNCLEAN_REGISTRATION)
    return None


def _unregistered(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    broker_id = change.decision.cause.broker_id
    assert broker_id is not None
    _forget(w, part, broker_id)
    return None


def _forget(w: ModelWorld, part: PartitionState, broker_id: int) -> bool:
    """One partition's share of an unregistration (B10); whether it changes."""
    bit = 1 << broker_id
    if not (part.isr | part.elr | part.last_known_elr) & bit:
        return False
    cause = model_state.UNREGISTRATION
    return actions.change(w, part, part.isr & ~bit, cause, w.active & ~bit, forgotten=bit)


def _leaderless(cause: int, *, asked_unclean: bool = False) -> Step:
    """An election for a partition that has no leader."""

    def step(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
        if part.leader >= 0:
            return f"{part.leader} leads"
        if cause == model_state.UNCLEAN_PASS and not asked_unclean:
            if not w.rules.allows_unclean(w.setup, cause):
                return "no unclean election is allowed here"
        actions.change(w, part, part.isr, cause, w.active, asked_unclean=asked_unclean)
        return None

    return step


def _configured(cause: int) -> Step:
    """Another min ISR, or another level of ELR: sets and election follow."""

    def step(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
        if cause == model_state.ELR_SWITCH and w.setup.elr:
            return "ELR is on"
        actions.change(w, part, part.isr, cause, w.active)
        return None

    return step


def _preferred(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    if not ((part.isr or part.elr) & w.active) >> part.order[0] & 1:
        return f"{part.order[0]} may not lead"
    actions.change(w, part, part.isr, model_state.PREFERRED, w.active, preferred=True)
    return None


def _designated(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    replica = change.decision.cause.broker_id
    if replica is None or part.leader >= 0 or not (part.replicas & w.active) >> replica & 1:
        return f"{replica} may not be designated"
    cause = model_state.DESIGNATION
    actions.change(w, part, part.isr, cause, w.active, designated=replica, proof=False)
    return None


def _replaced(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    """Another member of the ISR leads; what was reported of the leader is not in the record."""
    leader, successor = change.decision.cause.broker_id, change.after.leader
    if leader is None or part.leader != leader or successor is None:
        return f"{leader} does not lead"
    if not (part.isr & w.active & ~(1 << leader)) >> successor & 1:
        return f"{successor} may not lead instead of {leader}"
    actions.change(w, part, part.isr, model_state.DESIGNATION, w.active, designated=successor, proof=False)
    return None


def _moved(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    """Where to is in the record: what is there and does not leave again."""
    after = change.after
    target: tuple[int, ...] | None = tuple(r for r in after.replicas if r not in after.removing_replicas)
    if change.decision.cause.kind is CauseKind.REASSIGNMENT_CANCELLED:
        if part.original is None:
            return "no reassignment runs"
        target = None
    return None if actions.move(w, part, target) else "the reassignment is refused, or changes nothing"


def _recovered(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
    """Of the logs that were compared the model elects the same, by the topic's strategy or by one that an
    operator may have asked for. Whether the answers were of these incarnations is not in the record (N-3)."""
    setup = w.setup
    chosen = change.after.leader
    for strategy in dict.fromkeys((setup.strategy, BALANCED, AGGRESSIVE)):
        w.setup = replace(setup, strategy=strategy)
        part.recovery = None
        recovery = actions.recovery_of(w, part)
        if recovery is not None and chosen == _choice(w, part, recovery, change):
            proof = strategy == BALANCED and w.rules.known_held_everything(part)
            cause = model_state.RECOVERY
            actions.change(w, part, part.isr, cause, w.active, designated=chosen, proof=proof)
            return None
    return "no strategy elects that log"


def _choice(w: ModelWorld, part: PartitionState, recovery: ModelRecovery, change: Change) -> int:
    for log in change.decision.cause.logs:
        recovery.replies[log.replica] = (w.epochs[log.replica], log.last_epoch, log.end_offset)
    recovery.timed_out = True  # who was waited for longer is not in the record
    return w.rules.recovery_choice(w, part, recovery)


_STEPS: dict[CauseKind, Step] = {
    CauseKind.SESSION_ENDED: _departure(model_state.FENCING),
    CauseKind.CONNECTION_REFUSED: _departure(model_state.FENCING),
    CauseKind.FENCING_ASKED: _departure(model_state.FENCING),
    CauseKind.SHUTDOWN_COMPLETED: _departure(model_state.FENCING),
    CauseKind.CONTROLLED_SHUTDOWN: _departure(model_state.SHUTDOWN),
    CauseKind.CLEAN_RESTART: _departure(model_state.CLEAN_RESTART),
    CauseKind.UNCLEAN_REGISTRATION: _departure(model_state.UNCLEAN_REGISTRATION),
    CauseKind.LOG_DIR_FAILED: _dir_failed,
    CauseKind.UNREGISTRATION: _unregistered,
    CauseKind.UNFENCING: _leaderless(model_state.UNFENCING),
    CauseKind.UNCLEAN_PASS: _leaderless(model_state.UNCLEAN_PASS),
    CauseKind.UNCLEAN_ASKED: _leaderless(model_state.UNCLEAN_PASS, asked_unclean=True),
    CauseKind.MANAGER_SWITCHED_OFF: _leaderless(model_state.MIN_ISR_CHANGE),
    CauseKind.TAKEOVER: _leaderless(model_state.MIN_ISR_CHANGE),
    CauseKind.PREFERRED_ASKED: _preferred,
    CauseKind.LEADER_BALANCE: _preferred,
    CauseKind.DESIGNATED: _designated,
    CauseKind.LEADER_UNREACHABLE: _replaced,
    CauseKind.LOW_ON_SPACE: _replaced,
    CauseKind.LOGS_COMPARED: _recovered,
    CauseKind.REASSIGNMENT_ASKED: _moved,
    CauseKind.REASSIGNMENT_CANCELLED: _moved,
    CauseKind.MIN_ISR_CONFIGURED: _configured(model_state.MIN_ISR_CHANGE),
    CauseKind.ELR_SWITCHED_OFF: _configured(model_state.ELR_SWITCH),
}


class DecisionsRefineModel(Property):
    """Every committed change of a partition, and of a broker's registration, is a step of the model."""

    name = "Refinement DecisionsRefineModel"
    judges_rows = True

    def __init__(self) -> None:
        self._cluster: ModelCluster | None = None
        #: proposals that a controller has granted: {(partition, partition epoch before): them}
        self._granted: dict[
            tuple[PartitionId, int], list[tuple[AlterPartitionRequest, AlterPartitionPartition]]
        ] = {}
        #: the batch under way unfences a broker
        self._is_unfencing = False

    # --- partitions ------------------------------------------------------------------------------------

    def proposal_handled(
        self, seen: Observer, request: AlterPartitionRequest, before: MetadataImage, after: MetadataImage
    ) -> None:
        for row in request.partitions:
            key = PartitionId(row.topic_id, row.partition_index)
            old, new = before.partition(*key), after.partition(*key)
            if old is not None and new is not None and new is not old:
                self._granted.setdefault((key, old.partition_epoch), []).append((request, row))

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        kind = change.decision.cause.kind
        if kind is CauseKind.ALTER_PARTITION:
            proposals = self._granted.pop((change.key, change.before.partition_epoch), ())
            told = [
                self._problem(seen, change, _altered(request, row), row.leader_recovery_state)
                for request, row in proposals
            ]
            problem = next((one for one in told if one is None), told[0] if told else "no leader proposed it")
        elif kind in _STEPS:
            recovery_state = change.before.leader_recovery_state
            problem = self._problem(seen, change, _STEPS[kind], recovery_state)
        else:
            problem = "the model knows no such cause"
        if problem is not None:
            story = f"{change.before} -> {change.after}, {change.decision}"
            seen.broken(self, index, f"{story}; the model: {problem}")

    def _problem(self, seen: Observer, change: Change, step: Step, recovery_state: int) -> Problem:
        """`recovery_state` is what the leader says of itself: who is elected uncleanly must recover (R10)."""
        model, part = self._state(seen, change.key, change.image, change.before)
        setup = model.setup
        problem = step(model, part, change)
        model.setup = setup
        complete = {*change.before.isr, *change.before.elr}.difference(change.unclean)
        if change.decision.cause.kind is CauseKind.ALTER_PARTITION:
            complete.update(change.after.isr)  # who joins and ends a move may lead from there on (R102)
        if part.leader >= 0 and part.leader != change.before.leader and part.leader not in complete:
            recovery_state = RECOVERING
        after = registration(part, recovery_state)
        if problem is not None or after == change.after:
            return problem
        committed = partition_state(change.after, part.configured_min_isr)
        broken = self._of(seen).judge.broken(model, committed)
        return "; ".join((*broken, f"it would go to {after}"))

    def _state(
        self, seen: Observer, key: PartitionId, image: MetadataImage, row: PartitionRegistration
    ) -> tuple[ModelWorld, PartitionState]:
        cluster, topic = self._of(seen), image.topics[key.topic_id].name
        configured = cluster.configured_min_isr(image, topic)
        offline = mask(image.offline_among(row.replicas, key))
        return cluster.become(image, topic, offline), partition_state(row, configured)

    def _of(self, seen: Observer) -> ModelCluster:
        if self._cluster is None:
            self._cluster = ModelCluster(seen.world.shape)
        return self._cluster

    # --- whole actions: what a record of a broker says must have been done to all partitions ------------

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        kind = type(record)
        if kind is UnfenceBrokerRecord:
            self._is_unfencing = True
        elif kind is FenceBrokerRecord:
            assert isinstance(record, FenceBrokerRecord)
            self._nothing_left(seen, before, record.broker_id, model_state.FENCING)
        elif kind is UnregisterBrokerRecord:
            assert isinstance(record, UnregisterBrokerRecord)
            self._nothing_left(seen, before, record.broker_id, model_state.UNREGISTRATION)
        elif kind is RegisterBrokerRecord:
            assert isinstance(record, RegisterBrokerRecord)
            self._registered(seen, record, before)
        elif kind is PartitionRecord:
            assert isinstance(record, PartitionRecord)
            self._made(seen, record, before)

    def _registered(self, seen: Observer, record: RegisterBrokerRecord, before: MetadataImage) -> None:
        old = before.brokers.get(record.broker_id)
        is_restart = record.clean_shutdown or not before.elr_enabled
        if old is not None and not old.is_fenced and is_restart:
            self._nothing_left(seen, before, record.broker_id, model_state.CLEAN_RESTART)
        if not record.clean_shutdown and before.elr_enabled:
            self._nothing_left(seen, before, record.broker_id, model_state.UNCLEAN_REGISTRATION)

    def _nothing_left(self, seen: Observer, image: MetadataImage, broker_id: int, cause: int) -> None:
        """The model takes a broker out of all partitions first."""
        for index, key in _places(seen, image):
            row = image.partition(*key)
            if row is not None and broker_id in (*row.isr, *row.elr, *row.last_known_elr):
                model, part = self._state(seen, key, image, row)
                is_gone = cause == model_state.UNREGISTRATION
                if _forget(model, part, broker_id) if is_gone else _take_out(model, part, broker_id, cause):
                    after = registration(part, row.leader_recovery_state)
                    why = model_state.CAUSES[cause]
                    seen.broken(self, index, f"{why} of {broker_id} left {row}; the model: to {after}")

    def _made(self, seen: Observer, record: PartitionRecord, image: MetadataImage) -> None:
        """An initial state: the active replicas are in sync, the first of them leads (R106)."""
        row = PartitionRegistration.from_record(record)
        topic = image.topics[record.topic_id].name
        active = [replica for replica in row.replicas if image.is_active(replica)]
        configured = self._of(seen).configured_min_isr(image, topic)
        first = PartitionRegistration(
            replicas=row.replicas,
            isr=tuple(sorted(active)),
            leader=active[0] if active else None,
            leader_epoch=0,
            partition_epoch=0,
            min_isr=effective_min_isr(configured, len(row.replicas)),
        )
        if row != first or not active:
            seen.broken(self, None, f"{topic} begins as {row}, with {active} active")

    def metadata_committed(self, seen: Observer) -> None:
        if not self._is_unfencing or _is_written_in_parts(seen):
            return
        self._is_unfencing = False
        image = seen.image
        for index, key in _places(seen, image):
            row = image.partition(*key)
            if row is not None and row.leader is None:
                model, part = self._state(seen, key, image, row)
                if actions.change(model, part, part.isr, model_state.UNFENCING, model.active):
                    after = registration(part, row.leader_recovery_state)
                    seen.broken(self, index, f"unfencing left {row}; the model: to {after}")


def _altered(request: AlterPartitionRequest, row: AlterPartitionPartition) -> Step:
    """The proposal is judged as the model judges it, then done."""

    def step(w: ModelWorld, part: PartitionState, change: Change) -> Problem:
        epochs = list(w.epochs)
        for member in row.new_isr:
            if member.broker_epoch >= 0:
                epochs[member.broker_id] = member.broker_epoch
        isr = mask(member.broker_id for member in row.new_isr)
        proposal = (isr, tuple(epochs), row.leader_epoch, row.partition_epoch)
        verdict = w.rules.judge(w, part, request.broker_id, request.broker_epoch, proposal)
        if verdict != ACCEPTED:
            return f"{row} of {request.broker_id} is refused: {VERDICTS[verdict]}"
        actions.change(w, part, isr, model_state.ALTER_PARTITION, w.active)
        return None

    return step


def _is_written_in_parts(seen: Observer) -> bool:
    """Where a write is cut into batches (K21), more of it may come; the next controller goes on with it."""
    if not seen.world.shape.tiny_limits:
        return False
    active = seen.world.active_controller()
    if active is None or active.server is None:
        return True
    core = active.server.core
    return bool(core._pending) or core.committed.offset > seen.image.offset


def _places(seen: Observer, image: MetadataImage) -> list[tuple[int, PartitionId]]:
    """The partitions with load."""
    return [
        (first + index, PartitionId(topic_id, index))
        for topic_id, first in seen.topics.items()
        if topic_id in image.topics
        for index in sorted(image.topics[topic_id].partitions)
    ]
