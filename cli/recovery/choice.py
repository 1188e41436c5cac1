"""Which replica of a leaderless partition should lead, by what brokers told of their logs (R72, R76, R78).

Owns what an answer is worth beside what the cluster says of its broker, the choice among the answers, and how
many records it may cost. Looks at one partition at one moment; when to ask, and what follows, is
`unclean_recovery_mind`'s. Logs are put in order by the recovery manager's own rule (R66), so that the tool
and the manager elect the same replica out of the same answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.client.core.errors import RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.controller.core.brokers.what_if import registration_of
from holdfast.controller.core.decisions import Cause, CauseKind, LogEnd
from holdfast.controller.core.partitions.unclean_recovery import LogReply, best_log
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import DescribeClusterBroker
from holdfast.protocol.messages.topics import DescribedPartition


class CandidateRole(Enum):
    """What metadata knows of a replica, by the words of the other tools."""

    ISR = "ISR"
    ELR = "ELR"
    #: lost its seat to an unclean shutdown
    LAST_KNOWN_ELR = "LKELR"
    OUT_OF_SYNC = "OUT_OF_SYNC"

    @property
    def held_everything(self) -> bool:
        """It was complete once; members of ISR and ELR are so still."""
        return self is not CandidateRole.OUT_OF_SYNC


class Worth(Enum):
    """What a replica's answer is good for."""

    #: none, or an error instead of one
    NONE = "none"
    #: another incarnation answered than is registered: what it said is void (R63)
    VOID = "void"
    #: the broker knows a later leader epoch than the node that was asked for metadata: wait for the news
    AHEAD = "ahead"
    #: the broker has old metadata: ask again; its log is what it is
    BEHIND = "behind"
    #: its broker answers, but the controller takes it for no leader now (R76)
    NOT_READY = "not_ready"
    GOOD = "good"

    @property
    def is_told(self) -> bool:
        """The log is known."""
        return self in (Worth.AHEAD, Worth.BEHIND, Worth.NOT_READY, Worth.GOOD)


