"""Who leads: one decision table for every path that elects.

Owns R11-R13 and R18. Looks at sets and activity only, never at logs (R15): who has the best log is found by
`unclean_recovery` and comes in as designated. Where the table ends without a leader the partition waits.
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
    """Why this replica; the values are the labels of the elections metric."""

    ISR = "isr"
    ELR = "elr"
    PREFERRED = "preferred"
    LAST_KNOWN_LEADER = "last_known_leader"
    UNCLEAN_RANDOM = "unclean_random"
    DESIGNATED = "designated"
    LONGEST_LOG = "longest_log"

    @property
    def is_unclean(self) -> bool:
        """The elected log may lack acknowledged records."""
        return self not in (ElectionReason.ISR, ElectionReason.ELR, ElectionReason.PREFERRED)


@dataclass(frozen=True, slots=True)
class Elected:
    """`leader` shall lead, or goes on leading."""

    leader: int
    reason: ElectionReason


@dataclass(frozen=True, slots=True)
class NoLeader:
    """Nobody may lead now."""


Decision = Elected | NoLeader


@dataclass(frozen=True, slots=True)
class Candidates:
    """Everything that an election may look at."""

    #: in order of assignment, which is the order of preference
    replicas: tuple[int, ...]
    #: both after the change under way
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int | None
    last_known_leader: int | None
    #: registered, unfenced, not in controlled shutdown
    is_active: Callable[[int], bool]
    #: Kafka's answer to lost logs (D8 Q8): with ELR on and the recovery manager off
    trusts_last_known_leader: bool
    #: (replica, reason): nobody else may be elected now (R18)
    designated: tuple[int, ElectionReason] | None = None

    def reason_for(self, replica: int) -> ElectionReason | None:
        """Why the replica may lead without loss, or None (R11)."""
        if not self.is_active(replica):
            return None
        if replica in self.isr:
            return ElectionReason.ISR
        if not self.isr and replica in self.elr:
            return ElectionReason.ELR
        return None


def elect(candidates: Candidates, mode: ElectionMode) -> Decision:
    """Decide by R12. The last known leader counts whatever last_known_elr holds (D8 Q8)."""
    if candidates.designated is not None:
        return _designated(candidates, *candidates.designated)
    if mode is ElectionMode.PREFERRED:
        preferred = candidates.replicas[0]
        if preferred != candidates.leader and candidates.reason_for(preferred) is ElectionReason.ISR:
            return Elected(preferred, ElectionReason.PREFERRED)
    order = candidates.replicas
    if candidates.leader is not None:
        order = (candidates.leader, *order)
    for replica in order:
        reason = candidates.reason_for(replica)
        if reason is not None:
            return Elected(replica, reason)
    known = candidates.last_known_leader
    if (
        candidates.trusts_last_known_leader
        and not candidates.isr
        and not candidates.elr
        and known is not None
        and known in candidates.replicas
        and candidates.is_active(known)
    ):
        return Elected(known, ElectionReason.LAST_KNOWN_LEADER)
    if mode is ElectionMode.UNCLEAN:
        for replica in candidates.replicas:
            if candidates.is_active(replica):
                return Elected(replica, ElectionReason.UNCLEAN_RANDOM)
    return NoLeader()


def _designated(candidates: Candidates, replica: int, reason: ElectionReason) -> Decision:
    """The replica or nobody: clean when it is complete (D8 Q5), never another one (R18)."""
    if replica not in candidates.replicas or not candidates.is_active(replica):
        return NoLeader()
    return Elected(replica, candidates.reason_for(replica) or reason)
