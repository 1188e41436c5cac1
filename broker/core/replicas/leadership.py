"""What only the leader of a partition has: how far its followers are and the ISR that it has asked for.

Owns no rule (`broker.core.replicas.partition` does). Made anew for each leader epoch (R54).

    proposal  none -> open (expand grows maximal_isr at once, shrink leaves it)
              -> none by a newer registration or R44
"""

from dataclasses import dataclass
from enum import Enum

from holdfast.broker.core.replicas.replica_progress import ReplicaProgress


class AlterVerdict(Enum):
    """What to do after the answer to a proposal (R44)."""

    #: accepted, or dropped
    CLOSED = "closed"
    #: metadata will tell
    WAIT = "wait"
    RESEND = "resend"


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR asked for in AlterPartition."""

    #: ascending ids
    isr: tuple[int, ...]
    #: {replica: broker epoch}, in the order of `isr`; -1 for the leader itself
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Leadership:
    """State that only a leader has; made anew for each leader epoch (R54)."""

    __slots__ = ("leader_epoch", "start_offset", "progress", "position", "proposal", "maximal_isr")

    def __init__(self, leader_epoch: int, progress: dict[int, ReplicaProgress], isr: tuple[int, ...]) -> None:
        self.leader_epoch = leader_epoch
        #: leader_epoch_start_offset: the log end when the epoch began; None until the log has taken the epoch
        self.start_offset: int | None = None
        #: {replica_id: progress} of all followers, ascending
        self.progress = progress
        #: own end as counted for the high watermark when last looked at
        self.position = -1
        #: the AlterPartition proposal under way; at most one (R45)
        self.proposal: Proposal | None = None
        #: committed ISR plus replicas asked for; a proposed shrink does not change it (F3)
        self.maximal_isr: tuple[int, ...] = isr
