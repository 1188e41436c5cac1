"""ElectLeaders: elections that an operator requests (R17, R18).

Owns which partitions may be named and which error is answered. `election` chooses the leader, or
`unclean_recovery` where logs are compared.
"""

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.operators.operations import DONE, ElectionType, ElectLeader, OperationResult
from holdfast.controller.core.partitions.election import ElectionMode
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.partitions.unclean_recovery import Strategy, UncleanRecovery
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode

_STRATEGIES = {
    ElectionType.LONGEST_LOG_AGGRESSIVE: Strategy.AGGRESSIVE,
    ElectionType.LONGEST_LOG_BALANCED: Strategy.BALANCED,
}


def elect_leader(
    draft: Draft, request: ElectLeader, replication: ReplicationControl, recovery: UncleanRecovery
) -> OperationResult:
    """Elect as requested.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, INVALID_REQUEST, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    topic = draft.image.topic(request.topic_name)
    partition = None if topic is None else topic.partitions.get(request.partition_index)
    if topic is None or partition is None:
        text = f"there is no partition {request.topic_name}-{request.partition_index}"
        return OperationResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if request.election_type is ElectionType.PREFERRED:
        return _elect_preferred(draft, topic, request.partition_index, partition, replication)
    if partition.leader is not None:
        text = f"broker {partition.leader} leads {request.topic_name}-{request.partition_index}"
        return OperationResult(ErrorCode.ELECTION_NOT_NEEDED, text)
    if request.election_type is ElectionType.UNCLEAN:
        return _elect_unclean(draft, topic, request.partition_index, partition, replication)
    if request.election_type is ElectionType.DESIGNATED:
        return _elect_designated(draft, topic, request, partition, replication)
    if not replication.compares_logs(draft.image):
        text = "logs are compared only while the recovery manager and ELR are on; use DESIGNATED or UNCLEAN"
        return OperationResult(ErrorCode.INVALID_REQUEST, text)
    strategy = _STRATEGIES[request.election_type]
    if strategy is Strategy.BALANCED and partition.electable:
        away = ", ".join(map(str, partition.electable))
        text = (
            f"complete replicas are away; start one of {away}, or use LONGEST_LOG_AGGRESSIVE or DESIGNATION"
        )
        return OperationResult(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    recovery.force(draft.image, topic, request.partition_index, strategy)
    return DONE


def is_under_way(image: MetadataImage, request: ElectLeader, recovery: UncleanRecovery) -> bool:
    """The same comparison of logs was requested before and is not decided yet."""
    strategy = _STRATEGIES.get(request.election_type)
    topic = image.topic(request.topic_name)
    if strategy is None or topic is None:
        return False
    return recovery.is_forced(image, topic, request.partition_index, strategy)


def _elect_preferred(
    draft: Draft,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    replication: ReplicationControl,
) -> OperationResult:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        text = f"the preferred replica {preferred} is the leader already"
        return OperationResult(ErrorCode.ELECTION_NOT_NEEDED, text)
    # no other replica is elected instead (B15)
    key = PartitionId(topic.topic_id, index)
    if not draft.image.is_active_replica(preferred, key) or preferred not in partition.electable:
        text = f"the preferred replica {preferred} is not in sync; try again once it is in the ISR"
        return OperationResult(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
    return _elect(
        draft, topic, index, partition, replication, ElectionMode.PREFERRED, CauseKind.PREFERRED_ASKED
    )


def _elect_unclean(
    draft: Draft,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    replication: ReplicationControl,
) -> OperationResult:
    key = PartitionId(topic.topic_id, index)
    if not any(draft.image.is_active_replica(replica, key) for replica in partition.replicas):
        text = "no replica is on an active broker; start one of them"
        return OperationResult(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    return _elect(draft, topic, index, partition, replication, ElectionMode.UNCLEAN, CauseKind.UNCLEAN_ASKED)


def _elect(
    draft: Draft,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    replication: ReplicationControl,
    mode: ElectionMode,
    kind: CauseKind,
) -> OperationResult:
    context = replication.context(draft.image, topic.name, draft.image.is_active, mode=mode)
    replication.change(draft, topic, index, partition, RequestedChange(), context, Cause(kind))
    return DONE


def _elect_designated(
    draft: Draft,
    topic: TopicImage,
    request: ElectLeader,
    partition: PartitionRegistration,
    replication: ReplicationControl,
) -> OperationResult:
    if request.leader is None or request.leader not in partition.replicas:
        text = f"name one of the replicas {', '.join(map(str, partition.replicas))}, not {request.leader}"
        return OperationResult(ErrorCode.INVALID_REQUEST, text)
    if not draft.image.is_active_replica(
        request.leader, PartitionId(topic.topic_id, request.partition_index)
    ):
        text = f"the replica on {request.leader} is not ready; start that broker, or name another replica"
        return OperationResult(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    context = replication.context(draft.image, topic.name, draft.image.is_active)
    requested = RequestedChange(designated=request.leader)
    cause = Cause(CauseKind.DESIGNATED, request.leader)
    replication.change(draft, topic, request.partition_index, partition, requested, context, cause)
    return DONE
