"""State of the model: controller, brokers, replicas, messages, and the ghosts that only the checks may read.

Built for speed: ids are small ints, sets of brokers are bitmasks, a log entry is one int (`entry`), so that
logs compare as lists of ints. Owns no rule. Variables are those of the TLA+ modules (KIP-966).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sim.model.checker import Checker
    from holdfast.sim.model.rules import Rules

#: what a broker process does
OFF, STARTING, RUNNING, STOPPING = range(4)
#: what a replica does
NO_ROLE, LEADER, FOLLOWER = range(3)
#: kinds of metadata records: (kind, ...)
PARTITION_RECORD, REGISTER_RECORD, FENCE_RECORD, UNFENCE_RECORD, SHUTDOWN_RECORD, MIN_ISR_RECORD = range(6)
#: kinds of messages: (kind, partition index, ...)
ALTER_REQUEST, ALTER_ANSWER, LOG_INFO = range(3)
#: recovery strategies
AGGRESSIVE, BALANCED, NONE = range(3)
#: why a partition changes
(
    FENCING,
    SHUTDOWN,
    CLEAN_RESTART,
    UNCLEAN_REGISTRATION,
    ALTER_PARTITION,
    UNFENCING,
    REASSIGNMENT,
    MIN_ISR_CHANGE,
    RECOVERY,
    UNCLEAN_PASS,
    PREFERRED,
    DESIGNATION,
    ELR_SWITCH,
    UNREGISTRATION,
) = range(14)
CAUSES = (
    "fencing",
    "controlled shutdown",
    "clean restart",
    "unclean registration",
    "AlterPartition",
    "unfencing",
    "reassignment",
    "min ISR change",
    "unclean recovery",
    "unclean election pass",
    "preferred election",
    "designated election",
    "ELR switched",
    "unregistration",
)
#: how a leader was found
(
    NO_REPLICA,
    FROM_ISR,
    FROM_ELR,
    LAST_KNOWN_LEADER,
    FIRST_ACTIVE,
    LONGEST_LOG,
) = range(6)
KINDS = ("none", "isr", "elr", "last known leader", "first active", "longest log")

NO_EPOCH = -1
#: no clean-shutdown file
NO_FILE = -2
EPOCH_SHIFT = 40


def entry(leader_epoch: int, value: int) -> int:
    """A record in a log. Entries of a sound log rise: epochs never fall, values are handed out ascending."""
    return leader_epoch << EPOCH_SHIFT | value


def ids(mask: int) -> list[int]:
    """Members of a set, ascending."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def mask_of(members: tuple[int, ...]) -> int:
    """The set of these brokers."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


@dataclass(frozen=True, slots=True)
class Setup:
    """What a walk is about. Drawn from its seed, or given."""

    brokers: int = 3
    partitions: int = 2
    replication_factor: int = 3
    min_isr: int = 2
    elr: bool = True
    manager: bool = True
    strategy: int = BALANCED
    #: `unclean.leader.election.enable`, which counts while the manager is off
    unclean_elections: bool = False
    #: every write is flushed before it counts (D6)
    flush_every_write: bool = False
    #: replicas of one partition that may lack records they once held, beyond MinISR - 1; None: none loses
    budget_excess: int | None = 0
    reassigns: bool = True
    changes_min_isr: bool = True

    @property
    def band(self) -> str:
        """Where the walk stands relative to what the protocol promises (G-5)."""
        if self.budget_excess is None:
            return "lossless"
        if self.budget_excess <= 0:
            return "in budget"
        return "edge" if self.budget_excess == 1 else "over budget"


class ModelRecovery:
    """Unclean recovery of one partition: soft state of the active controller (R60)."""

    __slots__ = ("leader_epoch", "partition_epoch", "replies", "timed_out")

    def __init__(self, leader_epoch: int, partition_epoch: int, brokers: int) -> None:
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.timed_out = False
        #: by broker: (broker epoch, last written leader epoch, log end offset)
        self.replies: list[tuple[int, int, int] | None] = [None] * brokers


class PartitionState:
    """What the controller has committed about a partition, and the ghosts about it."""

    __slots__ = (
        "index",
        # committed
        "order",
        "replicas",
        "adding",
        "removing",
        "original",
        "isr",
        "elr",
        "last_known_elr",
        "last_known_leader",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "configured_min_isr",
        "min_isr",
        # soft
        "recovery",
        # ghosts
        "committed",
        "acked",
        "acked_end",
        "consumed_end",
        "values",
        "leaders",
        "lossy",
        "loss_limit",
        "is_over_budget",
        "is_excused",
        "may_have_lost",
        "recovery_quorum_holds",
    )

    def __init__(self, index: int, order: tuple[int, ...], min_isr: int, loss_limit: int) -> None:
        self.index = index
        self.order = order
        self.replicas = mask_of(order)
        self.adding = 0
        self.removing = 0
        #: replicas before a reassignment, in order; None when none runs (R105)
        self.original: tuple[int, ...] | None = None
        self.isr = self.replicas
        self.elr = 0
        self.last_known_elr = 0
        self.last_known_leader = -1
        self.leader = order[0]
        self.leader_epoch = 0
        self.partition_epoch = 0
        self.configured_min_isr = min_isr
        self.min_isr = min(min_isr, len(order))
        self.recovery: ModelRecovery | None = None
        #: entries below the true high watermark, the highest that any leader reached
        self.committed: list[int] = []
        #: {offset: entry} of acknowledged acks=all writes
        self.acked: dict[int, int] = {}
        self.acked_end = 0
        self.consumed_end = 0
        #: N-1: {(leader epoch, offset): entry}, write-once, over all of history
        self.values: dict[tuple[int, int], int] = {}
        #: I-15: {leader epoch: broker}
        self.leaders: dict[int, int] = {}
        #: brokers that lost a record of this partition and were not readmitted to the ISR since
        self.lossy = 0
        #: most members of `lossy` at any instant, by the lowest min ISR that there ever was
        self.loss_limit = loss_limit
        #: more was lost than the protocol promises to survive
        self.is_over_budget = False
        #: what G-4 allows to break may be broken: a possible loss was reported
        self.is_excused = False
        #: elections that were reported as possible loss
        self.may_have_lost = 0
        #: I-14 applies (D14)
        self.recovery_quorum_holds = True


#: the last registration that a replica took: (leader, leader epoch, partition epoch, isr, min isr, replicas)
Registration = tuple[int, int, int, int, int, int]
#: (request id, broker epoch, leader epoch, fetch offset, last epoch, flushed offset, source broker)
FetchRequest = tuple[int, int, int, int, int, int, int]
#: (request id, leader epoch, fetch offset, diverging epoch or -1, its end, entries, high watermark)
FetchAnswer = tuple[int, int, int, int, int, list[int], int]
#: (isr, broker epochs of members by id, leader epoch, partition epoch)
ModelProposal = tuple[int, tuple[int, ...], int, int]


class ModelReplica:
    """One copy of a partition on one broker."""

    __slots__ = (
        "broker",
        "partition",
        # disk
        "log",
        "flushed",
        "durable",
        "flushing_to",
        # view
        "known",
        "role",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "isr",
        "min_isr",
        "high_watermark",
        # leader
        "start_offset",
        "maximal_isr",
        "positions",
        "position_epochs",
        "proposal",
        "proposal_number",
        "waiting",
        # follower
        "request",
        "answer",
        "requests_sent",
        # ghost
        "checked_to",
    )

    def __init__(self, broker: int, partition: int, brokers: int) -> None:
        self.broker = broker
        self.partition = partition
        self.log: list[int] = []
        #: end of what this replica takes for durable
        self.flushed = 0
        #: end of what survives a power loss
        self.durable = 0
        #: log end when the fsync under way began, -1 for none
        self.flushing_to = -1
        #: latest registration in the metadata copy; a role comes of it after catch-up (N-2)
        self.known: Registration | None = None
        self.high_watermark = 0
        #: verified against the committed records up to here
        self.checked_to = 0
        self.requests_sent = 0
        self.forget_role(brokers)

    def forget_role(self, brokers: int) -> None:
        """No view, no role: as after a start."""
        self.role = NO_ROLE
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr = 0
        self.min_isr = 1
        #: first offset of the leader's own epoch
        self.start_offset = 0
        self.maximal_isr = 0
        #: by follower: what its last fetch in this epoch proved, -1 for none (A-5)
        self.positions = [-1] * brokers
        self.position_epochs = [-1] * brokers
        self.proposal: ModelProposal | None = None
        #: of the request that asked for it last; every copy has its own
        self.proposal_number = 0
        #: offsets of acks=all writes that wait for the high watermark, ascending
        self.waiting: list[int] = []
        self.request: FetchRequest | None = None
        self.answer: FetchAnswer | None = None


class ModelBroker:
    """One broker process, its disk and its copy of the metadata."""

    __slots__ = (
        "id",
        "state",
        "starts",
        "epoch",
        "previous_epoch",
        "clean_file",
        "metadata_offset",
        "known_epochs",
        "acceptable",
        "has_caught_up",
        "replicas",
    )

    def __init__(self, broker_id: int, brokers: int, partitions: int) -> None:
        self.id = broker_id
        self.state = OFF
        #: process starts so far: the incarnation id
        self.starts = 0
        #: of the present registration as known here
        self.epoch = NO_EPOCH
        #: read from the clean-shutdown file at start, -1 for none
        self.previous_epoch = NO_EPOCH
        #: broker epoch in the clean-shutdown file, NO_FILE when there is none
        self.clean_file = NO_FILE
        #: replayed so far, exclusive
        self.metadata_offset = 0
        #: registrations as replayed: epochs by broker, and who is unfenced and not shutting down
        self.known_epochs = [NO_EPOCH] * brokers
        self.acceptable = 0
        #: replayed its own registration: takes roles (N-2)
        self.has_caught_up = False
        self.replicas = [ModelReplica(broker_id, index, brokers) for index in range(partitions)]


class ModelWorld:
    """Everything."""

    __slots__ = (
        "setup",
        "rules",
        "checker",
        "brokers",
        "replicas",
        "partitions",
        "broker_count",
        "partition_count",
        # controller
        "metadata",
        "epochs",
        "incarnations",
        "unfenced",
        "stopping",
        "tenure",
        "heard",
        # network
        "messages",
        "held",
        "late",
        # counters
        "last_value",
        "last_request",
        "touched",
        "marks",
        "last_mark",
    )

    def __init__(self, setup: Setup, rules: "Rules", checker: "Checker") -> None:
        n, m = setup.brokers, setup.partitions
        self.setup = setup
        self.rules = rules
        self.checker = checker
        self.broker_count = n
        self.partition_count = m
        self.brokers = [ModelBroker(b, n, m) for b in range(n)]
        #: all replicas, broker by broker
        self.replicas = [replica for broker in self.brokers for replica in broker.replicas]
        limit = setup.min_isr - 1 + (setup.budget_excess or 0)
        self.partitions = [
            PartitionState(
                p,
                tuple((p + i) % n for i in range(setup.replication_factor)),
                setup.min_isr,
                limit,
            )
            for p in range(m)
        ]
        #: the committed metadata log; a registration's offset is the broker epoch (K28)
        self.metadata: list[tuple[int, ...]] = []
        #: the controller's registrations: broker epochs and whether they are unfenced or shutting down
        self.epochs = [NO_EPOCH] * n
        #: the process that is registered: its broker's start counts as its incarnation id
        self.incarnations = [0] * n
        self.unfenced = 0
        self.stopping = 0
        #: counts the controllers that were active; requests say for which they are meant
        self.tenure = 0
        #: {(broker, partition): (broker epoch, number)} of the last proposal heard in this tenure
        self.heard: dict[tuple[int, int], tuple[int, int]] = {}
        #: to and from the controller, in any order
        self.messages: list[tuple[int, ...]] = []
        #: caught in a cut: they arrive much later
        self.held: list[tuple[int, ...]] = []
        #: of fetches that their sender gave up: (replica, request or None, answer or None)
        self.late: list[tuple[ModelReplica, FetchRequest | None, FetchAnswer | None]] = []
        self.last_value = 0
        self.last_request = 0
        #: partitions (bitmask) that the state properties must look at
        self.touched = 0
        #: rare states, counted
        self.marks: dict[str, int] = {}
        #: the last one since the walk last looked, for triggers
        self.last_mark = ""

    @property
    def active(self) -> int:
        """Brokers that may lead and be in an ISR."""
        return self.unfenced & ~self.stopping

    def is_live(self, broker_id: int) -> bool:
        """The process runs in the incarnation that is registered."""
        broker = self.brokers[broker_id]
        return broker.state == RUNNING and broker.epoch == self.epochs[broker_id]

    def mark(self, name: str) -> None:
        """Count a rare state."""
        self.marks[name] = self.marks.get(name, 0) + 1
        self.last_mark = name
