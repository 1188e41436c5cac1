"""Leader election: one decision table for every path that elects (R11, R12).

Owns the order of candidates, and why each replica that was passed over may not lead: recorded while walking
the table, never worked out again later. Looks at sets and activity only, never at logs (R15):
`unclean_recovery` finds the best log and designates its replica. If the table ends without a leader the
partition waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class ElectionMode(Enum):
    """What the caller allows."""

    #: nothing may be lost
    ONLINE = "online"
    #: as ONLINE, then any active replica (`unclean.leader.election.enable`)
    UNCLEAN = "unclean"
    #: the preferred replica before the present leader
    PREFERRED = "preferred"


class ElectionReason(Enum):
    """By which rule a replica was elected; the values are labels of the elections metric."""

    ISR = "isr"
    ELR = "elr"
    PREFERRED = "preferred"
    LAST_KNOWN_LEADER = "last_known_leader"
    UNCLEAN_RANDOM = "unclean_random"
    DESIGNATED = "designated"
    LONGEST_LOG = "longest_log"

    @property
    def is_unclean(self) -> bool:
        """True when the elected log may lack acknowledged records."""
        return self not in (ElectionReason.ISR, ElectionReason.ELR, ElectionReason.PREFERRED)


class Rejection(Enum):
    """Why a replica may not lead without loss. The numbers are in the metadata log and are never reused."""

    FENCED = 1
    IN_CONTROLLED_SHUTDOWN = 2
    UNREGISTERED = 3
    #: the ISR has members, and the replica is none of them
    NOT_IN_ISR = 4
    #: the ISR is empty, and the replica is not in the ELR
    NOT_ELIGIBLE = 5
    #: in the last known ELR: after an unclean shutdown the log may lack its tail
    UNCLEAN_SHUTDOWN = 6
    NOT_ASSIGNED = 7
    #: the broker is registered, but the log dir with the replica failed (R27)
    LOG_DIR_FAILED = 8


#: (replica, why), in the order in which they were considered
Rejections = tuple[tuple[int, Rejection], ...]


@dataclass(frozen=True, slots=True)
class Elected:
    """`leader` becomes or stays leader; the `rejected` replicas come before it and may not lead."""

    leader: int
    reason: ElectionReason
    rejected: Rejections = ()


@dataclass(frozen=True, slots=True)
class NoLeader:
    """No replica may lead now."""

    rejected: Rejections = ()


Election = Elected | NoLeader


@dataclass(frozen=True, slots=True)
class Candidates:
    """Everything that an election considers."""

    #: in order of assignment, which is the order of preference
    replicas: tuple[int, ...]
    #: ISR and ELR after the change under way
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int | None
    last_known_leader: int | None
    #: registered, unfenced, not in controlled shutdown
    is_active: Callable[[int], bool]
    #: why a replica that is not active may not lead
    why_inactive: Callable[[int], Rejection]
    #: with ELR on and the recovery manager off, as in Kafka (D8.8)
    trusts_last_known_leader: bool
    #: (replica, reason): only this replica may be elected (R18)
    designated: tuple[int, ElectionReason] | None = None
    #: last known ELR after the change under way
    last_known_elr: tuple[int, ...] = ()

    def verdict_on(self, replica: int) -> ElectionReason | Rejection:
        """The rule by which the replica may lead without loss, or why it may not (R11)."""
        if replica not in self.replicas:
            return Rejection.NOT_ASSIGNED
        if not self.is_active(replica):
            return self.why_inactive(replica)
        if replica in self.isr:
            return ElectionReason.ISR
        if self.isr:
            return Rejection.NOT_IN_ISR
        if replica in self.elr:
            return ElectionReason.ELR
        return Rejection.UNCLEAN_SHUTDOWN if replica in self.last_known_elr else Rejection.NOT_ELIGIBLE


def elect(candidates: Candidates, mode: ElectionMode) -> Election:
    """Decide by the election order (R12). The last known leader counts for any last known ELR (D8.8)."""
    if candidates.designated is not None:
        return _designated(candidates, *candidates.designated)
    rejected: dict[int, Rejection] = {}
    if mode is ElectionMode.PREFERRED:
        preferred = candidates.replicas[0]
        verdict = candidates.verdict_on(preferred)
        if preferred != candidates.leader and verdict is ElectionReason.ISR:
            return Elected(preferred, ElectionReason.PREFERRED)
        if isinstance(verdict, Rejection):
            rejected[preferred] = verdict
    order = candidates.replicas
    if candidates.leader is not None:
        order = (candidates.leader, *order)
    for replica in order:
        verdict = candidates.verdict_on(replica)
        if isinstance(verdict, ElectionReason):
            return Elected(replica, verdict, tuple(rejected.items()))
        rejected[replica] = verdict
    known = candidates.last_known_leader
    if (
        candidates.trusts_last_known_leader
        and not candidates.isr
        and not candidates.elr
        and known is not None
        and known in candidates.replicas
        and candidates.is_active(known)
    ):
        return Elected(known, ElectionReason.LAST_KNOWN_LEADER, _without(rejected, known))
    if mode is ElectionMode.UNCLEAN:
        for replica in candidates.replicas:
            if candidates.is_active(replica):
                return Elected(replica, ElectionReason.UNCLEAN_RANDOM, _without(rejected, replica))
    return NoLeader(tuple(rejected.items()))


def _designated(candidates: Candidates, replica: int, reason: ElectionReason) -> Election:
    """Elect the designated replica or none (R18); the election is clean if the replica is complete (D8.5)."""
    verdict = candidates.verdict_on(replica)
    if replica not in candidates.replicas or not candidates.is_active(replica):
        assert isinstance(verdict, Rejection)
        return NoLeader(((replica, verdict),))
    return Elected(replica, verdict if isinstance(verdict, ElectionReason) else reason)


def _without(rejected: dict[int, Rejection], elected: int) -> Rejections:
    return tuple((replica, why) for replica, why in rejected.items() if replica != elected)