@dataclass(frozen=True, slots=True)
class RecoveryCandidate:
    """One replica: what the cluster says of it, and what it says itself."""

    replica: int
    role: CandidateRole
    #: None when it is not registered
    broker: DescribeClusterBroker | None
    worth: Worth
    #: None unless `worth.is_told`
    log: ReplicaLog | None
    #: why there is no log
    problem: RowError | None
    #: metadata has it offline: its broker is fenced, or its log dir failed (R27)
    is_offline: bool

    @property
    def is_ready(self) -> bool:
        """The controller would take it as leader."""
        return (
            self.broker is not None
            and not self.broker.is_fenced
            and not self.broker.in_controlled_shutdown
            and not self.is_offline
        )

    @property
    def is_witness(self) -> bool:
        """Its log is that of the registered incarnation: what metadata says of the replica is true of it."""
        return (
            self.log is not None
            and self.broker is not None
            and self.log.broker_epoch == self.broker.broker_epoch
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that may be gone if a replica leads: those that some log claims as replicated or durable."""

    records: int
    #: a log that was not seen, or one that goes on in a later epoch, may hold more
    is_at_least: bool

    def __str__(self) -> str:
        return f"{'>=' if self.is_at_least else ''}{self.records}"


def candidates(
    row: DescribedPartition,
    broker_of: Callable[[int], DescribeClusterBroker | None],
    told: Mapping[int, ReplicaLog | RowError],
) -> tuple[RecoveryCandidate, ...]:
    """The replicas of a partition in the order of assignment; `told` is the last that was heard of each."""
    return tuple(_candidate(row, replica, broker_of(replica), told.get(replica)) for replica in row.replicas)


def _candidate(
    row: DescribedPartition,
    replica: int,
    broker: DescribeClusterBroker | None,
    told: ReplicaLog | RowError | None,
) -> RecoveryCandidate:
    role, is_offline = _role(row, replica), replica in row.offline_replicas
    if told is None or isinstance(told, RowError):
        problem = told or RowError(ErrorCode.REQUEST_TIMED_OUT, "it has not answered yet")
        return RecoveryCandidate(replica, role, broker, Worth.NONE, None, problem, is_offline)
    worth = _worth(row, broker, told)
    if worth is Worth.VOID:
        text = "it was started anew since it answered, or is about to register"
        problem = RowError(ErrorCode.STALE_BROKER_EPOCH, text)
        return RecoveryCandidate(replica, role, broker, worth, None, problem, is_offline)
    return RecoveryCandidate(replica, role, broker, worth, told, None, is_offline)


def _role(row: DescribedPartition, replica: int) -> CandidateRole:
    if replica in row.isr:
        return CandidateRole.ISR
    if replica in (row.eligible_leader_replicas or ()):
        return CandidateRole.ELR
    if replica in (row.last_known_elr or ()):
        return CandidateRole.LAST_KNOWN_ELR
    return CandidateRole.OUT_OF_SYNC


def _worth(row: DescribedPartition, broker: DescribeClusterBroker | None, log: ReplicaLog) -> Worth:
    """R62, read for a tool: what it cannot act upon now may still be shown."""
    is_unregistered = log.broker_epoch < 0
    if broker is None or (broker.is_fenced and is_unregistered):
        return Worth.NOT_READY
    if log.broker_epoch != broker.broker_epoch:
        return Worth.VOID
    if log.leader_epoch > row.leader_epoch:
        return Worth.AHEAD
    if broker.is_fenced or broker.in_controlled_shutdown or broker.broker_id in row.offline_replicas:
        return Worth.NOT_READY
    return Worth.BEHIND if log.leader_epoch < row.leader_epoch else Worth.GOOD


def chosen(row: DescribedPartition, found: tuple[RecoveryCandidate, ...]) -> int | None:
    """The replica to designate: the best log of those that may lead now, else of all (R72, R76).

    None when no log is known, or when a broker knows that the partition has changed since.
    """
    told = [one for one in found if one.worth.is_told]
    if not told or any(one.worth is Worth.AHEAD for one in told):
        return None
    ready = [one for one in told if one.worth is not Worth.NOT_READY]
    return _best(row, _provable(row, found, ready or told))


def longest(row: DescribedPartition, found: tuple[RecoveryCandidate, ...]) -> int | None:
    """As `chosen` if every replica that told its log could lead."""
    told = [one for one in found if one.worth.is_told]
    return _best(row, _provable(row, found, told)) if told else None


def _provable(
    row: DescribedPartition, found: tuple[RecoveryCandidate, ...], among: list[RecoveryCandidate]
) -> list[RecoveryCandidate]:
    """Those of `among` that end in the epoch in which all that was committed is known to end, if any do.

    A log may end in a later epoch and yet lack what was committed (Raft's figure 8). Members of ISR and ELR
    are complete, and of all that are last known one is: theirs is the epoch to go by, as it is the recovery
    manager's in a Balanced recovery; unless they are empty, which proves nothing.
    """
    complete = [one for one in found if one.role in (CandidateRole.ISR, CandidateRole.ELR) and one.is_witness]
    last_known = [one for one in found if one.role is CandidateRole.LAST_KNOWN_ELR]
    witnesses = complete
    if not any(one.role in (CandidateRole.ISR, CandidateRole.ELR) for one in found) and all(
        one.is_witness for one in last_known
    ):
        witnesses = last_known
    if not witnesses:
        return among
    if clean := [one for one in among if one in complete]:
        return clean
    best = _best(row, witnesses)
    (log,) = (one.log for one in witnesses if one.replica == best and one.log is not None)
    if log.end_offset == 0:
        return among
    return [one for one in among if one.log is not None and one.log.last_epoch == log.last_epoch] or among


def _best(row: DescribedPartition, among: list[RecoveryCandidate]) -> int:
    replies = {
        one.replica: LogReply(one.log.broker_epoch, one.log.last_epoch, one.log.end_offset)
        for one in among
        if one.log is not None
    }
    return best_log(registration_of(row), replies)


def estimated_loss(found: tuple[RecoveryCandidate, ...], replica: int) -> Loss | None:
    """What may be lost if `replica` leads; None when its log is not known."""
    logs = [(one.replica, one.log) for one in found if one.log is not None]
    ends = tuple(
        LogEnd(of, log.last_epoch, log.end_offset, log.flushed_offset, log.high_watermark) for of, log in logs
    )
    records = Cause(CauseKind.LOGS_COMPARED, logs=ends).predicted_loss(replica)
    if records is None:
        return None
    own_epoch = next(log.last_epoch for of, log in logs if of == replica)
    return Loss(records, bool(unseen(found)) or any(log.last_epoch > own_epoch for _, log in logs))


def unseen(found: tuple[RecoveryCandidate, ...]) -> tuple[RecoveryCandidate, ...]:
    """Those that held everything once and whose logs are not known; all may have, where nothing is known."""
    once_complete = [one for one in found if one.role.held_everything] or list(found)
    return tuple(one for one in once_complete if not one.worth.is_told)
