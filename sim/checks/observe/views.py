"""What properties look at: each replica as it is between two steps, the truth that no node has, and changes.

Owns the values and the empty property that listens to nothing. Reads nothing, decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.broker.core.events import AnswerFetch, ReadRow
from holdfast.broker.core.replicas.leadership import Leadership, Proposal
from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.client.producer import Producer
from holdfast.controller.core.decisions import CauseKind, Decision, DecisionEntry
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import MetadataRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, BrokerRegistrationRequest
from holdfast.protocol.messages.elect_leaders import ElectLeadersRequest
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.raft.core.member import Snapshot
from holdfast.sim.checks.observe.batches import BatchHistory, BatchMark
from holdfast.sim.cluster.nodes import SimBroker, SimController, SimNode
from holdfast.sim.load.clients import Polled
from holdfast.sim.load.invalid_requests import InvalidRequest
from holdfast.sim.load.operators import Act
from holdfast.sim.load.single_node_client import Answer
from holdfast.sim.machine.loop import Process
from holdfast.storage.log import Log

if TYPE_CHECKING:
    from holdfast.sim.checks.observe.observer import Observer
    from holdfast.sim.checks.observe.taps import Judged, Late, Support

#: Causes by which a broker counts as gone before its own record says so (R20, F26).
DEPARTURES = (
    CauseKind.SESSION_ENDED,
    CauseKind.CONNECTION_REFUSED,
    CauseKind.FENCING_ASKED,
    CauseKind.SHUTDOWN_COMPLETED,
    CauseKind.CONTROLLED_SHUTDOWN,
    CauseKind.CLEAN_RESTART,
    CauseKind.UNCLEAN_REGISTRATION,
    CauseKind.UNREGISTRATION,
    CauseKind.LOG_DIR_FAILED,
)


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

    def is_active(self, broker_id: int) -> bool:
        """It may lead, as the decision saw it: a broker that leaves by this change may not."""
        cause = self.decision.cause
        is_leaving = cause.broker_id == broker_id and cause.kind in DEPARTURES
        return not is_leaving and may_lead(self.image, broker_id, self.key)

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


#: The number of each partition without load.
NO_PLACE = -1


class Property:
    """One property, by its name in the specifications. Hears of what it overrides, the rest costs nothing."""

    name: ClassVar[str] = ""
    #: a property about loss: beyond the fault budget it may break, and is counted (G-4)
    is_about_loss: ClassVar[bool] = False
    #: about copies wherever they are: it breaks before anybody is elected who may lack them
    is_about_copies: ClassVar[bool] = False
    #: `partition_changed` looks at the change alone, so it is told of topics without load, too (NO_PLACE)
    judges_rows: ClassVar[bool] = False

    # --- brokers ---------------------------------------------------------------------------------------

    def replica_loaded(self, seen: "Observer", view: ReplicaView, prior: ReplicaView | None) -> None:
        """A process has opened the log; `prior` is the replica as the last process of this broker left it."""

    def replica_changed(
        self, seen: "Observer", view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        """After a step that changed a replica; also after `replica_loaded`."""

    def acknowledged(self, seen: "Observer", view: ReplicaView, base_offset: int, leader_epoch: int) -> None:
        """The broker has told a producer with acks=all that its batch is in the log."""

    def acknowledged_by_leader(
        self, seen: "Observer", view: ReplicaView, base_offset: int, leader_epoch: int
    ) -> None:
        """The same with acks=1."""

    def write_refused(self, seen: "Observer", view: ReplicaView, acks: int, error: ErrorCode) -> None:
        """The broker has told a producer that waits for an answer that its batch is not, or may not be, in
        the log."""

    def told_late(self, seen: "Observer", view: ReplicaView, late: "Late") -> None:
        """The broker has told a producer with acks=all that its batch was not committed in time."""

    def write_dropped(self, seen: "Observer", broker: SimBroker, why: str) -> None:
        """A broker has ended a write with acks=0 as it should not."""

    def shown(self, seen: "Observer", view: ReplicaView, row: ReadRow) -> None:
        """The broker answers a consumer's fetch."""

    def consumer_answered(
        self, seen: "Observer", broker: SimBroker, asked: AnswerFetch, told: FetchResponse
    ) -> None:
        """A broker has answered a consumer's fetch, with what it has read by then."""

    def broker_ends(self, seen: "Observer", broker: SimBroker) -> None:
        """Its process is about to end, by itself or not."""

    def broker_stepped(self, seen: "Observer", broker: SimBroker) -> None:
        """After each step of a broker that stops."""

    def heartbeat_sent(
        self,
        seen: "Observer",
        broker: SimBroker,
        request: BrokerHeartbeatRequest,
        offline: Sequence[PartitionId],
    ) -> None:
        """The broker tells the active controller that it lives. `offline`: its replicas in failed dirs."""

    def ceiling_stored(self, seen: "Observer", view: ReplicaView, ceiling: int) -> None:
        """What the replica promises not to be counted above has reached its disk (R68)."""

    def proposal_answered(
        self, seen: "Observer", view: ReplicaView, proposal: Proposal, error_code: int, is_open: bool
    ) -> None:
        """A leader's open proposal was answered, and the leader has taken that in. `is_open`: still."""

    def batch_judged(self, seen: "Observer", view: ReplicaView, judged: "Judged") -> None:
        """The leader's log takes a batch of an idempotent producer for a repetition, or refuses it."""

    def producer_id_given(
        self,
        seen: "Observer",
        broker: SimBroker,
        asked: InitProducerIdRequest,
        given: InitProducerIdResponse,
    ) -> None:
        """A producer is told of its id and epoch."""

    def broker_called(self, seen: "Observer", broker: SimBroker) -> None:
        """After each step in which a broker's core took something in, and after what it has changed."""

    def follower_fetched(self, seen: "Observer", view: ReplicaView, progress: ReplicaProgress) -> None:
        """A leader has taken in what a follower's fetch says of one partition."""

    # --- the quorum ------------------------------------------------------------------------------------

    def partition_changed(self, seen: "Observer", index: int, change: Change) -> None:
        """A record about a partition was committed."""

    def record_committed(
        self, seen: "Observer", offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        """Any record was committed."""

    def metadata_committed(self, seen: "Observer") -> None:
        """An atomic batch of records was committed."""

    def image_followed(self, seen: "Observer", node: SimNode, image: MetadataImage) -> None:
        """A node has replayed further records."""

    def proposal_handled(
        self, seen: "Observer", request: AlterPartitionRequest, before: MetadataImage, after: MetadataImage
    ) -> None:
        """The active controller has taken an AlterPartition request in."""

    def registration_handled(
        self,
        seen: "Observer",
        request: BrokerRegistrationRequest,
        before: MetadataImage,
        after: MetadataImage,
    ) -> None:
        """The active controller has taken a registration in."""

    def operators_refused(self, seen: "Observer", request: Any, response: Any, before: MetadataImage) -> None:
        """The active controller has answered a move or an election at once: nothing of it is granted.
        `before`: what it was judged by."""

    def elections_asked_for(
        self, seen: "Observer", request: ElectLeadersRequest, made: Sequence[DecisionEntry]
    ) -> None:
        """The active controller has taken in what operators want to be elected. `made`: what it has decided
        by that."""

    def controller_warned(self, seen: "Observer", node: SimController, lines: Sequence[str]) -> None:
        """An active controller has told of elections that may lose records."""

    def voter_changed(self, seen: "Observer", node: SimController, voter: Snapshot) -> None:
        """After a step of a voter that changed its epoch, role, or what it knows to be committed."""

    def support_given(self, seen: "Observer", node: SimController, support: "Support") -> None:
        """A voter has granted a vote or a pre-vote."""

    # --- clients ---------------------------------------------------------------------------------------

    def producer_stepped(self, seen: "Observer", producer: Producer) -> None:
        """After a step of some producer; not after each of them."""

    def consumed(self, seen: "Observer", polled: Polled) -> None:
        """A consumer was given a record."""

    def node_answered(self, seen: "Observer", answer: Answer) -> None:
        """The client that asks each node alone has heard from one."""

    def intruded(self, seen: "Observer", intrusion: InvalidRequest) -> None:
        """Something that no correct peer sends was answered."""

    def act_succeeded(self, seen: "Observer", name: str, act: Act) -> None:
        """Operators were told that what they have asked for is done."""
