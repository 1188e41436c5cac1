"""PartitionRegistration: the committed state of one partition, as an immutable value.

Owns how records merge into it, its invariants (KIP-966, "ELR invariants": R9) and its printed form. Decides
nothing: `controller.core.partitions.partition_change` makes the changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.metadata.records import NO_LEADER, RECOVERED, RECOVERING, PartitionChangeRecord, PartitionRecord


def ids_text(ids: Iterable[int]) -> str:
    """`(1,2)`: the printed form of id sets."""
    return "(" + ",".join(map(str, ids)) + ")"


def effective_min_isr(configured: int, replica_count: int) -> int:
    """Effective `min_isr`: the configured value, at most the number of replicas (R109, B7)."""
    assert configured >= 1 and replica_count >= 1
    return min(configured, replica_count)


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """State of one partition (R1). Id sets ascend, `replicas` keeps its order; no leader is `None`."""

    #: assigned ids, the preferred one first; during a reassignment the targets, then the leaving ones
    replicas: tuple[int, ...]
    #: in-sync ids as committed
    isr: tuple[int, ...]
    leader: int | None
    #: grows with each leader decision, also for no leader (R2)
    leader_epoch: int
    #: grows with each record about this partition (R2)
    partition_epoch: int
    #: effective value; controller and leader switch it at the same metadata offset (R109, N-5)
    min_isr: int
    #: outside the ISR, with everything below the high watermark; empty when the ISR reaches min_isr
    elr: tuple[int, ...] = ()
    #: members lost to unclean shutdowns since the ISR last reached min_isr
    last_known_elr: tuple[int, ...] = ()
    #: the leader before the partition became leaderless; None while there is a leader
    last_known_leader: int | None = None
    #: RECOVERED, or RECOVERING after an unclean election
    leader_recovery_state: int = RECOVERED
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    #: the replicas before a reassignment, in order; None without a reassignment (R105)
    original_replicas: tuple[int, ...] | None = None

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "PartitionRegistration":
        """The value of a complete record."""
        return cls(
            replicas=record.replicas,
            isr=record.isr,
            leader=_leader_value(record.leader),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            min_isr=record.min_isr,
            elr=record.elr,
            last_known_elr=record.last_known_elr,
            last_known_leader=_leader_value(record.last_known_leader),
            leader_recovery_state=record.leader_recovery_state,
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            original_replicas=record.original_replicas,
        )

    def to_record(self, topic_id: bytes, partition_index: int) -> PartitionRecord:
        """The record with this complete value."""
        return PartitionRecord(
            topic_id=topic_id,
            partition_index=partition_index,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            elr=self.elr,
            last_known_elr=self.last_known_elr,
            last_known_leader=leader_number(self.last_known_leader),
            leader=leader_number(self.leader),
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            min_isr=self.min_isr,
            original_replicas=self.original_replicas,
        )

    def merge(self, record: PartitionChangeRecord) -> "PartitionRegistration":
        """The next value: fields of the record replace those of this value, epochs grow (R2)."""
        original = self.original_replicas
        if record.original_replicas is not None:
            original = record.original_replicas or None
        last_known_leader = self.last_known_leader
        if record.last_known_leader is not None:
            last_known_leader = _leader_value(record.last_known_leader)
        decided = record.leader is not None
        return PartitionRegistration(
            replicas=_given(record.replicas, self.replicas),
            isr=_given(record.isr, self.isr),
            leader=self.leader if record.leader is None else _leader_value(record.leader),
            leader_epoch=self.leader_epoch + decided,
            partition_epoch=self.partition_epoch + 1,
            min_isr=self.min_isr if record.min_isr is None else record.min_isr,
            elr=_given(record.elr, self.elr),
            last_known_elr=_given(record.last_known_elr, self.last_known_elr),
            last_known_leader=last_known_leader,
            leader_recovery_state=(
                self.leader_recovery_state
                if record.leader_recovery_state is None
                else record.leader_recovery_state
            ),
            adding_replicas=_given(record.adding_replicas, self.adding_replicas),
            removing_replicas=_given(record.removing_replicas, self.removing_replicas),
            original_replicas=original,
        )

    @property
    def is_reassigning(self) -> bool:
        """True during a reassignment."""
        return self.original_replicas is not None

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """`replicas` without the leaving ones: the assignment after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing_replicas)

    @property
    def electable(self) -> tuple[int, ...]:
        """Ids that may lead without loss, ascending (F11)."""
        return self.isr or self.elr

    def broken_invariants(self) -> list[str]:
        """Descriptions of violated invariants; empty for a valid value (R9, I-6)."""
        return [] if self._is_plainly_sound() else self._all_broken_invariants()

    def _is_plainly_sound(self) -> bool:
        """The common case, checked quickly: replay calls this for every record."""
        isr = self.isr
        members = set(self.replicas)
        return (
            not self.last_known_elr
            and self.original_replicas is None
            and not self.adding_replicas
            and not self.removing_replicas
            and self.leader_recovery_state == RECOVERED
            and (self.leader in isr if self.leader is not None else self.last_known_leader in members)
            and (self.leader is None or self.last_known_leader is None)
            and len(members) == len(self.replicas) >= self.min_isr > 0
            and members.issuperset(isr)
            and (len(isr) < 2 or list(isr) == sorted(set(isr)))
            and (not self.elr or (len(isr) < self.min_isr and self._is_plain_elr(members)))
        )

    def _is_plain_elr(self, members: set[int]) -> bool:
        elr = set(self.elr)
        return list(self.elr) == sorted(elr) and members.issuperset(elr) and elr.isdisjoint(self.isr)

    def _all_broken_invariants(self) -> list[str]:
        found: list[str] = []

        def check(holds: bool, sentence: str) -> None:
            if not holds:
                found.append(f"{sentence}: {self}, replicas={ids_text(self.replicas)}")

        replicas = set(self.replicas)
        check(len(replicas) == len(self.replicas) > 0, "replicas must be distinct and at least one")
        for name in ("isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas"):
            ids: tuple[int, ...] = getattr(self, name)
            check(list(ids) == sorted(set(ids)), f"{name} must ascend")
            check(replicas.issuperset(ids), f"{name} must be assigned replicas")
        check(not set(self.isr) & set(self.elr), "isr and elr must be disjoint")
        check(
            not set(self.last_known_elr) & set(self.isr + self.elr),
            "last_known_elr must hold no member of isr or elr",
        )
        at_min = len(self.isr) >= self.min_isr
        check(not (at_min and self.elr), "elr must be empty once isr has reached min_isr")
        check(
            not (at_min and self.last_known_elr), "last_known_elr must be empty once isr has reached min_isr"
        )
        check(self.leader is None or self.leader in self.isr, "the leader must be in isr")
        check(
            self.leader is None or self.last_known_leader is None, "last_known_leader only without a leader"
        )
        check(
            self.last_known_leader is None or self.last_known_leader in replicas,
            "last_known_leader must be assigned",
        )
        check(
            self.leader_recovery_state in (RECOVERED, RECOVERING),
            "leader_recovery_state must be RECOVERED or RECOVERING",
        )
        check(
            self.leader_recovery_state == RECOVERED or len(self.isr) <= 1,
            "a leader that recovers is alone in isr",
        )
        check(self.min_isr >= 1, "min_isr must be at least 1")
        check(self.min_isr <= len(self.original_replicas or self.replicas), "min_isr exceeds the replicas")
        check(
            not set(self.adding_replicas) & set(self.removing_replicas),
            "adding and removing must be disjoint",
        )
        check(
            self.is_reassigning or not (self.adding_replicas or self.removing_replicas),
            "adding and removing only during a reassignment",
        )
        return found

    def diff(self, previous: "PartitionRegistration") -> str:
        """What changed since `previous`, for a log line: `leader 1@0 -> 2@1, isr (1,2) -> (2)`."""
        parts: list[str] = []
        if (self.leader, self.leader_epoch) != (previous.leader, previous.leader_epoch):
            parts.append(f"leader {_leader_text(previous)} -> {_leader_text(self)}")
        for name in ("replicas", "isr", "elr", "last_known_elr"):
            old, new = getattr(previous, name), getattr(self, name)
            if old != new:
                parts.append(f"{name} {ids_text(old)} -> {ids_text(new)}")
        if self.min_isr != previous.min_isr:
            parts.append(f"min_isr {previous.min_isr} -> {self.min_isr}")
        if self.leader_recovery_state != previous.leader_recovery_state:
            parts.append("recovering" if self.leader_recovery_state == RECOVERING else "recovered")
        return ", ".join(parts)

    def __str__(self) -> str:
        """The printed form of the scenario files, without the partition's name."""
        known = "none" if self.last_known_leader is None else self.last_known_leader
        return (
            f"leader={_leader_text(self)} isr={ids_text(self.isr)} elr={ids_text(self.elr)} "
            f"last_known_elr={ids_text(self.last_known_elr)} last_known_leader={known} "
            f"min_isr={self.min_isr} pe={self.partition_epoch}"
            + (" recovering" if self.leader_recovery_state == RECOVERING else "")
            + (f" adding={ids_text(self.adding_replicas)}" if self.adding_replicas else "")
            + (f" removing={ids_text(self.removing_replicas)}" if self.removing_replicas else "")
        )


def leader_number(leader: int | None) -> int:
    """A leader as on the wire: NO_LEADER for None."""
    return NO_LEADER if leader is None else leader


def _leader_value(number: int) -> int | None:
    return None if number == NO_LEADER else number


def _leader_text(registration: PartitionRegistration) -> str:
    leader = "none" if registration.leader is None else registration.leader
    return f"{leader}@{registration.leader_epoch}"


def _given(value: tuple[int, ...] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if value is None else value
