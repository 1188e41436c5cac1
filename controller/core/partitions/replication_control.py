"""Partitions: what AlterPartition requests, and brokers that leave or return, do to them.

Owns AlterPartition (R40, R41) and the passes over all partitions when a broker leaves or returns. Keeps no
state; all changes go through `partition_change`.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import Cause, CauseKind, DecisionEntry
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.election import ElectionMode, Rejection
from holdfast.controller.core.partitions.partition_change import (
    ElectionContext,
    PartitionChange,
    RequestedChange,
    change_partition,
)
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration, ids_text, leader_number
from holdfast.metadata.records import RECOVERED, RECOVERING
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from holdfast.runtime.stats import Level

#: Cluster key that switches the recovery manager.
RECOVERY_MANAGER_KEY = "unclean.recovery.manager.enabled"
#: Elections of one unclean pass (F38); the next pass takes the rest.
UNCLEAN_PASS_MAX = 1000


class Departure(Enum):
    """How a broker leaves its partitions."""

    #: its replicas stay complete if they are
    CLEAN = "clean"
    #: its replicas may have lost their tails (R32)
    UNCLEAN = "unclean"
    #: it was unregistered (B10)
    UNREGISTERED = "unregistered"


class ReplicationControl:
    """Functions over drafts, with the configuration; no state."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config

    # --- brokers that leave and return -------------------------------------------------------------------

    def take_out(
        self,
        draft: Draft,
        broker_id: int,
        departure: Departure,
        cause: Cause,
        *,
        rest: PartitionPass | None = None,
        visits_max: int | None = None,
    ) -> bool:
        """Take the broker out of every ISR, and out of the ELR too if its log may have lost its tail.

        The log of a replica in a failed log dir may, however the broker leaves (B24). The broker counts as
        inactive although the image does not say so yet: its own record follows (R20, F26). False when it has
        stopped after `visits_max` partitions: the same call with the same `rest` goes on.
        """
        image = draft.image
        rest = rest or PartitionPass()

        def is_active(other: int) -> bool:
            return other != broker_id and image.is_active(other)

        def why_inactive(other: int) -> Rejection:
            return _why_inactive(image, other) if other != broker_id else _state_after(departure, cause)

        def has_seat(_: PartitionId, partition: PartitionRegistration) -> bool:
            if broker_id in partition.isr:
                return True
            if departure is Departure.CLEAN:
                return False
            forgets = departure is Departure.UNREGISTERED
            return broker_id in partition.elr or (forgets and broker_id in partition.last_known_elr)

        contexts: dict[str, ElectionContext] = {}
        visits = rest.visits(draft, lambda now: now.assigned_to(broker_id), has_seat, visits_max)
        for topic, index, partition in visits:
            if topic.name not in contexts:
                contexts[topic.name] = self.context(image, topic.name, is_active, why_inactive=why_inactive)
            # without ELR the last member has stayed, its dir failed or not (F7)
            is_offline = bool(image.offline_among((broker_id,), PartitionId(topic.topic_id, index)))
            requested = RequestedChange(
                tuple(r for r in partition.isr if r != broker_id),
                unclean=(broker_id,) if departure is Departure.UNCLEAN or is_offline else (),
                forgotten=(broker_id,) if departure is Departure.UNREGISTERED else (),
                keeps_candidates=departure is Departure.CLEAN and not is_offline,
            )
            self.change(draft, topic, index, partition, requested, contexts[topic.name], cause)
        return rest.is_over

    def elect_leaderless(
        self,
        draft: Draft,
        cause: Cause,
        *,
        mode: ElectionMode | None = None,
        rest: PartitionPass | None = None,
        visits_max: int | None = None,
    ) -> bool:
        """Try to elect for every leaderless partition (R21), in the topic's own mode unless `mode` is given.
        False when it has stopped after `visits_max` partitions: the same call with the same `rest` goes on.
        """
        image = draft.image
        rest = rest or PartitionPass()
        compares_logs = self.compares_logs(image)

        def may_be_elected(_: PartitionId, partition: PartitionRegistration) -> bool:
            if partition.leader is not None:
                return False
            # a reassignment may be complete though none of its replicas is active (R101)
            if partition.is_reassigning:
                return True
            if not any(map(image.is_active, partition.replicas)):
                return False
            # where logs are compared, that decides
            return bool(partition.electable) or not compares_logs

        contexts: dict[str, ElectionContext] = {}
        visits = rest.visits(draft, lambda now: now.leaderless, may_be_elected, visits_max)
        for topic, index, partition in visits:
            if topic.name not in contexts:
                contexts[topic.name] = self.context(image, topic.name, image.is_active, mode=mode)
            requested = RequestedChange(keeps_candidates=True)
            self.change(draft, topic, index, partition, requested, contexts[topic.name], cause)
        return rest.is_over

    def take_over(
        self, draft: Draft, *, rest: PartitionPass | None = None, visits_max: int | None = None
    ) -> bool:
        """Make the elections that the previous controller left: its unfencing was cut after the first part
        (K21, R21), or its file had the recovery manager on and this one's has not (F40).

        Of unclean elections only those of last known leaders; the periodic pass makes the others (F38). False
        when it has stopped after `visits_max` partitions: the same call with the same `rest` goes on.
        """
        image, cause = draft.image, Cause(CauseKind.TAKEOVER)
        rest = rest or PartitionPass()

        def may_be_elected(key: PartitionId, partition: PartitionRegistration) -> bool:
            candidates = partition.electable or self._trusted(image, partition)
            return partition.leader is None and any(
                image.is_active_replica(replica, key) for replica in candidates
            )

        contexts: dict[str, ElectionContext] = {}
        visits = rest.visits(draft, lambda now: now.leaderless, may_be_elected, visits_max)
        for topic, index, partition in visits:
            if topic.name not in contexts:
                contexts[topic.name] = self.context(
                    image, topic.name, image.is_active, mode=ElectionMode.ONLINE
                )
            requested = RequestedChange(keeps_candidates=True)
            self.change(draft, topic, index, partition, requested, contexts[topic.name], cause)
        return rest.is_over

    def _trusted(self, image: MetadataImage, partition: PartitionRegistration) -> tuple[int, ...]:
        """The last known leader, if it may lead when no replica is eligible (D8.8)."""
        known = partition.last_known_leader
        if known not in partition.replicas or not image.elr_enabled or self.compares_logs(image):
            return ()
        return (known,)

    def move_leaders(
        self,
        draft: Draft,
        keys: Callable[[MetadataImage], Iterable[PartitionId]],
        successor_of: Callable[[PartitionId, PartitionRegistration], int | None],
        cause: Cause,
        *,
        rest: PartitionPass,
        visits_max: int,
    ) -> bool:
        """Elect the successors of those partitions that have one. False when it has stopped after
        `visits_max` elections: the same call with the same `rest` goes on."""
        image = draft.image
        visits = rest.visits(
            draft, keys, lambda key, partition: successor_of(key, partition) is not None, visits_max
        )
        for topic, index, partition in visits:
            successor = successor_of(PartitionId(topic.topic_id, index), partition)
            context = self.context(image, topic.name, image.is_active)
            requested = RequestedChange(designated=successor)
            self.change(draft, topic, index, partition, requested, context, cause)
        return rest.is_over

    def elect_unclean(self, draft: Draft) -> None:
        """One pass of unclean elections over the leaderless partitions whose topics allow them (R16)."""
        image = draft.image
        elected = 0
        for topic, index, partition in image.leaderless_partitions():
            context = self.context(image, topic.name, image.is_active)
            if context.mode is not ElectionMode.UNCLEAN:
                continue
            cause = Cause(CauseKind.UNCLEAN_PASS)
            if self.change(draft, topic, index, partition, RequestedChange(), context, cause):
                elected += 1
            if elected == UNCLEAN_PASS_MAX:
                return

    def refresh(self, draft: Draft, cause: Cause, topic_name: str | None = None) -> None:
        """Bring the partitions of a topic, or all, in line with the present configuration (R109, B8).

        Elects no leader uncleanly: fencing, unfencing and the periodic pass do (F38).
        """
        image = draft.image
        named = None if topic_name is None else image.topic(topic_name)
        topics = image.sorted_topics() if topic_name is None else [] if named is None else [named]
        for topic in topics:
            context = self.context(image, topic.name, image.is_active, mode=ElectionMode.ONLINE)
            for index, partition in topic.sorted_partitions():
                self.change(draft, topic, index, partition, RequestedChange(), context, cause)

    def forget_unregistered(self, draft: Draft) -> None:
        """Take unregistered brokers out of the ISRs of leaderless partitions (B10, D8.9)."""
        image = draft.image
        for topic, index, partition in image.leaderless_partitions():
            gone = tuple(replica for replica in partition.isr if replica not in image.brokers)
            if gone:
                requested = RequestedChange(tuple(r for r in partition.isr if r not in gone), forgotten=gone)
                context = self.context(image, topic.name, image.is_active)
                cause = Cause(CauseKind.UNREGISTRATION, gone[0])
                self.change(draft, topic, index, partition, requested, context, cause)

    def context(
        self,
        image: MetadataImage,
        topic_name: str,
        is_active: Callable[[int], bool],
        *,
        mode: ElectionMode | None = None,
        why_inactive: Callable[[int], Rejection] | None = None,
    ) -> ElectionContext:
        """What a change of the topic's partitions must know; `mode` is the topic's own unless given."""
        static = self._config.static
        compares_logs = self.compares_logs(image)
        if mode is None:
            unclean = not compares_logs and self._elects_any_replica(image, topic_name)
            mode = ElectionMode.UNCLEAN if unclean else ElectionMode.ONLINE
        return ElectionContext(
            is_active=is_active,
            elr_enabled=image.elr_enabled,
            min_insync_replicas=image.topic_config(topic_name, "min.insync.replicas", static),
            mode=mode,
            compares_logs=compares_logs,
            why_inactive=why_inactive or (lambda broker_id: _why_inactive(image, broker_id)),
        )

    def waits_for_operator(
        self, image: MetadataImage, topic_name: str, partition: PartitionRegistration
    ) -> bool:
        """True when no returning replica is elected automatically, except by a comparison of logs."""
        if partition.leader is not None or partition.electable:
            return False
        context = self.context(image, topic_name, image.is_active)
        if context.compares_logs:
            return True
        trusts = context.elr_enabled and partition.last_known_leader in partition.replicas
        return context.mode is not ElectionMode.UNCLEAN and not trusts

    def compares_logs(self, image: MetadataImage) -> bool:
        """True while the recovery manager decides unclean elections, which needs ELR (R69).

        The cluster's dynamic value counts, else this node's file. So an operator can compare with Kafka's
        behaviour while the cluster runs.
        """
        return self._is_manager_enabled(image) and image.elr_enabled

    def _is_manager_enabled(self, image: MetadataImage) -> bool:
        enabled = image.cluster_config(RECOVERY_MANAGER_KEY)
        return bool(self._config.recovery_manager_enabled if enabled is None else enabled)

    def _elects_any_replica(self, image: MetadataImage, topic_name: str) -> bool:
        """Where no logs are compared: what the older key says, unless the manager is on and waits for ELR.
        Then a strategy that is set counts, and only Aggressive takes any replica (R69)."""
        static = self._config.static
        strategy = image.topic_config(topic_name, "unclean.recovery.strategy", static)
        if strategy is not None and self._is_manager_enabled(image):
            return bool(strategy == "Aggressive")
        return bool(image.topic_config(topic_name, "unclean.leader.election.enable", static))

    def change(
        self,
        draft: Draft,
        topic: TopicImage,
        index: int,
        before: PartitionRegistration,
        requested: RequestedChange,
        context: ElectionContext,
        cause: Cause,
    ) -> PartitionChange | None:
        """Write the record of a requested change with its decision; None when nothing changes."""
        replicas = before.replicas if requested.assignment is None else requested.assignment.replicas
        offline = draft.image.offline_among(replicas, PartitionId(topic.topic_id, index))
        if offline:  # R27: a replica in a failed log dir is never active
            context = context.without(offline)
        change = change_partition(topic.topic_id, index, before, requested, context, cause)
        if change is None:
            return None
        draft.decisions.append(
            DecisionEntry(
                draft.next_offset,
                topic.topic_id,
                topic.name,
                index,
                change.before,
                change.after,
                change.decision,
            )
        )
        draft.write(change.record)
        is_unclean = change.reason is not None and change.reason.is_unclean
        if is_unclean or draft.has_room_for_note():
            draft.note(*_line(f"{topic.name}-{index}", change))
        return change

    # --- AlterPartition ----------------------------------------------------------------------------------

    def alter_partition(self, draft: Draft, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Grant or refuse each proposed ISR. Errors of the whole request: STALE_BROKER_EPOCH (R40)."""
        broker = draft.image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            text = f"broker {request.broker_id} is not registered with epoch {request.broker_epoch}"
            return AlterPartitionResponse(ErrorCode.STALE_BROKER_EPOCH, text, ())
        rows = tuple(self._alter_one(draft, request.broker_id, row) for row in request.partitions)
        return AlterPartitionResponse(ErrorCode.NONE, None, rows)

    def _alter_one(
        self, draft: Draft, sender_id: int, proposal: AlterPartitionPartition
    ) -> AlterPartitionPartitionResponse:
        image = draft.image
        topic = image.topics.get(proposal.topic_id)
        if topic is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.partitions.get(proposal.partition_index)
        if partition is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = _proposal_error(image, partition, sender_id, proposal)
        if error is not ErrorCode.NONE:
            return _refused(proposal, error)
        requested = RequestedChange(
            tuple(member.broker_id for member in proposal.new_isr),
            leader_recovery_state=proposal.leader_recovery_state,
            keeps_candidates=True,
        )
        change = self.change(
            draft,
            topic,
            proposal.partition_index,
            partition,
            requested,
            self.context(image, topic.name, image.is_active),
            Cause(CauseKind.ALTER_PARTITION, sender_id),
        )
        after = partition if change is None else change.after
        if after.leader != sender_id:
            # R42: the record that completes the reassignment stays, and the old leader gets this error
            return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionPartitionResponse(
            topic_id=proposal.topic_id,
            partition_index=proposal.partition_index,
            error_code=ErrorCode.NONE,
            leader_id=leader_number(after.leader),
            leader_epoch=after.leader_epoch,
            isr=after.isr,
            leader_recovery_state=after.leader_recovery_state,
            partition_epoch=after.partition_epoch,
            min_isr=after.min_isr,
        )


def _why_inactive(image: MetadataImage, broker_id: int) -> Rejection:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return Rejection.UNREGISTERED
    return Rejection.FENCED if broker.is_fenced else Rejection.IN_CONTROLLED_SHUTDOWN


def _state_after(departure: Departure, cause: Cause) -> Rejection:
    """Why a leaving broker will be inactive: its own record comes after the partitions' (F26)."""
    if departure is Departure.UNREGISTERED:
        return Rejection.UNREGISTERED
    if cause.kind is CauseKind.CONTROLLED_SHUTDOWN:
        return Rejection.IN_CONTROLLED_SHUTDOWN
    return Rejection.FENCED


def _line(name: str, change: PartitionChange) -> tuple[str, Level]:
    """The log line about a partition's change and its reason."""
    text = f"{name}: {change.after.diff(change.before)} ({change.decision.cause}"
    if change.decision.rejected and change.before.leader != change.after.leader:
        passed = (f"{replica} {why.name.lower()}" for replica, why in change.decision.rejected)
        text += f"; rejected: {', '.join(passed)}"
    if change.reason is not None and change.reason.is_unclean:
        # R10, R68: every unclean election is reported as a possible loss
        passed_over = ids_text(change.dropped)
        text += f"; elected as {change.reason.value}; records may be lost, passed over {passed_over}"
        cause = change.decision.cause
        loss = cause.loss_text(change.after.leader)
        if loss is not None:
            text += f"; predicted loss: {loss}"
            silent = cause.silent(change.dropped)
            if silent:
                text += f", not counting what {ids_text(silent)} alone may hold"
        return f"{text})", Level.WARNING
    if change.reason is not None:
        return f"{text}; elected as {change.reason.value})", Level.INFO
    if change.after.leader is None and change.before.leader is not None:
        return f"{text}; no replica may lead now)", Level.WARNING
    return f"{text})", Level.INFO


def _proposal_error(
    image: MetadataImage, partition: PartitionRegistration, sender_id: int, proposal: AlterPartitionPartition
) -> ErrorCode:
    """The first check of R41 that fails, in its order."""
    isr = [member.broker_id for member in proposal.new_isr]
    recovering = proposal.leader_recovery_state == RECOVERING
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        # the leader knows more than this controller, which therefore is not the active one
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(set(isr)) != len(isr) or not set(isr).issubset(partition.replicas) or sender_id not in isr:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if recovering and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    key = PartitionId(proposal.topic_id, proposal.partition_index)
    for member in proposal.new_isr:
        broker = image.brokers.get(member.broker_id)
        if broker is None or not image.is_active_replica(member.broker_id, key):
            return ErrorCode.INELIGIBLE_REPLICA
        if member.broker_epoch not in (-1, broker.broker_epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _refused(proposal: AlterPartitionPartition, error: ErrorCode) -> AlterPartitionPartitionResponse:
    return AlterPartitionPartitionResponse(
        topic_id=proposal.topic_id,
        partition_index=proposal.partition_index,
        error_code=error,
        leader_id=-1,
        leader_epoch=-1,
        isr=(),
        leader_recovery_state=RECOVERED,
        partition_epoch=-1,
        min_isr=-1,
    )
