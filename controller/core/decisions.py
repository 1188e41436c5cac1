"""Decisions: why a partition changed, recorded with the change and stored in its record.

Owns the causes, their form in the metadata log (compact numbers that are never reused), and the latest
decisions in memory. So any node can explain every election and every change of ISR or ELR by what was decided
then, not by what this version would decide today. Decides nothing itself.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from holdfast.controller.core.partitions.election import ElectionReason, Rejection, Rejections
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import ReplicaLogEnd, StoredDecision

#: Decisions that the active controller keeps in memory; older ones are in the metadata log.
DECISIONS_MAX = 4096

_NOBODY = -1


class CauseKind(Enum):
    """What made the controller check a partition. The numbers are in the metadata log and are never
    reused."""

    UNSTATED = 0
    SESSION_ENDED = 1
    CONNECTION_REFUSED = 2
    FENCING_ASKED = 3
    SHUTDOWN_COMPLETED = 4
    CONTROLLED_SHUTDOWN = 5
    CLEAN_RESTART = 6
    UNCLEAN_REGISTRATION = 7
    UNREGISTRATION = 8
    UNFENCING = 9
    ALTER_PARTITION = 10
    PREFERRED_ASKED = 11
    UNCLEAN_ASKED = 12
    DESIGNATED = 13
    LOGS_COMPARED = 14
    UNCLEAN_PASS = 15
    LEADER_BALANCE = 16
    REASSIGNMENT_ASKED = 17
    REASSIGNMENT_CANCELLED = 18
    MIN_ISR_CONFIGURED = 19
    ELR_SWITCHED_OFF = 20
    MANAGER_SWITCHED_OFF = 21
    LOG_DIR_FAILED = 22
    TAKEOVER = 23
    LEADER_UNREACHABLE = 24
    LOW_ON_SPACE = 25


_TEXTS = {
    CauseKind.UNSTATED: "no cause was stated",
    CauseKind.SESSION_ENDED: "the session of broker {broker} ended",
    CauseKind.CONNECTION_REFUSED: "broker {broker} is gone: its listener refuses connections",
    CauseKind.FENCING_ASKED: "broker {broker} asked to be fenced",
    CauseKind.SHUTDOWN_COMPLETED: "broker {broker} stops and no longer leads any partition",
    CauseKind.CONTROLLED_SHUTDOWN: "broker {broker} began a controlled shutdown",
    CauseKind.CLEAN_RESTART: "broker {broker} restarted cleanly",
    CauseKind.UNCLEAN_REGISTRATION: "broker {broker} registered after an unclean shutdown",
    CauseKind.UNREGISTRATION: "broker {broker} was unregistered",
    CauseKind.UNFENCING: "broker {broker} was unfenced",
    CauseKind.ALTER_PARTITION: "leader {broker} requested it",
    CauseKind.PREFERRED_ASKED: "an operator asked for the preferred replica",
    CauseKind.UNCLEAN_ASKED: "an operator asked for an unclean election",
    CauseKind.DESIGNATED: "an operator designated broker {broker}",
    CauseKind.LOGS_COMPARED: "the recovery manager compared logs",
    CauseKind.UNCLEAN_PASS: "the periodic pass of unclean elections",
    CauseKind.LEADER_BALANCE: "leaderships are balanced",
    CauseKind.REASSIGNMENT_ASKED: "a reassignment was requested",
    CauseKind.REASSIGNMENT_CANCELLED: "the reassignment was cancelled",
    CauseKind.MIN_ISR_CONFIGURED: "min.insync.replicas was configured",
    CauseKind.ELR_SWITCHED_OFF: "eligible leader replicas were switched off",
    CauseKind.LOG_DIR_FAILED: "a log dir of broker {broker} failed, or its replica is damaged",
    CauseKind.MANAGER_SWITCHED_OFF: "the recovery manager was switched off",
    CauseKind.LEADER_UNREACHABLE: "followers cannot fetch from leader {broker}",
    CauseKind.LOW_ON_SPACE: "too little is left of the disk of leader {broker}",
    CauseKind.TAKEOVER: "a new active controller made a missing election",
}


@dataclass(frozen=True, slots=True)
class LogEnd:
    """End of a replica's log when logs were compared. The epoch counts before the length (R66)."""

    replica: int
    last_epoch: int
    end_offset: int
    #: both -1 when not known
    flushed_offset: int = -1
    high_watermark: int = -1

    @property
    def is_compared(self) -> bool:
        """False for a replica without a valid answer at the choice: only its high watermark is reported."""
        return self.end_offset >= 0

    def __str__(self) -> str:
        if not self.is_compared:
            return f"{self.replica} was not compared (it knew of high watermark {self.high_watermark})"
        text = f"{self.replica} ends at {self.end_offset} in epoch {self.last_epoch}"
        if self.high_watermark < 0 and self.flushed_offset < 0:
            return text
        return f"{text} (high watermark {self.high_watermark}, flushed to {self.flushed_offset})"


