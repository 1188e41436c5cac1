"""AlterPartitionReassignments: starts, redirects and cancels the reassignment of a partition (R100).

A second reassignment counts from the replicas before the first one (R105). `partition_change` completes a
reassignment.
"""

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.operators.operations import DONE, OperationResult, Reassign
from holdfast.controller.core.partitions.partition_change import Assignment, RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration, ids_text
from holdfast.protocol.errors import ErrorCode


def reassign(draft: Draft, request: Reassign, replication: ReplicationControl) -> OperationResult:
    """Start, redirect or cancel a reassignment.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
    """
    image = draft.image
    topic = image.topic(request.topic_name)
    partition = None if topic is None else topic.partitions.get(request.partition_index)
    if topic is None or partition is None:
        text = f"there is no partition {request.topic_name}-{request.partition_index}"
        return OperationResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if request.replicas is None:
        if partition.original_replicas is None:
            return OperationResult(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition has no reassignment to cancel"
            )
        assignment = Assignment(partition.original_replicas)
        cause = Cause(CauseKind.REASSIGNMENT_CANCELLED)
    else:
        problem = _target_problem(image, request.replicas)
        if problem is not None:
            return OperationResult(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        assignment = _towards(partition, request.replicas)
        cause = Cause(CauseKind.REASSIGNMENT_ASKED)
    staying = tuple(r for r in partition.isr if r in assignment.replicas)
    # R9: below min ISR neither ISR nor ELR may lose a member. Nor may the last known ELR: a comparison of
    # logs without one of its members proves nothing (A-17, R64).
    needed = {*partition.isr, *partition.elr, *partition.last_known_elr}
    is_cut = request.replicas is None or not needed <= set(assignment.replicas)
    if is_cut and len(staying) < partition.min_isr:
        # R103: only the leaving replicas may hold all that was acknowledged
        text = (
            f"without the replicas that were being added the ISR is {ids_text(staying)}, below min ISR "
            f"{partition.min_isr}, and the logs of {ids_text(sorted(needed))} may be needed; try again when "
            "more of the original replicas are in sync"
        )
        return OperationResult(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    context = replication.context(image, topic.name, image.is_active)
    requested = RequestedChange(staying, assignment=assignment)
    replication.change(draft, topic, request.partition_index, partition, requested, context, cause)
    return DONE


def _towards(partition: PartitionRegistration, target: tuple[int, ...]) -> Assignment:
    """The replica lists while the partition moves from its original replicas to `target` (R100, R105)."""
    original = partition.original_replicas or partition.replicas
    adding = tuple(sorted(r for r in target if r not in original))
    leaving = tuple(r for r in original if r not in target)
    if not adding and not leaving:
        return Assignment(target)  # at most another order: nothing to wait for
    return Assignment(target + leaving, adding, tuple(sorted(leaving)), original)


def _target_problem(image: MetadataImage, target: tuple[int, ...]) -> str | None:
    """Why the partition cannot have these replicas, or None (R104)."""
    unknown = [replica for replica in target if replica not in image.brokers]
    if not target:
        return "at least one replica is needed"
    if len(set(target)) != len(target):
        return f"{ids_text(target)} names a broker twice"
    if unknown:
        return f"broker {unknown[0]} is not registered"
    return None
