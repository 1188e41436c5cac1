"""Events into the controller's core and effects out of it: plain values.

The shell hands in one event at a time and carries out the effects in order; the result of an effect comes
back as an event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.metadata.partition import ids_text
from holdfast.metadata.snapshot import MetadataState
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

    @property
    def timestamp_ms(self) -> int: ...


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A peer's request. `request_id` is given by the shell and comes back in Respond."""

    request_id: int
    connection_id: int
    listener_name: str
    message: Any
    #: of the metadata quorum, as its log names them when the request comes (K30)
    voter_ids: tuple[int, ...] = ()
    #: those of them that are of a build without voters in the log, or may be
    earlier_voters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EntriesCommitted:
    """More entries of the log are committed, in offset order, each delivered once."""

    entries: Sequence[Entry]
    #: end of the committed part, exclusive; control batches are counted but not delivered
    committed_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """The state of a snapshot takes the place of what was committed so far (K14). This node does not lead."""

    state: MetadataState


@dataclass(frozen=True, slots=True)
class LaterSnapshot:
    """A snapshot takes the place of what was committed so far, and a later build wrote it (K29)."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The quorum has another leader or epoch; `leader_id` is None while no leader is known."""

    leader_id: int | None
    raft_epoch: int
    #: own log end at this moment; a new leader becomes active once it has applied everything below (K22)
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class VotersWanted:
    """The quorum's leader, which is this node, has a record of its own to append (K8)."""

    raft_epoch: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection to this node was closed."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Probed:
    """Result of a Probe. Only a refused connection proves something (D9)."""

    broker_id: int
    broker_epoch: int
    attempt: int
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `next_deadline_ms` gave has come, or has passed."""


@dataclass(frozen=True, slots=True)
class LogInfoArrived:
    """A broker's answer about the log of its replica (R62)."""

    broker_id: int
    #: incarnation that answered
    broker_epoch: int
    topic_id: bytes
    partition_index: int
    #: the partition's leader epoch as the broker knows it
    leader_epoch: int
    #: epoch of the last batch in the log: an epoch in metadata proves nothing (R66)
    last_epoch: int
    end_offset: int
    error_code: int
    #: both -1 when not known
    flushed_offset: int = -1
    high_watermark: int = -1
    #: stored upper bound of high watermarks that counted this replica, -1 when not known
    ceiling: int = -1


@dataclass(frozen=True, slots=True)
class LogInfoAnswered:
    """The response to an AskBroker."""

    broker_id: int
    question_id: int
    response: GetReplicaLogInfoResponse


@dataclass(frozen=True, slots=True)
class LogInfoFailed:
    """An AskBroker will get no response."""

    broker_id: int
    question_id: int
    text: str


Event = (
    RequestReceived
    | EntriesCommitted
    | SnapshotLoaded
    | LaterSnapshot
    | LeaderChanged
    | VotersWanted
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
class AppendVoters:
    """Append the quorum's own record, which must get `base_offset`."""

    raft_epoch: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request."""

    request_id: int
    message: Any


@dataclass(frozen=True, slots=True)
class Probe:
    """After `delay_ms` try to connect, close at once if that succeeds, and report as Probed."""

    broker_id: int
    broker_epoch: int
    attempt: int
    delay_ms: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give up the leadership of the quorum."""

    reason: str


@dataclass(frozen=True, slots=True)
class CannotLead:
    """Why this controller does nothing when it leads the quorum, None when it can again (K29)."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class WaitForReplicas:
    """These replicas must be unfenced before any log is asked for."""

    replicas: tuple[int, ...]

    def __str__(self) -> str:
        return f"wait {ids_text(self.replicas)}"


@dataclass(frozen=True, slots=True)
class AskForLogs:
    """Ask these replicas for the ends of their logs, and repeat until they answer (R61)."""

    #: replicas without whose answers nothing is decided
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
    """The recovery is over, or all replicas must be asked again."""

    def __str__(self) -> str:
        return "cancelled"


Statement = WaitForReplicas | AskForLogs | RecoveryElected | RecoveryCancelled


@dataclass(frozen=True, slots=True)
class RecoveryStated:
    """A new statement about the recovery of a partition."""

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


Effect = (
    AppendRecords
    | AppendVoters
    | Respond
    | Probe
    | Resign
    | CannotLead
    | LogLine
    | RecoveryStated
    | AskBroker
)
