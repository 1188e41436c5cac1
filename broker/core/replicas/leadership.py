"""State that only the leader of a partition has: its followers' progress and the ISR that it has proposed.

`broker.core.replicas.partition` owns the rules. Created anew for each leader epoch (R54).

    proposal  none -> open (an expansion enlarges maximal_isr at once, a shrink does not)
              -> none by a newer registration or by the controller's answer (R44)
"""

from dataclasses import dataclass
from enum import Enum

from holdfast.broker.core.replicas.replica_progress import ReplicaProgress


class AlterVerdict(Enum):
    """What to do after the controller's answer to a proposal (R44)."""

    #: accepted or dropped
    CLOSED = "closed"
    #: the next metadata record decides
    WAIT = "wait"
    RESEND = "resend"


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR proposed in AlterPartition."""

    #: ascending ids
    isr: tuple[int, ...]
    #: {replica: broker epoch}, in the order of `isr`; -1 for the leader itself
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Leadership:
    """State that only a leader has, created anew for each leader epoch (R54)."""

    __slots__ = ("leader_epoch", "start_offset", "progress", "position", "proposal", "maximal_isr")

    def __init__(self, leader_epoch: int, progress: dict[int, ReplicaProgress], isr: tuple[int, ...]) -> None:
        self.leader_epoch = leader_epoch
        #: leader_epoch_start_offset: the log end when the epoch began; None until the log has recorded it
        self.start_offset: int | None = None
        #: {replica_id: progress} of all followers, ascending
        self.progress = progress
        #: the leader's position when the high watermark was last computed
        self.position = -1
        #: the open AlterPartition proposal; at most one (R45)
        self.proposal: Proposal | None = None
        #: committed ISR plus proposed replicas; a proposed shrink does not change it (F3)
        self.maximal_isr: tuple[int, ...] = isr

    @property
    def may_propose(self) -> bool:
        """Another ISR may be proposed: the log has recorded the epoch, and no proposal is open."""
        return self.start_offset is not None and self.proposal is None
