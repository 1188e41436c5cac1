"""Properties of what operators are told: what has succeeded was committed while it was asked for, and what is
refused cannot be granted, and nothing else is done besides."""

from collections.abc import Sequence
from typing import Any

from holdfast.controller.core.decisions import CauseKind, DecisionEntry
from holdfast.controller.core.operators import requests
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind, ElectLeadersRequest
from holdfast.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property, may_lead
from holdfast.sim.load.operators import Act

_ASKED = (CauseKind.PREFERRED_ASKED, CauseKind.UNCLEAN_ASKED, CauseKind.DESIGNATED)
_COMPARISONS = (ElectionKind.LONGEST_LOG_AGGRESSIVE, ElectionKind.LONGEST_LOG_BALANCED)


class DoneIsCommitted(Property):
    """K20, R109: an act that has succeeded was so in some committed image since it was begun. What was asked
    for earlier, and whose answer was lost, may have undone it meanwhile."""

    name = "K20 DoneIsCommitted"

    def __init__(self) -> None:
        self._image = MetadataImage()
        #: the act that was under way when it was so
        self._done: Act | None = None

    def metadata_committed(self, seen: Observer) -> None:
        before, self._image = self._image, seen.image
        if seen.world.operator_queue.under_way is not None:
            act = seen.world.operator_queue.under_way[1]
            if act is not self._done and (act.is_done(before) or act.is_done(seen.image)):
                self._done = act

    def act_succeeded(self, seen: Observer, name: str, act: Act) -> None:
        if act is not self._done and not act.is_done(seen.image):
            seen.broken(self, None, f"operators were told that it is done: {name}")


class RefusalsAreDue(Property):
    """R17, R103, R104: operators are refused a move or an election only for what is so: they may need it to
    repair something. What must be refused is the matter of I-5, A-3 and A-17."""

    name = "R103 RefusalsAreDue"

    def operators_refused(self, seen: Observer, request: Any, response: Any, before: MetadataImage) -> None:
        if isinstance(request, AlterPartitionReassignmentsRequest):
            asked = {
                (t.name, row.partition_index): row.replicas for t in request.topics for row in t.partitions
            }
            for topic in response.responses:
                for row in topic.partitions:
                    name = topic.name, row.partition_index
                    if not _is_move_refused(row.error_code, before, *name, asked[name]):
                        self._tell(seen, name, row, f"its move to {asked[name]}", before)
        elif isinstance(request, ElectLeadersRequest):
            desired = {
                (topic.topic, index): leader
                for topic in request.topic_partitions or ()
                for index, leader in zip(topic.partitions, topic.desired_leaders or (), strict=False)
            }
            count = sum(len(result.partition_results) for result in response.replica_election_results)
            for result in response.replica_election_results:
                for one in result.partition_results:
                    if one.error_code == ErrorCode.REQUEST_LIMIT_REACHED and count > requests.ELECTIONS_MAX:
                        continue  # R18: asked for again
                    name = result.topic, one.partition_id
                    kind = ElectionKind(request.election_type)
                    if not _is_election_refused(one.error_code, kind, before, *name, desired.get(name)):
                        self._tell(seen, name, one, f"its election, {kind.name}", before)

    def _tell(
        self, seen: Observer, name: tuple[str, int], row: Any, what: str, before: MetadataImage
    ) -> None:
        story = f"{name[0]}-{name[1]} is refused {what}, {ErrorCode(row.error_code).name}"
        seen.broken(self, None, f"{story} ({row.error_message}): {_partition(before, *name)}")


class OnlyTheNamedAreElected(Property):
    """R17: an operator that asks for elections of some partitions changes no other: an unclean one loses
    records, and a preferred one may be what another operator has just undone."""

    name = "R17 OnlyTheNamedAreElected"

    def elections_asked_for(
        self, seen: Observer, request: ElectLeadersRequest, made: Sequence[DecisionEntry]
    ) -> None:
        if request.topic_partitions is None:
            return
        named = {(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions}
        for one in made:
            # comparisons of logs go on in the same step
            if one.decision.cause.kind in _ASKED and (one.topic_name, one.partition_index) not in named:
                story = f"{one.topic_name}-{one.partition_index} was changed as {one.decision.cause}"
                seen.broken(self, None, f"{story}, asked for was {sorted(named)}")


def _partition(image: MetadataImage, topic_name: str, index: int) -> PartitionRegistration | None:
    topic = image.topic(topic_name)
    return None if topic is None else topic.partitions.get(index)


def _is_move_refused(
    error_code: int, image: MetadataImage, topic_name: str, index: int, target: Sequence[int] | None
) -> bool:
    row = _partition(image, topic_name, index)
    if row is None:
        return error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if target is None and row.original_replicas is None:
        return error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    if error_code != ErrorCode.INVALID_REPLICA_ASSIGNMENT:
        return False
    if target is not None and (
        not target or len({*target}) < len(target) or any(broker not in image.brokers for broker in target)
    ):
        return True
    kept = {*(row.original_replicas or row.replicas), *(target or ())}
    is_cut = target is None or bool({*row.isr, *row.elr, *row.last_known_elr} - kept)
    return is_cut and len(kept.intersection(row.isr)) < row.min_isr


def _is_election_refused(
    error_code: int,
    kind: ElectionKind,
    image: MetadataImage,
    topic_name: str,
    index: int,
    leader: int | None,
) -> bool:
    row, topic = _partition(image, topic_name, index), image.topic(topic_name)
    if row is None or topic is None:
        return error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ready = [broker for broker in row.replicas if may_lead(image, broker, PartitionId(topic.topic_id, index))]
    if error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return row.leader == row.replicas[0] if kind is ElectionKind.PREFERRED else row.leader is not None
    if error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
        preferred = row.replicas[0]
        return kind is ElectionKind.PREFERRED and (
            preferred not in ready or preferred not in (row.isr or row.elr)
        )
    if error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        wanted = row.replicas if kind is ElectionKind.UNCLEAN else (leader,)
        return not {*wanted} & {*ready}
    # the controller compares no logs without a manager, and elects no broker without a replica
    return error_code == ErrorCode.INVALID_REQUEST and (
        kind in _COMPARISONS or (kind is ElectionKind.DESIGNATION and leader not in row.replicas)
    )
