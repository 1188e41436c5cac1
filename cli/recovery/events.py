"""What happens to the mind of `holdfast unclean-recovery`, and what it wants done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.client.core.errors import RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.messages.metadata import DescribeClusterResponse
from holdfast.protocol.messages.topics import DescribedTopic
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.stats import LogLine

# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedTold:
    """How far the metadata log is committed; None when no active controller says it."""

    offset: int | None


@dataclass(frozen=True, slots=True)
class Described:
    """Some node's view of the cluster and of the topics asked for; unknown ones with their error."""

    question_id: int
    cluster: DescribeClusterResponse
    topics: Sequence[DescribedTopic]


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """No node described the cluster."""

    question_id: int
    error: RowError


@dataclass(frozen=True, slots=True)
class LogsTold:
    """A broker answered."""

    question_id: int
    logs: Mapping[TopicPartition, ReplicaLog | RowError]


@dataclass(frozen=True, slots=True)
class LogsNotTold:
    """A broker did not answer, or refused the question as a whole."""

    question_id: int
    error: RowError


@dataclass(frozen=True, slots=True)
class ElectionsAnswered:
    """The controller's rows."""

    outcome: Mapping[TopicPartition, RowError | None]


@dataclass(frozen=True, slots=True)
class ElectionsFailed:
    """The request as a whole was refused, or its outcome is not known."""

    error: RowError


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock has reached `next_deadline_ms`."""


Event = (
    CommittedTold
    | Described
    | NotDescribed
    | LogsTold
    | LogsNotTold
    | ElectionsAnswered
    | ElectionsFailed
    | Tick
)

# --- effects ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCommitted:
    """Ask the active controller how far metadata is committed: CommittedTold."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Describe:
    """Ask for cluster and topics, all for None: Described or NotDescribed."""

    question_id: int
    names: tuple[str, ...] | None
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class AskForLogs:
    """Ask a broker where its logs end: LogsTold or LogsNotTold."""

    question_id: int
    broker_id: int
    address: tuple[str, int]
    topic_ids: Mapping[str, bytes]
    partitions: tuple[TopicPartition, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Elect:
    """Designate these leaders: ElectionsAnswered or ElectionsFailed."""

    leaders: Mapping[TopicPartition, int]
    timeout_ms: int


Effect = FindCommitted | Describe | AskForLogs | Elect | LogLine
