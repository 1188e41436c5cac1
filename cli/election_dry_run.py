"""What an election on request would do, told beforehand: `holdfast leader-election --dry-run`.

Follows `controller.core.partitions.leader_elections` and asks the controller's own `partition_change` who
would lead. It sees one answer of DescribeTopicPartitions, which may be a moment old; the controller may
decide otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.client.core.errors import RowError
from holdfast.controller.core.brokers.what_if import context_of, registration_of, trial
from holdfast.controller.core.partitions.election import ElectionMode
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.messages.topics import DescribedPartition

#: Begun by the request, ended when enough logs are known.
LOG_COMPARISONS = (ElectionKind.LONGEST_LOG_AGGRESSIVE, ElectionKind.LONGEST_LOG_BALANCED)


class Trial(NamedTuple):
    """What would happen, or why nothing would."""

    text: str | None
    error: RowError | None


def try_election(
    kind: ElectionKind,
    described: DescribedPartition,
    is_active: Callable[[int], bool],
    designated_leader: int | None = None,
    *,
    compares_logs: bool = True,
) -> Trial:
    """The outcome for one partition; `compares_logs` while the recovery manager is on."""
    before = registration_of(described)

    def is_active_replica(broker_id: int) -> bool:
        return is_active(broker_id) and broker_id not in described.offline_replicas  # a failed log dir (R27)

    error = _refusal(kind, before, is_active_replica, designated_leader)
    if error is not None:
        return Trial(None, error)
    if kind in LOG_COMPARISONS:
        if not compares_logs or described.eligible_leader_replicas is None:
            text = "logs are compared with the recovery manager and ELR on only; use DESIGNATION or UNCLEAN"
            return Trial(None, RowError(ErrorCode.INVALID_REQUEST, text))
        if kind is ElectionKind.LONGEST_LOG_BALANCED and before.electable:
            text = f"complete replicas are away; start one of {_ids(before.electable)}"
            return Trial(None, RowError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text))
        return Trial(_comparison(kind, before, is_active_replica), None)
    mode = {ElectionKind.PREFERRED: ElectionMode.PREFERRED, ElectionKind.UNCLEAN: ElectionMode.UNCLEAN}
    context = replace(context_of(described, is_active), mode=mode.get(kind, ElectionMode.ONLINE))
    designated = designated_leader if kind is ElectionKind.DESIGNATION else None
    change = trial(before, RequestedChange(designated=designated), context)
    if change is None or change.after.leader is None or change.reason is None:
        return Trial("would change nothing", None)
    text = f"would elect {change.after.leader} ({change.reason.value})"
    if change.reason.is_unclean:
        text += "; records may be lost"
    return Trial(text, None)


def _comparison(
    kind: ElectionKind, partition: PartitionRegistration, is_active: Callable[[int], bool]
) -> str:
    """R64, R65: whose logs would be compared, and who is waited for."""
    is_balanced = kind is ElectionKind.LONGEST_LOG_BALANCED
    there = [replica for replica in partition.replicas if is_active(replica)]
    awaited = [replica for replica in partition.last_known_elr if replica not in there]
    text = f"would compare the logs of {_ids(there) or 'no broker yet'}"
    if is_balanced and awaited:
        text += f", and wait for {_ids(awaited)}"
    return text


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _refusal(
    kind: ElectionKind,
    partition: PartitionRegistration,
    is_active: Callable[[int], bool],
    designated_leader: int | None,
) -> RowError | None:
    """The error that the controller would answer, or None."""
    preferred = partition.replicas[0]
    if kind is ElectionKind.PREFERRED:
        if partition.leader == preferred:
            return RowError(ErrorCode.ELECTION_NOT_NEEDED, f"the preferred replica {preferred} leads already")
        if not is_active(preferred) or preferred not in partition.electable:
            text = f"the preferred replica {preferred} is not in sync"
            return RowError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
        return None
    if partition.leader is not None:
        return RowError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads already")
    if kind is ElectionKind.UNCLEAN and not any(map(is_active, partition.replicas)):
        return RowError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is on a broker that is ready")
    if kind is ElectionKind.DESIGNATION:
        if designated_leader is None or designated_leader not in partition.replicas:
            text = f"name one of the replicas {', '.join(map(str, partition.replicas))}"
            return RowError(ErrorCode.INVALID_REQUEST, text)
        if not is_active(designated_leader):
            text = f"broker {designated_leader} is not ready"
            return RowError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)
    return None
