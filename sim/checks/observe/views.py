"""What properties look at: each replica as it is between two steps, the truth that no node has, and changes.

Owns the values. Reads nothing, decides nothing.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from holdfast.broker.core.events import AppendResult
from holdfast.broker.core.replicas.leadership import Leadership, Proposal
from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.controller.core.decisions import CauseKind, Decision
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.record_batch import BatchHeader
from holdfast.sim.checks.observe.batches import BatchHistory, BatchMark
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.machine.loop import Process
from holdfast.storage.core.producer_state import KeptBatch
from holdfast.storage.log import Log


def may_lead(image: MetadataImage, broker_id: int, key: PartitionId) -> bool:
    """The broker is registered, neither fenced nor leaving, and the replica's log dir has not failed. Worked
    out here once more: what is checked must not be asked."""
    broker = image.brokers.get(broker_id)
    return (
        broker is not None
        and not broker.is_fenced
        and not broker.in_controlled_shutdown
        and key not in broker.offline_replicas
    )


def configured(image: MetadataImage, topic_name: str, key: str) -> str | None:
    """What is configured of a topic, or of the whole cluster; None: what the files of the nodes say. Worked
    out here, as nodes do not."""
    for place in ((RESOURCE_TOPIC, topic_name), CLUSTER_RESOURCE):
        text = image.configs[place].get(key) if place in image.configs else None
        if text is not None:
            return text
    return None


@dataclass(slots=True)
class ReplicaView:
    """A broker's replica as it is after a step; of a process that has ended, as it was then."""

    broker: SimBroker
    process: Process
    index: int
    replica: Partition
    log: Log
    history: BatchHistory
    #: of the process
    incarnation_id: bytes
    registration: PartitionRegistration | None = None
    leadership: Leadership | None = None
    role: Role = Role.NONE
    high_watermark: int = 0
    end_offset: int = 0
    flushed_offset: int = 0
    maximal_isr: tuple[int, ...] = ()
    proposal: Proposal | None = None
    #: batches that were compared with the committed ones
    compared: int = 0
    #: None while the process runs; then the end of what is surely still there
    survives: int | None = None
    #: the leader epoch in which it was decided to cut its log, the last time
    cut_in: int = -1
    #: its process, or its log dir, has ended inside of a truncation, whose tail may come back
    is_cut_under_way: bool = False
    #: the process has ended by itself, after a clean stop
    ended_cleanly: bool = False
    #: so had the process before this one, or there was none, and all of its log was still there
    follows_clean_stop: bool = True

    @property
    def position(self) -> int:
        """Its end as counted for the high watermark (D6)."""
        return self.flushed_offset if self.replica.counts_flushed else self.end_offset


@dataclass(slots=True)
class Before:
    """What a replica was like before the step; what properties of pairs compare with."""

    registration: PartitionRegistration | None
    leadership: Leadership | None
    role: Role
    high_watermark: int
    end_offset: int
    flushed_offset: int
    proposal: Proposal | None


@dataclass(slots=True)
class Ghost:
    """What is true of a partition, known to its replicas or not."""

    #: the highest high watermark that any leader reached
    high_watermark: int = 0
    #: batches below it
    committed: list[BatchMark] = field(default_factory=list)
    row: PartitionRegistration | None = None
    #: end of what was acknowledged with acks=all, and of what a consumer got
    acknowledged: int = 0
    consumed: int = 0
    #: how a replica was elected that may have lacked committed records; None: never
    unclean: str | None = None
    #: a new process has found less in a log than its predecessor had
    has_lost_tail: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A committed record about a partition that was there before."""

    offset: int
    before: PartitionRegistration
    after: PartitionRegistration
    decision: Decision
    #: the cluster before this record
    image: MetadataImage
    key: PartitionId

    @property
    def unclean(self) -> tuple[int, ...]:
        """Who may have lost its tail by this change."""
        cause = self.decision.cause
        is_unclean = cause.kind in (CauseKind.UNCLEAN_REGISTRATION, CauseKind.LOG_DIR_FAILED)
        if is_unclean and cause.broker_id is not None:
            return (cause.broker_id,)
        return ()

    @property
    def is_unclean_election(self) -> bool:
        reason = self.decision.reason
        return reason is not None and reason.is_unclean


class Judged(NamedTuple):
    """A batch that was taken for a repetition, or refused, and what was known of its producer then: by the
    end of the step the next one may be in the log, or the producer be forgotten."""

    header: BatchHeader
    result: AppendResult
    #: (its epoch, its last batches), None when it was not known
    known: tuple[int, tuple[KeptBatch, ...]] | None


class Support(NamedTuple):
    """A vote, or a pre-vote, that a voter has granted, and what it was when it was asked."""

    candidate_id: int
    #: that it was asked in
    raft_epoch: int
    is_pre_vote: bool
    #: it leads itself
    is_leader: bool
    #: since the leader of that epoch answered a fetch; None when it has not, or a request has failed since
    silent_ms: int | None
    #: after so long it need not wait any longer
    fetch_timeout_ms: int
    #: the log of the candidate ends before its own
    is_log_shorter: bool


#: The number of each partition without load.
NO_PLACE = -1


class Property:
    """One property, by its name in the specifications. It hears of the facts that it has methods for."""

    name: ClassVar[str] = ""
    #: a property about loss: beyond the fault budget it may break, and is counted (G-4)
    is_about_loss: ClassVar[bool] = False
    #: about copies wherever they are: it breaks before anybody is elected who may lack them
    is_about_copies: ClassVar[bool] = False
    #: `partition_changed` looks at the change alone, so it is told of topics without load, too (NO_PLACE)
    judges_rows: ClassVar[bool] = False
