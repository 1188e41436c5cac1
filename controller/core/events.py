"""What reaches the controller's core and what it asks its shell to do.

Plain values. The shell hands events in one at a time and carries the effects out in order; the result of an
effect comes back as an event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.metadata.partition import ids_text
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse
from holdfast.runtime.stats import LogLine


class Entry(Protocol):
    """One record of the metadata log, as raft delivers it."""

    @property
    def offset(self) -> int: ...

    @property
    def raft_epoch(self) -> int: ...

    @property
    def value(self) -> bytes: ...


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of a peer. `request_id` is the shell's and comes back in Respond."""

    request_id: int
    connection_id: int
    listener_name: str
    message: Any


@dataclass(frozen=True, slots=True)
class EntriesCommitted:
    """Further entries of the log are committed, in offset order, each delivered once."""

    entries: Sequence[Entry]
    #: end of the committed part, exclusive; control batches count but are no entries
    committed_offset: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The quorum has another leader or epoch; `leader_id` is None while nobody is known to lead."""

    leader_id: int | None
    raft_epoch: int
    #: own log end at this moment; a new leader claims once everything below it is committed and applied (K22)
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection to this node is gone."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Probed:
    """Result of a Probe. Only a refusal is evidence, whatever else happened is not (D9)."""

    broker_id: int
    broker_epoch: int
    attempt: int
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """The moment of `next_deadline_ms` has come, or has passed."""


@dataclass(frozen=True, slots=True)
class LogInfoArrived:
    """A broker answered about the log of its replica (R62)."""

    broker_id: int
    #: incarnation that answered
    broker_epoch: int
    topic_id: bytes
    partition_index: int
    #: of the partition, as the broker knows it
    leader_epoch: int
    #: of the last batch in the log: a metadata epoch proves nothing (R66)
    last_epoch: int
    end_offset: int
    error_code: int
    #: both -1 when not known
    flushed_offset: int = -1
    high_watermark: int = -1
    #: no high watermark that counted this replica was above, -1 when not known
    ceiling: int = -1


@dataclass(frozen=True, slots=True)
class LogInfoAnswered:
    """The response to an AskBroker."""

    broker_id: int
    question_id: int
    response: GetReplicaLogInfoResponse


@dataclass(frozen=True, slots=True)
class LogInfoFailed:
    """There will be no response to an AskBroker."""

    broker_id: int
    question_id: int
    text: str


Event = (
    RequestReceived
    | EntriesCommitted
    | LeaderChanged
    | ConnectionClosed
    | Probed
    | Tick
    | LogInfoArrived
    | LogInfoAnswered
    | LogInfoFailed
)


# --- effects ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the values as one atomic batch; the first one must get `base_offset`."""

    values: tuple[bytes, ...]
    raft_epoch: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request."""

    request_id: int
    message: Any


@dataclass(frozen=True, slots=True)
class Probe:
    """After `delay_ms` try to connect, close at once if somebody answers, and report as Probed."""

    broker_id: int
    broker_epoch: int
    attempt: int
    delay_ms: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give the leadership of the quorum up."""

    reason: str


@dataclass(frozen=True, slots=True)
class WaitForReplicas:
    """These must be unfenced before any log is asked for."""

    replicas: tuple[int, ...]

    def __str__(self) -> str:
        return f"wait {ids_text(self.replicas)}"


@dataclass(frozen=True, slots=True)
class AskForLogs:
    """These replicas are to be asked for the ends of their logs, and again until they answer (R61)."""

    #: nothing is decided without their answers
    must: tuple[int, ...]
    others: tuple[int, ...]

    def __str__(self) -> str:
        return f"ask {ids_text(self.must)} also {ids_text(self.others)}"


@dataclass(frozen=True, slots=True)
class RecoveryElected:
    """The replica with the best log leads."""

    leader: int

    def __str__(self) -> str:
        return f"elected {self.leader}"


@dataclass(frozen=True, slots=True)
class RecoveryCancelled:
    """Nobody needs to be asked any more, or all must be asked anew."""

    def __str__(self) -> str:
        return "cancelled"


Statement = WaitForReplicas | AskForLogs | RecoveryElected | RecoveryCancelled


@dataclass(frozen=True, slots=True)
class RecoveryStated:
    """What is true now about the recovery of a partition, when it is new."""

    topic_name: str
    topic_id: bytes
    partition_index: int
    statement: Statement

    def __str__(self) -> str:
        return f"{self.topic_name}-{self.partition_index} recovery: {self.statement}"


@dataclass(frozen=True, slots=True)
class AskBroker:
    """Ask a broker for its logs; LogInfoAnswered or LogInfoFailed comes back."""

    broker_id: int
    question_id: int
    host: str
    port: int
    request: GetReplicaLogInfoRequest
    timeout_ms: int


Effect = AppendRecords | Respond | Probe | Resign | LogLine | RecoveryStated | AskBroker