@dataclass(frozen=True, slots=True)
class Cause:
    """The event that led to a decision."""

    kind: CauseKind
    #: the broker that the event is about, if any
    broker_id: int | None = None
    #: compared logs, by replica (R68)
    logs: tuple[LogEnd, ...] = ()
    #: most committed records that the elected log may lack (R68), -1 when unknown
    loss_at_most: int = -1

    def __str__(self) -> str:
        text = _TEXTS[self.kind].format(broker=self.broker_id)
        if not self.logs:
            return text
        return f"{text}: {', '.join(map(str, self.logs))}"

    def predicted_loss(self, leader: int | None) -> int | None:
        """Committed records that the leader surely lacks: the true loss is this or more (R68).

        None when no high watermark is known. A replica's high watermark above its own log end, where its log
        ends in an older epoch than the leader's, belongs to a history that an earlier unclean election gave
        up: a later leader of the same history would have had those records.
        """
        chosen = next((log for log in self.logs if log.replica == leader and log.is_compared), None)
        if chosen is None or all(log.high_watermark < 0 for log in self.logs):
            return None
        return max(
            0,
            *(
                log.high_watermark - chosen.end_offset
                for log in self.logs
                if log.high_watermark > log.end_offset or log.last_epoch >= chosen.last_epoch
            ),
        )

    def loss_text(self, leader: int | None) -> str | None:
        """The predicted loss of electing the leader, in words; None when nothing is known."""
        least = self.predicted_loss(leader)
        if self.loss_at_most >= 0:
            least, most = least or 0, self.most_lost(leader)
            return f"{most} records" if least == most else f"{least} to {most} records"
        return None if least is None else f"unknown, at least {least} records"

    def most_lost(self, leader: int | None) -> int | None:
        """Most committed records that the leader may lack; None when unknown."""
        if self.loss_at_most < 0:
            return None
        return max(self.loss_at_most, self.predicted_loss(leader) or 0)

    def silent(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """Those of `replicas` whose logs were not compared."""
        compared = {log.replica for log in self.logs if log.is_compared}
        return tuple(replica for replica in replicas if replica not in compared)


UNSTATED = Cause(CauseKind.UNSTATED)


@dataclass(frozen=True, slots=True)
class Decision:
    """Why a partition's change is as it is."""

    cause: Cause
    #: rule by which the leader was elected; None when it stays, or when no replica may lead
    reason: ElectionReason | None
    #: replicas that come before the leader in the order of preference and may not lead
    rejected: Rejections
    #: rule that made ELR and last known ELR
    sets_rule: SetsRule

    def stored(self) -> StoredDecision:
        """The form in the metadata log."""
        return _stored(self)

    @classmethod
    def from_stored(cls, stored: StoredDecision) -> "Decision | None":
        """The decision in a record, None when a later version stored it with numbers unknown here."""
        try:
            return cls(
                Cause(
                    CauseKind(stored.cause),
                    None if stored.cause_broker == _NOBODY else stored.cause_broker,
                    tuple(
                        LogEnd(
                            log.replica,
                            log.last_epoch,
                            log.end_offset,
                            log.flushed_offset,
                            log.high_watermark,
                        )
                        for log in stored.logs
                    ),
                    stored.loss_at_most,
                ),
                _REASONS[stored.reason],
                tuple(
                    (replica, Rejection(why))
                    for replica, why in zip(stored.rejected[::2], stored.rejected[1::2], strict=True)
                ),
                SetsRule(stored.sets_rule),
            )
        except (KeyError, ValueError):
            return None


#: Numbers of the metadata log, never reused.
_REASON_NUMBERS: dict[ElectionReason | None, int] = {
    None: 0,
    ElectionReason.ISR: 1,
    ElectionReason.ELR: 2,
    ElectionReason.PREFERRED: 3,
    ElectionReason.LAST_KNOWN_LEADER: 4,
    ElectionReason.UNCLEAN_RANDOM: 5,
    ElectionReason.DESIGNATED: 6,
    ElectionReason.LONGEST_LOG: 7,
}
_REASONS = {number: reason for reason, number in _REASON_NUMBERS.items()}


@lru_cache(maxsize=64)  # one event changes thousands of partitions for a few reasons
def _stored(decision: Decision) -> StoredDecision:
    cause = decision.cause
    return StoredDecision(
        cause=cause.kind.value,
        cause_broker=_NOBODY if cause.broker_id is None else cause.broker_id,
        reason=_REASON_NUMBERS[decision.reason],
        sets_rule=decision.sets_rule.value,
        rejected=tuple(number for replica, why in decision.rejected for number in (replica, why.value)),
        logs=tuple(
            ReplicaLogEnd(log.replica, log.last_epoch, log.end_offset, log.flushed_offset, log.high_watermark)
            for log in cause.logs
        ),
        loss_at_most=cause.loss_at_most,
    )


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """A decision and the change that it made."""

    #: offset of its record in the metadata log
    offset: int
    topic_id: bytes
    topic_name: str
    partition_index: int
    before: PartitionRegistration
    after: PartitionRegistration
    decision: Decision


class DecisionRing:
    """The latest DECISIONS_MAX decisions of one active controller; soft state."""

    def __init__(self) -> None:
        self._entries: deque[DecisionEntry] = deque(maxlen=DECISIONS_MAX)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[DecisionEntry]:
        """From the oldest to the newest."""
        return iter(self._entries)

    def __reversed__(self) -> Iterator[DecisionEntry]:
        """From the newest to the oldest."""
        return reversed(self._entries)

    def extend(self, entries: list[DecisionEntry]) -> None:
        """Add entries; the oldest ones are dropped."""
        self._entries.extend(entries)

    def clear(self) -> None:
        """Drop all: another controller decides from now on (K23)."""
        self._entries.clear()
